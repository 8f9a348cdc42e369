/* See block.h. */

#include "scan/block.h"

#include <stdlib.h>
#include <string.h>

#define MIN_BYTES ((size_t)1 << 16) /* initial size of a column of bytes */
/* limit of a column of bytes, whose offsets have 32 bits */
#define MAX_BLOCK_BYTES ((size_t)256 << 20)

static int make_bytes_room(ByteColumn *bytes, size_t wanted)
{
    if (wanted <= bytes->room) return 1;
    size_t room = wanted > bytes->room * 2 ? wanted + MIN_BYTES : bytes->room * 2;
    char *grown = bytes->bytes == NULL ? pages_new(room) : pages_resize(bytes->bytes, room);
    if (grown == NULL) return 0;
    bytes->bytes = grown;
    bytes->room = room;
    return 1;
}

char *block_room(Block *block, int column, size_t already, size_t length)
{
    ByteColumn *bytes = &block->bytes[column];
    if (UNLIKELY(bytes->offsets == NULL)) {
        bytes->offsets = pages_new((BLOCK_ROWS + 1) * sizeof *bytes->offsets);
        if (bytes->valid == NULL) bytes->valid = pages_new(BLOCK_ROWS / 8);
        if (bytes->offsets == NULL || bytes->valid == NULL) {
            pages_free(bytes->offsets);
            bytes->offsets = NULL;
            return NULL;
        }
    }
    size_t used = (size_t)bytes->offsets[block->num_rows] + already;
    return make_bytes_room(bytes, used + length) ? bytes->bytes + used : NULL;
}

int block_is_full(const Block *block, size_t next_bytes)
{
    if (block->num_rows == BLOCK_ROWS) return 1;
    for (int i = 0; i < NUM_BYTES; i++)
        if (block->bytes[i].offsets != NULL && block->num_rows > 0 &&
            (size_t)block->bytes[i].offsets[block->num_rows] + next_bytes > MAX_BLOCK_BYTES)
            return 1;
    return 0;
}

/* -- moving the columns to Python -- */

static int move_phases(PyObject *list, Block *block)
{
    PyObject *name = PyBytes_FromString("phase");
    void *phases = block->phases;
    block->phases = NULL;
    if (name == NULL) pages_free(phases);
    int result = name == NULL
                     ? -1
                     : column_append(list, name, "C", block->num_rows, 0, NULL, phases, NULL);
    Py_XDECREF(name);
    return result;
}

/* Frees the unused end of a buffer of bytes. */
static char *trimmed(ByteColumn *bytes, uint32_t num_rows)
{
    size_t used = (size_t)bytes->offsets[num_rows];
    char *smaller = pages_resize(bytes->bytes, used);
    return smaller != NULL ? smaller : bytes->bytes;
}

int block_move(Block *block, PyObject *list, PyObject *names, int num_texts, int num_numbers)
{
    int64_t rows = block->num_rows;
    int place = 0, failed = move_phases(list, block);
    for (int i = 0; !failed && i < num_texts; i++, place++) {
        void *values = block->texts[i];
        block->texts[i] = NULL;
        if (values != NULL)
            failed = column_append(list, PyTuple_GetItem(names, place), "I", rows, 0, NULL, values,
                                   NULL);
    }
    for (int i = 0; !failed && i < num_numbers; i++, place++) {
        Numbers moved = block->numbers[i];
        memset(&block->numbers[i], 0, sizeof moved);
        if (moved.values != NULL)
            failed = column_append(list, PyTuple_GetItem(names, place), "l", rows,
                                   rows - moved.num_valid, moved.valid, moved.values, NULL);
    }
    for (int i = 0; !failed && i < NUM_BYTES; i++, place++) {
        ByteColumn moved = block->bytes[i];
        memset(&block->bytes[i], 0, sizeof moved);
        if (moved.offsets != NULL)
            failed = column_append(list, PyTuple_GetItem(names, place), "z", rows,
                                   rows - moved.num_valid, moved.valid, moved.offsets,
                                   trimmed(&moved, (uint32_t)rows));
    }
    return failed;
}

void block_free(Block *block)
{
    pages_free(block->phases);
    for (int i = 0; i < MAX_TEXTS; i++) pages_free(block->texts[i]);
    for (int i = 0; i < MAX_NUMBERS; i++) {
        pages_free(block->numbers[i].values);
        pages_free(block->numbers[i].valid);
    }
    for (int i = 0; i < NUM_BYTES; i++) {
        pages_free(block->bytes[i].offsets);
        pages_free(block->bytes[i].bytes);
        pages_free(block->bytes[i].valid);
    }
    free(block);
}
