/* See json_text.h. */

#include "text/json_text.h"

static unsigned hex_of(const char *at)
{
    unsigned number = 0;
    for (int i = 0; i < 4; i++) {
        char byte = at[i];
        unsigned digit = byte >= '0' && byte <= '9' ? (unsigned)(byte - '0')
                                                    : ((unsigned)byte | 32u) - 'a' + 10;
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

/* `at` is after a backslash. Returns the byte after the escape. */
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
    if (end - at < 5) return end;
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
    if (text.at == NULL) return (Text){"", 0};
    if (text.length < 2 || *text.at != '"') return text;
    Text inside = {text.at + 1, text.length - 2};
    if (memchr(inside.at, '\\', inside.length) == NULL) return inside;
    room->length = 0;
    json_put_inside(room, inside.at, inside.at + inside.length);
    return (Text){room->at != NULL ? room->at : "", room->length};
}
