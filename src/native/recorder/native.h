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
typedef struct Entry Entry;
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

/* -- span.c: Span, its name and its instants -- */

struct Span {
    PyObject_HEAD
    Recorder *recorder;
    uint64_t id;
    uint32_t name_id;
    uint32_t mask;
    uint32_t edges;
    PyObject *enter;    /* its bound __enter__; made when first looked up */
    PyObject *handed;   /* see with.c: an Entry, or Py_None for an inactive `with`, or NULL */
    int64_t own_series; /* name id of a counter's only value; -1 until asked for */
};

/* of a span that has not been recorded; NO_NAME in kinetoscope/recording/recorder.py */
#define NO_NAME UINT32_MAX

extern PyTypeObject *span_type;
int span_setup(PyObject *module);
/* Asks the span for the id of its name in its recorder; -1 with an error set. */
int span_find_name(Span *span);
int span_record_instant(Span *span);

/* -- counter.c: its values -- */

PyObject *span_counter(PyObject *span, PyObject *values);

/* -- with.c: how `with` finds __enter__ and __exit__ -- */

int with_setup(void);

/* -- entry.c: a span in progress, how it begins and how it ends -- */

enum EntryState {
    ENTRY_IDLE,   /* on its track's list of free ones */
    ENTRY_HANDED, /* its __exit__ was looked up, and not begun */
    ENTRY_OPEN,
};

struct Entry {
    PyObject_HEAD
    Track *track;     /* counted; NULL only while it is made */
    PyObject *exit;   /* its bound __exit__, which holds the entry; its track holds that */
    Entry *next_free; /* of its track */
    Span *span;       /* strong, while handed or open */
    uint64_t span_id; /* of the span it was last used for */
    uint64_t order;   /* counts begins, to find the latest */
    uint32_t slot;
    uint32_t window; /* in which it is recorded; 0 if it is not */
    uint8_t state;
    uint8_t is_explicit; /* begun by a call of __enter__, not by `with` */
    uint8_t is_told;     /* active when it began: listeners hear of its end */
};

int entry_setup(PyObject *module);
/* Held by its `exit` alone, and that by whoever asked. May run Python code. */
Entry *entry_new(Track *track);
/* Forgets what was looked up for a `with` that did not come about. */
void span_forget_handed(Span *span);
/* __enter__ and __exit__ of a span, without a `with` that looked them up or with one. */
PyObject *span_enter(PyObject *span, PyObject *nothing);
PyObject *span_exit(PyObject *span, PyObject *arguments);
/* The methods for tokens, which are entries. */
PyObject *span_begin(PyObject *span, PyObject *nothing);
PyObject *span_end(PyObject *span, PyObject *token);
PyObject *span_abandon(PyObject *span, PyObject *token);

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
    Entry **entries; /* of each slot; `exit` of each is held here */
    Entry *free_entries;
    uint32_t num_slots, num_made, num_open;
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
/* Goes on to the next chunk. Returns 0 if there is none: the record is dropped, and counted. */
int track_refill(Track *track);
/* Puts the current chunk among the filled ones. */
void track_detach_chunk(Track *track);
/* Puts what was recorded since this was last asked at the list's front, if anything was:
 * (track, tid, name, is_main, dropped, chunks). -1 with an error set. */
int track_take(Track *track, PyObject *list);
/* Frees what only the recorder may: called once, when the track leaves its recorder. */
void track_leave(Track *track);
/* Its thread's name in UTF-8, as much of it as is kept. */
const char *track_name(const Track *track, size_t *length);
int track_setup(void);

/* -- head.c: its head, which has a slot for each open span, and their entries -- */

/* Says in the head whose the track is. */
void track_write_header(Track *track);
/* Readies the slots for recording: in a file, if the recorder has a folder by now. */
void track_finish_head(Track *track);
/* Moves the slots from a file into memory, as long as the recorder still has its old store. */
int track_move_head_to_memory(Track *track);
/* Whether a span is open that is to be recorded: one that was cut at its window's end needs its
 * slot no more. */
int track_has_span_to_record(const Track *track);
Entry *track_make_entry(Track *track);
/* Somebody kept the entry, or its __exit__: it stays theirs, and its slot gets a new one. */
Entry *track_replace_entry(Entry *entry);
void track_drop_entries(Track *track);

/* -- recorder.c: the Recorder, and what of Python's it calls -- */

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
    Recorder *next;
};

extern PyTypeObject *recorder_type;
int recorder_setup(PyObject *module);
/* Asks for new spare chunks. Runs Python code. */
void recorder_request(Recorder *recorder);
/* Calls the listener's method with the name, the moment, and `what` unless that is NULL. -1 with
 * an error set. */
int recorder_call_listener(Recorder *recorder, const char *method, uint32_t name, int64_t at,
                           PyObject *what);
/* Nanoseconds on a clock that is not the machine's; -1 with an error set if it raises. */
int64_t recorder_ask_clock(Recorder *recorder);

static inline int64_t recorder_now(Recorder *recorder)
{
    return LIKELY(recorder->now == NULL) ? monotonic_ns() : recorder_ask_clock(recorder);
}

/* The same if there is a listener. */
static inline int recorder_tell(Recorder *recorder, const char *method, uint32_t name, int64_t at,
                                PyObject *what)
{
    return LIKELY(recorder->listener == NULL)
               ? 0
               : recorder_call_listener(recorder, method, name, at, what);
}

/* 0 if none is open. */
static inline uint32_t recorder_window(const Recorder *recorder)
{
    return shared_load(&recorder->control->window);
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

/* -- window.c: opening and closing windows, and taking what was recorded -- */

PyObject *recorder_open_window(PyObject *recorder, PyObject *nothing);
PyObject *recorder_close_window(PyObject *recorder, PyObject *nothing);
PyObject *recorder_take_filled(PyObject *recorder, PyObject *nothing);
PyObject *recorder_remove_ended(PyObject *recorder, PyObject *nothing);
PyObject *recorder_ready_spares(PyObject *recorder, PyObject *nothing);

/* -- live_folder.c: where the chunks and the control are -- */

PyObject *recorder_set_folder(PyObject *recorder, PyObject *arguments);
PyObject *recorder_follow_parent(PyObject *recorder, PyObject *arguments);
/* Stops being a child, if it is one: from here on whoever calls the recorder drives it. -1 with an
 * error set. */
int recorder_stop_following(Recorder *recorder);
void recorder_use_own_control(Recorder *recorder);
/* Keeps what comes from now on in memory; -1 with an error set. */
int recorder_use_memory(Recorder *recorder);

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
    Entry *entry = track->free_entries;
    if (UNLIKELY(entry == NULL)) return track_make_entry(track);
    track->free_entries = entry->next_free;
    if (UNLIKELY(!is_ours_alone(entry) || !is_ours_alone(entry->exit)))
        return track_replace_entry(entry);
    return entry;
}

static inline void track_free_entry(Track *track, Entry *entry)
{
    entry->state = ENTRY_IDLE;
    entry->next_free = track->free_entries;
    track->free_entries = entry;
}

/* An entry for the span on this thread, which holds the span; borrowed. NULL with an error set. */
static inline Entry *span_take_entry(Span *span)
{
    Track *track = track_of_this_thread(span->recorder);
    Entry *entry = track != NULL ? track_take_entry(track) : NULL;
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

/* Whether the span has, or has been given, the id of its name; 0 with an error set. */
static inline int span_has_name(Span *span)
{
    return LIKELY(span->name_id != NO_NAME) || span_find_name(span) == 0;
}

#endif
