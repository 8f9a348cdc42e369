/* Draining: writes one thread's records as lines of a Chrome JSON file, without the GIL.
 *
 *     records ──► Sample: can they be written unchanged? ──► drain_chrome: a buffer of lines
 *
 * The sample refuses unusual records (spans that overlap, records that none of our recorders
 * writes). Python writes those, with the same result: see `handlers/cycle_events.py` and
 * `ChromeWriter`. */

#include "recorder/lines.h"

typedef struct {
    const Record *next;
    char *at;
    enum LineStatus status;
} Progress;

/* Writes lines while there are records and room. Values of a counter at the end of the records are
 * not written, because more values may follow; they are if these are the thread's last records. */
static Progress put_lines(const LineStyle *style, const Record *record, const Record *end,
                          int are_last, char *at, size_t room)
{
    const char *limit = at + room;
    enum LineStatus status = LINE_READY;
    Line line;
    while (record < end &&
           (status = line_find(style, record, end, are_last, &line)) == LINE_READY) {
        if ((size_t)(limit - at) < line_max_bytes(style, &line)) break;
        at = line_put(at, style, &line);
        record = line.end;
    }
    return (Progress){record, at, status};
}

static PyObject *drain(const LineStyle *style, const Py_buffer *packed, Py_ssize_t first,
                       int are_last, const Py_buffer *into)
{
    Py_ssize_t count = packed->len / (Py_ssize_t)sizeof(Record);
    if (first < 0 || first > count) {
        PyErr_SetString(PyExc_ValueError, "There is no such record.");
        return NULL;
    }
    const Record *records = packed->buf;
    Progress progress;
    Py_BEGIN_ALLOW_THREADS
    LineLocale locale = line_use_c_locale();
    progress = put_lines(style, records + first, records + count, are_last, into->buf,
                         (size_t)into->len);
    line_restore_locale(locale);
    Py_END_ALLOW_THREADS
    if (progress.status == LINE_UNKNOWN)
        return PyErr_Format(PyExc_ValueError, "Record %zd cannot be written.",
                            (Py_ssize_t)(progress.next - records));
    return Py_BuildValue("nnO", (Py_ssize_t)(progress.at - (char *)into->buf),
                         (Py_ssize_t)(progress.next - records),
                         progress.status == LINE_WAITS ? Py_True : Py_False);
}

PyObject *drain_chrome(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Py_buffer packed, into;
    Py_ssize_t first;
    BytesArgument place, epochs;
    int are_last;
    PyObject *texts, *clock;
    if (!PyArg_ParseTuple(arguments, "y*npw*O!O&O!O&", &packed, &first, &are_last, &into,
                          &PyTuple_Type, &texts, bytes_argument, &place, &PyTuple_Type, &clock,
                          bytes_argument, &epochs))
        return NULL;
    LineStyle style = {.track_fields = {place.at, place.length}};
    PyObject *result = line_style_take(&style, texts, clock, &epochs)
                           ? drain(&style, &packed, first, are_last, &into)
                           : NULL;
    line_style_free(&style);
    PyBuffer_Release(&packed);
    PyBuffer_Release(&into);
    return result;
}
