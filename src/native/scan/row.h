/* Reads the fields of one event of a Chrome trace, if it is ordinary, before it becomes a row of
 * columns. */

#ifndef KINETOSCOPE_ROW_H
#define KINETOSCOPE_ROW_H

#include "scan/block.h"
#include "text/bytes.h"

#define MAX_KEYS 64
#define MAX_FIELDS 60

/* A key of an argument, and its column. If two keys have the same column, the one of lower rank
 * counts. */
typedef struct {
    char text[40];
    uint8_t length, column, rank, is_text;
} Key;

/* The keys of arguments that have columns. */
typedef struct {
    int num;
    Key keys[MAX_KEYS];
    uint8_t buckets[256]; /* number + 1 of the first key with that hash */
    uint8_t next_key[MAX_KEYS];
} Keys;

/* Adds a key. Fewer than MAX_KEYS must be there. */
void keys_add(Keys *keys, Key key);

/* What was read of an event. */
typedef struct {
    Text name, category, pid, tid, id, args;
    uint8_t phase;
    uint8_t has_name, has_category, has_pid, has_tid, has_args, has_phase, has_id_text;
    uint32_t has_number; /* one bit per column */
    int64_t numbers[MAX_NUMBERS];
    uint8_t ranks[MAX_NUMBERS];
    uint8_t text_ranks[MAX_TEXTS];
    uint32_t has_text;
    Text texts[MAX_TEXTS];
    uint64_t seen_keys;
    /* fields that the format does not have: from the key's quote to the value's end */
    Text fields[MAX_FIELDS];
    int num_fields;
} Row;

typedef enum { ROW_TAKEN, ROW_CUT, ROW_REFUSED } RowVerdict;

/* `*at` is at the opening brace; if the event was accepted, it is after the closing one
 * afterwards. */
RowVerdict row_read(const Keys *keys, Row *row, const char **at, const char *end);

#endif
