/* See json_text.h. */

#include "text/json_text.h"

#include "text/decimal.h"

static unsigned hex_of(const char *at)
{
    unsigned number = 0;
    for (int i = 0; i < 4; i++) {
        char byte = at[i];
        unsigned digit = byte >= '0' && byte <= '9' ? (unsigned)(byte - '0') : ((unsigned)byte | 32u) - 'a' + 10;
        number = number << 4 | (digit & 15);
    }
    return number;
}

static void put_character(Bytes *bytes, unsigned code)
{
    char text[4];
    size_t length;
    if (code < 0x80) {
        text[0] = (char)code;
        length = 1;
    } else if (code < 0x800) {
        text[0] = (char)(0xc0 | code >> 6);
        text[1] = (char)(0x80 | (code & 63));
        length = 2;
    } else if (code < 0x10000) {
        text[0] = (char)(0xe0 | code >> 12);
        text[1] = (char)(0x80 | (code >> 6 & 63));
        text[2] = (char)(0x80 | (code & 63));
        length = 3;
    } else {
        text[0] = (char)(0xf0 | code >> 18);
        text[1] = (char)(0x80 | (code >> 12 & 63));
        text[2] = (char)(0x80 | (code >> 6 & 63));
        text[3] = (char)(0x80 | (code & 63));
        length = 4;
    }
    bytes_put(bytes, text, length);
}

/* `at` is behind a backslash; returns what is behind the escape. */
static const char *put_escaped(Bytes *bytes, const char *at, const char *end)
{
    static const char short_escapes[] = "b\bf\fn\nr\rt\t";
    if (*at != 'u') {
        const char *found = NULL;
        for (const char *it = short_escapes; *it != 0 && found == NULL; it += 2)
            found = *it == *at ? it + 1 : NULL;
        bytes_put_char(bytes, found != NULL ? *found : *at);
        return at + 1;
    }
    if (end - at < 5)
        return end;
    unsigned code = hex_of(at + 1);
    at += 5;
    if (code >= 0xd800 && code < 0xdc00 && end - at >= 6 && at[0] == '\\' && at[1] == 'u') {
        unsigned low = hex_of(at + 2);
        if (low >= 0xdc00 && low < 0xe000) {
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
            at += 6;
        }
    }
    put_character(bytes, code >= 0xd800 && code < 0xe000 ? 0xfffd : code);
    return at;
}

void json_put_inside(Bytes *bytes, const char *at, const char *end)
{
    while (at < end) {
        const char *escape = memchr(at, '\\', (size_t)(end - at));
        if (escape == NULL || end - escape < 2) {
            bytes_put(bytes, at, (size_t)(end - at));
            return;
        }
        bytes_put(bytes, at, (size_t)(escape - at));
        at = put_escaped(bytes, escape + 1, end);
    }
}

Text json_plain_text(Text text, Bytes *room)
{
    if (text.at == NULL)
        return (Text){"", 0};
    if (text.length < 2 || *text.at != '"')
        return text;
    Text inside = {text.at + 1, text.length - 2};
    if (memchr(inside.at, '\\', inside.length) == NULL)
        return inside;
    room->length = 0;
    json_put_inside(room, inside.at, inside.at + inside.length);
    return (Text){room->at != NULL ? room->at : "", room->length};
}

/* One of up to 15 digits and without an exponent: the digits and what they are divided by are both exact as doubles, so
 * the quotient is the nearest one. 0 for others. */
static int short_number(const char *at, const char *end, double *number)
{
    static const double powers[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    int is_negative = at < end && *at == '-', num_behind = 0;
    at += is_negative;
    if (end - at > 16)
        return 0;
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
    if (is_negative)
        *number = -*number;
    return digits < UINT64_C(1000000000000000);
}

double json_number(const char *at, size_t length)
{
    char text[64];
    double number;
    if (short_number(at, at + length, &number))
        return number;
    if (length >= sizeof text)
        length = sizeof text - 1;
    memcpy(text, at, length);
    text[length] = 0;
    return decimal_value(text);
}
