/* See trace_text.h. */

#include "rewrite/passes.h"

#include <stdlib.h>

#include "text/json.h"

static void note_commas(TraceText *text, int64_t num_commas, int num_expected)
{
    text->num_comma_errors += (uint64_t)(num_commas > num_expected ? num_commas - num_expected
                                                                   : num_expected - num_commas);
}

const NestAction *trace_action(TraceText *text)
{
    const NestOutcome *outcome = &text->outcome;
    while (text->next_action < outcome->num_actions &&
           outcome->actions[text->next_action].serial < text->serial)
        text->next_action++;
    int is_here = text->next_action < outcome->num_actions &&
                  outcome->actions[text->next_action].serial == text->serial;
    return is_here ? &outcome->actions[text->next_action] : NULL;
}

/* Reads the event at `at`, or only the values that the first pass noted, if nothing else changes.
 * `found` is set to the event. */
static EventFault read_event(TraceText *text, const char *at, const char *end, unsigned flags,
                             Event *event, const Event **found)
{
    *found = NULL;
    if (flags == INSPECT_AGAIN && !text->writes_packets && trace_action(text) == NULL)
        *found = splices_read(&text->splices, at, end);
    if (*found != NULL) return EVENT_FINE;
    *found = event;
    return event_scan(&text->shapes, at, end, flags, event);
}

/* Notes where the values of an event of the file are, or checks that it is the one that was noted.
 * An event that Python wrote anew counts here too: the file has it once. */
static void count_splice(TraceText *text, const Event *event, unsigned flags)
{
    const Event *as_in_file = flags & INSPECT_CANONICAL ? NULL : event;
    if (text->is_surveyed)
        text->has_changed |= !splices_pass(&text->splices, as_in_file);
    else
        splices_note(&text->splices, as_in_file);
}

void trace_leave_out(TraceText *text)
{
    count_splice(text, NULL, INSPECT_CANONICAL);
}

enum TextStatus trace_walk(TraceText *text, const char **where, const char *end, int is_first,
                           unsigned flags, Bytes *out, EventUse use)
{
    Event event = {0};
    for (;; is_first = 0) {
        int64_t num_commas;
        const Event *found = NULL;
        const char *at = json_skip_commas(*where = json_skip_space(*where, end), end, &num_commas);
        if (at == end) return TEXT_MORE;
        if (*at == ']') {
            note_commas(text, num_commas, 0);
            *where = at + 1;
            return TEXT_END;
        }
        EventFault fault = *at == '{' ? read_event(text, at, end, flags, &event, &found)
                                      : EVENT_REFUSED;
        if (fault == EVENT_CUT) return TEXT_MORE;
        if (fault == EVENT_FINE) use(text, found, flags, out, &fault);
        if (fault != EVENT_FINE) return TEXT_REFUSED;
        if (!(flags & INSPECT_FIXED)) count_splice(text, found, flags);
        note_commas(text, num_commas, !is_first);
        *where = found->end;
    }
}

#define MAX_NUMBER 18
#define NO_OUTPUT UINT32_MAX

uint32_t trace_flow_number(TraceText *text, const Event *event)
{
    const Text *fields = event->fields;
    Text category = fields[FIELD_CAT], name = fields[FIELD_NAME];
    int64_t id = viewers_flow_id(fields[FIELD_ID]);
    Bytes key = {0};
    bytes_put(&key, (const char *)&id, sizeof id);
    bytes_put(&key, category.at != NULL ? category.at : "", category.length);
    bytes_put_char(&key, 0);
    bytes_put(&key, name.at != NULL ? name.at : "", name.length);
    uint32_t number = TABLE_FULL;
    if (!key.has_failed)
        number = text->is_surveyed ? table_find(&text->flows, key.at, key.length)
                                   : table_intern(&text->flows, key.at, key.length);
    text->has_failed |= key.has_failed || (number == TABLE_FULL && !text->is_surveyed);
    bytes_free(&key);
    return number;
}

void trace_free(TraceText *text)
{
    tracks_free(&text->tracks);
    shapes_free(&text->shapes);
    free(text->outputs);
    packet_free(&text->packets);
    splices_free(&text->splices);
    counter_survey_free(&text->counters);
    table_free(&text->names);
    table_free(&text->metadata);
    free(text->metadata_last);
    table_free(&text->flows);
    free(text->flow_counts);
    bytes_free(&text->steps);
    bytes_free(&text->align_on);
    bytes_free(&text->output_texts);
    bytes_free(&text->nesting_note);
    nest_free_outcome(&text->outcome);
    memset(text, 0, sizeof *text);
}
