/* The first pass over a trace: what it holds, and how its spans nest. See trace_text.h. */

#include "rewrite/passes.h"

#include <stdlib.h>

/* from here on, microseconds as doubles lose nanoseconds */
#define ROUNDED_NS (INT64_C(1000) << 43)
#define UNIX_NS INT64_C(1000000000000000000) /* September 2001 */

/* Nests the first `count` of the spans that wait on a track. */
static void nest_pending(TraceText *text, TextTrack *track, size_t count)
{
    size_t num_actions = text->outcome.num_actions;
    for (size_t i = 0; i < count; i++)
        nest_place(&track->nested, track->pending[i], &text->outcome);
    track->was_cut |= text->outcome.num_actions > num_actions;
    track->last_begin = track->pending[count - 1].begin;
    track->last_dur = track->pending[count - 1].dur;
    track->has_nested = 1;
    memmove(track->pending, track->pending + count,
            (track->num_pending - count) * sizeof *track->pending);
    track->num_pending -= count;
    text->num_pending -= count;
}

/* When too many spans wait, nests the oldest ones of the fullest track, since earlier ones are
 * unlikely to come. */
static void nest_oldest(TraceText *text)
{
    TextTrack *fullest = &text->tracks.all[0];
    for (size_t i = 1; i < text->tracks.num; i++) {
        if (text->tracks.all[i].num_pending > fullest->num_pending) fullest = &text->tracks.all[i];
    }
    if (fullest->is_unsorted)
        qsort(fullest->pending, fullest->num_pending, sizeof *fullest->pending,
              nest_compare_serials);
    fullest->is_unsorted = 0;
    nest_pending(text, fullest, (fullest->num_pending + 1) / 2);
}

static enum SpanKind kind_of(Text category)
{
    if (category.at == NULL) return SPAN_OTHER;
    if (TEXT_IS(category, "\"python_function\"")) return SPAN_FRAME;
    return TEXT_IS(category, "\"kernel\"") || TEXT_IS(category, "\"gpu_memcpy\"") ||
                   TEXT_IS(category, "\"gpu_memset\"")
               ? SPAN_DEVICE
               : SPAN_OTHER;
}

static void collect(TraceText *text, TextTrack *track, const Event *event, unsigned flags)
{
    Text name = event->fields[FIELD_NAME];
    NestSpan span = {
        .begin = event->ts, .dur = event->dur, .serial = text->serial, .action = NO_ACTION};
    span.kind = flags & INSPECT_FIXED ? SPAN_FIXED : kind_of(event->fields[FIELD_CAT]);
    span.name = table_intern(&text->names, name.at != NULL ? name.at : "", name.length);
    if (!array_room_for_next((void **)&track->pending, track->num_pending, &track->pending_capacity,
                             sizeof *track->pending)) {
        text->has_failed = 1;
        return;
    }
    if (track->num_pending > 0)
        track->is_unsorted |= nest_compare(&span, &track->pending[track->num_pending - 1]) < 0;
    if (track->has_nested) {
        NestSpan last = {.begin = track->last_begin, .dur = track->last_dur};
        text->is_late |= nest_compare(&span, &last) < 0;
    }
    track->pending[track->num_pending++] = span;
    if (++text->num_pending > text->max_pending) nest_oldest(text);
}

static void survey_id(TraceText *text, Text id)
{
    int64_t number;
    if (!event_plain_id(id, &number)) {
        text->has_irregular_ids = 1;
        return;
    }
    text->lowest_id = text->has_ids && text->lowest_id < number ? text->lowest_id : number;
    text->highest_id = text->has_ids && text->highest_id > number ? text->highest_id : number;
    text->has_ids = 1;
}

/* Counts what viewers do not show: flows that begin twice or are in no span, ends without a begin,
 * times out of range. */
static void check_event(TraceText *text, TextTrack *track, const Event *event)
{
    uint64_t num_open = track->flows.num_open;
    enum FlowAnswer answer = flow_place_note(&track->flows, event);
    text->num_hidden_flows += answer == FLOW_HAS_NONE;
    if (answer == FLOW_IS_EARLY) text->has_failed |= !flow_place_wait(&track->flows, event->ts);
    text->num_rounded += event->phase == 'X' && event->ts % 1000 != 0 &&
                         (event->ts >= ROUNDED_NS || event->ts <= -ROUNDED_NS);
    text->num_lone_begins += track->flows.num_open - num_open;
    text->num_lone_ends += event->phase == 'E' && num_open == 0;
    if (event->phase == 's' && event->fields[FIELD_ID].at != NULL) {
        size_t before = text->flows.num_entries;
        trace_flow_number(text, event);
        text->num_repeated_flows += text->flows.num_entries == before;
    }
}

static void survey_span(TraceText *text, TextTrack *track, const Event *event, unsigned flags)
{
    Text name = event->fields[FIELD_NAME];
    if (name.at != NULL && track->role == ROLE_NONE) {
        if (TEXT_BEGINS(name, "\"ProfilerStep#") || TEXT_BEGINS(name, "\"event/batch"))
            track->role = ROLE_LOOP;
        else if (TEXT_BEGINS(name, "\"autograd::engine::evaluate_function"))
            track->role = ROLE_BACKWARD;
    }
    if (event->fields[FIELD_TS].at == NULL) return;
    if (name.at != NULL && event->begin != NULL && /* else it is a record */
        (TEXT_BEGINS(name, "\"ProfilerStep#") || TEXT_IS(name, "\"event/batch\""))) {
        if (text->steps.length > 0) bytes_put_char(&text->steps, ',');
        bytes_put(&text->steps, event->begin, (size_t)(event->end - event->begin));
    }
    NestSpan span = {.begin = event->ts, .dur = event->dur};
    NestSpan previous = {.begin = track->previous_begin, .dur = track->previous_dur};
    track->is_disordered |= track->num_spans++ > 0 && nest_compare(&span, &previous) < 0;
    text->has_failed |= !end_order_note(&track->ends, event->ts, event->dur, track->is_disordered);
    track->previous_begin = event->ts;
    track->previous_dur = event->dur;
    if (text->num_spans++ == 0 || event->ts + event->dur > text->latest_end_ns)
        text->latest_end_ns = event->ts + event->dur;
    if (text->nests) collect(text, track, event, flags);
}

static void survey_counter(TraceText *text, const TextTrack *track, const Event *event)
{
    if (text->counters.is_wanted)
        text->has_failed |= !counters_survey(&text->counters, event,
                                             (uint32_t)(track - text->tracks.all));
}

static void survey_time(TraceText *text, const Event *event)
{
    Text name = event->fields[FIELD_NAME];
    if (text->num_timed++ == 0) text->earliest_ns = text->latest_ns = event->ts;
    text->earliest_ns = event->ts < text->earliest_ns ? event->ts : text->earliest_ns;
    text->latest_ns = event->ts > text->latest_ns ? event->ts : text->latest_ns;
    text->has_unix_times |= event->ts > UNIX_NS;
    if (!event_lost_its_time(event) &&
        (!text->has_others || event->ts < text->earliest_of_others_ns)) {
        text->earliest_of_others_ns = event->ts;
        text->has_others = 1;
    }
    if (text->align_on.length > 0 && name.at != NULL &&
        text_is(name, text->align_on.at, text->align_on.length)) {
        text->aligned_ns = text->has_aligned && text->aligned_ns < event->ts ? text->aligned_ns
                                                                             : event->ts;
        text->has_aligned = 1;
    }
}

static int is_device_category(Text category)
{
    return category.at != NULL &&
           (TEXT_IS(category, "\"kernel\"") || TEXT_IS(category, "\"gpu_memcpy\"") ||
            TEXT_IS(category, "\"gpu_memset\"") || TEXT_IS(category, "\"Kernel\"") ||
            TEXT_IS(category, "\"Memcpy\"") || TEXT_IS(category, "\"Memset\"") ||
            TEXT_IS(category, "\"concurrent_kernel\"") ||
            TEXT_IS(category, "\"mtia_ccp_events\"") || TEXT_IS(category, "\"GCU_MEMCPY\"") ||
            TEXT_IS(category, "\"GCU_MEMSET\""));
}

/* Keeps the text of metadata once, and when it came last: of two names of a thread the later one
 * counts, also if it had that name before. */
static void survey_metadata(TraceText *text, const Event *event)
{
    uint32_t number = table_intern(&text->metadata, event->begin,
                                   (size_t)(event->end - event->begin));
    if (number == TABLE_FULL ||
        !array_room_up_to((void **)&text->metadata_last, number, &text->metadata_last_capacity,
                          sizeof *text->metadata_last))
        text->has_failed = 1;
    else
        text->metadata_last[number] = text->serial;
}

void trace_survey_event(TraceText *text, const Event *event, unsigned flags, Bytes *out,
                        EventFault *fault)
{
    (void)out;
    Text name = event->fields[FIELD_NAME];
    int is_other_text = !(flags & INSPECT_CANONICAL) && text->align_on.length > 0 &&
                        name.at != NULL && memchr(name.at, '\\', name.length) != NULL;
    /* an object without a phase may be a document that was pasted between the events */
    int is_no_event = event->phase == 0 && !(flags & INSPECT_CANONICAL);
    if (is_other_text || is_no_event || trace_needs_viewers(text, event, flags)) {
        /* the name can only be compared if both are written in the same way */
        *fault = EVENT_REFUSED;
        return;
    }
    TextTrack *track = event_is_track_metadata(event) ? NULL
                                                      : trace_track(text, event, flags, fault);
    if (*fault != EVENT_FINE || text->has_failed) return;
    text->num_events += !event_is_header(event);
    if (event_lost_its_time(event)) {
        if (text->num_at_zero++ == 0) text->first_at_zero = text->num_events;
        if (text->leaves_out_timeless) return;
    }
    text->num_negative += event->fields[FIELD_TS].at != NULL && event->ts < 0;
    text->has_phases |= event->phase != 0;
    if (event->phase == 'M')
        survey_metadata(text, event);
    else if (event->fields[FIELD_TS].at != NULL)
        survey_time(text, event);
    if (track != NULL) {
        if (track->first_serial == UINT64_MAX) track->first_serial = text->serial;
        track->is_device |= event->phase != 'M' && is_device_category(event->fields[FIELD_CAT]);
        if (event->phase == 'X')
            survey_span(text, track, event, flags);
        else if (event->phase == 'C')
            survey_counter(text, track, event);
        else
            track->ends.is_broken |= event->phase != 0 && strchr("BEstf", event->phase) != NULL;
        if (text->tracks.is_for_viewers) check_event(text, track, event);
        if (event->fields[FIELD_ID].at != NULL && event_has_id_phase(event))
            survey_id(text, event->fields[FIELD_ID]);
        if (event->fields[FIELD_BIND_ID].at != NULL) survey_id(text, event->fields[FIELD_BIND_ID]);
        if (event->fields[FIELD_ID2].at != NULL && event_has_id_phase(event))
            text->has_irregular_ids = 1;
    }
    text->serial++;
}

enum TextStatus trace_survey(TraceText *text, const char **at, const char *end, int is_first,
                             unsigned flags)
{
    return trace_walk(text, at, end, is_first, flags, NULL, trace_survey_event);
}

static int compare_actions(const void *one, const void *other)
{
    uint64_t first = ((const NestAction *)one)->serial,
             second = ((const NestAction *)other)->serial;
    return first < second ? -1 : first > second;
}

/* Frees all names except those of spans that others were moved away from: only these are needed
 * later. */
static void keep_names(TraceText *text)
{
    Table kept = {0};
    for (size_t i = 0; i < text->outcome.num_actions; i++) {
        NestAction *action = &text->outcome.actions[i];
        if (action->beside == TABLE_FULL) continue;
        size_t length;
        const char *name = table_key(&text->names, action->beside, &length);
        action->beside = table_intern(&kept, name, length);
        text->has_failed |= action->beside == TABLE_FULL;
    }
    table_free(&text->names);
    text->names = kept;
}

void trace_finish_survey(TraceText *text)
{
    for (size_t i = 0; i < text->tracks.num; i++) {
        TextTrack *track = &text->tracks.all[i];
        if (track->num_pending > 0) {
            if (track->is_unsorted)
                qsort(track->pending, track->num_pending, sizeof *track->pending,
                      nest_compare_serials);
            nest_pending(text, track, track->num_pending);
        }
        size_t num_actions = text->outcome.num_actions;
        nest_finish(&track->nested, &text->outcome);
        track->was_cut |= text->outcome.num_actions > num_actions;
        text->num_hidden_flows += flow_place_finish(&track->flows);
        end_order_finish(&track->ends);
        for (NestLevel *level = track->nested.next; level != NULL; level = level->next)
            track->num_levels++;
        nest_free(&track->nested);
        free(track->pending);
        track->pending = NULL;
        track->pending_capacity = 0;
    }
    if (text->outcome.num_actions > 0)
        qsort(text->outcome.actions, text->outcome.num_actions, sizeof *text->outcome.actions,
              compare_actions);
    keep_names(text);
    text->has_failed |= text->outcome.has_failed | text->steps.has_failed;
    text->num_serials = text->serial;
    text->serial = 0;
    text->is_surveyed = text->tracks.are_all_known = 1;
    uint32_t num_outputs = 0;
    for (size_t i = 0; i < text->tracks.num; i++) {
        text->tracks.all[i].first_output = num_outputs;
        num_outputs += text->tracks.all[i].num_levels;
    }
}
