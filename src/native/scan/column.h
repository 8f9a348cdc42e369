/* Columns of numbers and bytes, to and from whoever knows Arrow's C data interface, without a copy
 * on the way out. Their buffers are pages of their own. */

#ifndef KINETOSCOPE_COLUMN_H
#define KINETOSCOPE_COLUMN_H

#include "module.h"

/* Zeros; NULL without memory. */
void *pages_new(size_t bytes);
/* The same on large pages, where the system has them: with many megabytes, that is most of the
 * time. */
void *pages_new_large(size_t bytes);
/* Another size for `pages`, which may move; NULL without memory, and then they stay as they are. */
void *pages_resize(void *pages, size_t bytes);
void pages_free(void *pages);

/* Makes a column, which the buffers (a validity, and up to two more) belong to from then on,
 * whatever happens, and appends it to the list. `format` is Arrow's: "C", "I" and "l" are unsigned
 * bytes, unsigned and signed integers, "z" is bytes; it must live as long as the process. Returns
 * -1 with an error set. */
int column_append(PyObject *list, PyObject *name, const char *format, int64_t length,
                  int64_t num_nulls, void *validity, void *values, void *more);

/* Of Arrow's C data interface. */
struct ArrowArray {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    struct ArrowArray **children, *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

#define MOST_COLUMNS_READ 4

/* Columns of somebody else's, which stay theirs. */
typedef struct {
    const void *values[MOST_COLUMNS_READ];
    size_t num_rows;
    struct ArrowArray rows;
} ColumnsRead;

/* Takes columns without nulls, whose formats are "l" or "I", out of a capsule that holds a stream
 * of Arrow's, in one piece. Returns -1 with an error set. */
int columns_read(PyObject *capsule, const char *const *formats, int num_columns, ColumnsRead *read);
void columns_release(ColumnsRead *read);

#endif
