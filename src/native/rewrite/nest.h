/* Proper nesting, as formats/nesting.py says it: the spans of one track flow in, in order of their
 * begin, and which of them must be cut or moved so that all nest flows out. */

#ifndef KINETOSCOPE_NEST_H
#define KINETOSCOPE_NEST_H

#include "text/bytes.h"
#include "rewrite/event.h"

#define NO_ACTION UINT32_MAX
/* behind so many overlap tracks, what does not fit is cut until it does */
#define NEST_LAST_LEVEL 1000

enum SpanKind { SPAN_FRAME, SPAN_DEVICE, SPAN_OTHER, SPAN_FIXED };

typedef struct {
    int64_t begin, dur;
    uint64_t serial : 56, kind : 8; /* its place in the file, and an enum SpanKind */
    uint32_t name;                  /* in the names */
    uint32_t action;                /* what was done to it, or NO_ACTION */
} NestSpan;

/* What becomes of a span that does not stay as it is. */
typedef struct {
    uint64_t serial;
    int64_t begin, dur;
    int64_t cut_begin, cut_end;
    uint32_t level;  /* the overlap track it is on; 0 is its own */
    uint32_t beside; /* the name of the span on its own track that it overlaps, where it moved */
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

/* One track of spans, or one of the overlap tracks beside it. */
typedef struct NestLevel NestLevel;
struct NestLevel {
    NestSpan *open; /* those that enclose the present moment */
    size_t num_open, open_capacity;
    NestRepeat *repeats; /* a heap of those that begin later than they did */
    size_t num_repeats, repeats_capacity;
    uint64_t num_repeated;
    NestSpan *moved; /* to this one from the level before, whose spans all come first */
    size_t num_moved, moved_capacity;
    uint32_t level;
    NestLevel *next;
};

/* In the order in which they must come; with their serials, none comes like another. */
int nest_compare(const NestSpan *one, const NestSpan *other);
int nest_compare_serials(const void *one, const void *other);
void nest_place(NestLevel *level, NestSpan span, NestOutcome *outcome);
/* Places what still waits on this level, and all that moved to those behind it. */
void nest_finish(NestLevel *level, NestOutcome *outcome);
/* Says what was done to a span of a thread, for its args, as within a JSON string. `names` are as
 * JSON, with their quotes; `overlap` is the number of the track that it is on now. */
void nest_say(const NestAction *action, const Table *names, Text thread, unsigned overlap,
              Bytes *said);
void nest_free(NestLevel *level);
void nest_free_outcome(NestOutcome *outcome);

#endif
