/* Functions that both passes over a trace use: survey.c and rewrite.c. */

#ifndef KINETOSCOPE_PASSES_H
#define KINETOSCOPE_PASSES_H

#include "rewrite/trace_text.h"

typedef void (*EventUse)(TraceText *text, const Event *event, unsigned flags, Bytes *out,
                         EventFault *fault);

/* Passes the events from `*where` on to `use`, which may refuse one by setting its `fault`. Moves
 * `*where` after the events that were accepted. */
enum TextStatus trace_walk(TraceText *text, const char **where, const char *end, int is_first,
                           unsigned flags, Bytes *out, EventUse use);
/* Notes what an event is in the first pass. */
void trace_survey_event(TraceText *text, const Event *event, unsigned flags, Bytes *out,
                        EventFault *fault);
/* What nesting changed in the next event; NULL for nothing. */
const NestAction *trace_action(TraceText *text);
/* The number of a flow; in the second pass TABLE_FULL if none such began. Viewers take flows with
 * the same id, category and name for one. */
uint32_t trace_flow_number(TraceText *text, const Event *event);

/* The track of an event. NULL with EVENT_REFUSED in `fault` if Python must write its pid or tid
 * anew first; NULL with `has_failed` set without memory, or with `has_changed` if the first pass
 * did not see the track. */
static inline TextTrack *trace_track(TraceText *text, const Event *event, unsigned flags,
                                     EventFault *fault)
{
    TextTrack *track = tracks_find(&text->tracks, event, flags, fault);
    int is_missing = track == NULL && *fault == EVENT_FINE;
    text->has_failed |= is_missing && !text->is_surveyed;
    text->has_changed |= is_missing && text->is_surveyed;
    return track;
}

/* The output of the next event of a track, and what nesting changed in the event; NULL, with
 * `has_changed` set, if the plan has none. */
static inline const TextOutput *trace_output(TraceText *text, const TextTrack *track,
                                             const NestAction **action)
{
    *action = trace_action(text);
    text->serial++;
    size_t number = track->first_output + (*action != NULL ? (*action)->level : 0);
    if (number < text->num_outputs) return &text->outputs[number];
    text->has_changed = 1;
    return NULL;
}

/* What nesting changed in an event of that output, as text, until the next call. */
static inline const Bytes *trace_nesting_note(TraceText *text, const TextTrack *track,
                                              const NestAction *action, const TextOutput *output)
{
    text->nesting_note.length = 0;
    nest_describe(action, &text->names, tracks_thread(&text->tracks, track), output->overlap,
                  &text->nesting_note);
    text->has_failed |= text->nesting_note.has_failed;
    return &text->nesting_note;
}

/* Whether Python must decide first if and how viewers show the event. */
static inline int trace_needs_viewers(const TraceText *text, const Event *event, unsigned flags)
{
    return text->tracks.is_for_viewers && !(flags & INSPECT_CANONICAL) && !viewers_show(event);
}

#endif
