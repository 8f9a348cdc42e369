/* kinetoscope._native: the objects of the recorder, and who holds whom.
 *
 *     Span ──► Recorder ──► Track (one per running thread) ──► Chunk (where its records go now)
 *       ▲                     │  ▲
 *       └──────── Entry ◄─────┘  │      an Entry is a span in progress, and one slot of its track
 *                   └────────────┘
 *
 * Everything happens under the GIL, except allocating and unmapping, which `Recorder.prepare` does
 * without it, and draining, which only reads what is finished. */

#ifndef KINETOSCOPE_NATIVE_H
#define KINETOSCOPE_NATIVE_H

#include "module.h"
#include "recorder/clock.h"
#include "recorder/record.h"
#include "recorder/store.h"

typedef struct Recorder Recorder;
typedef struct Span Span;
typedef struct Track Track;

/* -- chunk.c: a chunk file, or the same in memory. Its buffer is the records; the file goes when
 *    the object does. -- */

typedef struct {
    PyObject_HEAD
    Store *store;
    Region region;
    ChunkHeader header; /* as it stands in the region, which may be unmapped */
    uint32_t num_marks; /* of threads that wrote to it, one after the other */
    /* those written, once the chunk is full or its window closed; marks are records too */
    uint32_t num_records;
    int is_sealed;    /* its mapping and its unused space were given back */
    int is_discarded; /* its records were put elsewhere */
    int is_taken;     /* it is being sealed or discarded, without the GIL */
    int num_exports;  /* buffers that look at it */
    int64_t charged_bytes;
} Chunk;

extern PyTypeObject *chunk_type;
int chunk_setup(PyObject *module);
/* Makes a chunk; NULL without an error set if there is no space, and then `store->error` or the
 * limit says why. With `in_background` the GIL is released meanwhile. */
Chunk *chunk_new(Store *store, size_t bytes, int in_background);
/* Says whose the chunk is, and gives the space for its records. */
Record *chunk_begin(Chunk *chunk, const Track *track, uint32_t window, uint32_t sequence,
                    Record **end);
/* (chunks): unmaps chunks that nobody writes to any more, and gives back what their files do not
 * use. */
PyObject *seal_chunks(PyObject *module, PyObject *chunks);
/* (chunks): deletes the files of chunks whose records were put elsewhere, and gives back their
 * memory. */
PyObject *discard_chunks(PyObject *module, PyObject *chunks);

/* -- span.c: Span, Entry, and the descriptors through which `with` goes -- */

enum EntryState {
    ENTRY_IDLE,   /* on its track's free list */
    ENTRY_HANDED, /* its __exit__ was looked up, and not begun */
    ENTRY_OPEN,
};

typedef struct {
    PyObject_HEAD
    Track *track;     /* counted; NULL only while it is made */
    Span *span;       /* strong, while handed or open */
    uint64_t span_id; /* of the span it was last used for */
    uint64_t order;   /* counts begins, to find the latest */
    uint32_t slot;
    uint32_t window; /* in which it is recorded; 0 if it is not */
    uint8_t state;
    uint8_t is_explicit; /* begun by a call of __enter__, not by `with` */
    uint8_t is_told;     /* active when it began: listeners hear of its end */
} Entry;

struct Span {
    PyObject_HEAD
    Recorder *recorder;
    uint64_t id;
    uint32_t name_id;
    uint32_t mask;
    uint32_t edges;
    PyObject *enter;  /* its bound __enter__; made when first looked up */
    PyObject *handed; /* see span_exit_get: an Entry, or Py_None for an inactive `with`, or NULL */
    int64_t own_series; /* name id of a counter's only value; -1 until asked for */
};

extern PyTypeObject *entry_type;
int span_setup(PyObject *module);
PyObject *entry_new(Track *track, uint32_t slot, Entry **entry);

/* -- track.c: what one thread has recorded, and its open spans. When it has ended, a new thread
 *    takes the track over. -- */

/* Tells whether a thread still runs: its thread-local storage and its tracks share one. */
typedef struct {
    SharedWord refs;
    SharedWord is_alive;
} Pulse;

struct Track {
    int refs;
    Recorder *recorder; /* NULL once the recorder is gone */
    Track *next_track;
    Pulse *pulse;
    int is_foreign;  /* inherited by a forked child, in whose parent the files live on */
    uint32_t number; /* of the thread that has it now, like the next three */
    uint32_t tid;
    int is_main;
    PyObject *name;

    Record *next, *end; /* within the current chunk */
    Record *first;
    Chunk *chunk, *spare;
    size_t chunk_bytes; /* how large the next chunk is made */
    PyObject *filled;   /* list of chunks of this window */
    uint64_t num_dropped;
    uint32_t dropped_window;

    Region head; /* a TrackHeader and the slots */
    int head_is_final;
    Record *slots;
    PyObject **exits; /* of each slot its entry's bound __exit__, which holds the entry */
    Entry **entries;
    uint32_t *free_slots;
    uint32_t num_slots, num_made, num_free, num_open;
};

Track *track_look_up(Recorder *recorder);
void track_keep(Track *track);
void track_drop(Track *track);
/* Whether its thread runs no more and has no span open. */
int track_is_vacant(const Track *track);
int track_is_done(const Track *track);
/* From here on its thread gets chunks of the usual size, and has a spare one. */
void track_expect_much(Track *track);
/* Makes the spare chunk that a track lacks, without the GIL. Returns 0 if that cannot be done
 * now. */
int track_prepare_spare(Track *track);
/* Whether its thread records so much that a spare chunk should wait for it, and none does. */
int track_lacks_spare(const Track *track);
/* Readies the slots for recording: in a file, if the recorder has a folder by now. */
void track_finish_head(Track *track);
Entry *track_make_entry(Track *track);
Entry *track_replace_entry(Track *track, uint32_t slot);
/* Goes on to the next chunk. Returns 0 if there is none: the record is dropped, and counted. */
int track_refill(Track *track);
/* Puts the current chunk among the filled ones. */
void track_detach_chunk(Track *track);
/* What was recorded since this was last asked: (track, tid, name, is_main, dropped, chunks), or
 * NULL. */
PyObject *track_take(Track *track);
/* Moves the slots from a file into memory, as long as the recorder still has its old store. */
int track_move_head_to_memory(Track *track);
/* Frees what only the recorder may: called once, when the track leaves its recorder. */
void track_leave(Track *track);
void track_clear_objects(Track *track);
int track_setup(void);

/* -- recorder.c -- */

struct Recorder {
    PyObject_HEAD
    Control *control; /* its own, the one in its folder, or in a child process that of the parent */
    Control own_control;
    Region control_file;
    int is_child; /* follows the parent's control */
    uint32_t num_windows;
    PyObject *listener;
    PyObject *now;     /* a clock of somebody else's; NULL: the machine's */
    PyObject *request; /* asks for `prepare` to be called, on another thread; or NULL */
    PyObject *series;  /* dict of the ids that its method `intern_series` gave */
    Store *store;
    Track *tracks;
    uint64_t serial; /* of no other recorder, nor of this one before a fork */
    uint64_t num_begun;
    uint32_t num_tracks, num_chunks; /* track numbers and chunks that were ever given out */
    int is_requested, wants_request;
    Recorder *next, *previous;
};

extern PyTypeObject *recorder_type;
int recorder_setup(PyObject *module);
/* Asks for new spare chunks. Runs Python code. */
void recorder_request(Recorder *recorder);
/* Nanoseconds on a clock that is not the machine's; -1 with an error set if it raises. */
int64_t recorder_ask_clock(Recorder *recorder);

static inline int64_t recorder_now(Recorder *recorder)
{
    return LIKELY(recorder->now == NULL) ? monotonic_ns() : recorder_ask_clock(recorder);
}

static inline int recorder_failed(int64_t now)
{
    return UNLIKELY(now == -1) && PyErr_Occurred() != NULL;
}

/* Appends a record to the thread's chunk. Runs no Python code: whoever appends calls
 * recorder_settle when done. */
static inline void track_append(Track *track, int64_t begin, Value end, uint32_t name,
                                uint32_t batch, uint64_t tail)
{
    if (UNLIKELY(track->next == track->end) && !track_refill(track)) return;
    Record *record = track->next++;
    record->begin = begin;
    record->end = end;
    record->name = name;
    record->batch = batch;
    record_publish(record, tail);
}

static inline void recorder_settle(Recorder *recorder)
{
    if (UNLIKELY(recorder->wants_request)) recorder_request(recorder);
}

/* -- sample.c: whether records are such as a recorder of ours writes, and nest -- */

int is_near(int64_t time); /* few enough nanoseconds that one may add and subtract them */
int is_ordinary(const Record *record, uint32_t num_names);
int sample_setup(PyObject *module);

/* -- pairs.c: spans as brackets -- */

PyObject *pair_records(PyObject *module, PyObject *arguments);

/* -- drain.c: finished records as lines of Chrome JSON -- */

PyObject *record_columns(PyObject *module, PyObject *arguments);
PyObject *drain_chrome(PyObject *module, PyObject *arguments);

/* -- the hot path -- */

typedef struct {
    uint64_t serial;
    Track *track; /* of the recorder with that serial, which counts it */
    Pulse *pulse;
} ThisThread;

extern __thread ThisThread this_thread;

/* The calling thread's track, made if need be; borrowed. NULL with an error set. */
static inline Track *track_of_this_thread(Recorder *recorder)
{
    return LIKELY(this_thread.serial == recorder->serial) ? this_thread.track
                                                          : track_look_up(recorder);
}

/* An idle entry that nobody else holds; borrowed. NULL with an error set if there is no memory. */
static inline Entry *track_take_entry(Track *track)
{
    if (UNLIKELY(track->num_free == 0)) return track_make_entry(track);
    uint32_t slot = track->free_slots[--track->num_free];
    Entry *entry = track->entries[slot];
    if (UNLIKELY(!is_ours_alone(entry) || !is_ours_alone(track->exits[slot])))
        return track_replace_entry(track, slot);
    return entry;
}

static inline void track_free_entry(Track *track, Entry *entry)
{
    entry->state = ENTRY_IDLE;
    track->free_slots[track->num_free++] = entry->slot;
}

#endif
