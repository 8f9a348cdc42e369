/* kinetoscope._native: the objects of the recorder, and their references.
 *
 *     Span ──► Recorder ──► Track (one per running thread) ──► Chunk (the current one)
 *       ▲                     │  ▲
 *       └──────── Entry ◄─────┘  │      an Entry is a span in progress, and one slot of its track
 *                   └────────────┘
 *
 * Everything happens under the GIL, with two exceptions: `Recorder.prepare` allocates and unmaps
 * without it, and draining reads finished records without it. */

#ifndef KINETOSCOPE_NATIVE_H
#define KINETOSCOPE_NATIVE_H

#include "module.h"
#include "pulse/slow.h"
#include "recorder/clock.h"
#include "recorder/record.h"
#include "recorder/store.h"

typedef struct Recorder Recorder;
typedef struct Span Span;
typedef struct Entry Entry;
typedef struct Track Track;

/* -- chunk.c: a chunk file, or the same in memory. Its buffer is the records; the file is deleted
 * with the object. -- */

typedef struct {
    PyObject_HEAD
    Store *store;
    Region region;
    ChunkHeader header; /* a copy of the one in the region, which may be unmapped */
    uint32_t num_marks; /* one for each thread that wrote to it */
    /* set when the chunk is full or its window closed; marks are records too */
    uint32_t num_records;
    int is_sealed;    /* it was unmapped and its unused space freed */
    int is_discarded; /* its records were stored in a spool file */
    int is_taken;     /* another thread seals or discards it without the GIL */
    int num_exports;  /* exported buffers */
    int64_t charged_bytes;
} Chunk;

int chunk_setup(PyObject *module);
/* Make a chunk. Return NULL without an error set if there is no space: `store->error`, or the
 * limit, is the reason. With `in_background` the GIL is released meanwhile. */
Chunk *chunk_new(Store *store, size_t bytes, int in_background);
/* Write the chunk's owner into its header, and return the space for its records. */
Record *chunk_begin(Chunk *chunk, const Track *track, uint32_t window, uint32_t sequence,
                    Record **end);
/* (chunks): unmaps chunks that are no longer written to, and frees the unused space of their
 * files. */
PyObject *seal_chunks(PyObject *module, PyObject *chunks);
/* (chunks): deletes the files of chunks whose records were stored in a spool file, and frees their
 * memory. */
PyObject *discard_chunks(PyObject *module, PyObject *chunks);

/* -- span.c: Span, its name and its instants -- */

struct Span {
    PyObject_HEAD
    Recorder *recorder;
    uint64_t id;
    uint32_t name_id;
    uint32_t mask;
    uint32_t edges;
    PyObject *enter; /* its bound __enter__; made when first looked up */
    /* see with.c: the Entry for the next `with`, Py_None if that one is inactive, or NULL */
    PyObject *handed;
    int64_t own_series; /* name id of a counter's only value; -1 if unknown yet */
};

/* the name id of a span without records; NO_NAME in recording/markers/recorder_types.py */
#define NO_NAME UINT32_MAX

extern PyTypeObject *span_type;
int span_setup(PyObject *module);
/* Get the id of the span's name in its recorder from Python; -1 with an error set. */
int span_find_name(Span *span);
int span_record_instant(Span *span);

/* -- counter.c: values of counters -- */

PyObject *span_counter(PyObject *span, PyObject *values);

/* -- with.c: the lookup of __enter__ and __exit__ by `with` -- */

int with_setup(void);

/* -- entry.c: start and end of a span in progress -- */

enum EntryState {
    ENTRY_IDLE,   /* on its track's list of free ones */
    ENTRY_HANDED, /* its __exit__ was looked up; it has not begun */
    ENTRY_OPEN,
};

struct Entry {
    PyObject_HEAD
    Track *track; /* a strong reference; NULL only while the entry is made */
    PyObject
        *exit; /* its bound __exit__, which references the entry and is referenced by the track */
    Entry *next_free; /* on its track's free list */
    Span *span;       /* strong, while handed or open */
    uint64_t span_id; /* the span it was last used for */
    uint64_t order;   /* counts begins, to find the latest */
    uint32_t slot;
    uint32_t window; /* the window that records it, or 0 */
    uint8_t state;
    uint8_t is_explicit; /* begun by a call of __enter__, not by `with` */
    uint8_t was_active;  /* it was active when it began, so listeners are notified of its end */
};

int entry_setup(PyObject *module);
/* Return a new entry, referenced only by its `exit`, which the caller gets. May run Python code. */
Entry *entry_new(Track *track);
/* Drop the entry of a `with` that did not begin. */
void span_drop_handed(Span *span);
/* __enter__ and __exit__ of a span, called by a `with` or directly. */
PyObject *span_enter(PyObject *span, PyObject *nothing);
PyObject *span_exit(PyObject *span, PyObject *arguments);
/* begin() and end(). A token is an entry. */
PyObject *span_begin(PyObject *span, PyObject *nothing);
PyObject *span_end(PyObject *span, PyObject *token);
/* the same at a given time, such as that of a sample: (begin_ns), and (token, end_ns) */
PyObject *span_begin_at(PyObject *span, PyObject *begin_ns);
PyObject *span_end_at(PyObject *span, PyObject *arguments);
PyObject *span_abandon(PyObject *span, PyObject *token);
/* begin_at(), and end_at() of any span; with `at` < 0 nothing is recorded. */
PyObject *span_token_at(Span *span, int64_t at);
PyObject *token_end_at(PyObject *token, int64_t at);

/* -- track.c: records and open spans of one thread. When the thread has ended, a new thread reuses
 * the track. -- */

/* Whether a thread still runs. The thread's local storage and its tracks share it. */
typedef struct {
    SharedWord refs;
    SharedWord is_alive;
} ThreadLife;

struct Track {
    int refs;
    Recorder *recorder; /* NULL once the recorder is gone */
    Track *next_track;
    ThreadLife *life;
    int is_foreign;  /* in a forked child: its files are the parent's */
    uint32_t number; /* of the thread that has the track now, as are the next three fields */
    uint32_t tid;
    int is_main;
    PyObject *name;

    Record *next, *end; /* in the current chunk */
    Record *first;
    Chunk *chunk, *spare;
    size_t chunk_bytes; /* size of the next chunk */
    PyObject *filled;   /* list of chunks of this window */
    uint64_t num_dropped;
    uint32_t dropped_window;

    Region head; /* a TrackHeader and the slots */
    int head_is_final;
    Record *slots;
    Entry **entries; /* one per slot; this array holds the `exit` of each */
    Entry *free_entries;
    uint32_t num_slots, num_made, num_open;
};

Track *track_look_up(Recorder *recorder);
void track_keep(Track *track);
void track_drop(Track *track);
/* Return whether its thread has ended and no span of it is open. */
int track_is_vacant(const Track *track);
int track_is_done(const Track *track);
/* Give its thread chunks of the usual size and a spare one from now on. */
void track_expect_much(Track *track);
/* Make the spare chunk that a track lacks, without the GIL. Return 0 if that is impossible now. */
int track_prepare_spare(Track *track);
/* Return whether its thread records enough to need a spare chunk, and has none. */
int track_lacks_spare(const Track *track);
/* Continue in the next chunk. Return 0 if there is none: the record is dropped and counted. */
int track_refill(Track *track);
/* Move the current chunk to the filled ones. */
void track_detach_chunk(Track *track);
/* Insert the records since the last call, if any, at the front of the list: (track, tid, name,
 * is_main, dropped, chunks). Return -1 with an error set. */
int track_take(Track *track, PyObject *list);
/* Free all that needs the recorder. Called once, when the recorder drops the track. */
void track_leave(Track *track);
/* Return its thread's name in UTF-8, possibly shortened. */
const char *track_name(const Track *track, size_t *length);
int track_setup(void);

/* -- head.c: the head of a track, which has a slot and an entry for each open span -- */

/* Write the track's thread into its head. */
void track_write_header(Track *track);
/* Prepare the slots for recording, in a file if the recorder has a folder by now. */
void track_finish_head(Track *track);
/* Move the slots from a file into memory. Call it while the recorder still has its old store. */
int track_move_head_to_memory(Track *track);
/* Return whether an open span will be recorded. A span that was truncated at its window's end needs
 * no slot any more. */
int track_has_span_to_record(const Track *track);
/* Return a new entry in a new slot. Return NULL with an error set, or without one if Python code
 * that ran here has forked: in the child the recorder has other tracks. */
Entry *track_make_entry(Track *track);
/* The same in the slot of `entry`, because other code still references that one or its __exit__. */
Entry *track_replace_entry(Entry *entry);
void track_drop_entries(Track *track);

/* -- recorder.c: the Recorder, and the Python code that it calls -- */

struct Recorder {
    PyObject_HEAD
    Control *control; /* in memory, in its folder, or in a child process the parent's */
    Control own_control;
    Region control_file;
    int is_child; /* it uses the parent's control */
    uint32_t num_windows;
    int64_t closed_ns; /* when the last window closed, on the machine's clock */
    PyObject *listener;
    PyObject *now;     /* the user's clock; NULL: the machine's */
    PyObject *request; /* called to have another thread call `prepare`; or NULL */
    PyObject *series;  /* dict of the ids that the method `intern_series` returned */
    PyObject *loss_name;
    double loss;    /* the last one of a counter; NaN */
    PyObject *slow; /* a SlowSteps, which gets spans that are not recorded; or NULL */
    Store *store;
    Track *tracks;
    uint64_t serial; /* unique: different for each recorder, and after a fork */
    uint64_t num_begun;
    uint32_t num_tracks, num_chunks; /* numbers of those made so far */
    int is_requested, wants_request;
    Recorder *next;
};

extern PyTypeObject *recorder_type;
int recorder_setup(PyObject *module);
/* Call `request`, to get new spare chunks. Runs Python code. Its errors are only reported. Return
 * -1 with KeyboardInterrupt or SystemExit set, as of a signal handler. */
int recorder_request(Recorder *recorder);
/* Call the listener's method with the name, the time and, if it is not NULL, `what`. Return -1 with
 * an error set. */
int recorder_call_listener(Recorder *recorder, const char *method, uint32_t name, int64_t at,
                           PyObject *what);
/* Return nanoseconds on the user's clock; -1 with an error set if it raises. */
int64_t recorder_read_clock(Recorder *recorder);

static inline int64_t recorder_now(Recorder *recorder)
{
    return LIKELY(recorder->now == NULL) ? monotonic_ns() : recorder_read_clock(recorder);
}

/* Call the listener, if there is one. */
static inline int recorder_notify(Recorder *recorder, const char *method, uint32_t name, int64_t at,
                                  PyObject *what)
{
    return LIKELY(recorder->listener == NULL)
               ? 0
               : recorder_call_listener(recorder, method, name, at, what);
}

/* Return the number of the open window, or 0. */
static inline uint32_t recorder_window(const Recorder *recorder)
{
    return shared_load(&recorder->control->window);
}

static inline int recorder_failed(int64_t now)
{
    return UNLIKELY(now == -1) && PyErr_Occurred() != NULL;
}

/* Append a record to the thread's chunk. Runs no Python code; the caller calls recorder_settle
 * afterwards. */
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

/* Return -1 with KeyboardInterrupt or SystemExit set. */
static inline int recorder_settle(Recorder *recorder)
{
    return UNLIKELY(recorder->wants_request) ? recorder_request(recorder) : 0;
}

/* -- window.c: opens and closes windows, and returns their records -- */

PyObject *recorder_open_window(PyObject *recorder, PyObject *nothing);
PyObject *recorder_close_window(PyObject *recorder, PyObject *arguments);
PyObject *recorder_take_filled(PyObject *recorder, PyObject *nothing);
PyObject *recorder_remove_ended(PyObject *recorder, PyObject *nothing);
PyObject *recorder_ready_spares(PyObject *recorder, PyObject *nothing);

/* -- live_folder.c: the folder of the chunks and the control -- */

PyObject *recorder_set_folder(PyObject *recorder, PyObject *arguments);
PyObject *recorder_follow_parent(PyObject *recorder, PyObject *arguments);
/* Give a recorder that uses its parent's control a control again. Return -1 with an error set. */
int recorder_stop_following(Recorder *recorder);
void recorder_use_own_control(Recorder *recorder);
/* Store new records in memory from now on. Return -1 with an error set. */
int recorder_use_memory(Recorder *recorder);

/* -- sample.c: checks that a recorder can have written these records, and that they nest -- */

int is_in_range(int64_t time); /* small enough to be added and subtracted without overflow */
int is_ordinary(const Record *record, uint32_t num_names);
int sample_setup(PyObject *module);

/* -- stack_samples.c: repeated samples of the Python stack of another thread -- */

int stack_samples_setup(PyObject *module);

/* -- thread_clocks.c: run time, blocked time and run-queue delay of a thread -- */

int thread_clocks_setup(PyObject *module);

/* -- call_recorder.c: calls of a function as spans -- */

int call_recorder_setup(PyObject *module);

/* -- pairs.c: spans as pairs of a begin and an end -- */

PyObject *pair_records(PyObject *module, PyObject *arguments);

/* -- drain.c: finished records as lines of Chrome JSON -- */

PyObject *record_columns(PyObject *module, PyObject *arguments);
PyObject *drain_chrome(PyObject *module, PyObject *arguments);

/* -- the hot path -- */

typedef struct {
    uint64_t serial;
    Track *track; /* of the recorder with that serial, which holds the reference */
    ThreadLife *life;
} ThisThread;

extern __thread ThisThread this_thread;

/* Return the calling thread's track, and make it if there is none. Borrowed. NULL with an error
 * set. */
static inline Track *track_of_this_thread(Recorder *recorder)
{
    return LIKELY(this_thread.serial == recorder->serial) ? this_thread.track
                                                          : track_look_up(recorder);
}

/* Return an idle entry that no other code references. Borrowed. NULL as track_make_entry. */
static inline Entry *track_take_entry(Track *track)
{
    Entry *entry = track->free_entries;
    if (UNLIKELY(entry == NULL)) return track_make_entry(track);
    track->free_entries = entry->next_free;
    if (UNLIKELY(!has_one_reference(entry) || !has_one_reference(entry->exit)))
        return track_replace_entry(entry);
    return entry;
}

/* Get the track and the time of an instant or a counter. The track is NULL if no window is open,
 * also if it closed while Python code ran (a thread's first record, or the user's clock). Return -1
 * with an error set. */
static ALWAYS_INLINE int recorder_find_track(Recorder *recorder, Track **track, int64_t *now)
{
    int is_open = recorder_window(recorder) != 0;
    *track = LIKELY(is_open) ? track_of_this_thread(recorder) : NULL;
    if (is_open && UNLIKELY(*track == NULL)) return -1;
    *now = recorder_now(recorder);
    if (recorder_failed(*now)) return -1;
    if (UNLIKELY(recorder_window(recorder) == 0)) *track = NULL;
    return 0;
}

static inline void track_free_entry(Track *track, Entry *entry)
{
    entry->state = ENTRY_IDLE;
    entry->next_free = track->free_entries;
    track->free_entries = entry;
}

/* Return an entry for the span on this thread; it references the span. Borrowed. NULL with an error
 * set. */
static inline Entry *span_take_entry(Span *span)
{
    Track *track;
    Entry *entry;
    do {
        track = track_of_this_thread(span->recorder);
        entry = track != NULL ? track_take_entry(track) : NULL;
    } while (UNLIKELY(entry == NULL) && track != NULL && PyErr_Occurred() == NULL);
    if (LIKELY(entry != NULL)) {
        entry->span = (Span *)Py_NewRef((PyObject *)span);
        entry->span_id = span->id;
    }
    return entry;
}

static inline int span_is_active(const Span *span)
{
    return (shared_load(&span->recorder->control->action) & span->mask) != 0;
}

/* Return whether slow steps get the span, which is not recorded. */
static inline int span_is_marked(const Span *span)
{
    PyObject *slow = span->recorder->slow;
    return UNLIKELY(slow != NULL) && slow_wants_marks(slow);
}

/* Get the id of the span's name if it is unknown. Return 0 with an error set. */
static inline int span_has_name(Span *span)
{
    return LIKELY(span->name_id != NO_NAME) || span_find_name(span) == 0;
}

#endif
