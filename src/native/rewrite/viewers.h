/* A quick check that viewers show an event. If it returns no, formats/viewers.py decides. */

#ifndef KINETOSCOPE_VIEWERS_H
#define KINETOSCOPE_VIEWERS_H

#include "rewrite/event.h"

/* Whether viewers certainly show it, judged by its own fields only. */
int viewers_show(const Event *event);
/* The number that replaces an id that began a flow before; `count` counts from 1. */
int64_t viewers_repeated_id(int64_t id, uint32_t count);
/* The number that viewers read in the id of a flow: a text is hexadecimal. */
int64_t viewers_flow_id(Text id);

/* The spans of one track, to decide which flows have a span to begin or end at. */
typedef struct {
    int64_t first_span, first_other, latest_end;
    /* flows before which no span was seen: twice their time, plus 1 if a B or an instant came
     * before them in the file */
    int64_t *early;
    size_t num_early, early_capacity;
    uint64_t num_open;
    uint8_t has_span, has_other, has_seen_other, is_emptied;
} FlowPlace;

enum FlowAnswer { FLOW_HAS_SPAN, FLOW_HAS_NONE, FLOW_IS_EARLY };

/* Notes an event, in the order of the file. For a flow, returns whether it has a span. An early
 * flow may get one later, unless the whole file was noted before. */
enum FlowAnswer flow_place_note(FlowPlace *place, const Event *event);
/* Remembers an early flow; 0 if there is no memory. */
int flow_place_wait(FlowPlace *place, int64_t ts);
/* Call it after the whole file was noted. Returns how many early flows have no span. The file is
 * then noted again from its begin. */
uint64_t flow_place_finish(FlowPlace *place);

#endif
