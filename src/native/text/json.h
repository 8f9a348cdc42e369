/* Where JSON values end: a small tokenizer over bytes that need not be whole, nor JSON.
 *
 *     bytes ──► json_skip_space, json_skip_string, json_skip_value ──► what is behind, or why not
 *
 * It keeps nothing and allocates nothing, reads no byte at `end` or beyond, and is strict: what it
 * skips, every JSON parser takes, UTF-8 included. What it refuses (also what is nested too deep for
 * it) somebody more patient may read. It knows nothing of Python, so it may be used without the
 * GIL. */

#ifndef KINETOSCOPE_JSON_H
#define KINETOSCOPE_JSON_H

#include <stddef.h>
#include <stdint.h>

#if defined(__SSE2__)
    #include <emmintrin.h>
#endif

#define JSON_DEEPEST 192 /* brackets within brackets */

/* What a skipped string holds beside plain ASCII, and why a value could not be skipped. */
enum {
    JSON_ESCAPED = 1, /* backslashes */
    JSON_HIGH = 2,    /* bytes of 128 and above; valid UTF-8 */
};

typedef enum {
    JSON_FINE,
    JSON_CUT, /* the bytes end within it */
    JSON_BAD, /* it is not JSON, or is nested too deep */
} JsonFault;

const char *json_skip_long_space(const char *at, const char *end);

/* The first byte that is no white space, or `end`. */
static inline const char *json_skip_space(const char *at, const char *end)
{
    if (at < end && (uint8_t)*at > ' ') return at;
    if (end - at >= 2 && *at == ' ' && (uint8_t)at[1] > ' ') return at + 1;
    return json_skip_long_space(at, end);
}

/* Goes over what needs no look within a string. Stops at a quote, a backslash, a control character
 * or a byte above ASCII, or near the end. */
static inline const char *json_skip_plain(const char *at, const char *end)
{
#if defined(__SSE2__)
    for (; end - at >= 16; at += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)at);
        /* Compared as signed numbers, bytes above ASCII are below the space too. */
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

/* `at` is behind the opening quote. Returns the byte behind the closing one, or NULL and why.
 * `*marks` gets JSON_ESCAPED and JSON_HIGH added to it. */
const char *json_skip_string(const char *at, const char *end, unsigned *marks, JsonFault *fault);

/* `at` is where a value begins (no white space). Returns the byte behind it, or NULL and why. A
 * number that reaches `end` may go on: it counts as cut. */
const char *json_skip_value(const char *at, const char *end, JsonFault *fault);

/* `at` is behind a value in a list or an object, or behind the bracket that opens it. Skips white
 * space, and the comma if there is one (`*num_commas` counts them): what comes next is a value, a
 * key, or the closing bracket. */
const char *json_skip_comma(const char *at, const char *end, int *num_commas);

/* `at` is at the opening quote of a key. Gives the key without quotes, and the first byte of its
 * value; NULL and why. */
const char *json_skip_key(const char *at, const char *end, const char **key, size_t *key_length,
                          unsigned *marks, JsonFault *fault);

#endif
