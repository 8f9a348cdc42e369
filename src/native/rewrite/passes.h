/* What the two passes over a trace share: survey.c and rewriting.c. */

#ifndef KINETOSCOPE_PASSES_H
#define KINETOSCOPE_PASSES_H

#include "rewrite/trace_text.h"

typedef void (*EventUse)(TraceText *text, const Event *event, unsigned look, Bytes *out,
                         EventFault *fault);

/* Gives the events from `*where` on to `use`, which may refuse one by its `fault`; goes behind
 * those that were taken. */
enum TextStatus trace_walk(TraceText *text, const char **where, const char *end, int is_first,
                           unsigned look, Bytes *out, EventUse use);
/* What nesting did to the next event; NULL for nothing. */
const NestAction *trace_action(TraceText *text);
/* The number of a flow among those that began; those that have the same id, category and name are
 * one to viewers. */
uint32_t trace_flow_number(TraceText *text, const Event *event);

/* The track of an event; NULL, and EVENT_ODD in `fault`, if its pid or tid must be written anew
 * first, or `has_failed`. */
static inline TextTrack *trace_track(TraceText *text, const Event *event, unsigned look,
                                     EventFault *fault)
{
    TextTrack *track = tracks_find(&text->tracks, event, look, fault);
    text->has_failed |= track == NULL && *fault == EVENT_FINE;
    return track;
}

/* Whether Python must look first if viewers show the event, and how. */
static inline int trace_needs_viewers(const TraceText *text, const Event *event, unsigned look)
{
    return text->tracks.is_for_viewers && !(look & LOOK_CANONICAL) && !viewers_show(event);
}

#endif
