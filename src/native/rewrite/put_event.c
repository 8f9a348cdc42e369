/* See put_event.h. */

#include "rewrite/put_event.h"

#include "text/json.h"
#include "text/numbers.h"

/* Copy the args of an event whose span was truncated or moved, and add a note on that. */
static void put_args(Bytes *out, Text args, const Bytes *nesting_note)
{
    if (args.at == NULL || TEXT_IS(args, "null")) {
        bytes_put_literal(out, "{\"kinetoscope\":\"");
        bytes_put(out, nesting_note->at, nesting_note->length);
        bytes_put_literal(out, "\"}");
        return;
    }
    if (*args.at != '{') {
        bytes_put(out, args.at, args.length);
        return;
    }
    const char *end = args.at + args.length;
    JsonMembers members = json_members(args.at, end);
    while (json_next(&members)) {
        Text value = json_skip_member(&members);
        if (value.at == NULL || !TEXT_IS(members.key, "kinetoscope")) continue;
        int is_text = *value.at == '"';
        const char *at = members.at - is_text;
        bytes_put(out, args.at, (size_t)(at - args.at));
        if (is_text) {
            bytes_put_literal(out, "; ");
            bytes_put(out, nesting_note->at, nesting_note->length);
        }
        bytes_put(out, at, (size_t)(end - at));
        return;
    }
    bytes_put(out, args.at, args.length - 1);
    if (members.has_any) bytes_put_char(out, ',');
    bytes_put_literal(out, "\"kinetoscope\":\"");
    bytes_put(out, nesting_note->at, nesting_note->length);
    bytes_put_literal(out, "\"}");
}

/* Whether it is an instant of a process or of all processes, which viewers put on a track without a
 * name. */
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
        case FIELD_ID:
            return rewrite->new_id != 0 || (rewrite->shifts_ids && event_has_id_phase(event));
        case FIELD_BIND_ID: return rewrite->shifts_ids;
        case FIELD_ARGS: return rewrite->nesting_note != NULL;
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
        case FIELD_ARGS: put_args(out, event->fields[FIELD_ARGS], rewrite->nesting_note); break;
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

/* Writes a usual event: a span or an instant that has all fields and keeps its args. 0 for other
 * events. */
static int put_usual_event(Bytes *out, const Event *event, const Rewrite *rewrite)
{
    const Text *fields = event->fields;
    if (rewrite->nesting_note != NULL || fields[FIELD_PID].at == NULL ||
        fields[FIELD_TID].at == NULL || fields[FIELD_ID].at != NULL ||
        fields[FIELD_BIND_ID].at != NULL || (rewrite->narrows && is_wide_instant(event)) ||
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

void put_event(Bytes *out, const Event *event, const Rewrite *rewrite)
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
    if (rewrite->nesting_note != NULL)
        put_missing(out, event, FIELD_ARGS, "\"args\":", rewrite, &has_members);
    bytes_put_char(out, '}');
}
