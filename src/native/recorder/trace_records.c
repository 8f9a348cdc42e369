/* Our own records in both passes over a trace: they meet the lines of a file as structs. See
 * trace_text.h. */

#include "recorder/trace_records.h"

#include "rewrite/passes.h"

static const Text SOME_NUMBER = {"0", 1}; /* only the presence of a time matters */

/* The event of a line of a thread, as it would be read from its text. */
static void take_line(Event *event, const LineStyle *style, const Line *line)
{
    uint32_t name = line->first->name;
    event->phase = line_phase(line);
    event->ts = line->begin;
    event->dur = line->dur;
    event->fields[FIELD_NAME] = style->names[name];
    event->fields[FIELD_CAT] = style->categories[name];
    event->fields[FIELD_TS] = SOME_NUMBER;
    event->fields[FIELD_DUR] = event->phase == 'X' ? SOME_NUMBER : (Text){NULL, 0};
}

enum LineStatus trace_survey_records(TraceText *text, const ThreadLines *thread,
                                     const Record **record)
{
    Event event = {0};
    event.fields[FIELD_PID] = thread->pid;
    event.fields[FIELD_TID] = thread->tid;
    Line line;
    for (; *record < thread->end && !text->has_failed; *record = line.end) {
        enum LineStatus status = line_find(thread->style, *record, thread->end, thread->are_last,
                                           &line);
        if (status != LINE_READY) return status;
        EventFault fault = EVENT_FINE;
        take_line(&event, thread->style, &line);
        trace_survey_event(text, &event, INSPECT_CANONICAL | INSPECT_FIXED, NULL, &fault);
    }
    return LINE_READY;
}

/* The pid and tid of an output, as fields of an event. */
static Text place_of(const TextOutput *output, Bytes *place)
{
    place->length = 0;
    bytes_put_literal(place, "\"pid\":");
    bytes_put(place, output->pid.at, output->pid.length);
    bytes_put_literal(place, ",\"tid\":");
    bytes_put(place, output->tid.at, output->tid.length);
    return (Text){place->at, place->length};
}

/* Write a line to the track of the plan, with the changes by nesting. */
static void put_line(TraceText *text, const TextTrack *track, LineStyle *style, Line *line,
                     const TextOutput **last, Bytes *place, Bytes *out)
{
    const NestAction *action;
    const TextOutput *output = trace_output(text, track, &action);
    if (output == NULL || !output->is_kept) return;
    if (output != *last) style->track_fields = place_of(*last = output, place);
    if (action != NULL) {
        line->begin = action->begin;
        line->dur = action->dur;
        const Bytes *note = trace_nesting_note(text, track, action, output);
        line->note = (Text){note->at, note->length};
    }
    line->begin += text->shift_ns;
    char *at = bytes_room(out, line_max_bytes(style, line));
    text->has_failed |= place->has_failed | (at == NULL);
    if (text->has_failed) return;
    out->length += (size_t)(line_put(at, style, line) - at);
    text->num_written++;
}

enum LineStatus trace_rewrite_records(TraceText *text, const ThreadLines *thread,
                                      const Record **record, Bytes *out)
{
    Event event = {0};
    event.fields[FIELD_PID] = thread->pid;
    event.fields[FIELD_TID] = thread->tid;
    LineStyle style = *thread->style;
    EventFault fault = EVENT_FINE;
    enum LineStatus status = LINE_READY;
    const TextOutput *last = NULL;
    Bytes place = {0};
    Line line;
    const TextTrack *track = *record < thread->end
                                 ? trace_track(text, &event, INSPECT_CANONICAL, &fault)
                                 : NULL;
    while (track != NULL && *record < thread->end && out->length < MAX_LINES_BYTES &&
           !text->has_failed && !text->has_changed) {
        status = line_find(&style, *record, thread->end, thread->are_last, &line);
        if (status != LINE_READY) break;
        *record = line.end;
        put_line(text, track, &style, &line, &last, &place, out);
    }
    bytes_free(&place);
    return status;
}
