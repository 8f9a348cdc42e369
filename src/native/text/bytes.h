/* Slices of text, growing bytes, and a table of byte strings. Nothing here uses Python. */

#ifndef KINETOSCOPE_BYTES_H
#define KINETOSCOPE_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* -- a slice of text, which does not own its bytes -- */

typedef struct {
    const char *at; /* NULL: no text */
    size_t length;
} Text;

static inline int text_is(Text text, const char *literal, size_t length)
{
    return text.length == length && memcmp(text.at, literal, length) == 0;
}
#define TEXT_IS(text, literal) text_is(text, literal, sizeof(literal) - 1)

static inline int text_begins(Text text, const char *literal, size_t length)
{
    return text.length >= length && memcmp(text.at, literal, length) == 0;
}
#define TEXT_BEGINS(text, literal) text_begins(text, literal, sizeof(literal) - 1)

/* -- bytes that grow -- */

typedef struct {
    char *at;
    size_t length, capacity;
    int has_failed; /* there was no memory: what was put since then is missing */
} Bytes;

char *bytes_grow(Bytes *bytes, size_t more);

/* Makes room for `more` bytes at the end; NULL without memory. */
static inline char *bytes_room(Bytes *bytes, size_t more)
{
    int fits = bytes->at != NULL && bytes->capacity - bytes->length >= more;
    return fits ? bytes->at + bytes->length : bytes_grow(bytes, more);
}

void bytes_free(Bytes *bytes);

/* memcpy, fast for short texts. */
static inline void copy_short(char *to, const char *from, size_t length)
{
    if (length > 32) {
        memcpy(to, from, length);
    } else if (length >= 16) {
        memcpy(to, from, 16);
        memcpy(to + length - 16, from + length - 16, 16);
    } else if (length >= 8) {
        memcpy(to, from, 8);
        memcpy(to + length - 8, from + length - 8, 8);
    } else if (length >= 4) {
        memcpy(to, from, 4);
        memcpy(to + length - 4, from + length - 4, 4);
    } else {
        for (size_t i = 0; i < length; i++) to[i] = from[i];
    }
}

static inline void bytes_put(Bytes *bytes, const void *from, size_t length)
{
    char *room = bytes_room(bytes, length);
    if (room != NULL && length > 0) {
        copy_short(room, from, length);
        bytes->length += length;
    }
}

#define bytes_put_literal(bytes, literal) bytes_put(bytes, literal, sizeof(literal) - 1)

static inline void bytes_put_char(Bytes *bytes, char byte)
{
    char *room = bytes_room(bytes, 1);
    if (room != NULL) {
        *room = byte;
        bytes->length++;
    }
}

/* Makes room for all elements up to this index, which has none yet; 0 if there is no memory. */
int array_enlarge(void **array, size_t index, size_t *capacity, size_t element_bytes);

/* Makes room for the element after the first `num_used` ones; 0 if there is no memory. */
static inline int array_room_for_next(void **array, size_t num_used, size_t *capacity,
                                      size_t element_bytes)
{
    return num_used < *capacity || array_enlarge(array, num_used, capacity, element_bytes);
}

/* Makes room for all elements up to this index, and sets all new room to zero; 0 if there is no
 * memory. For arrays that get room in no other way. */
int array_room_up_to(void **array, size_t index, size_t *capacity, size_t element_bytes);

/* -- a table: different byte strings, numbered from 0 in the order in which they came -- */

#define TABLE_FULL UINT32_MAX

typedef struct {
    size_t at, length;
    uint64_t hash;
} TableEntry;

typedef struct {
    Bytes keys;
    TableEntry *entries;
    size_t num_entries, entries_capacity;
    uint32_t *slots; /* index + 1 of an entry; 0 is free */
    size_t num_slots;
    size_t max_bytes; /* limit for all keys together; 0: none */
} Table;

/* The number of a key; a new key is added. TABLE_FULL if there is no memory, or the limit is
 * reached. */
uint32_t table_intern(Table *table, const char *key, size_t length);
/* The number of a key that was added before; TABLE_FULL if it was not. */
uint32_t table_find(const Table *table, const char *key, size_t length);
void table_free(Table *table);

static inline const char *table_key(const Table *table, uint32_t number, size_t *length)
{
    *length = table->entries[number].length;
    return table->keys.at + table->entries[number].at;
}

/* -- a hash that is the same in every process and in formats/perfetto.py: FNV-1a -- */

#define STABLE_BASIS UINT64_C(14695981039346656037)
#define STABLE_PRIME UINT64_C(1099511628211)

/* Continues `hash` with these bytes. */
static inline uint64_t stable_hash(uint64_t hash, const char *at, size_t length)
{
    for (size_t i = 0; i < length; i++) hash = (hash ^ (uint8_t)at[i]) * STABLE_PRIME;
    return hash;
}

#endif
