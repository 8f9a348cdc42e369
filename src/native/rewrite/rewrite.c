/* The second pass over a trace: writes each event to the track of the plan. See
 * trace_text.h. */

#include "rewrite/passes.h"
#include "rewrite/put_event.h"

#include "text/numbers.h"

/* Whether a B or E event is kept: an E is kept if its B was in the window. */
static int keeps_pair(TextTrack *track, const Event *event, int is_inside)
{
    if (event->phase == 'E') return track->num_kept > 0 && track->kept[--track->num_kept];
    if (array_room_for_next((void **)&track->kept, track->num_kept, &track->kept_capacity, 1))
        track->kept[track->num_kept++] = (uint8_t)is_inside;
    return is_inside;
}

static int is_in_window(TextTrack *track, const Event *event, const TextOutput *output,
                        int64_t begin, int64_t dur)
{
    if (event->fields[FIELD_TS].at == NULL) return 1;
    if (event->phase == 'X') return begin <= output->to_ns && begin + dur >= output->from_ns;
    int is_inside = begin >= output->from_ns && begin <= output->to_ns;
    return event->phase == 'B' || event->phase == 'E' ? keeps_pair(track, event, is_inside)
                                                      : is_inside;
}

/* Writes an event as packets. Spans that were moved or cut are no longer in their order. */
static void put_packets(TraceText *text, const TextTrack *track, const Event *event,
                        const TextOutput *output, const Rewrite *rewrite, Bytes *out)
{
    PacketPlace place = {.number = (uint32_t)(output - text->outputs),
                         .track = output->track,
                         .process = output->process,
                         .ts = rewrite->ts,
                         .dur = rewrite->dur,
                         .nesting_note = rewrite->nesting_note};
    place.is_disordered = track->is_disordered || track->num_levels > 1 || track->was_cut;
    place.is_in_end_order = track->is_disordered && !track->ends.is_broken &&
                            track->num_levels == 1 && !track->was_cut && text->drift_gain_ns == 0;
    place.num_shared = place.is_in_end_order && event->phase == 'X'
                           ? end_order_shared(&track->ends, event->ts)
                           : 0;
    if (event->fields[FIELD_ID].at != NULL)
        place.has_id = event_plain_id(event->fields[FIELD_ID], &place.id);
    if (place.has_id && rewrite->shifts_ids) place.id += rewrite->id_shift;
    packet_event(&text->packets, &text->shapes, event, &place, out);
}

/* Whether Python must assign the event's ids first. */
static int needs_new_ids(const TraceText *text, const Event *event)
{
    int has_id = (event->fields[FIELD_ID].at != NULL || event->fields[FIELD_ID2].at != NULL) &&
                 event_has_id_phase(event);
    return !text->keeps_places && !text->ids_are_plain &&
           (has_id || event->fields[FIELD_BIND_ID].at != NULL);
}

/* A moment, corrected for the drift of the file's clock. Division rounds down, as in Python. */
static int64_t without_drift(const TraceText *text, int64_t at)
{
    if (text->drift_gain_ns == 0) return at;
    __int128 product = (__int128)(at - text->drift_begin_ns) * text->drift_gain_ns;
    int64_t quotient = (int64_t)(product / text->drift_over_ns);
    return at + quotient - (product % text->drift_over_ns < 0);
}

static Text text_or(Text text, Text other)
{
    return text.length > 0 ? text : other;
}

/* Writes metadata that keeps everything except a tid that viewers misread and the base of its
 * time. */
static void put_as_it_is(TraceText *text, const Event *event, Bytes *out)
{
    Text pid = event->fields[FIELD_PID], tid = event->fields[FIELD_TID], key = pid;
    int64_t ts = event->ts + text->shift_ns;
    Rewrite rewrite = {.pid = pid, .tid = tid, .ts = ts > 0 ? ts : 0, .dur = event->dur};
    uint32_t number = tracks_number(&text->tracks, &key, tid);
    uint32_t first_output = number < text->tracks.num ? text->tracks.all[number].first_output
                                                      : NO_OUTPUT;
    if (first_output < text->num_outputs && none_if_null(tid).at != NULL)
        rewrite.tid = text_or(text->outputs[first_output].tid, tid);
    text->num_written++;
    put_event(out, event, &rewrite);
}

/* A new id for a flow that begins again, and for its steps and ends, since viewers need different
 * ids; 0 for other flows. */
static int64_t id_of_repeated(TraceText *text, const Event *event)
{
    if (text->num_repeated_flows == 0 || event->phase == 0 || strchr("stf", event->phase) == NULL ||
        event->fields[FIELD_ID].at == NULL)
        return 0;
    uint32_t number = trace_flow_number(text, event);
    if (number == TABLE_FULL) { /* in the file nothing begins it */
        text->has_changed |= event->phase == 's';
        return 0;
    }
    if (!array_room_up_to((void **)&text->flow_counts, number, &text->flow_counts_capacity,
                          sizeof *text->flow_counts)) {
        text->has_failed = 1;
        return 0;
    }
    uint32_t count = text->flow_counts[number] += event->phase == 's';
    return count > 1 ? viewers_repeated_id(viewers_flow_id(event->fields[FIELD_ID]), count) : 0;
}

/* The place of an event in a repair: unchanged, except a tid that viewers misread; 0 if viewers
 * cannot show the event. */
static int keep_place(TraceText *text, TextTrack *track, const Event *event, Text tid,
                      Rewrite *rewrite)
{
    if (text->tracks.is_for_viewers && flow_place_note(&track->flows, event) != FLOW_HAS_SPAN)
        return 0;
    if (rewrite->ts + text->shift_ns > MAX_TIME_US * 1000) return 0;
    rewrite->pid = event->fields[FIELD_PID];
    rewrite->tid = text_or(tid, event->fields[FIELD_TID]);
    rewrite->new_id = id_of_repeated(text, event);
    return 1;
}

/* Whether Python must write the event anew first, because a value that we compare or change is
 * written in an unusual way. */
static int is_unusual(const TraceText *text, const Event *event, unsigned flags)
{
    if (flags & INSPECT_CANONICAL) return 0;
    Text name = event->fields[FIELD_NAME];
    /* an event that the first pass noted was checked there, and here it has no args */
    int is_checked = event == &text->splices.event;
    return event->phase == 0 ||
           (text->keeps_places && !is_checked && trace_needs_viewers(text, event, flags)) ||
           needs_new_ids(text, event) ||
           (text->align_on.length > 0 && name.at != NULL &&
            memchr(name.at, '\\', name.length) != NULL);
}

/* Move an event's time by nesting and the plan; 0 if it is outside the window. */
static int move_in_time(const TraceText *text, TextTrack *track, const Event *event,
                        const TextOutput *output, Rewrite *rewrite)
{
    if (text->is_windowed && !is_in_window(track, event, output, rewrite->ts, rewrite->dur))
        return 0;
    int64_t end = without_drift(text, rewrite->ts + rewrite->dur);
    rewrite->ts = without_drift(text, rewrite->ts);
    rewrite->dur = end - rewrite->ts;
    rewrite->ts += text->shift_ns;
    if (text->keeps_places && event->phase == 'M' && rewrite->ts < 0) rewrite->ts = 0;
    return 1;
}

/* Handles metadata that a merged trace replaces and a repaired one keeps. */
static void rewrite_track_metadata(TraceText *text, const Event *event, unsigned flags, Bytes *out,
                                   EventFault *fault)
{
    int is_kept = text->keeps_places && !event_is_header(event);
    if (is_kept && !tracks_take(event, flags)) {
        *fault = EVENT_REFUSED;
        return;
    }
    text->serial++;
    if (is_kept) put_as_it_is(text, event, out);
}

static void rewrite_event(TraceText *text, const Event *event, unsigned flags, Bytes *out,
                          EventFault *fault)
{
    if (is_unusual(text, event, flags)) {
        *fault = EVENT_REFUSED;
        return;
    }
    if (text->leaves_out_timeless && event_lost_its_time(event)) return;
    if (event_is_track_metadata(event)) {
        rewrite_track_metadata(text, event, flags, out, fault);
        return;
    }
    TextTrack *track = trace_track(text, event, flags, fault);
    if (track == NULL) return;
    const NestAction *action;
    const TextOutput *output = trace_output(text, track, &action);
    if (output == NULL) return;
    Rewrite rewrite = {.pid = output->pid, .tid = output->tid, .id_shift = text->id_shift};
    rewrite.ts = action != NULL ? action->begin : event->ts;
    rewrite.dur = action != NULL ? action->dur : event->dur;
    if (text->keeps_places && !keep_place(text, track, event, output->tid, &rewrite)) return;
    rewrite.shifts_ids = !(flags & INSPECT_CANONICAL) && text->ids_are_plain && !text->keeps_places;
    rewrite.narrows = !text->keeps_places;
    if (!output->is_kept || !move_in_time(text, track, event, output, &rewrite)) return;
    text->num_written++;
    if (action != NULL) rewrite.nesting_note = trace_nesting_note(text, track, action, output);
    if (text->writes_packets)
        put_packets(text, track, event, output, &rewrite, out);
    else
        put_event(out, event, &rewrite);
}

void trace_finish_rewrite(TraceText *text, Bytes *out)
{
    packet_finish(&text->packets, out);
    text->has_changed |= text->serial != text->num_serials || !splices_are_same(&text->splices);
    text->has_failed |= text->packets.has_failed | out->has_failed;
}

enum TextStatus trace_rewrite(TraceText *text, const char **at, const char *end, int is_first,
                              unsigned flags, Bytes *out)
{
    enum TextStatus status = trace_walk(text, at, end, is_first, flags, out, rewrite_event);
    text->has_failed |= out->has_failed;
    return status;
}
