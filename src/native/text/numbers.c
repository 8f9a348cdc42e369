/* See numbers.h. */

#include "text/numbers.h"

#include <math.h>

#include "text/decimal.h"
#include "text/json.h"

#define MAX_DIGITS 18
#define MAX_NUMBER 63
#define DOUBLES_LOSE_DIGITS_FROM_US 8796093022208.0 /* 2**43 */

/* -- reading -- */

static inline int is_digit(char byte)
{
    return byte >= '0' && byte <= '9';
}

int read_integer(Text text, int64_t *number)
{
    const char *at = text.at, *end = text.at + text.length;
    int is_negative = at < end && *at == '-';
    int64_t sum = 0;
    at += is_negative;
    if (at == end || end - at > MAX_DIGITS) return 0;
    for (; at < end; at++) {
        if (!is_digit(*at)) return 0;
        sum = sum * 10 + (*at - '0');
    }
    *number = is_negative ? -sum : sum;
    return 1;
}

/* Reads a number of up to 15 digits without an exponent. The digits and their divisor are exact as
 * doubles, so the quotient is the nearest double. 0 for other numbers. */
static int short_number(const char *at, const char *end, double *number)
{
    static const double powers[] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    int is_negative = at < end && *at == '-', num_behind = 0;
    at += is_negative;
    if (end - at > 16) return 0;
    uint64_t digits = 0;
    for (; at < end; at++) {
        unsigned digit = (unsigned)(uint8_t)*at - '0';
        if (*at == '.') {
            num_behind = (int)(end - at) - 1;
        } else if (digit < 10) {
            digits = digits * 10 + digit;
        } else {
            return 0;
        }
    }
    *number = (double)digits / powers[num_behind];
    if (is_negative) *number = -*number;
    return digits < UINT64_C(1000000000000000);
}

double read_double(Text number)
{
    char text[MAX_NUMBER + 1];
    double value;
    if (short_number(number.at, number.at + number.length, &value)) return value;
    size_t length = number.length < MAX_NUMBER ? number.length : MAX_NUMBER;
    memcpy(text, number.at, length);
    text[length] = 0;
    return decimal_value(text);
}

/* Reads a number with more than three decimals or an exponent, which is rare, and rounds as Python
 * does. */
static const char *read_rounded_us(const char *at, const char *end, int64_t *ns)
{
    JsonFault fault = JSON_FINE;
    const char *behind = *at == '-' || is_digit(*at) ? json_skip_value(at, end, &fault) : NULL;
    if (behind == NULL || behind - at > MAX_NUMBER) return NULL;
    double number = read_double((Text){at, (size_t)(behind - at)});
    if (!(fabs(number) < DOUBLES_LOSE_DIGITS_FROM_US)) return NULL;
    double whole = floor(number);
    *ns = (int64_t)whole * 1000 + (int64_t)nearbyint((number - whole) * 1000.0);
    return behind;
}

const char *read_us(const char *at, const char *end, int64_t *ns)
{
    const char *start = at, *first = at += at < end && *at == '-';
    uint64_t whole = 0, thousandths = 0;
    for (; at < end && is_digit(*at); at++) whole = whole * 10 + (uint64_t)(*at - '0');
    if (at == first || at - first > 16 || whole > MAX_TIME_US || (*first == '0' && at - first > 1))
        return NULL;
    if (at < end && *at == '.') {
        const char *decimals = ++at;
        for (; at < end && is_digit(*at); at++)
            thousandths = thousandths * 10 + (uint64_t)(*at - '0');
        if (at == decimals) return NULL;
        if (at - decimals > 3) return read_rounded_us(start, end, ns);
        for (ptrdiff_t num_decimals = at - decimals; num_decimals < 3; num_decimals++)
            thousandths *= 10;
    }
    if (at == end) return NULL;
    if (*at == 'e' || *at == 'E') return read_rounded_us(start, end, ns);
    int64_t sum = (int64_t)(whole * 1000 + thousandths);
    *ns = *start == '-' ? -sum : sum;
    return at;
}

/* -- writing -- */

static const char pairs[] =
    "00010203040506070809101112131415161718192021222324252627282930313233343536373839404142434445"
    "46474849505152535455565758596061626364656667686970717273747576777879808182838485868788899091"
    "9293949596979899";

/* Writes digits before `end`; returns the first. */
static char *digits_before(char *end, uint64_t number)
{
    while (number >= 100) {
        end -= 2;
        memcpy(end, pairs + number % 100 * 2, 2);
        number /= 100;
    }
    if (number >= 10) {
        end -= 2;
        memcpy(end, pairs + number * 2, 2);
    } else {
        *--end = (char)('0' + number);
    }
    return end;
}

static uint64_t magnitude(int64_t number)
{
    return number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
}

char *write_integer(char *at, int64_t number)
{
    char text[INTEGER_DIGITS], *end = text + sizeof text,
                               *begin = digits_before(end, magnitude(number));
    if (number < 0) *--begin = '-';
    copy_short(at, begin, (size_t)(end - begin));
    return at + (end - begin);
}

void bytes_put_integer(Bytes *bytes, int64_t number)
{
    char *room = bytes_room(bytes, INTEGER_DIGITS);
    if (room != NULL) bytes->length += (size_t)(write_integer(room, number) - room);
}

char *write_us(char *at, int64_t ns)
{
    char text[US_DIGITS], *end = text + sizeof text, *begin = end - 4;
    uint64_t whole = magnitude(ns) / 1000, rest = magnitude(ns) % 1000;
    begin[0] = '.';
    begin[1] = (char)('0' + rest / 100);
    memcpy(begin + 2, pairs + rest % 100 * 2, 2);
    begin = digits_before(begin, whole);
    if (ns < 0) *--begin = '-';
    copy_short(at, begin, (size_t)(end - begin));
    return at + (end - begin);
}

void bytes_put_us(Bytes *bytes, int64_t ns)
{
    char *room = bytes_room(bytes, US_DIGITS);
    if (room != NULL) bytes->length += (size_t)(write_us(room, ns) - room);
}
