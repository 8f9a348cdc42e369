/* Records as columns: one buffer per field, filled without the GIL. */

#include "recorder/native.h"

#define NUM_COLUMNS 8

static const size_t WIDTHS[NUM_COLUMNS] = {8, 8, 4, 4, 2, 1, 1, 4};

static void fill_columns(const Record *records, size_t count, void *const columns[NUM_COLUMNS])
{
    int64_t *begin = columns[0], *end = columns[1];
    uint32_t *name = columns[2], *batch = columns[3], *series = columns[7];
    uint16_t *depth = columns[4];
    uint8_t *kind = columns[5], *flags = columns[6];
    for (size_t i = 0; i < count; i++) {
        const Record *record = &records[i];
        begin[i] = record->begin;
        end[i] = record->end.integer;
        name[i] = record->name;
        batch[i] = record->batch;
        depth[i] = (uint16_t)record->tail;
        kind[i] = (uint8_t)tail_kind(record->tail);
        flags[i] = (uint8_t)tail_flags(record->tail);
        series[i] = tail_series(record->tail);
    }
}

static int fit(const Py_buffer *packed, const Py_buffer *columns)
{
    for (int i = 0; i < NUM_COLUMNS; i++)
        if ((size_t)columns[i].len / WIDTHS[i] != (size_t)packed->len / sizeof(Record)) return 0;
    return 1;
}

PyObject *record_columns(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Py_buffer packed, to[NUM_COLUMNS];
    if (!PyArg_ParseTuple(arguments, "y*w*w*w*w*w*w*w*w*", &packed, &to[0], &to[1], &to[2], &to[3],
                          &to[4], &to[5], &to[6], &to[7]))
        return NULL;
    int is_fitting = fit(&packed, to);
    if (is_fitting) {
        void *columns[NUM_COLUMNS];
        for (int i = 0; i < NUM_COLUMNS; i++) columns[i] = to[i].buf;
        Py_BEGIN_ALLOW_THREADS
        fill_columns(packed.buf, (size_t)packed.len / sizeof(Record), columns);
        Py_END_ALLOW_THREADS
    } else
        PyErr_SetString(PyExc_ValueError, "Each column must be as long as there are records.");
    PyBuffer_Release(&packed);
    for (int i = 0; i < NUM_COLUMNS; i++) PyBuffer_Release(&to[i]);
    return is_fitting ? new_none() : NULL;
}
