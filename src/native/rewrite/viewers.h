/* What viewers show of an event, as formats/viewers.py says it, which decides where this says
 * no. */

#ifndef KINETOSCOPE_VIEWERS_H
#define KINETOSCOPE_VIEWERS_H

#include "rewrite/event.h"

/* Whether viewers surely show it, as far as that depends on its own fields. */
int viewers_show(const Event *event);
/* The number in the place of an id that began a flow before, `count` counting from 1. */
int64_t viewers_repeated_id(Text id, uint32_t count);

/* The spans of one track, as far as they say which flows have one to begin or end at. */
typedef struct {
    int64_t first_span, first_other, latest_end;
    /* flows before which no span was seen: twice their time, and 1 if one more might do */
    int64_t *early;
    size_t num_early, early_capacity;
    uint64_t num_open;
    uint8_t has_span, has_other, has_seen_other, is_emptied;
} FlowPlace;

enum FlowAnswer { FLOW_HAS_SPAN, FLOW_HAS_NONE, FLOW_IS_EARLY };

/* Notes an event, in the order of the file; tells of a flow whether it has a span. An early one may
 * get it yet, unless the whole file was noted before. */
enum FlowAnswer flow_place_note(FlowPlace *place, const Event *event);
/* Remembers an early flow; 0 if there is no memory. */
int flow_place_wait(FlowPlace *place, int64_t ts);
/* The whole file was noted: how many of the early flows have no span. It is noted again from here
 * on. */
uint64_t flow_place_finish(FlowPlace *place);

#endif
