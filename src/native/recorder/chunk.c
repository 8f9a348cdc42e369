/* A chunk: a thread writes records to it until it is full, and they are read from it later. */

#include "recorder/native.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define SMALLEST_CHUNK_BYTES (64 << 10)

static PyTypeObject *chunk_type;

static void charge(Chunk *chunk, int64_t bytes)
{
    chunk->store->used_bytes += bytes - chunk->charged_bytes;
    chunk->charged_bytes = bytes;
}

static int create(Chunk *chunk, size_t bytes, int in_background)
{
    int error;
    if (!in_background) return region_create(chunk->store, &chunk->region, bytes, "chunk");
    Py_BEGIN_ALLOW_THREADS
    error = region_create(chunk->store, &chunk->region, bytes, "chunk");
    if (error == 0) region_touch(&chunk->region);
    Py_END_ALLOW_THREADS
    return error;
}

/* Makes a file for the chunk, in the background a smaller one where the disk has no space for a
 * large one. Returns 0 or an errno. */
static int create_file(Chunk *chunk, size_t bytes, int in_background)
{
    int error = create(chunk, bytes, in_background);
    while (error != 0 && is_lack_of_space(error) && in_background && bytes > SMALLEST_CHUNK_BYTES) {
        bytes /= 2;
        error = create(chunk, bytes, in_background);
    }
    if (error == 0) charge(chunk, (int64_t)bytes);
    return error;
}

Chunk *chunk_new(Store *store, size_t bytes, int in_background)
{
    if (store->used_bytes + store->spent_bytes + (int64_t)bytes > store->limit_bytes) return NULL;
    Chunk *chunk = object_new(chunk_type);
    if (chunk == NULL) {
        PyErr_Clear();
        return NULL;
    }
    chunk->store = store_keep(store);
    charge(chunk, (int64_t)bytes);
    chunk->region.file = store_has_files(store) ? ++store->num_files : 0;
    int error = chunk->region.file != 0 ? create_file(chunk, bytes, in_background) : -1;
    if (error > 0) {
        store_give_up(store, error);
        chunk->region.file = 0;
    }
    if (chunk->region.file == 0) error = create(chunk, bytes, in_background);
    if (error != 0) {
        Py_DECREF((PyObject *)chunk);
        return NULL;
    }
    return chunk;
}

Record *chunk_begin(Chunk *chunk, const Track *track, uint32_t window, uint32_t sequence,
                    Record **end)
{
    ChunkHeader *header = chunk->region.start;
    uint32_t num_records = (uint32_t)((chunk->region.bytes - sizeof *header) / sizeof(Record));
    chunk->header = (ChunkHeader){
        .magic = CHUNK_MAGIC,
        .version = FORMAT_VERSION,
        .pid = (uint32_t)chunk->store->pid,
        .window = window,
        .sequence = sequence,
        .num_records = num_records,
        .rank = chunk->store->rank,
        .monotonic_ns = read_clock(CLOCK_MONOTONIC),
        .unix_ns = read_clock(CLOCK_REALTIME),
    };
    *header = chunk->header;
    shared_store(&chunk->header.track, track->number);
    shared_store(&header->track, track->number);
    Record *first = (Record *)(header + 1);
    *end = first + num_records;
    return first;
}

/* -- many chunks at once, since taking the GIL for each would be slow -- */

typedef struct {
    Chunk *chunk;
    Region region;
    Store *store;
} Taken;

/* Takes the regions of those chunks that have no exported buffer, each region once. `count` gets
 * their number. NULL with an error set. */
static Taken *take_regions(PyObject *chunks, Py_ssize_t *count)
{
    if (!PyList_Check(chunks))
        return (Taken *)PyErr_Format(PyExc_TypeError, "A list of chunks is needed, not %R.",
                                     chunks);
    Py_ssize_t length = PyList_Size(chunks), num_taken = 0;
    Taken *taken = malloc(((size_t)length + 1) * sizeof *taken);
    if (taken == NULL) return (Taken *)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < length; i++) {
        Chunk *chunk = (Chunk *)PyList_GetItem(chunks, i);
        if (Py_TYPE((PyObject *)chunk) != chunk_type || chunk->num_exports > 0 ||
            chunk->region.bytes == 0 || chunk->is_taken)
            continue;
        taken[num_taken++] = (Taken){chunk, chunk->region, store_keep(chunk->store)};
        Py_INCREF((PyObject *)chunk);
        chunk->is_taken = 1;
        if (chunk->region.file != 0) chunk->region.start = NULL;
    }
    *count = num_taken;
    return taken;
}

static void release_taken(Taken *taken, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        taken[i].chunk->is_taken = 0;
        store_drop(taken[i].store);
        Py_DECREF((PyObject *)taken[i].chunk);
    }
    free(taken);
}

static size_t used_bytes(const Chunk *chunk)
{
    return sizeof(ChunkHeader) + chunk->num_records * sizeof(Record);
}

PyObject *seal_chunks(PyObject *Py_UNUSED(module), PyObject *chunks)
{
    Py_ssize_t count;
    Taken *taken = take_regions(chunks, &count);
    if (taken == NULL) return NULL;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < count; i++) {
        if (taken[i].region.file != 0) region_unmap(&taken[i].region);
        region_trim(taken[i].store, &taken[i].region, used_bytes(taken[i].chunk), "chunk");
    }
    Py_END_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < count; i++) {
        Chunk *chunk = taken[i].chunk;
        chunk->is_sealed = 1;
        charge(chunk, (int64_t)taken[i].region.bytes);
        /* else another call mapped it again meanwhile */
        if (chunk->region.start == NULL || chunk->region.file == 0)
            chunk->region.bytes = taken[i].region.bytes;
    }
    release_taken(taken, count);
    return new_none();
}

PyObject *discard_chunks(PyObject *Py_UNUSED(module), PyObject *chunks)
{
    Py_ssize_t count;
    Taken *taken = take_regions(chunks, &count);
    if (taken == NULL) return NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        charge(taken[i].chunk, 0);
        taken[i].chunk->region = (Region){NULL, 0, 0};
        taken[i].chunk->is_discarded = 1;
    }
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < count; i++) {
        region_unmap(&taken[i].region);
        region_unlink(taken[i].store, &taken[i].region, "chunk");
    }
    Py_END_ALLOW_THREADS
    release_taken(taken, count);
    return new_none();
}

/* Maps the records of a file, if they are not mapped; no more, because another thread may be
 * freeing the unused space without the GIL. Returns -1 with an error set. */
static int map_records(Chunk *chunk)
{
    if (chunk->region.file == 0 || chunk->region.start != NULL) return 0;
    chunk->region.bytes = used_bytes(chunk);
    errno = region_map_again(chunk->store, &chunk->region, "chunk");
    if (errno == 0) return 0;
    PyErr_SetFromErrno(PyExc_OSError);
    return -1;
}

static PyObject *chunk_leave_file(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    Chunk *chunk = (Chunk *)self;
    if (map_records(chunk) < 0) return NULL;
    region_unlink(chunk->store, &chunk->region, "chunk");
    chunk->region.file = 0;
    charge(chunk, 0);
    return new_none();
}

static int chunk_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
    Chunk *chunk = (Chunk *)self;
    view->obj = NULL;
    if (chunk->is_discarded) {
        PyErr_SetString(PyExc_BufferError, "The records of this chunk were put elsewhere.");
        return -1;
    }
    if (map_records(chunk) < 0) return -1;
    void *records = (char *)chunk->region.start + sizeof(ChunkHeader);
    Py_ssize_t bytes = (Py_ssize_t)(chunk->num_records * sizeof(Record));
    if (PyBuffer_FillInfo(view, self, records, bytes, 1, flags) < 0) return -1;
    chunk->num_exports++;
    return 0;
}

static void chunk_releasebuffer(PyObject *self, Py_buffer *Py_UNUSED(view))
{
    Chunk *chunk = (Chunk *)self;
    if (--chunk->num_exports == 0 && chunk->is_sealed && chunk->region.file != 0)
        region_unmap(&chunk->region);
}

static Py_ssize_t chunk_length(PyObject *self)
{
    return (Py_ssize_t)((Chunk *)self)->num_records;
}

static void chunk_dealloc(PyObject *self)
{
    Chunk *chunk = (Chunk *)self;
    charge(chunk, 0);
    region_unmap(&chunk->region);
    region_unlink_unless_left(chunk->store, &chunk->region, "chunk");
    store_drop(chunk->store);
    object_free(self);
}

static PyMethodDef chunk_methods[] = {
    {"leave_file", chunk_leave_file, METH_NOARGS,
     "Deletes its file; the records can be read all the same."},
    {NULL, NULL, 0, NULL},
};

static PyObject *chunk_header(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBytes_FromStringAndSize((const char *)&((Chunk *)self)->header, sizeof(ChunkHeader));
}

static PyObject *chunk_has_file(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(((Chunk *)self)->region.file != 0);
}

static PyGetSetDef chunk_properties[] = {
    {"header", chunk_header, NULL, "The bytes before its records.", NULL},
    {"has_file", chunk_has_file, NULL, "Whether it is in a file, and not in memory only.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef chunk_members[] = {
    {"num_marks", T_UINT, offsetof(Chunk, num_marks), READONLY,
     "How many threads have written to it."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot chunk_slots[] = {
    {Py_tp_methods, chunk_methods},
    {Py_tp_members, chunk_members},
    {Py_tp_getset, chunk_properties},
    {Py_tp_dealloc, chunk_dealloc},
    {Py_tp_doc,
     "Records, and marks of their threads: a buffer. Its file is deleted with the object."},
    {Py_sq_length, chunk_length},
    {Py_bf_getbuffer, chunk_getbuffer},
    {Py_bf_releasebuffer, chunk_releasebuffer},
    {0, NULL},
};

int chunk_setup(PyObject *module)
{
    return add_type(module, "kinetoscope._native.Chunk", sizeof(Chunk),
                    Py_TPFLAGS_DISALLOW_INSTANTIATION, chunk_slots, &chunk_type);
}
