/* Counters: numbers at a moment. A mapping of numbers becomes one record per number, with the
 * number's name. */

#include "recorder/native.h"

#define MAX_SERIES (1 << 16)
#define USUAL_COUNTER 32

typedef struct {
    Value value;
    int64_t series;
    int flags;
} Reading;

/* Converts a plain number to a record's value. Returns its flags, or -1 if it is not a plain number
 * (no error is set). */
static ALWAYS_INLINE int plain_number(PyObject *number, Value *value)
{
    if (PyFloat_CheckExact(number)) {
        value->real = PyFloat_AsDouble(number);
        return FLAG_FLOAT;
    }
    if (!PyLong_CheckExact(number)) return -1;
    int overflow;
    value->integer = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (LIKELY(overflow == 0 && value->integer != INT64_MIN)) return 0;
    value->real = PyLong_AsDouble(number);
    if (value->real == -1.0 && PyErr_Occurred()) {
        PyErr_Clear();
        value->real = overflow < 0 ? -Py_HUGE_VAL : Py_HUGE_VAL;
    }
    return FLAG_FLOAT;
}

/* The name id of one series; -1 with an error set. */
static int64_t series_id(Recorder *recorder, PyObject *name)
{
    PyObject *id = PyDict_GetItemWithError(recorder->series, name);
    if (LIKELY(id != NULL)) return PyLong_AsLongLong(id);
    if (PyErr_Occurred()) return -1;
    if (PyDict_Size(recorder->series) >= MAX_SERIES) PyDict_Clear(recorder->series);
    Py_INCREF(name);
    id = PyObject_CallMethod((PyObject *)recorder, "intern_series", "O", name);
    int64_t result = id == NULL || PyDict_SetItem(recorder->series, name, id) < 0
                         ? -1
                         : PyLong_AsLongLong(id);
    Py_XDECREF(id);
    Py_DECREF(name);
    return result;
}

/* Reads a dict into at most `space` readings. Returns their number, -1 with an error set, or -2 if
 * the dict holds anything but strings and plain numbers. */
static Py_ssize_t read_plain_dict(Recorder *recorder, PyObject *values, Reading *readings,
                                  Py_ssize_t space)
{
    PyObject *name, *number;
    Py_ssize_t count = 0, position = 0;
    for (; count < space && PyDict_Next(values, &position, &name, &number); count++) {
        Reading *reading = &readings[count];
        if (!PyUnicode_CheckExact(name) ||
            (reading->flags = plain_number(number, &reading->value)) < 0)
            return -2;
        if ((reading->series = series_id(recorder, name)) < 0) return -1;
    }
    return count;
}

static ALWAYS_INLINE int record_readings(Span *span, PyObject *values, const Reading *readings,
                                         Py_ssize_t count)
{
    Recorder *recorder = span->recorder;
    Track *track;
    int64_t now;
    if (recorder_find_track(recorder, &track, &now) < 0) return -1;
    if (track != NULL) {
        uint32_t batch = shared_load(&recorder->control->batch);
        for (Py_ssize_t i = 0; i < count; i++) {
            uint64_t tail = record_tail(0, KIND_COUNTER, (uint32_t)readings[i].flags,
                                        (uint32_t)readings[i].series);
            track_append(track, now, readings[i].value, span->name_id, batch, tail);
        }
        if (recorder_settle(recorder) < 0) return -1;
    }
    return recorder_notify(recorder, "on_counter", span->name_id, now, values);
}

/* Records the values of a dict whose keys are strings and whose values are plain numbers. Returns
 * 0, or 1 without recording anything if the dict holds something else, or -1 with an error set. */
static int record_plain_dict(Span *span, PyObject *values)
{
    Reading usual[USUAL_COUNTER], *readings = usual;
    Py_ssize_t size = PyDict_Size(values);
    if (size > USUAL_COUNTER &&
        (readings = PyMem_Malloc((size_t)size * sizeof *readings)) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    Py_ssize_t count = read_plain_dict(span->recorder, values, readings, size);
    int result = count >= 0 ? record_readings(span, values, readings, count) : count == -2 ? 1 : -1;
    if (readings != usual) PyMem_Free(readings);
    return result;
}

/* Records one number, whose series has the span's own name. Returns 1 if it is not a plain number,
 * -1 with an error set. */
static ALWAYS_INLINE int record_one_number(Span *span, PyObject *number)
{
    Reading reading = {.series = span->own_series};
    reading.flags = plain_number(number, &reading.value);
    if (reading.flags < 0 || reading.series < 0 || span->recorder->listener != NULL) return 1;
    return record_readings(span, number, &reading, 1);
}

/* Records anything else: a Python method of the span converts it to names and numbers. */
static int record_any_counter(Span *span, PyObject *values)
{
    PyObject *pairs = PyObject_CallMethod((PyObject *)span, "plain_values", "O", values);
    if (pairs == NULL) return -1;
    int result = -1;
    if (!PyDict_CheckExact(pairs))
        PyErr_SetString(PyExc_TypeError, "plain_values must give a dict.");
    else
        result = record_plain_dict(span, pairs);
    if (result > 0) {
        PyErr_SetString(PyExc_ValueError,
                        "plain_values must give plain numbers, named by strings.");
        result = -1;
    }
    PyObject *name, *number;
    Py_ssize_t position = 0;
    if (result == 0 && PyLong_CheckExact(values) + PyFloat_CheckExact(values) &&
        PyDict_Next(pairs, &position, &name, &number))
        span->own_series = series_id(span->recorder, name);
    Py_DECREF(pairs);
    return result;
}

/* Keeps the loss among values, recorded or not, for the pulse. The value of a tensor is not read,
 * which may wait for the device. */
static void note_loss(Recorder *recorder, PyObject *values)
{
    Value value;
    PyObject *loss = PyDict_GetItemWithError(values, recorder->loss_name);
    if (loss == NULL) {
        PyErr_Clear();
    } else if (PyFloat_Check(loss)) {
        recorder->loss = PyFloat_AsDouble(loss);
    } else {
        int flags = plain_number(loss, &value);
        if (flags >= 0) recorder->loss = flags & FLAG_FLOAT ? value.real : (double)value.integer;
    }
}

PyObject *span_counter(PyObject *self, PyObject *values)
{
    Span *span = (Span *)self;
    if (PyDict_CheckExact(values)) note_loss(span->recorder, values);
    if (!span_is_active(span)) return new_none();
    if (!span_has_name(span)) return NULL;
    int result = PyDict_CheckExact(values) ? record_plain_dict(span, values)
                                           : record_one_number(span, values);
    if (UNLIKELY(result > 0)) result = record_any_counter(span, values);
    return result < 0 ? NULL : new_none();
}
