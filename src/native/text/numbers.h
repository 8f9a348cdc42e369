/* Reads and writes numbers of JSON. Times are microseconds in JSON, and nanoseconds here. */

#ifndef KINETOSCOPE_NUMBERS_H
#define KINETOSCOPE_NUMBERS_H

#include "text/bytes.h"

/* 126 years: the sum with a base in unix nanoseconds fits */
#define MAX_TIME_US INT64_C(4000000000000000)
#define US_DIGITS 24      /* the longest microseconds */
#define INTEGER_DIGITS 20 /* the longest integer, with its sign */
#define TIME_AHEAD 32     /* bytes that read_us_ahead may read */

/* -- reading -- */

/* Reads a text that is an integer of at most 18 digits; 0 if it is not. */
int read_integer(Text text, int64_t *number);
/* A JSON number as the nearest double. Of numbers longer than 63 characters, only the first 63
 * count. */
double read_double(Text text);
/* Reads microseconds as nanoseconds, rounded as `nanoseconds` in formats/chrome_event.py does.
 * Returns the byte after them; NULL if they are not a JSON number, are too large or too long to be
 * exact, or reach `end`. */
const char *read_us(const char *at, const char *end, int64_t *ns);

/* How many of eight bytes are digits, counted from the first one. */
static inline unsigned num_digits(uint64_t word)
{
    uint64_t parts = word ^ UINT64_C(0x3030303030303030); /* digits become 0 to 9 */
    uint64_t others = ((parts + UINT64_C(0x7676767676767676)) | parts) &
                      UINT64_C(0x8080808080808080);
    /* Only a byte that is no digit can carry, and the bytes after it do not matter. */
    return others != 0 ? (unsigned)__builtin_ctzll(others) / 8 : 8;
}

/* The number in the first `length` bytes of a word, all digits; at least one. */
static inline uint64_t number_of_digits(uint64_t word, unsigned length)
{
    word = (word - UINT64_C(0x3030303030303030)) << (64 - 8 * length); /* leading zeros */
    word = (word * 10 + (word >> 8)) & UINT64_C(0x00ff00ff00ff00ff);
    word = (word * 100 + (word >> 16)) & UINT64_C(0x0000ffff0000ffff);
    return (word * 10000 + (word >> 32)) & UINT64_C(0xffffffff);
}

static inline uint64_t word_at(const char *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word); /* little-endian: the first byte is the low one */
    return word;
}

/* As read_us, for numbers without a sign and with at most three decimals, where TIME_AHEAD bytes
 * may be read; NULL for others. */
static inline __attribute__((always_inline)) const char *read_us_ahead(const char *at, int64_t *ns)
{
    static const unsigned scales[] = {1000, 100, 10, 1};
    uint64_t word = word_at(at), whole;
    unsigned length = num_digits(word);
    if (length == 0 || (*at == '0' && length > 1)) return NULL;
    whole = number_of_digits(word, length);
    at += length;
    if (length == 8) {
        word = word_at(at);
        length = num_digits(word);
        if (length == 8) return NULL;
        for (unsigned i = 0; i < length; i++) whole = whole * 10 + (uint64_t)(at[i] - '0');
        at += length;
    }
    whole *= 1000;
    if (*at == '.') {
        word = word_at(at + 1);
        length = num_digits(word);
        if (length == 0 || length > 3) return NULL;
        whole += number_of_digits(word, length) * scales[length];
        at += 1 + length;
    }
    *ns = (int64_t)whole;
    return *at == 'e' || *at == 'E' || whole > UINT64_C(1000) * MAX_TIME_US ? NULL : at;
}

/* -- writing: each returns the byte after what it wrote -- */

/* Needs room for INTEGER_DIGITS. */
char *write_integer(char *at, int64_t number);
/* Nanoseconds as microseconds with three decimals. Needs room for US_DIGITS. */
char *write_us(char *at, int64_t ns);
void bytes_put_integer(Bytes *bytes, int64_t number);
void bytes_put_us(Bytes *bytes, int64_t ns);

#endif
