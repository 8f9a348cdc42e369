/* Makes spans nest, as formats/nesting.py does. It gets the spans of one track in the order of
 * their begins, and decides which of them are cut or moved. */

#ifndef KINETOSCOPE_NEST_H
#define KINETOSCOPE_NEST_H

#include "text/bytes.h"
#include "rewrite/event.h"

#define NO_ACTION UINT32_MAX
/* after so many overlap tracks, spans are cut until they fit */
#define NEST_LAST_LEVEL 1000

enum SpanKind { SPAN_FRAME, SPAN_DEVICE, SPAN_OTHER, SPAN_FIXED };

typedef struct {
    int64_t begin, dur;
    uint64_t serial : 56, kind : 8; /* its place in the file; an enum SpanKind */
    uint32_t name;                  /* number of its name */
    uint32_t action;                /* what was done to it, or NO_ACTION */
} NestSpan;

/* What is changed in a span. */
typedef struct {
    uint64_t serial;
    int64_t begin, dur;
    int64_t cut_begin, cut_end;
    uint32_t level;  /* the overlap track it is on; 0: its own track */
    uint32_t beside; /* name of the span that it overlaps on its own track, if it was moved */
} NestAction;

typedef struct {
    NestAction *actions;
    size_t num_actions, actions_capacity;
    uint64_t num_clipped, num_moved;
    int has_failed; /* there was no memory */
} NestOutcome;

typedef struct {
    NestSpan span;
    uint64_t order;
} NestRepeat;

/* One track of spans, or one of its overlap tracks. */
typedef struct NestLevel NestLevel;
struct NestLevel {
    NestSpan *open; /* the spans that are open now */
    size_t num_open, open_capacity;
    NestRepeat *repeats; /* a heap of the spans whose begin was cut, so that they begin later */
    size_t num_repeats, repeats_capacity;
    uint64_t num_repeated;
    /* spans that the level before moved here; they are placed when that level is finished */
    NestSpan *moved;
    size_t num_moved, moved_capacity;
    uint32_t level;
    NestLevel *next;
};

/* Compares spans in the order in which they must be placed. Serials differ, so no two are equal. */
int nest_compare(const NestSpan *one, const NestSpan *other);
int nest_compare_serials(const void *one, const void *other);
void nest_place(NestLevel *level, NestSpan span, NestOutcome *outcome);
/* Places the spans that still wait on this level, and all that were moved to later levels. */
void nest_finish(NestLevel *level, NestOutcome *outcome);
/* Describes what was done to a span of a thread, as text in a JSON string in its args. `names` are
 * JSON strings; `overlap` is the number of the track that it is on now. */
void nest_describe(const NestAction *action, const Table *names, Text thread, unsigned overlap,
                   Bytes *nesting_note);
void nest_free(NestLevel *level);
void nest_free_outcome(NestOutcome *outcome);

#endif
