/* A block of columns: rows of events that a Scanner has read, to be passed on as Arrow. A column
 * without any value is left out. */

#ifndef KINETOSCOPE_BLOCK_H
#define KINETOSCOPE_BLOCK_H

#include "scan/column.h"

#define BLOCK_ROWS 65536
#define MAX_NUMBERS 32
#define MAX_TEXTS 16

/* The texts of an event. Those of its arguments come after them. */
enum { TEXT_NAME, TEXT_CATEGORY, TEXT_TRACK, TEXT_ID, NUM_OWN_TEXTS };
/* The numbers of an event. Those of its arguments come after them. */
enum { NUMBER_TS, NUMBER_DUR, NUMBER_ID, NUM_OWN_NUMBERS };
enum { BYTES_ARGS, BYTES_FIELDS, NUM_BYTES };

typedef struct {
    int64_t *values;
    uint8_t *valid; /* one bit per row */
    uint32_t num_valid;
} Numbers;

typedef struct {
    int32_t *offsets;
    char *bytes;
    size_t room;
    uint8_t *valid;
    uint32_t num_valid;
} ByteColumn;

typedef struct {
    uint32_t num_rows;
    uint8_t *phases;
    uint32_t *texts[MAX_TEXTS]; /* NULL: no event of the block has this text */
    Numbers numbers[MAX_NUMBERS];
    ByteColumn bytes[NUM_BYTES];
} Block;

static inline void set_bit(uint8_t *bits, uint32_t row)
{
    bits[row / 8] |= (uint8_t)(1 << row % 8);
}

/* -- each puts a value into the current row; 0 without memory -- */

static inline int block_put_text(Block *block, int column, uint32_t number)
{
    if (UNLIKELY(block->texts[column] == NULL)) {
        block->texts[column] = pages_new(BLOCK_ROWS * sizeof(uint32_t));
        if (block->texts[column] == NULL) return 0;
    }
    block->texts[column][block->num_rows] = number;
    return 1;
}

static inline int block_put_number(Block *block, int column, int64_t value)
{
    Numbers *numbers = &block->numbers[column];
    if (UNLIKELY(numbers->valid == NULL)) {
        if (numbers->values == NULL)
            numbers->values = pages_new(BLOCK_ROWS * sizeof *numbers->values);
        numbers->valid = numbers->values == NULL ? NULL : pages_new(BLOCK_ROWS / 8);
        if (numbers->valid == NULL) return 0;
    }
    numbers->values[block->num_rows] = value;
    set_bit(numbers->valid, block->num_rows);
    numbers->num_valid++;
    return 1;
}

/* Room for `length` more bytes in the current row, after the `already` bytes that it has; NULL
 * without memory. */
char *block_room(Block *block, int column, size_t already, size_t length);

/* Ends the row's bytes; call it for each row. */
static inline void block_end_bytes(Block *block, int column, size_t length)
{
    ByteColumn *bytes = &block->bytes[column];
    if (bytes->offsets == NULL) return;
    bytes->offsets[block->num_rows + 1] = bytes->offsets[block->num_rows] + (int32_t)length;
    if (length > 0) {
        set_bit(bytes->valid, block->num_rows);
        bytes->num_valid++;
    }
}

/* Whether so many more bytes might not fit into one more row. */
int block_is_full(const Block *block, size_t next_bytes);
/* Moves the columns that have values into the list; they no longer belong to the block. `names` are
 * the names of all columns except the phase. Returns -1 with an error set. */
int block_move(Block *block, PyObject *list, PyObject *names, int num_texts, int num_numbers);
void block_free(Block *block);

#endif
