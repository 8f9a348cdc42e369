/* See json.h. Most of a trace is the inside of strings and white space, so both are skipped in
 * large steps. */

#include "text/json.h"

#include <string.h>

#define HOT static inline __attribute__((always_inline))

/* The kinds of bytes. */
enum {
    IS_SPACE = 1,
    /* stops skip_plain: a quote, a backslash, a control character or a byte above ASCII */
    IS_STOP = 2,
    IS_DIGIT = 4,
    IS_HEX = 8,
    IS_SHORT_ESCAPE = 16, /* a complete escape after a backslash */
};

static const uint8_t kind_of[256] = {
    [0 ... 8] = IS_STOP,
    ['\t'] = IS_SPACE | IS_STOP,
    ['\n'] = IS_SPACE | IS_STOP,
    [11 ... 12] = IS_STOP,
    ['\r'] = IS_SPACE | IS_STOP,
    [14 ... 31] = IS_STOP,
    [' '] = IS_SPACE,
    ['"'] = IS_STOP | IS_SHORT_ESCAPE,
    ['/'] = IS_SHORT_ESCAPE,
    ['0' ... '9'] = IS_DIGIT | IS_HEX,
    ['A' ... 'F'] = IS_HEX,
    ['\\'] = IS_STOP | IS_SHORT_ESCAPE,
    ['a'] = IS_HEX,
    ['b'] = IS_HEX | IS_SHORT_ESCAPE,
    ['c' ... 'e'] = IS_HEX,
    ['f'] = IS_HEX | IS_SHORT_ESCAPE,
    ['n'] = IS_SHORT_ESCAPE,
    ['r'] = IS_SHORT_ESCAPE,
    ['t'] = IS_SHORT_ESCAPE,
    [128 ... 255] = IS_STOP,
};

static inline int is(char byte, int kind)
{
    return kind_of[(uint8_t)byte] & kind;
}

static const char *refuse(JsonFault *fault, JsonFault why)
{
    *fault = why;
    return NULL;
}

const char *json_skip_long_space(const char *at, const char *end)
{
#if defined(__SSE2__)
    /* Kineto indents with a line break and many spaces, usually fewer than 16. */
    while (end - at >= 16 && is(*at, IS_SPACE)) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)at);
        __m128i blank =
            _mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(' ')),
                         _mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8('\n')),
                                      _mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8('\r')),
                                                   _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\t')))));
        unsigned others = ~(unsigned)_mm_movemask_epi8(blank) & 0xffff;
        if (others != 0) return at + __builtin_ctz(others);
        at += 16;
    }
#endif
    while (at < end && is(*at, IS_SPACE)) at++;
    return at;
}

/* The first byte that is not plain, or `end`. */
static inline const char *skip_plain(const char *at, const char *end)
{
    at = json_skip_plain(at, end);
    while (at < end && !is(*at, IS_STOP)) at++;
    return at;
}

/* `at` is at the backslash of \uXXXX. */
static const char *skip_number_escape(const char *at, const char *end, JsonFault *fault)
{
    static const char start[] = "\\u";
    for (int i = 0; i < 6; i++) {
        if (at + i >= end) return refuse(fault, JSON_CUT);
        if (i < 2 ? at[i] != start[i] : !is(at[i], IS_HEX)) return refuse(fault, JSON_BAD);
    }
    return at + 6;
}

/* -1 if the four digits at `at` are the high half of a surrogate pair, 1 if the low half, else
 * 0. */
static int half_of_a_pair(const char *at)
{
    if ((at[0] | 0x20) != 'd' || at[1] < '8') return 0;
    return at[1] == '8' || at[1] == '9' || (at[1] | 0x20) < 'c' ? -1 : 1;
}

/* `at` is at the backslash. */
static const char *skip_escape(const char *at, const char *end, JsonFault *fault)
{
    if (end - at < 2) return refuse(fault, JSON_CUT);
    if (is(at[1], IS_SHORT_ESCAPE)) return at + 2;
    const char *after = skip_number_escape(at, end, fault);
    int half = after == NULL ? 0 : half_of_a_pair(at + 2);
    if (half > 0) return refuse(fault, JSON_BAD);
    if (half == 0) return after;
    const char *low = after;
    after = skip_number_escape(low, end, fault);
    return after == NULL || half_of_a_pair(low + 2) > 0 ? after : refuse(fault, JSON_BAD);
}

/* `at` is at a byte of 128 or above: skips one character of UTF-8. */
static const char *skip_character(const char *at, const char *end, JsonFault *fault)
{
    const uint8_t *bytes = (const uint8_t *)at;
    uint8_t first = bytes[0], low = 0x80, high = 0xbf;
    int length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4) return refuse(fault, JSON_BAD);
    if (first == 0xe0)
        low = 0xa0; /* smaller ones fit into two bytes */
    else if (first == 0xed)
        high = 0x9f; /* surrogates are not valid in UTF-8 */
    else if (first == 0xf0)
        low = 0x90;
    else if (first == 0xf4)
        high = 0x8f;
    for (int i = 1; i < length; i++) {
        if (at + i >= end) return refuse(fault, JSON_CUT);
        if (bytes[i] < low || bytes[i] > high) return refuse(fault, JSON_BAD);
        low = 0x80, high = 0xbf;
    }
    return at + length;
}

/* `at` is at a byte of a string that skip_plain stops at. */
static const char *skip_hard_string(const char *at, const char *end, unsigned *marks,
                                    JsonFault *fault)
{
    while (at != NULL) {
        at = skip_plain(at, end);
        if (at == end) return refuse(fault, JSON_CUT);
        if (*at == '"') return at + 1;
        if (*at == '\\') {
            *marks |= JSON_ESCAPED;
            at = skip_escape(at, end, fault);
        } else if ((uint8_t)*at >= 128) {
            *marks |= JSON_HIGH;
            at = skip_character(at, end, fault);
        } else {
            at = refuse(fault, JSON_BAD); /* a control character */
        }
    }
    return NULL;
}

HOT const char *skip_string(const char *at, const char *end, unsigned *marks, JsonFault *fault)
{
    at = skip_plain(at, end);
    return at < end && *at == '"' ? at + 1 : skip_hard_string(at, end, marks, fault);
}

const char *json_skip_string(const char *at, const char *end, unsigned *marks, JsonFault *fault)
{
    return skip_string(at, end, marks, fault);
}

HOT const char *skip_digits(const char *at, const char *end)
{
    while (at < end && is(*at, IS_DIGIT)) at++;
    return at;
}

/* Skips one or more digits. */
HOT const char *skip_some_digits(const char *at, const char *end, JsonFault *fault)
{
    const char *after = skip_digits(at, end);
    if (after == end) return refuse(fault, JSON_CUT);
    return after > at ? after : refuse(fault, JSON_BAD);
}

HOT const char *skip_number(const char *at, const char *end, JsonFault *fault)
{
    at += *at == '-';
    const char *first = at;
    at = skip_some_digits(at, end, fault);
    if (at != NULL && *first == '0' && at > first + 1) return refuse(fault, JSON_BAD);
    if (at != NULL && *at == '.') at = skip_some_digits(at + 1, end, fault);
    if (at != NULL && (*at == 'e' || *at == 'E')) {
        at++;
        if (at < end && (*at == '+' || *at == '-')) at++;
        at = skip_some_digits(at, end, fault);
    }
    return at;
}

HOT const char *skip_word(const char *at, const char *end, const char *word, size_t length,
                          JsonFault *fault)
{
    size_t left = (size_t)(end - at), compared = left < length ? left : length;
    if (memcmp(at, word, compared) != 0) return refuse(fault, JSON_BAD);
    return compared == length ? at + length : refuse(fault, JSON_CUT);
}

/* Skips a value that is neither a list nor an object. */
HOT const char *skip_scalar(const char *at, const char *end, JsonFault *fault)
{
    unsigned marks = 0;
    switch (*at) {
        case '"': return skip_string(at + 1, end, &marks, fault);
        case 't': return skip_word(at, end, "true", 4, fault);
        case 'f': return skip_word(at, end, "false", 5, fault);
        case 'n': return skip_word(at, end, "null", 4, fault);
        default:
            return *at == '-' || is(*at, IS_DIGIT) ? skip_number(at, end, fault)
                                                   : refuse(fault, JSON_BAD);
    }
}

const char *json_skip_commas(const char *at, const char *end, int64_t *num_commas)
{
    for (*num_commas = 0;; ++*num_commas, at++) {
        at = json_skip_space(at, end);
        if (at == end || *at != ',') return at;
    }
}

HOT const char *skip_key(const char *at, const char *end, const char **key, size_t *key_length,
                         unsigned *marks, JsonFault *fault)
{
    if (at == end) return refuse(fault, JSON_CUT);
    if (*at != '"') return refuse(fault, JSON_BAD);
    *key = at + 1;
    at = skip_string(at + 1, end, marks, fault);
    if (at == NULL) return NULL;
    *key_length = (size_t)(at - 1 - *key);
    at = json_skip_space(at, end);
    if (at == end) return refuse(fault, JSON_CUT);
    if (*at != ':') return refuse(fault, JSON_BAD);
    at = json_skip_space(at + 1, end);
    return at < end ? at : refuse(fault, JSON_CUT);
}

int json_read_key(JsonMembers *members)
{
    members->marks = 0;
    members->at = skip_key(members->at, members->end, &members->key.at, &members->key.length,
                           &members->marks, &members->fault);
    return members->at != NULL;
}

/* The open brackets, one bit each: 1 is an object. */
typedef struct {
    uint64_t bits[JSON_DEEPEST / 64];
    unsigned depth;
} Brackets;

static int brackets_push(Brackets *open, int is_object)
{
    if (open->depth == JSON_DEEPEST) return 0;
    uint64_t bit = (uint64_t)1 << (open->depth % 64), *word = &open->bits[open->depth / 64];
    *word = is_object ? *word | bit : *word & ~bit;
    open->depth++;
    return 1;
}

static int brackets_top_is_object(const Brackets *open)
{
    unsigned top = open->depth - 1;
    return open->bits[top / 64] >> (top % 64) & 1;
}

/* `at` is where a member begins, after a comma or an opening bracket. Skips its key, if it is in an
 * object. */
HOT const char *skip_to_member(const char *at, const char *end, const Brackets *open,
                               JsonFault *fault)
{
    const char *key;
    size_t length;
    unsigned marks = 0;
    at = json_skip_space(at, end);
    if (at == end) return refuse(fault, JSON_CUT);
    return brackets_top_is_object(open) ? skip_key(at, end, &key, &length, &marks, fault) : at;
}

/* `at` is after a value. Closes brackets and goes to the next member, if any bracket is open. */
HOT const char *skip_to_next(const char *at, const char *end, Brackets *open, JsonFault *fault)
{
    while (open->depth > 0) {
        at = json_skip_space(at, end);
        if (at == end) return refuse(fault, JSON_CUT);
        if (*at == ',') return skip_to_member(at + 1, end, open, fault);
        if (*at != (brackets_top_is_object(open) ? '}' : ']')) return refuse(fault, JSON_BAD);
        open->depth--;
        at++;
    }
    return at;
}

const char *json_skip_value(const char *at, const char *end, JsonFault *fault)
{
    Brackets open;
    open.depth = 0;
    if (at == end) return refuse(fault, JSON_CUT);
    do {
        if (*at == '{' || *at == '[') {
            char closing = *at == '{' ? '}' : ']';
            if (!brackets_push(&open, *at == '{')) return refuse(fault, JSON_BAD);
            at = json_skip_space(at + 1, end);
            if (at == end) return refuse(fault, JSON_CUT);
            if (*at != closing) {
                at = skip_to_member(at, end, &open, fault);
                if (at == NULL) return NULL;
                continue;
            }
            open.depth--;
            at++;
        } else {
            at = skip_scalar(at, end, fault);
        }
        if (at != NULL) at = skip_to_next(at, end, &open, fault);
    } while (at != NULL && open.depth > 0);
    return at;
}
