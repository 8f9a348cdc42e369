/* See trace_text.h. */

#include "rewrite/trace_text.h"

#include <stdlib.h>

#include "text/json.h"
#include "text/numbers.h"

/* from here on, doubles of microseconds do not tell nanoseconds apart */
#define ROUNDED_NS (INT64_C(1000) << 43)
#define UNIX_NS INT64_C(1000000000000000000) /* September 2001 */

/* -- what both passes share -- */

typedef void (*EventUse)(TraceText *text, const Event *event, unsigned look, Bytes *out,
                         EventFault *fault);

/* Goes to the next event, over any white space and commas. */
static const char *skip_to_event(const char *at, const char *end, int64_t *num_commas)
{
    for (*num_commas = 0;; ++*num_commas, at++) {
        at = json_skip_space(at, end);
        if (at == end || *at != ',') return at;
    }
}

static void note_commas(TraceText *text, int64_t num_commas, int num_expected)
{
    text->num_stray += (uint64_t)(num_commas > num_expected ? num_commas - num_expected
                                                            : num_expected - num_commas);
}

/* What nesting did to the next event; NULL for nothing. */
static const NestAction *action_for(TraceText *text)
{
    const NestOutcome *outcome = &text->outcome;
    while (text->next_action < outcome->num_actions &&
           outcome->actions[text->next_action].serial < text->serial)
        text->next_action++;
    int is_here = text->next_action < outcome->num_actions &&
                  outcome->actions[text->next_action].serial == text->serial;
    return is_here ? &outcome->actions[text->next_action] : NULL;
}

/* Reads the event at `at`, or only what the first pass noted of it, if nothing else is written
 * anew. `found` is where it is. */
static EventFault read_event(TraceText *text, const char *at, const char *end, unsigned look,
                             Event *event, const Event **found)
{
    *found = NULL;
    if (look == LOOK_AGAIN && !text->writes_packets && action_for(text) == NULL)
        *found = splices_read(&text->splices, at, end);
    if (*found != NULL) return EVENT_FINE;
    *found = event;
    return event_scan(&text->shapes, at, end, look, event);
}

static enum TextStatus each_event(TraceText *text, const char **where, const char *end,
                                  int is_first, unsigned look, Bytes *out, EventUse use)
{
    Event event = {0};
    for (;; is_first = 0) {
        int64_t num_commas;
        const Event *found = NULL;
        const char *at = skip_to_event(*where = json_skip_space(*where, end), end, &num_commas);
        if (at == end) return TEXT_MORE;
        if (*at == ']') {
            note_commas(text, num_commas, 0);
            *where = at + 1;
            return TEXT_END;
        }
        EventFault fault = *at == '{' ? read_event(text, at, end, look, &event, &found) : EVENT_ODD;
        if (fault == EVENT_CUT) return TEXT_MORE;
        if (fault == EVENT_FINE) use(text, found, look, out, &fault);
        if (out == NULL && look == 0)
            splices_note(&text->splices, fault == EVENT_FINE ? found : NULL);
        else if (look == LOOK_AGAIN)
            splices_pass(&text->splices);
        if (fault != EVENT_FINE) return TEXT_ODD;
        note_commas(text, num_commas, !is_first);
        *where = found->end;
    }
}

#define LONGEST_NUMBER 18
#define NO_OUTPUT UINT32_MAX

/* A whole number as everybody writes it. */
static int is_plain_number(Text text)
{
    size_t i = *text.at == '-';
    if (i == text.length || (text.at[i] == '0' && text.length > 1)) return 0;
    for (; i < text.length; i++) {
        if (text.at[i] < '0' || text.at[i] > '9') return 0;
    }
    return 1;
}

/* Whether a pid or tid is written as nobody else would write it who means the same. */
static int is_canonical(Text text)
{
    if (text.at == NULL) return 1;
    return *text.at == '"' ? memchr(text.at, '\\', text.length) == NULL : is_plain_number(text);
}

/* Whether Python must look first if viewers show the event, and how. */
static int needs_viewers(const TraceText *text, const Event *event, unsigned look)
{
    return text->checks && !(look & LOOK_CANONICAL) && !viewers_show(event);
}

static int is_well_placed(const Event *event, unsigned look)
{
    return (look & LOOK_CANONICAL) ||
           (is_canonical(event->fields[FIELD_PID]) && is_canonical(event->fields[FIELD_TID]));
}

/* The number that a tid is which is written as a string, or the tid itself; `plain_tid` in
 * formats/tracks.py. */
static Text plain_tid(Text tid)
{
    if (tid.at == NULL || *tid.at != '"') return tid;
    Text number = {tid.at + 1, tid.length - 2};
    if (TEXT_BEGINS(number, "stream ")) number = (Text){number.at + 7, number.length - 7};
    if (number.length == 0 || number.length > LONGEST_NUMBER) return tid;
    for (size_t i = 0; i < number.length; i++) {
        if (number.at[i] < '0' || number.at[i] > '9') return tid;
    }
    while (number.length > 1 && *number.at == '0')
        number = (Text){number.at + 1, number.length - 1};
    return number;
}

static Text none_if_null(Text text)
{
    return text.at != NULL && TEXT_IS(text, "null") ? (Text){NULL, 0} : text;
}

/* The number of a pid and a tid in a table. */
static uint32_t intern_place(Table *table, Text pid, Text tid)
{
    char small[512], *key = small;
    size_t length = pid.length + 1 + tid.length;
    if (length > sizeof small && (key = malloc(length)) == NULL) return TABLE_FULL;
    memcpy(key, pid.at != NULL ? pid.at : "", pid.length);
    key[pid.length] = 0;
    memcpy(key + pid.length + 1, tid.at != NULL ? tid.at : "", tid.length);
    uint32_t number = table_intern(table, key, length);
    if (key != small) free(key);
    return number;
}

static int is_last_place(const TraceText *text, Text pid, Text tid)
{
    if (text->last_place >= text->places.num_entries || text->last_pid_length != pid.length)
        return 0;
    size_t length;
    const char *key = table_key(&text->places, text->last_place, &length);
    return length == pid.length + 1 + tid.length &&
           memcmp(key, pid.at != NULL ? pid.at : "", pid.length) == 0 &&
           memcmp(key + pid.length + 1, tid.at != NULL ? tid.at : "", tid.length) == 0;
}

/* The number of the track of a pid and a tid. Where viewers count, a tid of 0, or none, is the main
 * thread's. */
static uint32_t track_number(TraceText *text, Text *pid, Text tid)
{
    *pid = none_if_null(*pid);
    tid = plain_tid(none_if_null(tid));
    if (text->checks && pid->at == NULL) *pid = (Text){"0", 1};
    if (text->checks && (tid.at == NULL || TEXT_IS(tid, "0"))) tid = *pid;
    return intern_place(&text->track_keys, *pid, tid);
}

/* The track of a place that was not seen before, made if it is new; TABLE_FULL if there is no
 * memory. */
static uint32_t track_of_place(TraceText *text, Text pid, Text tid)
{
    uint32_t number = track_number(text, &pid, tid);
    if (number == text->num_tracks && number != TABLE_FULL) {
        if (!array_grow((void **)&text->tracks, number, &text->tracks_capacity,
                        sizeof *text->tracks))
            return TABLE_FULL;
        text->tracks[text->num_tracks++] = (TextTrack){.first_serial = UINT64_MAX,
                                                       .pid_length = (uint32_t)pid.length,
                                                       .num_levels = 1,
                                                       .first_output = NO_OUTPUT,
                                                       .flows.latest_end = INT64_MIN};
    }
    if (number != TABLE_FULL && none_if_null(tid).at != NULL) {
        text->tracks[number].has_text_tid |= *tid.at == '"';
        text->tracks[number].has_number_tid |= *tid.at != '"';
    }
    return number;
}

/* The track of an event, by its pid and tid; NULL, and `fault`, if they are to be written anew
 * first, or `has_failed`. */
static TextTrack *track_of(TraceText *text, const Event *event, unsigned look, EventFault *fault)
{
    Text pid = event->fields[FIELD_PID], tid = event->fields[FIELD_TID];
    if (is_last_place(text, pid, tid)) return &text->tracks[text->place_tracks[text->last_place]];
    if (!is_well_placed(event, look)) {
        *fault = EVENT_ODD;
        return NULL;
    }
    size_t num_known = text->places.num_entries;
    uint32_t place = intern_place(&text->places, pid, tid);
    if (place == num_known && place != TABLE_FULL) {
        uint32_t track = track_of_place(text, pid, tid);
        if (track == TABLE_FULL || !array_grow((void **)&text->place_tracks, num_known,
                                               &text->places_capacity, sizeof *text->place_tracks))
            place = TABLE_FULL;
        else
            text->place_tracks[place] = track;
    }
    if (place == TABLE_FULL) {
        text->has_failed = 1;
        return NULL;
    }
    text->last_place = place;
    text->last_pid_length = (uint32_t)pid.length;
    return &text->tracks[text->place_tracks[place]];
}

static Text thread_of(const TraceText *text, const TextTrack *track)
{
    size_t length;
    const char *key = table_key(&text->track_keys, (uint32_t)(track - text->tracks), &length);
    size_t before = (size_t)track->pid_length + 1;
    return length > before ? (Text){key + before, length - before} : (Text){NULL, 0};
}

/* What a bare list of ours has in place of the fields beside the events. */
static int is_header(const Event *event)
{
    Text name = event->fields[FIELD_NAME];
    return event->phase == 'M' && name.at != NULL && TEXT_IS(name, "\"kinetoscope_header\"");
}

/* Metadata that names and orders processes and threads: a merged trace says that anew. */
static int is_consumed(const Event *event)
{
    Text name = event->fields[FIELD_NAME];
    return event->phase == 'M' && name.at != NULL &&
           (is_header(event) || TEXT_IS(name, "\"thread_name\"") ||
            TEXT_IS(name, "\"thread_sort_index\"") || TEXT_IS(name, "\"process_name\"") ||
            TEXT_IS(name, "\"process_sort_index\"") || TEXT_IS(name, "\"process_labels\"") ||
            TEXT_IS(name, "\"global_rank\"") || TEXT_IS(name, "\"clock_sync_timestamp_us\"") ||
            TEXT_IS(name, "\"clock_sync_error_bound\""));
}

static int has_id_phase(const Event *event)
{
    return event->phase != 0 && strchr("stfbneSTpFNOD", event->phase) != NULL;
}

/* -- the first pass -- */

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

/* So many spans wait that the oldest of the fullest track are nested now: it is unlikely that
 * earlier ones still come. */
static void relieve(TraceText *text)
{
    TextTrack *fullest = &text->tracks[0];
    for (size_t i = 1; i < text->num_tracks; i++) {
        if (text->tracks[i].num_pending > fullest->num_pending) fullest = &text->tracks[i];
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

static void collect(TraceText *text, TextTrack *track, const Event *event, unsigned look)
{
    Text name = event->fields[FIELD_NAME];
    NestSpan span = {
        .begin = event->ts, .dur = event->dur, .serial = text->serial, .action = NO_ACTION};
    span.kind = look & LOOK_FIXED ? SPAN_FIXED : kind_of(event->fields[FIELD_CAT]);
    span.name = table_intern(&text->names, name.at != NULL ? name.at : "", name.length);
    if (!array_grow((void **)&track->pending, track->num_pending, &track->pending_capacity,
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
    if (++text->num_pending > text->most_pending) relieve(text);
}

static void survey_id(TraceText *text, Text id)
{
    int64_t number;
    if (!event_plain_id(id, &number)) {
        text->has_odd_ids = 1;
        return;
    }
    text->lowest_id = text->has_ids && text->lowest_id < number ? text->lowest_id : number;
    text->highest_id = text->has_ids && text->highest_id > number ? text->highest_id : number;
    text->has_ids = 1;
}

/* The number of a flow among those that began; those that have the same id, category and name are
 * one to viewers. */
static uint32_t flow_number(TraceText *text, const Event *event)
{
    const Text *fields = event->fields;
    Text id = fields[FIELD_ID], category = fields[FIELD_CAT], name = fields[FIELD_NAME];
    int is_text = *id.at == '"';
    Bytes key = {0};
    bytes_put(&key, id.at + is_text, id.length - 2 * (size_t)is_text);
    bytes_put_char(&key, 0);
    bytes_put(&key, category.at != NULL ? category.at : "", category.length);
    bytes_put_char(&key, 0);
    bytes_put(&key, name.at != NULL ? name.at : "", name.length);
    uint32_t number = key.has_failed ? TABLE_FULL : table_intern(&text->flows, key.at, key.length);
    text->has_failed |= number == TABLE_FULL;
    bytes_free(&key);
    return number;
}

/* Flows that begin twice or lie in no span, ends of what never began, times that viewers do not
 * take. */
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
        flow_number(text, event);
        text->num_repeated_flows += text->flows.num_entries == before;
    }
}

static void survey_span(TraceText *text, TextTrack *track, const Event *event, unsigned look)
{
    Text name = event->fields[FIELD_NAME];
    if (name.at != NULL && track->role == ROLE_NONE) {
        if (TEXT_BEGINS(name, "\"ProfilerStep#") || TEXT_BEGINS(name, "\"event/batch"))
            track->role = ROLE_LOOP;
        else if (TEXT_BEGINS(name, "\"autograd::engine::evaluate_function"))
            track->role = ROLE_BACKWARD;
    }
    if (event->fields[FIELD_TS].at == NULL) return;
    if (name.at != NULL &&
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
    if (text->nests) collect(text, track, event, look);
}

static void survey_counter(TraceText *text, const TextTrack *track, const Event *event)
{
    if (text->counters.is_wanted)
        text->has_failed |= !counters_survey(&text->counters, event,
                                             (uint32_t)(track - text->tracks));
}

static void survey_time(TraceText *text, const Event *event)
{
    Text name = event->fields[FIELD_NAME];
    if (text->num_timed++ == 0) text->earliest_ns = text->latest_ns = event->ts;
    text->earliest_ns = event->ts < text->earliest_ns ? event->ts : text->earliest_ns;
    text->latest_ns = event->ts > text->latest_ns ? event->ts : text->latest_ns;
    text->has_unix_times |= event->ts > UNIX_NS;
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
            TEXT_IS(category, "\"Memcpy\"") || TEXT_IS(category, "\"Memset\""));
}

static void survey_event(TraceText *text, const Event *event, unsigned look, Bytes *out,
                         EventFault *fault)
{
    (void)out;
    Text name = event->fields[FIELD_NAME];
    int is_other_text = !(look & LOOK_CANONICAL) && text->align_on.length > 0 && name.at != NULL &&
                        memchr(name.at, '\\', name.length) != NULL;
    if (is_other_text || needs_viewers(text, event, look)) {
        /* only if it is written as the name to align on is can the two be compared */
        *fault = EVENT_ODD;
        return;
    }
    TextTrack *track = is_consumed(event) ? NULL : track_of(text, event, look, fault);
    if (*fault != EVENT_FINE || text->has_failed) return;
    text->num_events += !is_header(event);
    text->num_negative += event->fields[FIELD_TS].at != NULL && event->ts < 0;
    text->has_phases |= event->phase != 0;
    if (event->phase == 'M')
        text->has_failed |= table_intern(&text->metadata, event->begin,
                                         (size_t)(event->end - event->begin)) == TABLE_FULL;
    else if (event->fields[FIELD_TS].at != NULL)
        survey_time(text, event);
    if (track != NULL) {
        if (track->first_serial == UINT64_MAX) track->first_serial = text->serial;
        track->is_device |= event->phase != 'M' && is_device_category(event->fields[FIELD_CAT]);
        if (event->phase == 'X')
            survey_span(text, track, event, look);
        else if (event->phase == 'C')
            survey_counter(text, track, event);
        else
            track->ends.is_broken |= event->phase != 0 && strchr("BEstf", event->phase) != NULL;
        if (text->checks) check_event(text, track, event);
        if (event->fields[FIELD_ID].at != NULL && has_id_phase(event))
            survey_id(text, event->fields[FIELD_ID]);
        if (event->fields[FIELD_BIND_ID].at != NULL) survey_id(text, event->fields[FIELD_BIND_ID]);
        if (event->fields[FIELD_ID2].at != NULL && has_id_phase(event)) text->has_odd_ids = 1;
    }
    text->serial++;
}

enum TextStatus trace_survey(TraceText *text, const char **at, const char *end, int is_first,
                             unsigned look)
{
    return each_event(text, at, end, is_first, look, NULL, survey_event);
}

static int compare_actions(const void *one, const void *other)
{
    uint64_t first = ((const NestAction *)one)->serial,
             second = ((const NestAction *)other)->serial;
    return first < second ? -1 : first > second;
}

/* Of the names, only those of spans that others were moved away from are told later. */
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

void trace_finish(TraceText *text)
{
    for (size_t i = 0; i < text->num_tracks; i++) {
        TextTrack *track = &text->tracks[i];
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
    text->serial = 0;
    uint32_t num_outputs = 0;
    for (size_t i = 0; i < text->num_tracks; i++) {
        text->tracks[i].first_output = num_outputs;
        num_outputs += text->tracks[i].num_levels;
    }
}

/* -- the second pass -- */

/* Whether a B or E is in the window: an E is where its B is. */
static int keeps_pair(TextTrack *track, const Event *event, int is_inside)
{
    if (event->phase == 'E') return track->num_kept > 0 && track->kept[--track->num_kept];
    if (array_grow((void **)&track->kept, track->num_kept, &track->kept_capacity, 1))
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

/* Copies the args of an event whose span was cut or moved, with what is to be said about it. */
static void put_args(Bytes *out, Text args, const Bytes *said)
{
    if (args.at == NULL || TEXT_IS(args, "null")) {
        bytes_put_literal(out, "{\"kinetoscope\":\"");
        bytes_put(out, said->at, said->length);
        bytes_put_literal(out, "\"}");
        return;
    }
    const char *end = args.at + args.length, *at;
    if (*args.at != '{') {
        bytes_put(out, args.at, args.length);
        return;
    }
    JsonFault fault = JSON_FINE;
    at = json_skip_space(args.at + 1, end);
    int is_empty = at < end && *at == '}';
    while (!is_empty && at != NULL) {
        const char *key;
        size_t length;
        unsigned marks = 0;
        int num_commas = 0;
        const char *value = json_skip_key(at, end, &key, &length, &marks, &fault);
        at = value != NULL ? json_skip_value(value, end, &fault) : NULL;
        if (at == NULL) break;
        if (length == 11 && memcmp(key, "kinetoscope", 11) == 0) {
            int is_text = *value == '"';
            bytes_put(out, args.at, (size_t)(at - is_text - args.at));
            if (is_text) {
                bytes_put_literal(out, "; ");
                bytes_put(out, said->at, said->length);
            }
            bytes_put(out, at - is_text, (size_t)(end - at + is_text));
            return;
        }
        at = json_skip_comma(at, end, &num_commas);
        if (num_commas == 0) break;
    }
    bytes_put(out, args.at, args.length - 1);
    if (!is_empty) bytes_put_char(out, ',');
    bytes_put_literal(out, "\"kinetoscope\":\"");
    bytes_put(out, said->at, said->length);
    bytes_put_literal(out, "\"}");
}

/* What takes the place of fields of one event. */
typedef struct {
    const TextOutput *output;
    Text pid, tid;     /* none where the event has none, and keeps it so */
    const Bytes *said; /* what nesting did to it, or NULL */
    int64_t ts, dur;
    int64_t id_shift;
    int64_t new_id;          /* of a flow that begins again, or 0 */
    int shifts_ids, narrows; /* ids are moved; instants belong to their thread */
} Rewrite;

/* An instant of a process, or of all, which viewers put on a track without a name. */
static int is_wide_instant(const Event *event)
{
    Text scope = event->fields[FIELD_SCOPE];
    return scope.at != NULL && event->phase != 0 && strchr("iIR", event->phase) != NULL &&
           (TEXT_IS(scope, "\"g\"") || TEXT_IS(scope, "\"p\""));
}

static int is_rewritten(const Event *event, int field, const Rewrite *rewrite)
{
    switch (field) {
        case FIELD_PID:
        case FIELD_TID:
        case FIELD_TS:
        case FIELD_DUR: return 1;
        case FIELD_ID: return rewrite->new_id != 0 || (rewrite->shifts_ids && has_id_phase(event));
        case FIELD_BIND_ID: return rewrite->shifts_ids;
        case FIELD_ARGS: return rewrite->said != NULL;
        case FIELD_SCOPE: return rewrite->narrows && is_wide_instant(event);
        default: return 0;
    }
}

static void put_field(Bytes *out, const Event *event, int field, const Rewrite *rewrite)
{
    int64_t id = 0;
    switch (field) {
        case FIELD_PID: bytes_put(out, rewrite->pid.at, rewrite->pid.length); break;
        case FIELD_TID: bytes_put(out, rewrite->tid.at, rewrite->tid.length); break;
        case FIELD_TS: bytes_put_us(out, rewrite->ts); break;
        case FIELD_DUR: bytes_put_us(out, rewrite->dur); break;
        case FIELD_ARGS: put_args(out, event->fields[FIELD_ARGS], rewrite->said); break;
        case FIELD_SCOPE: bytes_put_literal(out, "\"t\""); break;
        default:
            event_plain_id(event->fields[field], &id);
            bytes_put_integer(out, rewrite->new_id != 0 ? rewrite->new_id : id + rewrite->id_shift);
    }
}

static void put_missing(Bytes *out, const Event *event, int field, const char *key,
                        const Rewrite *rewrite, int *has_members)
{
    if (event->fields[field].at != NULL) return;
    if (*has_members) bytes_put_char(out, ',');
    *has_members = 1;
    bytes_put(out, key, strlen(key));
    put_field(out, event, field, rewrite);
}

static inline char *write_text(char *to, const char *at, size_t length)
{
    copy_short(to, at, length);
    return to + length;
}

/* An event as most are: a span or an instant that has all fields, whose args stay. 0 if it is
 * another. */
static int put_usual_event(Bytes *out, const Event *event, const Rewrite *rewrite)
{
    const Text *fields = event->fields;
    if (rewrite->said != NULL || fields[FIELD_PID].at == NULL || fields[FIELD_TID].at == NULL ||
        fields[FIELD_ID].at != NULL || fields[FIELD_BIND_ID].at != NULL ||
        (rewrite->narrows && is_wide_instant(event)) ||
        (event->phase == 'X' && fields[FIELD_TS].at != NULL && fields[FIELD_DUR].at == NULL))
        return 0;
    Text pid = rewrite->pid, tid = rewrite->tid;
    char *to = bytes_room(out, 2 + (size_t)(event->end - event->begin) + pid.length + tid.length +
                                   2 * US_DIGITS);
    if (to == NULL) return 1;
    const char *at = event->begin;
    to = write_text(to, ",\n", 2);
    for (unsigned i = 0; i < event->num_fields; i++) {
        int field = event->order[i];
        if (field < FIELD_PID || field > FIELD_DUR) continue;
        to = write_text(to, at, (size_t)(fields[field].at - at));
        if (field == FIELD_PID)
            to = write_text(to, pid.at, pid.length);
        else if (field == FIELD_TID)
            to = write_text(to, tid.at, tid.length);
        else
            to = write_us(to, field == FIELD_TS ? rewrite->ts : rewrite->dur);
        at = fields[field].at + fields[field].length;
    }
    to = write_text(to, at, (size_t)(event->end - at));
    out->length = (size_t)(to - out->at);
    return 1;
}

static void put_event(Bytes *out, const Event *event, const Rewrite *rewrite)
{
    if (put_usual_event(out, event, rewrite)) return;
    const char *at = event->begin;
    bytes_put_literal(out, ",\n");
    for (unsigned i = 0; i < event->num_fields; i++) {
        int field = event->order[i];
        if (!is_rewritten(event, field, rewrite)) continue;
        bytes_put(out, at, (size_t)(event->fields[field].at - at));
        put_field(out, event, field, rewrite);
        at = event->fields[field].at + event->fields[field].length;
    }
    bytes_put(out, at, (size_t)(event->end - 1 - at));
    int has_members = event->has_members;
    if (rewrite->pid.at != NULL)
        put_missing(out, event, FIELD_PID, "\"pid\":", rewrite, &has_members);
    if (rewrite->tid.at != NULL)
        put_missing(out, event, FIELD_TID, "\"tid\":", rewrite, &has_members);
    if (event->phase == 'X' && event->fields[FIELD_TS].at != NULL)
        put_missing(out, event, FIELD_DUR, "\"dur\":", rewrite, &has_members);
    if (rewrite->said != NULL)
        put_missing(out, event, FIELD_ARGS, "\"args\":", rewrite, &has_members);
    bytes_put_char(out, '}');
}

/* Spans that were moved or cut are no longer in the order in which they came. */
static void put_packets(TraceText *text, const TextTrack *track, const Event *event,
                        const Rewrite *rewrite, Bytes *out)
{
    PacketPlace place = {.number = (uint32_t)(rewrite->output - text->outputs),
                         .track = rewrite->output->track,
                         .process = rewrite->output->process,
                         .ts = rewrite->ts,
                         .dur = rewrite->dur,
                         .said = rewrite->said};
    place.is_disordered = track->is_disordered || track->num_levels > 1 || track->was_cut;
    place.is_by_end = track->is_disordered && !track->ends.is_broken && track->num_levels == 1 &&
                      !track->was_cut && text->stretch_gain_ns == 0;
    place.num_shared = place.is_by_end && event->phase == 'X'
                           ? end_order_shared(&track->ends, event->ts)
                           : 0;
    if (event->fields[FIELD_ID].at != NULL)
        place.has_id = event_plain_id(event->fields[FIELD_ID], &place.id);
    if (place.has_id && rewrite->shifts_ids) place.id += rewrite->id_shift;
    packet_event(&text->packets, &text->shapes, event, &place, out);
}

/* Whether Python must give the event's ids anew first. */
static int needs_new_ids(const TraceText *text, const Event *event)
{
    int has_id = (event->fields[FIELD_ID].at != NULL || event->fields[FIELD_ID2].at != NULL) &&
                 has_id_phase(event);
    return !text->keeps_places && !text->ids_are_plain &&
           (has_id || event->fields[FIELD_BIND_ID].at != NULL);
}

/* A moment with the drift of the file's clock taken out, divided as Python divides, downwards. */
static int64_t stretched(const TraceText *text, int64_t at)
{
    if (text->stretch_gain_ns == 0) return at;
    __int128 product = (__int128)(at - text->stretch_begin_ns) * text->stretch_gain_ns;
    int64_t quotient = (int64_t)(product / text->stretch_over_ns);
    return at + quotient - (product % text->stretch_over_ns < 0);
}

static Text text_or(Text text, Text other)
{
    return text.length > 0 ? text : other;
}

/* Metadata of which nothing changes but its tid, where viewers misread that, and what its time
 * counts from. */
static void put_as_it_is(TraceText *text, const Event *event, Bytes *out)
{
    Text pid = event->fields[FIELD_PID], tid = event->fields[FIELD_TID], key = pid;
    int64_t ts = event->ts + text->shift_ns;
    Rewrite rewrite = {.pid = pid, .tid = tid, .ts = ts > 0 ? ts : 0, .dur = event->dur};
    uint32_t number = track_number(text, &key, tid);
    uint32_t first_output = number < text->num_tracks ? text->tracks[number].first_output
                                                      : NO_OUTPUT;
    if (first_output < text->num_outputs && none_if_null(tid).at != NULL)
        rewrite.tid = text_or(text->outputs[first_output].tid, tid);
    text->num_written++;
    put_event(out, event, &rewrite);
}

/* The id of a flow that begins again, and of its steps and ends, as viewers need one of its own; 0
 * for others. */
static int64_t id_of_repeated(TraceText *text, const Event *event)
{
    if (text->num_repeated_flows == 0 || event->phase == 0 || strchr("stf", event->phase) == NULL ||
        event->fields[FIELD_ID].at == NULL)
        return 0;
    uint32_t number = flow_number(text, event);
    size_t before = text->flow_counts_capacity;
    if (number == TABLE_FULL ||
        (number >= before && !array_grow((void **)&text->flow_counts, text->flows.num_entries,
                                         &text->flow_counts_capacity, sizeof *text->flow_counts))) {
        text->has_failed = 1;
        return 0;
    }
    if (text->flow_counts_capacity > before)
        memset(text->flow_counts + before, 0,
               (text->flow_counts_capacity - before) * sizeof *text->flow_counts);
    uint32_t count = text->flow_counts[number] += event->phase == 's';
    return count > 1 ? viewers_repeated_id(event->fields[FIELD_ID], count) : 0;
}

/* Where an event goes that keeps its place, but for a tid that viewers misread; 0 if viewers cannot
 * show it. */
static int keep_place(TraceText *text, TextTrack *track, const Event *event, Rewrite *rewrite)
{
    const TextOutput *output = rewrite->output;
    if (text->checks && flow_place_note(&track->flows, event) != FLOW_HAS_SPAN) return 0;
    if (rewrite->ts + text->shift_ns > MOST_TIME_US * 1000) return 0;
    rewrite->pid = event->fields[FIELD_PID];
    rewrite->tid = text_or(output->tid, event->fields[FIELD_TID]);
    rewrite->new_id = id_of_repeated(text, event);
    return 1;
}

static void rewrite_event(TraceText *text, const Event *event, unsigned look, Bytes *out,
                          EventFault *fault)
{
    Text name = event->fields[FIELD_NAME];
    if (text->keeps_places && needs_viewers(text, event, look)) {
        *fault = EVENT_ODD;
        return;
    }
    if (!(look & LOOK_CANONICAL) &&
        (needs_new_ids(text, event) || (text->align_on.length > 0 && name.at != NULL &&
                                        memchr(name.at, '\\', name.length) != NULL))) {
        *fault = EVENT_ODD;
        return;
    }
    if (is_consumed(event)) {
        int is_kept = text->keeps_places && !is_header(event);
        if (is_kept && !is_well_placed(event, look)) {
            *fault = EVENT_ODD;
            return;
        }
        text->serial++;
        if (is_kept) put_as_it_is(text, event, out);
        return;
    }
    TextTrack *track = track_of(text, event, look, fault);
    if (track == NULL) return;
    const NestAction *action = action_for(text);
    text->serial++;
    size_t number = track->first_output + (action != NULL ? action->level : 0);
    if (number >= text->num_outputs) {
        text->has_failed = 1; /* the file changed under us */
        return;
    }
    const TextOutput *output = &text->outputs[number];
    Rewrite rewrite = {
        .output = output, .pid = output->pid, .tid = output->tid, .id_shift = text->id_shift};
    rewrite.ts = action != NULL ? action->begin : event->ts;
    rewrite.dur = action != NULL ? action->dur : event->dur;
    if (text->keeps_places && !keep_place(text, track, event, &rewrite)) return;
    rewrite.shifts_ids = !(look & LOOK_CANONICAL) && text->ids_are_plain && !text->keeps_places;
    rewrite.narrows = !text->keeps_places;
    if (!output->is_kept ||
        (text->is_windowed && !is_in_window(track, event, output, rewrite.ts, rewrite.dur)))
        return;
    int64_t end = stretched(text, rewrite.ts + rewrite.dur);
    rewrite.ts = stretched(text, rewrite.ts);
    rewrite.dur = end - rewrite.ts;
    rewrite.ts += text->shift_ns;
    if (text->keeps_places && event->phase == 'M' && rewrite.ts < 0) rewrite.ts = 0;
    text->num_written++;
    if (action != NULL) {
        text->said.length = 0;
        nest_say(action, &text->names, thread_of(text, track), output->overlap, &text->said);
        text->has_failed |= text->said.has_failed;
        rewrite.said = &text->said;
    }
    if (text->writes_packets)
        put_packets(text, track, event, &rewrite, out);
    else
        put_event(out, event, &rewrite);
}

void trace_finish_writing(TraceText *text, Bytes *out)
{
    packet_finish(&text->packets, out);
    text->has_failed |= text->packets.has_failed | out->has_failed;
}

enum TextStatus trace_rewrite(TraceText *text, const char **at, const char *end, int is_first,
                              unsigned look, Bytes *out)
{
    enum TextStatus status = each_event(text, at, end, is_first, look, out, rewrite_event);
    text->has_failed |= out->has_failed;
    return status;
}

void trace_free(TraceText *text)
{
    for (size_t i = 0; i < text->num_tracks; i++) {
        free(text->tracks[i].pending);
        free(text->tracks[i].kept);
        free(text->tracks[i].flows.early);
        end_order_free(&text->tracks[i].ends);
        nest_free(&text->tracks[i].nested);
    }
    shapes_free(&text->shapes);
    free(text->tracks);
    free(text->outputs);
    packet_free(&text->packets);
    splices_free(&text->splices);
    counter_survey_free(&text->counters);
    table_free(&text->places);
    free(text->place_tracks);
    table_free(&text->track_keys);
    table_free(&text->names);
    table_free(&text->metadata);
    table_free(&text->flows);
    free(text->flow_counts);
    bytes_free(&text->steps);
    bytes_free(&text->align_on);
    bytes_free(&text->output_texts);
    bytes_free(&text->said);
    nest_free_outcome(&text->outcome);
    memset(text, 0, sizeof *text);
}
