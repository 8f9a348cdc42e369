/* The parts of protobuf that Perfetto's traces need. `write_...` writes where there is room;
 * `put_...` makes room first. */

#ifndef KINETOSCOPE_PROTOBUF_H
#define KINETOSCOPE_PROTOBUF_H

#include "text/bytes.h"

#define VARINT_BYTES 10                 /* the longest varint */
#define NUMBER_BYTES (1 + VARINT_BYTES) /* the longest field with a number below 16, with its tag */

enum { VARINT = 0, FIXED64 = 1, BYTES = 2 };

static inline char *write_varint(char *at, uint64_t number)
{
    for (; number >= 128; number >>= 7) *at++ = (char)(number | 128);
    *at++ = (char)number;
    return at;
}

static inline size_t varint_length(uint64_t number)
{
    return (size_t)(70 - __builtin_clzll(number | 1)) / 7;
}

/* Writes a field whose number is below 16. */
static inline char *write_unsigned(char *at, unsigned field, uint64_t number)
{
    *at = (char)(field << 3 | VARINT);
    return write_varint(at + 1, number);
}

/* Begins a message or string of known length, as a field whose number is below 16. */
static inline char *write_length(char *at, unsigned field, size_t length)
{
    *at = (char)(field << 3 | BYTES);
    return write_varint(at + 1, length);
}

static inline void put_varint(Bytes *bytes, uint64_t number)
{
    char *room = bytes_room(bytes, VARINT_BYTES);
    if (room != NULL) bytes->length += (size_t)(write_varint(room, number) - room);
}

static inline void put_tag(Bytes *bytes, unsigned field, unsigned type)
{
    put_varint(bytes, field << 3 | type);
}

static inline void put_unsigned(Bytes *bytes, unsigned field, uint64_t number)
{
    put_tag(bytes, field, VARINT);
    put_varint(bytes, number);
}

static inline void put_double(Bytes *bytes, unsigned field, double number)
{
    put_tag(bytes, field, FIXED64);
    bytes_put(bytes, &number, sizeof number); /* all supported machines are little-endian */
}

/* Begins a message or string of unknown length; one byte is reserved for the length. */
static inline size_t begin_message(Bytes *bytes, unsigned field)
{
    put_tag(bytes, field, BYTES);
    bytes_put_char(bytes, 0);
    return bytes->length;
}

static inline void end_message(Bytes *bytes, size_t begin)
{
    size_t length = bytes->length - begin, extra = varint_length(length) - 1;
    if (bytes->has_failed || bytes_room(bytes, extra) == NULL) return;
    if (extra > 0) memmove(bytes->at + begin + extra, bytes->at + begin, length);
    bytes->length += extra;
    write_varint(bytes->at + begin - 1, length);
}

#endif
