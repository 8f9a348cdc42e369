/* Finds the end of JSON values: a small tokenizer for bytes that may be incomplete or no JSON.
 *
 *     bytes ──► json_skip_space, json_skip_string, json_skip_value ──► the byte after, or a fault
 *
 * It stores and allocates nothing, and reads no byte at `end` or after it. It is strict: every JSON
 * parser accepts what it accepts, UTF-8 included. What it refuses (also deep nesting) may still be
 * readable in Python. It does not use Python, so it works without the GIL. */

#ifndef KINETOSCOPE_JSON_H
#define KINETOSCOPE_JSON_H

#include "text/bytes.h"

#if defined(__SSE2__)
    #include <emmintrin.h>
#endif

#define JSON_DEEPEST 192 /* levels of nested brackets */

/* What a skipped string contains besides plain ASCII, and why a value could not be skipped. */
enum {
    JSON_ESCAPED = 1, /* backslashes */
    JSON_HIGH = 2,    /* bytes from 128 on, as valid UTF-8 */
};

typedef enum {
    JSON_FINE,
    JSON_CUT, /* the text ends in the value */
    JSON_BAD, /* it is not JSON, or nested too deep */
} JsonFault;

const char *json_skip_long_space(const char *at, const char *end);

/* The first byte that is not white space, or `end`. */
static inline const char *json_skip_space(const char *at, const char *end)
{
    if (at < end && (uint8_t)*at > ' ') return at;
    if (end - at >= 2 && *at == ' ' && (uint8_t)at[1] > ' ') return at + 1;
    return json_skip_long_space(at, end);
}

/* Skips plain bytes of a string in steps of 16. Stops at a quote, a backslash, a control character,
 * a byte above ASCII, or near the end. */
static inline const char *json_skip_plain(const char *at, const char *end)
{
#if defined(__SSE2__)
    for (; end - at >= 16; at += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)at);
        /* As signed numbers, bytes above ASCII are less than a space too. */
        __m128i stop = _mm_or_si128(_mm_cmplt_epi8(bytes, _mm_set1_epi8(' ')),
                                    _mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8('"')),
                                                 _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\'))));
        unsigned stops = (unsigned)_mm_movemask_epi8(stop);
        if (stops != 0) return at + __builtin_ctz(stops);
    }
#endif
    (void)end;
    return at;
}

/* `at` is after the opening quote. Returns the byte after the closing one, or NULL and the fault.
 * Adds JSON_ESCAPED and JSON_HIGH to `*marks`. */
const char *json_skip_string(const char *at, const char *end, unsigned *marks, JsonFault *fault);

/* `at` is where a value begins (no white space). Returns the byte after it, or NULL and the fault.
 * A number that reaches `end` counts as cut, since more digits may follow. */
const char *json_skip_value(const char *at, const char *end, JsonFault *fault);

/* Skips white space and commas, as there are between the events of a damaged trace. */
const char *json_skip_commas(const char *at, const char *end, int64_t *num_commas);

/* Iterates over the members of an object or a list:
 *
 *     JsonMembers members = json_members(at, end);
 *     while (json_next(&members)) json_skip_member(&members);
 *
 * To read a value in another way, set `at` after it, or to NULL and set the fault. */
typedef struct {
    const char *at, *end; /* `at` is at a value; at the end it is after the bracket, or NULL */
    Text key;             /* without its quotes; only in an object */
    unsigned marks;       /* of the key */
    JsonFault fault;      /* why `at` is NULL */
    char closing;
    uint8_t has_any;
} JsonMembers;

/* `at` is at the opening bracket. */
static inline JsonMembers json_members(const char *at, const char *end)
{
    return (JsonMembers){.at = at + 1, .end = end, .closing = *at == '{' ? '}' : ']'};
}

static inline int json_refuse(JsonMembers *members, JsonFault fault)
{
    members->at = NULL;
    members->fault = fault;
    return 0;
}

/* Goes to the next member, or to its key if it has one. */
static inline int json_to_member(JsonMembers *members)
{
    if (members->at == NULL) return 0;
    const char *at = json_skip_space(members->at, members->end);
    if (at == members->end) return json_refuse(members, JSON_CUT);
    if (*at == members->closing) {
        members->at = at + 1;
        return 0;
    }
    if (members->has_any) {
        if (*at != ',') return json_refuse(members, JSON_BAD);
        at = json_skip_space(at + 1, members->end);
    }
    members->has_any = 1;
    members->at = at;
    return 1;
}

/* Goes from the opening quote of a key to the value; 0 on a fault. */
int json_read_key(JsonMembers *members);

/* Goes to the value of the next member; 0 if there is none, or if it is not JSON. */
static inline int json_next(JsonMembers *members)
{
    return json_to_member(members) && (members->closing == ']' || json_read_key(members));
}

/* Returns the current value and goes to what is after it. `at` of the result is NULL if it is not
 * JSON. */
static inline Text json_skip_member(JsonMembers *members)
{
    const char *value = members->at;
    members->at = json_skip_value(value, members->end, &members->fault);
    return members->at != NULL ? (Text){value, (size_t)(members->at - value)} : (Text){NULL, 0};
}

#endif
