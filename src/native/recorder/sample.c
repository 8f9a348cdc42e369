/* Sample: checks whether one thread's records can be written without a change. It gets the records
 * part by part, from the last to the first, and stores one of each kind and name.
 *
 * Records are in the order of their ends. Read backwards, a span is in one of the spans still
 * open around its end, or before them, or it overlaps the innermost of them. So it only stores
 * as many spans as are nested in each other. */

#include "recorder/native.h"

#include <stdlib.h>
#include <string.h>

#define FURTHEST_NS ((int64_t)1 << 60) /* the sum of three such times fits into 64 bits */
/* values of one counter call, which are written as one line; Python writes longer ones */
#define MAX_GROUP 1024

int is_in_range(int64_t time)
{
    return time >= -FURTHEST_NS && time <= FURTHEST_NS;
}

int is_ordinary(const Record *record, uint32_t num_names)
{
    uint32_t kind = tail_kind(record->tail), flags = tail_flags(record->tail);
    if (record->name >= num_names || !is_in_range(record->begin)) return 0;
    switch (kind) {
        case KIND_SPAN:
            return !(flags & FLAG_FLOAT) && is_in_range(record->end.integer) &&
                   record->begin <= record->end.integer;
        case KIND_COUNTER: return tail_series(record->tail) < num_names;
        default: return kind == KIND_INSTANT;
    }
}

typedef struct {
    int64_t begin, end;
} Interval;

typedef struct {
    PyObject_HEAD
    uint32_t num_names;
    int is_busy;    /* records are being read without the GIL */
    uint8_t *seen;  /* one byte per name, one bit per kind */
    Record *firsts; /* the first record seen of each kind and name */
    size_t num_firsts, max_firsts;
    Interval *open; /* each one is in the one before it */
    size_t num_open, max_open;
    int64_t last_end, last_counter;
    uint32_t group; /* how many values of the current counter call were seen */
} Sample;

static int note_first(Sample *sample, const Record *record)
{
    uint8_t bit = (uint8_t)(1 << tail_kind(record->tail));
    if (sample->seen[record->name] & bit) return 1;
    if (!array_room_for_next((void **)&sample->firsts, sample->num_firsts, &sample->max_firsts,
                             sizeof(Record)))
        return 0;
    sample->seen[record->name] |= bit;
    sample->firsts[sample->num_firsts++] = *record;
    return 1;
}

/* Adds a span to those open around its end. Returns 0 if it overlaps one of them. */
static int nest_span(Sample *sample, int64_t begin, int64_t end)
{
    if (end > sample->last_end) return 0; /* not in the order of ends */
    sample->last_end = end;
    while (sample->num_open > 0 && sample->open[sample->num_open - 1].begin >= end)
        sample->num_open--;
    /* spans that were cut together have the same end, and come in any order */
    size_t at = sample->num_open;
    while (at > 0 && sample->open[at - 1].begin > begin && sample->open[at - 1].end == end) at--;
    if (at > 0 && sample->open[at - 1].begin > begin) return 0;
    if (!array_room_for_next((void **)&sample->open, sample->num_open, &sample->max_open,
                             sizeof(Interval)))
        return -1;
    memmove(&sample->open[at + 1], &sample->open[at], (sample->num_open++ - at) * sizeof(Interval));
    sample->open[at] = (Interval){begin, end};
    return 1;
}

/* Counts the values of one counter call. Returns 0 if there are too many. */
static int count_group(Sample *sample, const Record *record)
{
    int is_counter = tail_kind(record->tail) == KIND_COUNTER;
    int goes_on = is_counter && sample->group > 0 && sample->last_counter == record->begin;
    sample->group = !is_counter ? 0 : goes_on ? sample->group + 1 : 1;
    sample->last_counter = record->begin;
    return sample->group <= MAX_GROUP;
}

/* Returns 1 if the records may be written as they are, 0 if not, -1 without memory. */
static int take_records(Sample *sample, const Record *records, size_t count)
{
    for (const Record *record = records + count; record-- > records;) {
        if (!is_ordinary(record, sample->num_names) || !count_group(sample, record)) return 0;
        if (!note_first(sample, record)) return -1;
        int nests = tail_kind(record->tail) != KIND_SPAN
                        ? 1
                        : nest_span(sample, record->begin, record->end.integer);
        if (nests != 1) return nests;
    }
    return 1;
}

/* -- from Python -- */

static PyObject *sample_new(PyTypeObject *type, PyObject *arguments, PyObject *Py_UNUSED(names))
{
    unsigned int num_names;
    if (!PyArg_ParseTuple(arguments, "I", &num_names)) return NULL;
    Sample *sample = object_new(type);
    if (sample == NULL) return NULL;
    sample->num_names = num_names;
    sample->last_end = INT64_MAX;
    sample->seen = calloc((size_t)num_names + 1, 1);
    if (sample->seen == NULL) {
        Py_DECREF((PyObject *)sample);
        return PyErr_NoMemory();
    }
    return (PyObject *)sample;
}

static PyObject *sample_add(PyObject *self, PyObject *packed)
{
    Sample *sample = (Sample *)self;
    Py_buffer view;
    PyObject *result = NULL;
    if (PyObject_GetBuffer(packed, &view, PyBUF_SIMPLE) < 0) return NULL;
    if (is_idle(sample, sample->is_busy)) {
        int is_plain;
        sample->is_busy = 1;
        Py_BEGIN_ALLOW_THREADS
        is_plain = take_records(sample, view.buf, (size_t)view.len / sizeof(Record));
        Py_END_ALLOW_THREADS
        sample->is_busy = 0;
        result = is_plain < 0 ? PyErr_NoMemory() : PyBool_FromLong(is_plain);
    }
    PyBuffer_Release(&view);
    return result;
}

static PyObject *sample_firsts(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    Sample *sample = (Sample *)self;
    if (!is_idle(sample, sample->is_busy)) return NULL;
    const char *firsts = sample->num_firsts > 0 ? (const char *)sample->firsts : "";
    return PyBytes_FromStringAndSize(firsts, (Py_ssize_t)(sample->num_firsts * sizeof(Record)));
}

static void sample_dealloc(PyObject *self)
{
    Sample *sample = (Sample *)self;
    free(sample->seen);
    free(sample->firsts);
    free(sample->open);
    object_free(self);
}

static PyMethodDef sample_methods[] = {
    {"add", sample_add, METH_O,
     "(records): the part before those added so far; whether all may be written as they are."},
    {"firsts", sample_firsts, METH_NOARGS, "One record of each kind and name, as bytes."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot sample_slots[] = {
    {Py_tp_new, sample_new},
    {Py_tp_dealloc, sample_dealloc},
    {Py_tp_methods, sample_methods},
    {Py_tp_doc, "(num_names): checks one thread's records, the last part first. Used by one "
                "thread at a time."},
    {0, NULL},
};

int sample_setup(PyObject *module)
{
    return add_type(module, "kinetoscope._native.Sample", sizeof(Sample), 0, sample_slots, NULL);
}
