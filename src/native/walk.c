/* See walk.h. */

#include "walk.h"

#include <stdlib.h>

#include "event.h"
#include "json.h"

#define MOST_INTEGER_DIGITS 18
#define MOST_NUMBER_BYTES 64
#define MOST_TIME_DIGITS 12 /* of microseconds: a double tells their thousandths apart */
#define EVENT_DEPTH 1 /* within the braces of the event */
#define ARGS_DEPTH 2

static const char *walk_value(Walk *walk, const char *at);

static const char *refuse(Walk *walk, WalkFault fault, const char *at)
{
    walk->fault = fault;
    walk->reached = at;
    return NULL;
}

/* Writes something else in the place of [at, after). */
static const char *put_instead(Walk *walk, const char *at, const char *after, const char *text, size_t length)
{
    bytes_put(&walk->out, walk->kept, (size_t)(at - walk->kept));
    bytes_put(&walk->out, text, length);
    walk->kept = after;
    walk->is_strict = 0;
    return after;
}

static const char *skip_space(Walk *walk, const char *at)
{
    at = json_skip_space(at, walk->end);
    while (walk->skips_commas && at < walk->end && *at == ',')
        at = json_skip_space(put_instead(walk, at, at + 1, "", 0), walk->end);
    return at;
}

/* -- strings -- */

static int hex_of(char digit)
{
    return digit >= '0' && digit <= '9'   ? digit - '0'
           : digit >= 'a' && digit <= 'f' ? digit - 'a' + 10
           : digit >= 'A' && digit <= 'F' ? digit - 'A' + 10
                                          : -1;
}

/* What the four digits at `at` say; -1 if they are none. */
static int code_of(const char *at)
{
    int code = 0;
    for (int i = 0; i < 4; i++) {
        int digit = hex_of(at[i]);
        if (digit < 0)
            return -1;
        code = code * 16 + digit;
    }
    return code;
}

static int is_half(int code, int first) { return code >= first && code < first + 0x400; }

/* `at` is at the backslash of a character that is written by its number. Half of a character becomes text. */
static const char *walk_number_escape(Walk *walk, const char *at)
{
    static const char digits[] = "0123456789abcdef";
    if (walk->end - at < 6)
        return refuse(walk, WALK_CUT, at);
    int code = code_of(at + 2);
    if (code < 0)
        return refuse(walk, WALK_BAD, at);
    if (is_half(code, 0xd800) && walk->end - at < 12)
        return refuse(walk, WALK_UNSURE, at);
    if (is_half(code, 0xd800) && at[6] == '\\' && at[7] == 'u' && is_half(code_of(at + 8), 0xdc00))
        return at + 12;
    if (!is_half(code, 0xd800) && !is_half(code, 0xdc00))
        return at + 6;
    char text[] = "\\\\u0000";
    for (int i = 0; i < 4; i++)
        text[3 + i] = digits[code >> (12 - 4 * i) & 15];
    return put_instead(walk, at, at + 6, text, 7);
}

static const char *walk_escape(Walk *walk, const char *at)
{
    if (walk->end - at < 2)
        return refuse(walk, WALK_CUT, at);
    if (at[1] == 'u')
        return walk_number_escape(walk, at);
    return at[1] != 0 && strchr("\"\\/bfnrt", at[1]) != NULL ? at + 2 : refuse(walk, WALK_BAD, at);
}

static const char *walk_control(Walk *walk, const char *at)
{
    static const char digits[] = "0123456789abcdef", *const shorts = "\bb\tt\nn\ff\rr";
    uint8_t byte = (uint8_t)*at;
    for (const char *it = shorts; *it != 0; it += 2) {
        if (*it == *at)
            return put_instead(walk, at, at + 1, (char[]){'\\', it[1]}, 2);
    }
    return put_instead(walk, at, at + 1, (char[]){'\\', 'u', '0', '0', digits[byte >> 4], digits[byte & 15]}, 6);
}

/* `at` is at a byte above ASCII. Of what is no character, as much is replaced at a time as Python does. */
static const char *walk_character(Walk *walk, const char *at)
{
    const uint8_t *bytes = (const uint8_t *)at;
    uint8_t first = bytes[0], low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    uint8_t high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    int length = first < 0xc2 || first > 0xf4 ? 0 : first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2, good = 1;
    for (; good < length; good++, low = 0x80, high = 0xbf) {
        if (at + good == walk->end)
            return refuse(walk, WALK_CUT, at);
        if (bytes[good] < low || bytes[good] > high)
            break;
    }
    if (good == length)
        return at + length;
    walk->is_not_utf8 = 1;
    return put_instead(walk, at, at + good, "\xef\xbf\xbd", 3);
}

/* `at` is at the opening quote. */
static const char *walk_string(Walk *walk, const char *at)
{
    for (at++; at != NULL;) {
        at = json_skip_plain(at, walk->end);
        if (at == walk->end)
            return refuse(walk, WALK_CUT, at);
        if (*at == '"')
            return at + 1;
        if (*at == '\\')
            at = walk_escape(walk, at);
        else if ((uint8_t)*at < ' ')
            at = walk_control(walk, at);
        else
            at = (uint8_t)*at >= 128 ? walk_character(walk, at) : at + 1;
    }
    return NULL;
}

/* -- what is not finite -- */

/* Notes where in the event it was: `"path":"NaN"`, with a comma between two. */
static const char *note_not_finite(Walk *walk, const char *at, const char *after)
{
    walk->num_not_finite++;
    if (!walk->notes_not_finite)
        return after;
    if (walk->is_path_odd || walk->has_args)
        return refuse(walk, WALK_UNSURE, at);
    bytes_put(&walk->notes, ",\"", walk->notes.length > 0 ? 2 : 0);
    if (walk->notes.length == 0)
        bytes_put_char(&walk->notes, '"');
    bytes_put(&walk->notes, walk->path.at, walk->path.length);
    bytes_put_literal(&walk->notes, "\":\"");
    bytes_put(&walk->notes, at, (size_t)(after - at));
    bytes_put_char(&walk->notes, '"');
    return after;
}

/* `at` is at the brace that closes the args, or the event if it has none: what was noted goes before it. */
static const char *put_notes(Walk *walk, const char *at, int has_members)
{
    if (walk->notes.length == 0)
        return at;
    put_instead(walk, at, at, ",", (size_t)has_members);
    bytes_put_literal(&walk->out, "\"not_finite\":{");
    bytes_put(&walk->out, walk->notes.at, walk->notes.length);
    bytes_put_char(&walk->out, '}');
    walk->notes.length = 0;
    return at;
}

/* Adds a key, or a number in brackets, to the path to the value that comes. The event's args are not part of it. */
static void extend_path(Walk *walk, const char *key, size_t length, int64_t index)
{
    if (key == NULL) {
        bytes_put_char(&walk->path, '[');
        bytes_put_number(&walk->path, index);
        bytes_put_char(&walk->path, ']');
    } else if (walk->depth != EVENT_DEPTH || length != 4 || memcmp(key, "args", 4) != 0) {
        if (walk->path.length > 0)
            bytes_put_char(&walk->path, '.');
        bytes_put(&walk->path, key, length);
    }
}

/* -- values -- */

static const char *skip_digits(const Walk *walk, const char *at)
{
    while (at < walk->end && *at >= '0' && *at <= '9')
        at++;
    return at;
}

static int ends_a_word(const Walk *walk, const char *at)
{
    return at == walk->end || (*at != 0 && strchr(" \t\n\r\",:{}[]", *at) != NULL);
}

static const char *walk_word(Walk *walk, const char *at, const char *word, size_t length, int is_finite)
{
    size_t left = (size_t)(walk->end - at);
    if (memcmp(at, word, left < length ? left : length) != 0)
        return refuse(walk, WALK_BAD, at);
    if (left < length)
        return refuse(walk, WALK_CUT, at);
    const char *after = at + length;
    if (is_finite || note_not_finite(walk, at, after) == NULL)
        return is_finite ? after : NULL;
    return put_instead(walk, at, after, "null", 4);
}

#define WORD(literal, is_finite) walk_word(walk, at, literal, sizeof(literal) - 1, is_finite)

static const char *walk_number(Walk *walk, const char *at)
{
    const char *first = at + (*at == '-'), *after = skip_digits(walk, first);
    if (*at == '-' && first < walk->end && *first == 'I')
        return WORD("-Infinity", 0);
    if (after == walk->end)
        return refuse(walk, WALK_CUT, at);
    if (after == first)
        return refuse(walk, WALK_BAD, at);
    if (*first == '0' && after > first + 1)
        return refuse(walk, WALK_BAD, first + 1);
    int is_integer = *after != '.';
    if (!is_integer) {
        const char *decimals = after + 1;
        after = skip_digits(walk, decimals);
        if (after == walk->end)
            return refuse(walk, WALK_CUT, at);
        if (after == decimals)
            return refuse(walk, WALK_BAD, decimals - 1);
    }
    if (*after == 'e' || *after == 'E' || after - at > MOST_NUMBER_BYTES ||
        (is_integer && (after - first > MOST_INTEGER_DIGITS || (*at == '-' && *first == '0'))))
        return refuse(walk, WALK_UNSURE, at);
    return after;
}

/* Where a comma belongs in front of the next member. */
static const char *walk_separator(Walk *walk, const char *at)
{
    if (walk->skips_commas)
        return put_instead(walk, at, at, ",", 1);
    return *at == ',' ? skip_space(walk, at + 1) : refuse(walk, WALK_BAD, at);
}

/* A time that is written as a string, from its first quote on, becomes the number in it, if that is a plain one. */
static void unquote_time(Walk *walk, const char *value, const char *after)
{
    const char *at = value + 1 + (value[1] == '-'), *end = after - 1, *digits = at;
    at = skip_digits(walk, at);
    if (at == digits || at - digits > MOST_TIME_DIGITS || (*digits == '0' && at > digits + 1) || walk->kept > value)
        return;
    if (*at == '.') {
        digits = at + 1;
        at = skip_digits(walk, digits);
        if (at == digits || at - digits > 3)
            return;
    }
    if (at != end)
        return;
    int is_strict = walk->is_strict;
    put_instead(walk, value, after, value + 1, (size_t)(end - value - 1));
    walk->is_strict = is_strict; /* it was JSON all the same */
}

/* What the value of a field of the event, from `value` to `after`, says of it. */
static void note_field(Walk *walk, Text key, const char *value, const char *after)
{
    int time = TEXT_IS(key, "ts") ? 1 : TEXT_IS(key, "dur") ? 2 : 0;
    int is_finite = strchr("NI-", *value) == NULL || (*value == '-' && value[1] != 'I');
    if (time != 0 && *value == '"')
        unquote_time(walk, value, after);
    if (time != 0)
        walk->timeless = (walk->timeless & ~time) | (is_finite ? 0 : time);
    else if (TEXT_IS(key, "ph"))
        walk->phase = after - value == 3 ? value[1] : 0;
}

/* `at` is where a key should be. Goes to its value, and adds it to the path. */
static const char *walk_key(Walk *walk, const char *at, Text *found)
{
    const char *key = at + 1, *kept = walk->kept;
    if (at == walk->end || *at != '"')
        return refuse(walk, at == walk->end ? WALK_CUT : WALK_BAD, at);
    at = walk_string(walk, at);
    if (at == NULL)
        return NULL;
    size_t length = (size_t)(at - 1 - key);
    *found = (Text){key, length};
    if (walk->notes_not_finite) {
        if (walk->depth <= ARGS_DEPTH && length == 10 && memcmp(key, "not_finite", 10) == 0)
            return refuse(walk, WALK_UNSURE, key);
        walk->is_path_odd |= kept != walk->kept || length == 0;
        extend_path(walk, key, length, 0);
    }
    at = skip_space(walk, at);
    if (at == walk->end || *at != ':')
        return refuse(walk, at == walk->end ? WALK_CUT : WALK_BAD, at);
    return skip_space(walk, at + 1);
}

/* `at` is at the bracket that closes a list or an object; what is to be done there for what was not finite. */
static const char *walk_end(Walk *walk, const char *at, int is_args, int has_members)
{
    if (walk->notes_not_finite && is_args) {
        if (walk->has_args || (walk->notes.length > 0 && (walk->phase == 0 || walk->phase == 'C')))
            return refuse(walk, WALK_UNSURE, at);
        walk->has_args = 1;
        put_notes(walk, at, has_members);
    }
    if (walk->notes_not_finite && walk->depth == EVENT_DEPTH)
        put_notes(walk, at, has_members);
    walk->depth--;
    return at + 1;
}

/* `at` is at the opening bracket. */
static const char *walk_members(Walk *walk, const char *at)
{
    char closing = *at == '{' ? '}' : ']';
    int is_args = walk->depth == EVENT_DEPTH && closing == '}' && walk->path.length == 0;
    size_t path_length = walk->path.length;
    if (++walk->depth > JSON_DEEPEST)
        return refuse(walk, WALK_UNSURE, at);
    at = skip_space(walk, at + 1);
    if (at < walk->end && *at == closing)
        return walk_end(walk, at, is_args, 0);
    for (int64_t index = 0;; index++) {
        Text key = {NULL, 0};
        if (closing == '}')
            at = walk_key(walk, at, &key);
        else if (walk->notes_not_finite)
            extend_path(walk, NULL, 0, index);
        const char *value = at;
        at = at == NULL ? NULL : walk_value(walk, at);
        if (at == NULL)
            return NULL;
        if (walk->depth == EVENT_DEPTH && key.at != NULL)
            note_field(walk, key, value, at);
        walk->path.length = path_length;
        at = skip_space(walk, at);
        if (at == walk->end)
            return refuse(walk, WALK_CUT, at);
        if (*at == closing)
            return walk_end(walk, at, is_args, 1);
        at = walk_separator(walk, at);
        if (at == NULL)
            return NULL;
    }
}

static const char *walk_scalar(Walk *walk, const char *at)
{
    switch (*at) {
    case 't':
        return WORD("true", 1);
    case 'f':
        return WORD("false", 1);
    case 'n':
        return WORD("null", 1);
    case 'N':
        return WORD("NaN", 0);
    case 'I':
        return WORD("Infinity", 0);
    default:
        return walk_number(walk, at);
    }
}

static const char *walk_value(Walk *walk, const char *at)
{
    if (at == walk->end)
        return refuse(walk, WALK_CUT, at);
    if (*at == '"')
        return walk_string(walk, at);
    if (*at == '{' || *at == '[')
        return walk_members(walk, at);
    at = walk_scalar(walk, at);
    return at == NULL || !walk->skips_commas || ends_a_word(walk, at) ? at : refuse(walk, WALK_BAD, at);
}

const char *walk_all(Walk *walk, const char *at)
{
    walk->kept = at;
    walk->is_strict = 1;
    const char *start = at;
    at = walk_value(walk, at);
    walk->is_changed = walk->kept != start;
    if (at != NULL)
        bytes_put(&walk->out, walk->kept, (size_t)(at - walk->kept));
    return at;
}

void walk_free(Walk *walk)
{
    bytes_free(&walk->out);
    bytes_free(&walk->path);
    bytes_free(&walk->notes);
}
