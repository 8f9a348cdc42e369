/* A chunk: where one thread's records go until it is full, and where they are read from afterwards. */

#include "native.h"

#include <errno.h>
#include <string.h>

PyTypeObject *chunk_type;

static void charge(Chunk *chunk, int64_t bytes)
{
    chunk->store->used_bytes += bytes - chunk->charged_bytes;
    chunk->charged_bytes = bytes;
}

static int create(Chunk *chunk, size_t bytes, int in_background)
{
    int error;
    if (!in_background)
        return region_create(chunk->store, &chunk->region, bytes, "chunk");
    Py_BEGIN_ALLOW_THREADS
    error = region_create(chunk->store, &chunk->region, bytes, "chunk");
    if (error == 0)
        region_touch(&chunk->region);
    Py_END_ALLOW_THREADS
    return error;
}

Chunk *chunk_new(Store *store, size_t bytes, int in_background)
{
    if (store->used_bytes + store->spent_bytes + (int64_t)bytes > store->limit_bytes)
        return NULL;
    Chunk *chunk = PyObject_New(Chunk, chunk_type);
    if (chunk == NULL) {
        PyErr_Clear();
        return NULL;
    }
    memset((char *)chunk + sizeof(PyObject), 0, sizeof *chunk - sizeof(PyObject));
    chunk->store = store_keep(store);
    charge(chunk, (int64_t)bytes);
    chunk->region.file = store->folder != NULL && store->error == 0 ? ++store->num_files : 0;
    int error = create(chunk, bytes, in_background);
    if (error != 0 && chunk->region.file != 0) {
        store->error = error;
        chunk->region.file = 0;
        error = create(chunk, bytes, in_background);
    }
    if (error != 0) {
        Py_DECREF((PyObject *)chunk);
        return NULL;
    }
    return chunk;
}

Record *chunk_begin(Chunk *chunk, uint32_t track, uint32_t window, uint32_t sequence, Record **end)
{
    ChunkHeader *header = chunk->region.start;
    uint32_t num_records = (uint32_t)((chunk->region.bytes - sizeof *header) / sizeof(Record));
    memcpy(header->magic, CHUNK_MAGIC, sizeof header->magic);
    header->version = FORMAT_VERSION;
    header->pid = (uint32_t)chunk->store->pid;
    header->window = window;
    header->sequence = sequence;
    header->num_records = num_records;
    __atomic_store_n(&header->track, track, __ATOMIC_RELEASE);
    Record *first = (Record *)(header + 1);
    *end = first + num_records;
    return first;
}

void chunk_seal(Chunk *chunk)
{
    if (chunk->is_sealed || chunk->num_exports > 0)
        return;
    chunk->is_sealed = 1;
    size_t used = sizeof(ChunkHeader) + chunk->num_records * sizeof(Record);
    Region mapped = chunk->region;
    if (mapped.file != 0)
        chunk->region.start = NULL;
    Py_BEGIN_ALLOW_THREADS
    if (mapped.file != 0)
        region_unmap(&mapped);
    region_trim(chunk->store, &mapped, used, "chunk");
    Py_END_ALLOW_THREADS
    /* Somebody may have mapped the file again by now: that mapping keeps its length. */
    if (chunk->region.start == NULL || mapped.file == 0) {
        chunk->region.bytes = mapped.bytes;
        charge(chunk, (int64_t)mapped.bytes);
    }
}

static int chunk_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
    Chunk *chunk = (Chunk *)self;
    if (chunk->region.start == NULL) {
        int error = region_map_again(chunk->store, &chunk->region, "chunk");
        if (error != 0) {
            errno = error;
            PyErr_SetFromErrno(PyExc_OSError);
            view->obj = NULL;
            return -1;
        }
    }
    void *records = (char *)chunk->region.start + sizeof(ChunkHeader);
    Py_ssize_t bytes = (Py_ssize_t)(chunk->num_records * sizeof(Record));
    if (PyBuffer_FillInfo(view, self, records, bytes, 1, flags) < 0)
        return -1;
    chunk->num_exports++;
    return 0;
}

static void chunk_releasebuffer(PyObject *self, Py_buffer *Py_UNUSED(view))
{
    Chunk *chunk = (Chunk *)self;
    if (--chunk->num_exports == 0 && chunk->is_sealed && chunk->region.file != 0)
        region_unmap(&chunk->region);
}

static Py_ssize_t chunk_length(PyObject *self) { return (Py_ssize_t)((Chunk *)self)->num_records; }

static void chunk_dealloc(PyObject *self)
{
    Chunk *chunk = (Chunk *)self;
    PyTypeObject *type = Py_TYPE(self);
    charge(chunk, 0);
    region_unmap(&chunk->region);
    region_unlink(chunk->store, &chunk->region, "chunk");
    store_drop(chunk->store);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

static PyType_Slot chunk_slots[] = {
    {Py_tp_dealloc, chunk_dealloc},
    {Py_tp_doc, "Records of one thread: a buffer, and as long as there are records. Its file goes with the object."},
    {Py_sq_length, chunk_length},
    {Py_bf_getbuffer, chunk_getbuffer},
    {Py_bf_releasebuffer, chunk_releasebuffer},
    {0, NULL},
};

static PyType_Spec chunk_spec = {
    .name = "kinetoscope._native.Chunk",
    .basicsize = sizeof(Chunk),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = chunk_slots,
};

int chunk_setup(PyObject *module)
{
    chunk_type = (PyTypeObject *)PyType_FromSpec(&chunk_spec);
    return chunk_type == NULL ? -1 : PyModule_AddType(module, chunk_type);
}
