/* Columns of numbers and bytes, exchanged through Arrow's C data interface. They are passed on
 * without a copy. Their buffers are pages of their own. */

#ifndef KINETOSCOPE_COLUMN_H
#define KINETOSCOPE_COLUMN_H

#include "module.h"
#include "os/pages.h"

/* Makes a column and appends it to the list. It takes over the buffers (a validity and up to two
 * more), also if it fails. `format` is Arrow's: "C" and "I" are unsigned bytes and integers, "l"
 * signed integers, "z" bytes; it must live as long as the process. Returns -1 with an error set. */
int column_append(PyObject *list, PyObject *name, const char *format, int64_t length,
                  int64_t num_nulls, void *validity, void *values, void *more);

/* Defined by Arrow's C data interface. */
struct ArrowArray {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    struct ArrowArray **children, *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

#define MAX_COLUMNS_READ 4

/* Columns that another library owns. */
typedef struct {
    const void *values[MAX_COLUMNS_READ];
    size_t num_rows;
    struct ArrowArray rows;
} ColumnsRead;

/* Reads columns with the formats "l" or "I" from a capsule with an Arrow stream of one batch.
 * Refuses nulls, and columns that are shorter than the batch. Returns -1 with an error set. */
int columns_read(PyObject *capsule, const char *const *formats, int num_columns, ColumnsRead *read);
void columns_release(ColumnsRead *read);

#endif
