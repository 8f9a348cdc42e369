/* Tracks: one per running thread and recorder. Finds a thread's track, and the address of its next
 * record. */

#include "recorder/native.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Many threads record little and end, so a thread begins with a small chunk. When it is full, the
 * thread gets a larger one. */
#define SMALL_CHUNK_BYTES ((size_t)4 << 10)
#define USUAL_CHUNK_BYTES ((size_t)256 << 10)
#define MAX_CHUNK_BYTES ((size_t)4 << 20)

/* -- this thread -- */

__thread ThisThread this_thread;
static pthread_key_t life_key;

static void life_drop(ThreadLife *life)
{
    if (life != NULL && atomic_fetch_sub_explicit(&life->refs, 1, memory_order_acq_rel) == 1)
        free(life);
}

/* Runs when a thread ends, without the GIL. If the thread records again afterwards, its
 * track is searched again. */
static void life_stop(void *life)
{
    this_thread = (ThisThread){0};
    shared_store(&((ThreadLife *)life)->is_alive, 0);
    life_drop(life);
}

static ThreadLife *life_of_this_thread(void)
{
    ThreadLife *life = this_thread.life;
    if (life == NULL && (life = calloc(1, sizeof *life)) != NULL) {
        shared_store(&life->refs, 1);
        shared_store(&life->is_alive, 1);
        if (pthread_setspecific(life_key, life) != 0) {
            free(life);
            return NULL;
        }
        this_thread.life = life;
    }
    return life;
}

int track_setup(void)
{
    if (pthread_key_create(&life_key, life_stop) != 0) {
        PyErr_SetString(PyExc_ImportError, "kinetoscope._native: no thread-local storage is left.");
        return -1;
    }
    return 0;
}

/* -- the thread of a track -- */

const char *track_name(const Track *track, size_t *length)
{
    Py_ssize_t bytes = 0;
    const char *name = PyUnicode_AsUTF8AndSize(track->name, &bytes);
    if (name == NULL) PyErr_Clear();
    *length = bytes < THREAD_NAME_BYTES ? (size_t)bytes : THREAD_NAME_BYTES;
    return name;
}

/* Write a mark into the current chunk: the thread of the next records. */
static void put_mark(Track *track)
{
    size_t length;
    const char *name = track_name(track, &length);
    uint64_t tail = record_tail(0, KIND_MARK, track->is_main ? FLAG_MAIN : 0, track->tid);
    track->chunk->num_marks++;
    for (size_t at = 0; (at == 0 || at < length) && track->next < track->end;
         at += MARK_NAME_BYTES) {
        size_t rest = length - at < MARK_NAME_BYTES ? length - at : MARK_NAME_BYTES;
        Record *record = track->next++;
        if (rest > 0) memcpy(record, name + at, rest);
        record->batch = track->number;
        record_publish(record, tail);
    }
}

/* -- making and finding -- */

/* Runs no Python code, which might record and thereby make this thread's track as well. */
static Track *track_new(Recorder *recorder)
{
    Track *track = calloc(1, sizeof *track);
    int collected = PyGC_Disable();
    PyObject *filled = track != NULL ? PyList_New(0) : NULL;
    if (collected) PyGC_Enable();
    if (filled == NULL) {
        free(track);
        return (Track *)PyErr_NoMemory();
    }
    track->refs = 1;
    track->recorder = recorder;
    track->filled = filled;
    track->next_track = recorder->tracks;
    recorder->tracks = track;
    return track;
}

static Track *find_own(const Recorder *recorder, const ThreadLife *life)
{
    Track *track = recorder->tracks;
    while (track != NULL && (track->life != life || track->is_foreign)) track = track->next_track;
    return track;
}

int track_is_vacant(const Track *track)
{
    return !shared_load(&track->life->is_alive) && track->num_open == 0 && !track->is_foreign;
}

static Track *find_vacant(const Recorder *recorder)
{
    Track *track = recorder->tracks;
    while (track != NULL && !track_is_vacant(track)) track = track->next_track;
    return track;
}

/* Give a track to the calling thread, which is (tid, name, is_main). Runs no Python code. */
static void set_thread(Track *track, ThreadLife *life, uint32_t tid, PyObject *name, int is_main)
{
    life_drop(track->life);
    atomic_fetch_add_explicit(&life->refs, 1, memory_order_relaxed);
    track->life = life;
    Py_XDECREF(track->name);
    track->name = Py_NewRef(name);
    track->tid = tid;
    track->is_main = is_main;
    track->number = ++track->recorder->num_tracks;
    if (track->chunk == NULL)
        track->chunk_bytes = is_main ? USUAL_CHUNK_BYTES : SMALL_CHUNK_BYTES;
    else
        put_mark(track);
    if (track->head.start != NULL) track_write_header(track);
}

static Track *find_or_make(Recorder *recorder)
{
    ThreadLife *life = life_of_this_thread();
    if (life == NULL) return (Track *)PyErr_NoMemory();
    Track *track = find_own(recorder, life);
    if (track != NULL) return track;
    unsigned int tid;
    int is_main;
    PyObject *name, *answer = PyObject_CallMethod((PyObject *)recorder, "describe_thread", NULL);
    if (answer != NULL && PyArg_ParseTuple(answer, "IUp", &tid, &name, &is_main)) {
        track = find_own(recorder, life); /* the Python code that was called may have recorded */
        if (track == NULL &&
            ((track = find_vacant(recorder)) != NULL || (track = track_new(recorder)) != NULL))
            set_thread(track, life, tid, name, is_main);
    }
    Py_XDECREF(answer);
    return track;
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

void track_keep(Track *track)
{
    track->refs++;
}

void track_drop(Track *track)
{
    if (track == NULL || --track->refs > 0) return;
    life_drop(track->life);
    free(track->entries);
    free(track);
}

void track_leave(Track *track)
{
    region_unmap(&track->head);
    /* A forked child does not delete it: it is the parent's. */
    region_unlink_unless_left(track->recorder->store, &track->head, "track");
    track->recorder = NULL;
    track->slots = NULL;
    track->next = track->end = track->first = NULL;
    Py_CLEAR(track->chunk);
    Py_CLEAR(track->spare);
    Py_CLEAR(track->filled);
    Py_CLEAR(track->name);
    track_drop_entries(track);
}

int track_is_done(const Track *track)
{
    return !shared_load(&track->life->is_alive) && track->chunk == NULL &&
           PyList_Size(track->filled) == 0 && !track_has_span_to_record(track);
}

/* -- records -- */

static size_t following_chunk_bytes(const Track *track)
{
    if (track->chunk_bytes < USUAL_CHUNK_BYTES) return track->chunk_bytes * 4;
    int is_shared = track->chunk != NULL && track->chunk->num_marks > 1;
    return is_shared || track->chunk_bytes >= MAX_CHUNK_BYTES ? track->chunk_bytes
                                                              : track->chunk_bytes * 2;
}

void track_expect_much(Track *track)
{
    if (track->chunk_bytes < USUAL_CHUNK_BYTES) track->chunk_bytes = USUAL_CHUNK_BYTES;
}

int track_lacks_spare(const Track *track)
{
    return track->spare == NULL && track->chunk_bytes >= USUAL_CHUNK_BYTES &&
           !track_is_vacant(track);
}

int track_prepare_spare(Track *track)
{
    Recorder *recorder = track->recorder;
    Store *store = store_keep(recorder->store);
    track_keep(track);
    Chunk *chunk = chunk_new(store, track->chunk_bytes, 1);
    /* The recorder may have dropped the track, or changed its folder, meanwhile. */
    int is_wanted = chunk != NULL && track->recorder == recorder && recorder->store == store &&
                    track->spare == NULL;
    if (is_wanted) track->spare = (Chunk *)Py_NewRef((PyObject *)chunk);
    Py_XDECREF((PyObject *)chunk);
    track_drop(track);
    store_drop(store);
    return is_wanted;
}

void track_detach_chunk(Track *track)
{
    Chunk *chunk = track->chunk;
    if (chunk == NULL) return;
    chunk->num_records = (uint32_t)(track->next - track->first);
    track->chunk = NULL;
    track->next = track->end = track->first = NULL;
    if (chunk->store->is_child)
        chunk->store->spent_bytes += chunk->charged_bytes; /* the file stays for the parent */
    else if (PyList_Append(track->filled, (PyObject *)chunk) < 0) {
        PyErr_Clear();
        track->num_dropped += chunk->num_records;
    }
    Py_DECREF((PyObject *)chunk);
}

static int dropped(Track *track)
{
    uint32_t window = shared_load(&track->recorder->control->window);
    if (track->dropped_window != window)
        /* in a child process the count of the window before is not taken */
        track->num_dropped = 0;
    track->dropped_window = window;
    track->num_dropped++;
    TrackHeader *header = track->head.start;
    if (header != NULL) {
        shared_store(&header->dropped_ns, (uint64_t)read_clock(CLOCK_MONOTONIC));
        shared_store(&header->num_dropped, track->num_dropped);
    }
    return 0;
}

int track_refill(Track *track)
{
    Recorder *recorder = track->recorder;
    if (track->chunk != NULL) track->chunk_bytes = following_chunk_bytes(track);
    if (recorder->store->spent_window != shared_load(&recorder->control->window)) {
        recorder->store->spent_window = shared_load(&recorder->control->window);
        recorder->store->spent_bytes = 0;
    }
    track_detach_chunk(track);
    if (!track->head_is_final) track_finish_head(track);
    Chunk *chunk = track->spare != NULL ? track->spare
                                        : chunk_new(recorder->store, track->chunk_bytes, 0);
    track->spare = NULL;
    if (chunk == NULL) return dropped(track);
    track->chunk = chunk;
    track->first = chunk_begin(chunk, track, shared_load(&recorder->control->window),
                               ++recorder->num_chunks, &track->end);
    track->next = track->first;
    put_mark(track);
    recorder->wants_request = 1;
    return 1;
}

int track_take(Track *track, PyObject *list)
{
    if (PyList_Size(track->filled) == 0 && track->num_dropped == 0) return 0;
    PyObject *empty = PyList_New(0);
    if (empty == NULL) return -1;
    PyObject *taken = Py_BuildValue("(IIOOKN)", track->number, track->tid, track->name,
                                    track->is_main ? Py_True : Py_False,
                                    (unsigned long long)track->num_dropped, track->filled);
    track->filled = empty;
    track->num_dropped = 0;
    if (track->head.start != NULL)
        shared_store(&((TrackHeader *)track->head.start)->num_dropped, 0);
    int result = taken == NULL ? -1 : PyList_Insert(list, 0, taken);
    Py_XDECREF(taken);
    return result;
}
