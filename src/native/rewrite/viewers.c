/* See viewers.h. */

#include "rewrite/viewers.h"

#include <stdlib.h>

#include "text/bytes.h"
#include "text/json.h"
#include "text/numbers.h"

static int is_there(Text text)
{
    return text.at != NULL && !TEXT_IS(text, "null");
}

static int is_number(const char *value)
{
    return *value == '-' || (*value >= '0' && *value <= '9');
}

static int is_hex(Text text)
{
    if (text.length < 3 || text.length > 18 || *text.at != '"') return 0;
    for (size_t i = 1; i < text.length - 1; i++) {
        if (strchr("0123456789abcdefABCDEF", text.at[i]) == NULL) return 0;
    }
    return 1;
}

/* Whether all members of the args are numbers. With `is_name`: whether the name is a text. */
static int has_plain_members(Text args, int is_name)
{
    if (args.at == NULL || *args.at != '{') return is_name;
    JsonMembers members = json_members(args.at, args.at + args.length);
    while (json_next(&members)) {
        if (members.marks & JSON_ESCAPED) return 0;
        Text value = json_skip_member(&members);
        if (value.at == NULL) return 0;
        if (is_name ? TEXT_IS(members.key, "name") && *value.at != '"' : !is_number(value.at))
            return 0;
    }
    return members.at != NULL;
}

static int is_flow(const Event *event)
{
    Text bp = event->fields[FIELD_BP];
    return event->phase == 's' || event->phase == 't' ||
           (event->phase == 'f' && bp.at != NULL && TEXT_IS(bp, "\"e\""));
}

static int shows_phase(const Event *event)
{
    const Text *fields = event->fields;
    Text scope = fields[FIELD_SCOPE], id = fields[FIELD_ID], name = fields[FIELD_NAME];
    int64_t number;
    switch (event->phase) {
        case 'X': return fields[FIELD_DUR].at != NULL;
        case 'C': return has_plain_members(fields[FIELD_ARGS], 0);
        case 'M': return name.at == NULL || has_plain_members(fields[FIELD_ARGS], 1);
        case 'i':
        case 'I':
        case 'R':
            if (scope.at != NULL && TEXT_IS(scope, "\"p\"")) return is_there(fields[FIELD_PID]);
            return is_there(fields[FIELD_TID]);
        case 'b':
        case 'n':
        case 'e':
            return is_there(fields[FIELD_PID]) && id.at != NULL &&
                   (*id.at == '"' ? id.length > 2 : event_plain_id(id, &number));
        case 's':
        case 't':
        case 'f':
            return id.at != NULL && (is_hex(id) || (*id.at != '"' && event_plain_id(id, &number)));
        default: return 1;
    }
}

int viewers_show(const Event *event)
{
    if (event->phase == 0 || event->fields[FIELD_BIND_ID].at != NULL ||
        (event->phase != 'M' && event->fields[FIELD_TS].at == NULL))
        return 0;
    return shows_phase(event);
}

static unsigned digit_of(char letter)
{
    return letter <= '9' ? (unsigned)(letter - '0') : (unsigned)((letter | 32) - 'a') + 10;
}

int64_t viewers_flow_id(Text id)
{
    const char *at = id.at, *end = id.at + id.length;
    unsigned base = *at == '"' ? 16 : 10;
    uint64_t number = 0;
    int is_negative = *at == '-';
    if (base == 16) {
        at++;
        end--;
        if (end - at > 2 && at[0] == '0' && at[1] == 'x') at += 2;
    }
    for (at += is_negative; at < end && digit_of(*at) < base; at++)
        number = number * base + digit_of(*at);
    return (int64_t)(is_negative ? 0 - number : number);
}

int64_t viewers_repeated_id(int64_t id, uint32_t count)
{
    Bytes text = {0};
    bytes_put_integer(&text, id);
    bytes_put_char(&text, '#');
    bytes_put_integer(&text, count);
    uint64_t hash = stable_hash(STABLE_BASIS, text.at, text.length);
    bytes_free(&text);
    return (int64_t)(hash & ((UINT64_C(1) << 48) - 1));
}

/* -- flows -- */

static void begin(FlowPlace *place, int64_t ts, int64_t *first, uint8_t *has_first)
{
    *first = *has_first && *first < ts ? *first : ts;
    *has_first = 1;
    place->is_emptied = 0;
}

static int has_span_at(const FlowPlace *place, int64_t ts, int has_seen_other)
{
    return (place->has_span && place->first_span <= ts) ||
           (place->has_other &&
            (place->first_other < ts || (place->first_other == ts && has_seen_other)));
}

enum FlowAnswer flow_place_note(FlowPlace *place, const Event *event)
{
    Text scope = event->fields[FIELD_SCOPE];
    int64_t ts = event->ts;
    switch (event->phase) {
        case 'X':
            begin(place, ts, &place->first_span, &place->has_span);
            place->latest_end = place->latest_end > ts + event->dur ? place->latest_end
                                                                    : ts + event->dur;
            break;
        case 'i':
        case 'I':
        case 'R':
            if (scope.at != NULL && (TEXT_IS(scope, "\"g\"") || TEXT_IS(scope, "\"p\""))) break;
            /* fall through */
        case 'B':
            place->num_open += event->phase == 'B';
            begin(place, ts, &place->first_other, &place->has_other);
            place->has_seen_other = 1;
            break;
        case 'E':
            place->num_open -= place->num_open > 0;
            place->is_emptied = place->num_open == 0 && place->latest_end <= ts;
            break;
        default:
            if (!is_flow(event) ||
                (!place->is_emptied && has_span_at(place, ts, place->has_seen_other)))
                return FLOW_HAS_SPAN;
            return place->is_emptied ? FLOW_HAS_NONE : FLOW_IS_EARLY;
    }
    return FLOW_HAS_SPAN;
}

int flow_place_wait(FlowPlace *place, int64_t ts)
{
    if (!array_room_for_next((void **)&place->early, place->num_early, &place->early_capacity,
                             sizeof *place->early))
        return 0;
    place->early[place->num_early++] = 2 * ts + place->has_seen_other;
    return 1;
}

uint64_t flow_place_finish(FlowPlace *place)
{
    uint64_t num_without = 0;
    for (size_t i = 0; i < place->num_early; i++)
        num_without += !has_span_at(place, place->early[i] >> 1, (int)(place->early[i] & 1));
    free(place->early);
    place->early = NULL;
    place->num_early = place->early_capacity = 0;
    place->latest_end = INT64_MIN;
    place->num_open = place->has_seen_other = place->is_emptied = 0;
    return num_without;
}
