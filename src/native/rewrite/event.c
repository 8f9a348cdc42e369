/* See event.h. */

#include "rewrite/event.h"

#include "text/json.h"
#include "text/numbers.h"
#include "rewrite/shapes.h"

#define MAX_ID INT64_C(9007199254740992)

int event_field(const char *key, size_t length)
{
    switch (length) {
        case 1: return *key == 's' ? FIELD_SCOPE : -1;
        case 2:
            return memcmp(key, "ph", 2) == 0   ? FIELD_PH
                   : memcmp(key, "ts", 2) == 0 ? FIELD_TS
                   : memcmp(key, "id", 2) == 0 ? FIELD_ID
                   : memcmp(key, "bp", 2) == 0 ? FIELD_BP
                                               : -1;
        case 3:
            return memcmp(key, "pid", 3) == 0   ? FIELD_PID
                   : memcmp(key, "tid", 3) == 0 ? FIELD_TID
                   : memcmp(key, "cat", 3) == 0 ? FIELD_CAT
                   : memcmp(key, "dur", 3) == 0 ? FIELD_DUR
                   : memcmp(key, "id2", 3) == 0 ? FIELD_ID2
                                                : -1;
        case 4:
            return memcmp(key, "name", 4) == 0   ? FIELD_NAME
                   : memcmp(key, "args", 4) == 0 ? FIELD_ARGS
                                                 : -1;
        case 7: return memcmp(key, "bind_id", 7) == 0 ? FIELD_BIND_ID : -1;
        default: return -1;
    }
}

int event_plain_id(Text text, int64_t *id)
{
    if (*text.at == '"') text = (Text){text.at + 1, text.length - 2};
    int is_plain = text.length > 0 && *text.at != '-' && (*text.at != '0' || text.length == 1);
    return is_plain && read_integer(text, id) && *id <= MAX_ID;
}

/* Whether a string has an escape that Perfetto or strict parsers misread: a backslash at the end,
 * or half a surrogate pair. */
static int has_malformed_escape(const char *at, const char *end)
{
    while ((at = memchr(at, '\\', (size_t)(end - at))) != NULL) {
        if (end - at < 3) return 1;
        if (at[1] == '\\' && at[2] == '"') return 1;
        if (at[1] == 'u' && (at[2] == 'd' || at[2] == 'D')) return 1;
        at += 2;
    }
    return 0;
}

static int is_scalar(Text text)
{
    return *text.at != '{' && *text.at != '[';
}

/* Python reads -0 as 0, which is another text. */
static int is_minus_zero(Text number)
{
    return number.length == 2 && memcmp(number.at, "-0", 2) == 0;
}

int event_interpret(Event *event, unsigned flags, int is_plain)
{
    const Text *fields = event->fields;
    Text phase = fields[FIELD_PH];
    event->phase = phase.at != NULL && phase.length == 3 && *phase.at == '"' ? phase.at[1] : 0;
    if ((fields[FIELD_PID].at != NULL && !is_scalar(fields[FIELD_PID])) ||
        (fields[FIELD_TID].at != NULL && !is_scalar(fields[FIELD_TID])))
        return 0;
    if (is_minus_zero(fields[FIELD_ID]) || is_minus_zero(fields[FIELD_BIND_ID])) return 0;
    return is_plain || (flags & INSPECT_CANONICAL) ||
           !has_malformed_escape(event->begin, event->end);
}

/* Reads a key of a known field, written in the usual way, and goes after its colon. Returns the
 * field; -1 if it is not one of them. Fields mostly come in the same order: `*next` is tried
 * first. */
static inline int usual_key(const char **at, const char *end, unsigned *next)
{
    static const struct {
        char text[8];
        uint8_t length, field;
    } keys[] = {{"\"ph\":", 5, FIELD_PH},     {"\"cat\":", 6, FIELD_CAT},
                {"\"name\":", 7, FIELD_NAME}, {"\"pid\":", 6, FIELD_PID},
                {"\"tid\":", 6, FIELD_TID},   {"\"ts\":", 5, FIELD_TS},
                {"\"dur\":", 6, FIELD_DUR},   {"\"args\":", 7, FIELD_ARGS}};
    static const uint64_t masks[] = {
        [5] = 0xffffffffff, [6] = 0xffffffffffff, [7] = 0xffffffffffffff};
    uint64_t found;
    if (end - *at < 8) return -1;
    memcpy(&found, *at, 8);
    for (unsigned n = 0; n < 8; n++) {
        unsigned i = (*next + n) % 8;
        uint64_t key;
        memcpy(&key, keys[i].text, 8);
        /* little-endian: the first bytes are the low ones */
        if ((found & masks[keys[i].length]) == key) {
            *at += keys[i].length;
            *next = i + 1;
            return keys[i].field;
        }
    }
    return -1;
}

/* Skips a value and reads it if it is a time. NULL with a fault. */
static inline const char *skip_field(const char *at, const char *end, int field, Event *event,
                                     JsonFault *fault, int *is_malformed)
{
    if (field == FIELD_TS || field == FIELD_DUR) {
        const char *behind = read_us(at, end, field == FIELD_TS ? &event->ts : &event->dur);
        if (behind != NULL && (field == FIELD_TS || event->dur >= 0)) return behind;
        *is_malformed = 1; /* Python leaves out a negative duration, and counts it */
        if (behind != NULL) return behind;
    }
    unsigned marks = 0;
    return *at == '"' ? json_skip_string(at + 1, end, &marks, fault)
                      : json_skip_value(at, end, fault);
}

/* Reads an event of a new shape. */
static EventFault scan_anew(const char *at, const char *end, unsigned flags, Event *event)
{
    memset(event->fields, 0, sizeof event->fields);
    event->begin = at;
    event->num_fields = 0;
    event->num_members = MEMBERS_UNKNOWN;
    event->ts = event->dur = 0;
    int is_malformed = 0;
    unsigned next = 0;
    JsonMembers members = json_members(at, end);
    while (json_to_member(&members)) {
        int field = usual_key(&members.at, end, &next);
        if (field >= 0) {
            members.at = json_skip_space(members.at, end);
            if (members.at == end) return EVENT_CUT;
        } else {
            if (!json_read_key(&members)) break;
            field = event_field(members.key.at, members.key.length);
            is_malformed |= (members.marks & JSON_ESCAPED) && !(flags & INSPECT_CANONICAL);
        }
        const char *value = members.at;
        members.at = skip_field(value, end, field, event, &members.fault, &is_malformed);
        if (members.at == NULL) break;
        if (field >= 0) {
            is_malformed |= event->fields[field].at != NULL;
            event->fields[field] = (Text){value, (size_t)(members.at - value)};
            if (event->num_fields < NUM_FIELDS) event->order[event->num_fields++] = (uint8_t)field;
        }
    }
    if (members.at == NULL) return members.fault == JSON_CUT ? EVENT_CUT : EVENT_REFUSED;
    event->has_members = members.has_any;
    event->end = members.at;
    return !is_malformed && event_interpret(event, flags, 0) ? EVENT_FINE : EVENT_REFUSED;
}

EventFault event_scan(Shapes *shapes, const char *at, const char *end, unsigned flags, Event *event)
{
    if (flags & INSPECT_CANONICAL) return scan_anew(at, end, flags, event);
    if (shapes_match(shapes, at, end, flags, event)) return EVENT_FINE;
    EventFault fault = scan_anew(at, end, flags, event);
    if (fault == EVENT_FINE) shapes_learn(shapes, event);
    return fault;
}

int event_is_header(const Event *event)
{
    Text name = event->fields[FIELD_NAME];
    return event->phase == 'M' && name.at != NULL && TEXT_IS(name, "\"kinetoscope_header\"");
}

int event_is_track_metadata(const Event *event)
{
    Text name = event->fields[FIELD_NAME];
    return event->phase == 'M' && name.at != NULL &&
           (event_is_header(event) || TEXT_IS(name, "\"thread_name\"") ||
            TEXT_IS(name, "\"thread_sort_index\"") || TEXT_IS(name, "\"process_name\"") ||
            TEXT_IS(name, "\"process_sort_index\"") || TEXT_IS(name, "\"process_labels\"") ||
            TEXT_IS(name, "\"global_rank\"") || TEXT_IS(name, "\"clock_sync_timestamp_us\"") ||
            TEXT_IS(name, "\"clock_sync_error_bound\""));
}

int event_lost_its_time(const Event *event)
{
    return event->ts == 0 && event->dur == 0 && event->fields[FIELD_TS].at != NULL &&
           event->phase != 'M';
}

int event_has_id_phase(const Event *event)
{
    return event->phase != 0 && strchr("stfbneSTpFNOD", event->phase) != NULL;
}
