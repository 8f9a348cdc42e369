/* Tracks: one per thread and recorder. */

#include "native.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_HEAD_BYTES 4096
#define LARGEST_CHUNK_BYTES ((size_t)4 << 20)

/* -- this thread -- */

__thread ThisThread this_thread;
static pthread_key_t pulse_key;

static void pulse_drop(Pulse *pulse)
{
    if (pulse != NULL && __atomic_sub_fetch(&pulse->refs, 1, __ATOMIC_ACQ_REL) == 0)
        free(pulse);
}

/* Runs when a thread ends, without the GIL. */
static void pulse_stop(void *pulse)
{
    __atomic_store_n(&((Pulse *)pulse)->is_alive, 0, __ATOMIC_RELEASE);
    pulse_drop(pulse);
}

static Pulse *pulse_of_this_thread(void)
{
    Pulse *pulse = this_thread.pulse;
    if (pulse == NULL && (pulse = calloc(1, sizeof *pulse)) != NULL) {
        pulse->refs = pulse->is_alive = 1;
        if (pthread_setspecific(pulse_key, pulse) != 0) {
            free(pulse);
            return NULL;
        }
        this_thread.pulse = pulse;
    }
    return pulse;
}

int track_setup(void)
{
    if (pthread_key_create(&pulse_key, pulse_stop) != 0) {
        PyErr_SetString(PyExc_ImportError, "kinetoscope._native: no thread-local storage is left.");
        return -1;
    }
    return 0;
}

/* -- making and finding -- */

static int describe_thread(Track *track)
{
    PyObject *answer = PyObject_CallNoArgs(track->recorder->describe);
    PyObject *name;
    int done = answer != NULL && PyArg_ParseTuple(answer, "IUp", &track->tid, &name, &track->is_main);
    if (done)
        track->name = Py_NewRef(name);
    Py_XDECREF(answer);
    return done;
}

static Track *track_new(Recorder *recorder, Pulse *pulse)
{
    Track *track = calloc(1, sizeof *track);
    if (track == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    track->refs = 1;
    track->recorder = recorder;
    track->pulse = pulse;
    __atomic_add_fetch(&pulse->refs, 1, __ATOMIC_RELAXED);
    track->filled = PyList_New(0);
    if (track->filled == NULL || !describe_thread(track)) {
        track_leave(track);
        track_drop(track);
        return NULL;
    }
    track->number = ++recorder->num_tracks;
    track->next_track = recorder->tracks;
    recorder->tracks = track;
    return track;
}

static Track *find_or_make(Recorder *recorder)
{
    Pulse *pulse = pulse_of_this_thread();
    if (pulse == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Track *track = recorder->tracks; track != NULL; track = track->next_track)
        if (track->pulse == pulse && !track->is_foreign)
            return track;
    return track_new(recorder, pulse);
}

Track *track_look_up(Recorder *recorder)
{
    Track *track = find_or_make(recorder);
    if (track != NULL) {
        this_thread.serial = recorder->serial;
        this_thread.track = track;
    }
    return track;
}

void track_keep(Track *track) { track->refs++; }

void track_drop(Track *track)
{
    if (track == NULL || --track->refs > 0)
        return;
    pulse_drop(track->pulse);
    free(track->exits);
    free(track->entries);
    free(track->free_slots);
    free(track);
}

void track_clear_objects(Track *track)
{
    for (uint32_t slot = 0; slot < track->num_made; slot++)
        Py_CLEAR(track->exits[slot]);
    track->num_made = track->num_free = 0;
}

void track_leave(Track *track)
{
    track->recorder = NULL;
    track->next = track->end = track->first = NULL;
    Py_CLEAR(track->chunk);
    Py_CLEAR(track->filled);
    Py_CLEAR(track->name);
    track_clear_objects(track);
    region_unmap(&track->head);
    track->slots = NULL;
    track_file_drop(track->file); /* in a forked child nothing is deleted: the store is the parent's */
    track->file = NULL;
}

int track_is_done(const Track *track)
{
    return !__atomic_load_n(&track->pulse->is_alive, __ATOMIC_ACQUIRE) && track->num_open == 0 && track->chunk == NULL &&
           PyList_Size(track->filled) == 0;
}

/* -- slots and entries -- */

static void write_header(Track *track)
{
    TrackHeader *header = track->head.start;
    Store *store = track->recorder->store;
    header->version = FORMAT_VERSION;
    header->pid = (uint32_t)store->pid;
    header->track = track->number;
    header->tid = track->tid;
    header->rank = store->rank;
    header->is_main = (uint32_t)track->is_main;
    header->monotonic_ns = read_clock(CLOCK_MONOTONIC);
    header->unix_ns = read_clock(CLOCK_REALTIME);
    header->num_slots = (uint32_t)((track->head.bytes - sizeof *header) / sizeof(Record));
    Py_ssize_t length = 0;
    const char *name = PyUnicode_AsUTF8AndSize(track->name, &length);
    if (name == NULL)
        PyErr_Clear();
    else
        memcpy(header->name, name, length < THREAD_NAME_BYTES ? (size_t)length : THREAD_NAME_BYTES);
    memcpy(header->magic, TRACK_MAGIC, sizeof header->magic);
}

static int set_num_slots(Track *track)
{
    uint32_t num_slots = (uint32_t)((track->head.bytes - sizeof(TrackHeader)) / sizeof(Record));
    track->slots = (Record *)((TrackHeader *)track->head.start + 1);
    PyObject **exits = realloc(track->exits, num_slots * sizeof *exits);
    track->exits = exits != NULL ? exits : track->exits;
    Entry **entries = realloc(track->entries, num_slots * sizeof *entries);
    track->entries = entries != NULL ? entries : track->entries;
    uint32_t *free_slots = realloc(track->free_slots, num_slots * sizeof *free_slots);
    track->free_slots = free_slots != NULL ? free_slots : track->free_slots;
    if (exits == NULL || entries == NULL || free_slots == NULL)
        return 0;
    ((TrackHeader *)track->head.start)->num_slots = num_slots;
    track->num_slots = num_slots;
    return 1;
}

static int make_head(Track *track)
{
    if (track->head.start != NULL)
        return 1;
    if (region_create(track->recorder->store, &track->head, FIRST_HEAD_BYTES, "track") != 0 || !set_num_slots(track))
        return 0;
    write_header(track);
    return 1;
}

int track_move_head_to_memory(Track *track)
{
    Store *store = track->recorder->store;
    Region memory = {NULL, 0, 0};
    if (track->head.file == 0)
        return 1;
    if (region_create(store, &memory, track->head.bytes, "track") != 0)
        return 0;
    memcpy(memory.start, track->head.start, track->head.bytes);
    memset((TrackHeader *)track->head.start + 1, 0, track->head.bytes - sizeof(TrackHeader));
    region_unmap(&track->head);
    track_file_drop(track->file);
    track->file = NULL;
    track->head = memory;
    return set_num_slots(track);
}

static int grow_head(Track *track)
{
    Store *store = track->recorder->store;
    size_t bytes = track->head.bytes * 2;
    if (region_grow(store, &track->head, bytes, "track") == 0)
        return set_num_slots(track);
    /* There is no space on disk for more slots: from here on they stand in memory. */
    return track_move_head_to_memory(track) && region_grow(store, &track->head, bytes, "track") == 0 &&
           set_num_slots(track);
}

void track_finish_head(Track *track)
{
    Store *store = track->recorder->store;
    track->head_is_final = 1;
    if (store->folder == NULL || store->error != 0 || track->head.file != 0)
        return;
    Region head = {NULL, 0, ++store->num_files};
    size_t bytes = track->head.start != NULL ? track->head.bytes : FIRST_HEAD_BYTES;
    TrackFile *file = track_file_new(store, head.file);
    int error = file == NULL ? ENOMEM : region_create(store, &head, bytes, "track");
    if (error != 0) {
        track_file_drop(file);
        store->error = error;
        return;
    }
    track->file = file;
    Region old = track->head;
    track->head = head;
    if (old.start != NULL) {
        memcpy((TrackHeader *)head.start + 1, (TrackHeader *)old.start + 1, bytes - sizeof(TrackHeader));
        region_unmap(&old);
    }
    if (set_num_slots(track))
        write_header(track);
}

Entry *track_make_entry(Track *track)
{
    if (track->num_made == track->num_slots && (track->head.start == NULL ? !make_head(track) : !grow_head(track))) {
        PyErr_NoMemory();
        return NULL;
    }
    uint32_t slot = track->num_made;
    Entry *entry;
    PyObject *exit = entry_new(track, slot, &entry);
    if (exit == NULL)
        return NULL;
    track->exits[slot] = exit;
    track->entries[slot] = entry;
    track->num_made++;
    return entry;
}

/* Somebody kept the entry, or its __exit__: it stays theirs, and the slot gets a new one. */
Entry *track_replace_entry(Track *track, uint32_t slot)
{
    Entry *entry;
    PyObject *exit = entry_new(track, slot, &entry), *old = track->exits[slot];
    if (exit == NULL) {
        track->free_slots[track->num_free++] = slot;
        return NULL;
    }
    track->exits[slot] = exit;
    track->entries[slot] = entry;
    Py_DECREF(old);
    return entry;
}

/* -- records -- */

static Chunk *take_spare(Recorder *recorder)
{
    Py_ssize_t last = PyList_Size(recorder->spares) - 1;
    if (last < 0)
        return NULL;
    Chunk *chunk = (Chunk *)Py_NewRef(PyList_GetItem(recorder->spares, last));
    if (PyList_SetSlice(recorder->spares, last, last + 1, NULL) < 0)
        PyErr_Clear();
    return chunk;
}

void track_detach_chunk(Track *track)
{
    Chunk *chunk = track->chunk;
    if (chunk == NULL)
        return;
    chunk->num_records = (uint32_t)(track->next - track->first);
    track->chunk = NULL;
    track->next = track->end = track->first = NULL;
    if (chunk->store->is_child)
        chunk->store->spent_bytes += chunk->charged_bytes; /* the file stays, for the parent */
    else if (PyList_Append(track->filled, (PyObject *)chunk) < 0) {
        PyErr_Clear();
        track->num_dropped += chunk->num_records;
    }
    Py_DECREF((PyObject *)chunk);
}

static int dropped(Track *track)
{
    track->num_dropped++;
    if (track->head.start != NULL)
        ((TrackHeader *)track->head.start)->num_dropped = track->num_dropped;
    return 0;
}

int track_refill(Track *track)
{
    Recorder *recorder = track->recorder;
    if (track->chunk != NULL && recorder->chunk_bytes < LARGEST_CHUNK_BYTES)
        recorder->chunk_bytes *= 2; /* a thread that fills its chunks is worth larger ones */
    if (recorder->store->spent_window != recorder->control->window) {
        recorder->store->spent_window = recorder->control->window;
        recorder->store->spent_bytes = 0;
    }
    track_detach_chunk(track);
    if (!track->head_is_final)
        track_finish_head(track);
    Chunk *chunk = take_spare(recorder);
    if (chunk == NULL)
        chunk = chunk_new(recorder->store, recorder->chunk_bytes, 0);
    if (chunk == NULL)
        return dropped(track);
    track->chunk = chunk;
    track->first = chunk_begin(chunk, track, recorder->control->window, ++recorder->num_chunks, &track->end);
    track->next = track->first;
    recorder->wants_request = 1;
    return 1;
}

PyObject *track_take(Track *track)
{
    PyObject *chunks = track->filled, *empty = PyList_New(0);
    if (empty == NULL)
        return NULL;
    track->filled = empty;
    uint64_t num_dropped = track->num_dropped;
    track->num_dropped = 0;
    if (track->head.start != NULL)
        ((TrackHeader *)track->head.start)->num_dropped = 0;
    return Py_BuildValue("(IIOOKN)", track->number, track->tid, track->name, track->is_main ? Py_True : Py_False,
                         (unsigned long long)num_dropped, chunks);
}
