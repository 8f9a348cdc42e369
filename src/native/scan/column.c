/* See column.h. */

#include "scan/column.h"

#include <stdlib.h>
#include <string.h>

/* -- Arrow's C data interface -- */

struct ArrowSchema {
    const char *format, *name, *metadata;
    int64_t flags, n_children;
    struct ArrowSchema **children, *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *);
    int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *);
    const char *(*get_last_error)(struct ArrowArrayStream *);
    void (*release)(struct ArrowArrayStream *);
    void *private_data;
};

typedef struct {
    PyObject_HEAD
    PyObject *name; /* bytes */
    /* Arrow's: "C" and "I" are unsigned bytes and integers, "l" signed integers, "z" bytes */
    const char *format;
    /* validity, if there are nulls; values or offsets; bytes. NULL once moved */
    void *buffers[3];
    int64_t length, num_nulls;
} Column;

static PyTypeObject *column_type;

#define ARROW_NULLABLE 2

static void schema_release(struct ArrowSchema *schema)
{
    schema->release = NULL;
}

static void array_release(struct ArrowArray *array)
{
    for (int64_t i = 0; i < array->n_buffers; i++) pages_free((void *)array->buffers[i]);
    free(array->buffers);
    array->release = NULL;
}

static void schema_capsule_free(PyObject *capsule)
{
    struct ArrowSchema *schema = PyCapsule_GetPointer(capsule, "arrow_schema");
    if (schema->release != NULL) schema->release(schema);
    free(schema);
}

static void array_capsule_free(PyObject *capsule)
{
    struct ArrowArray *array = PyCapsule_GetPointer(capsule, "arrow_array");
    if (array->release != NULL) array->release(array);
    free(array);
}

int column_append(PyObject *list, PyObject *name, const char *format, int64_t length,
                  int64_t num_nulls, void *validity, void *values, void *more)
{
    Column *column = object_new(column_type);
    if (column == NULL) {
        pages_free(validity);
        pages_free(values);
        pages_free(more);
        return -1;
    }
    column->name = Py_NewRef(name);
    column->format = format;
    column->length = length, column->num_nulls = num_nulls;
    column->buffers[0] = validity, column->buffers[1] = values, column->buffers[2] = more;
    int result = PyList_Append(list, (PyObject *)column);
    Py_DECREF((PyObject *)column);
    return result;
}

static PyObject *column_arrow_schema(void)
{
    struct ArrowSchema *schema = calloc(1, sizeof *schema);
    PyObject *capsule = schema == NULL ? PyErr_NoMemory()
                                       : PyCapsule_New(schema, "arrow_schema", schema_capsule_free);
    if (capsule == NULL) free(schema);
    return capsule;
}

static PyObject *column_arrow_array(void)
{
    struct ArrowArray *array = calloc(1, sizeof *array);
    PyObject *capsule = array == NULL ? PyErr_NoMemory()
                                      : PyCapsule_New(array, "arrow_array", array_capsule_free);
    if (capsule == NULL) free(array);
    return capsule;
}

/* Fills the two structures. Returns -1 with an error set; then the column keeps its buffers. */
static int column_move(Column *column, struct ArrowSchema *schema, struct ArrowArray *array)
{
    int num_buffers = column->format[0] == 'z' ? 3 : 2;
    const void **buffers = calloc((size_t)num_buffers, sizeof *buffers);
    if (buffers == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memcpy(buffers, column->buffers, (size_t)num_buffers * sizeof *buffers);
    memset(column->buffers, 0, sizeof column->buffers);
    *schema = (struct ArrowSchema){
        .format = column->format, .name = "", .flags = ARROW_NULLABLE, .release = schema_release};
    *array = (struct ArrowArray){.length = column->length,
                                 .null_count = column->num_nulls,
                                 .n_buffers = num_buffers,
                                 .buffers = buffers,
                                 .release = array_release};
    return 0;
}

static PyObject *column_arrow_c_array(PyObject *self, PyObject *Py_UNUSED(requested))
{
    Column *column = (Column *)self;
    if (column->buffers[1] == NULL) {
        PyErr_SetString(PyExc_ValueError, "The column was given away already.");
        return NULL;
    }
    PyObject *schema = column_arrow_schema(), *array = schema == NULL ? NULL : column_arrow_array(),
             *result = NULL;
    if (array != NULL && column_move(column, PyCapsule_GetPointer(schema, "arrow_schema"),
                                     PyCapsule_GetPointer(array, "arrow_array")) == 0)
        result = PyTuple_Pack(2, schema, array);
    Py_XDECREF(schema);
    Py_XDECREF(array);
    return result;
}

static PyObject *column_name(PyObject *self, void *Py_UNUSED(closure))
{
    PyObject *name = ((Column *)self)->name;
    return PyUnicode_DecodeASCII(PyBytes_AsString(name), PyBytes_Size(name), NULL);
}

static Py_ssize_t column_length(PyObject *self)
{
    return (Py_ssize_t)((Column *)self)->length;
}

static void column_dealloc(PyObject *self)
{
    Column *column = (Column *)self;
    for (int i = 0; i < 3; i++) pages_free(column->buffers[i]);
    Py_XDECREF(column->name);
    object_free(self);
}

static PyMethodDef column_methods[] = {
    {"__arrow_c_array__", column_arrow_c_array, METH_VARARGS,
     "Gives the column away: two capsules of Arrow's C data interface."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef column_getset[] = {
    {"name", column_name, NULL, "The column's name.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot column_slots[] = {
    {Py_tp_doc, "A column of some events, for one reader of Arrow's C data interface."},
    {Py_tp_dealloc, column_dealloc},
    {Py_tp_methods, column_methods},
    {Py_tp_getset, column_getset},
    {Py_sq_length, column_length},
    {0, NULL},
};

int column_setup(PyObject *module)
{
    return add_type(module, "kinetoscope._native.Column", sizeof(Column),
                    Py_TPFLAGS_DISALLOW_INSTANTIATION, column_slots, &column_type);
}

/* -- reading columns of others -- */

static int are_expected(const struct ArrowSchema *schema, const char *const *formats,
                        int num_columns)
{
    if (strcmp(schema->format, "+s") != 0 || schema->n_children != num_columns) return 0;
    for (int i = 0; i < num_columns; i++)
        if (strcmp(schema->children[i]->format, formats[i]) != 0) return 0;
    return 1;
}

/* Whether nothing in the array is null. A count of -1 is unknown. */
static int has_no_nulls(const struct ArrowArray *array)
{
    return array->null_count == 0 ||
           (array->null_count < 0 && (array->n_buffers == 0 || array->buffers[0] == NULL));
}

/* Whether the arrays hold a number for each row of each column. */
static int are_whole(const struct ArrowArray *rows, int num_columns)
{
    int64_t end;
    if (rows->n_children != num_columns || rows->offset < 0 || rows->length < 0 ||
        __builtin_add_overflow(rows->offset, rows->length, &end) || !has_no_nulls(rows))
        return 0;
    for (int i = 0; i < num_columns; i++) {
        const struct ArrowArray *column = rows->children[i];
        if (column->n_buffers != 2 || column->offset < 0 || column->length < end ||
            !has_no_nulls(column) || (end > 0 && column->buffers[1] == NULL))
            return 0;
    }
    return 1;
}

static int read_stream(struct ArrowArrayStream *stream, const char *const *formats, int num_columns,
                       ColumnsRead *read)
{
    struct ArrowSchema schema = {0};
    if (stream->release == NULL || stream->get_schema(stream, &schema) != 0) return 0;
    int is_read = are_expected(&schema, formats, num_columns) &&
                  stream->get_next(stream, &read->rows) == 0;
    schema.release(&schema);
    if (!is_read || read->rows.release == NULL) return is_read;
    if (!are_whole(&read->rows, num_columns)) return 0;
    for (int i = 0; i < num_columns; i++) {
        const struct ArrowArray *column = read->rows.children[i];
        size_t width = *formats[i] == 'l' ? sizeof(int64_t) : sizeof(uint32_t);
        read->values[i] = (const char *)column->buffers[1] +
                          (size_t)(read->rows.offset + column->offset) * width;
    }
    read->num_rows = (size_t)read->rows.length;
    struct ArrowArray more = {0};
    if (stream->get_next(stream, &more) != 0 || more.release == NULL) return more.release == NULL;
    more.release(&more);
    return 0;
}

int columns_read(PyObject *capsule, const char *const *formats, int num_columns, ColumnsRead *read)
{
    struct ArrowArrayStream *stream = PyCapsule_GetPointer(capsule, "arrow_array_stream");
    *read = (ColumnsRead){0};
    if (stream == NULL) return -1;
    if (read_stream(stream, formats, num_columns, read)) return 0;
    columns_release(read);
    PyErr_SetString(PyExc_ValueError,
                    "The stream has other columns, or nulls, or its rows are in several pieces.");
    return -1;
}

void columns_release(ColumnsRead *read)
{
    if (read->rows.release != NULL) read->rows.release(&read->rows);
}
