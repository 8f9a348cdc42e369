/* Pairs: turns the spans of one thread into begins and ends. The input is records in the order of
 * their ends. The output is records of begins, ends, instants and counters, in the order in which
 * they happened.
 *
 * Only `drain.c` reads these records: a span becomes one of KIND_BEGIN and one of KIND_END, which
 * are otherwise equal. */

#include "recorder/native.h"

#include <stdlib.h>

typedef struct {
    int64_t begin, end;
    const Record *record;
} Moment;

static int is_span(const Record *record)
{
    return tail_kind(record->tail) == KIND_SPAN;
}

/* Sorts by begin, with an outer span before an inner one. Of two spans with the same times, the one
 * recorded later is the outer one. */
static int compare(const void *left, const void *right)
{
    const Moment *one = left, *other = right;
    if (one->begin != other->begin) return one->begin < other->begin ? -1 : 1;
    if (one->end != other->end) return one->end > other->end ? -1 : 1;
    int later_first = is_span(one->record) && is_span(other->record);
    return (one->record < other->record) == later_first ? 1 : -1;
}

static Record *put_bracket(Record *at, const Record *span, uint64_t kind)
{
    *at = *span;
    at->tail = (span->tail & ~((uint64_t)0xff << 16)) | kind << 16;
    return at + 1;
}

/* Writes two records for each span and one for everything else. `moments` is overwritten: it also
 * serves as the stack of open spans. */
static Record *put_brackets(Record *at, Moment *moments, size_t count)
{
    /* at most as many as were read, so the front of the array has room for them */
    size_t num_open = 0;
    for (size_t i = 0; i < count; i++) {
        Moment next = moments[i];
        while (num_open > 0 && moments[num_open - 1].end <= next.begin)
            at = put_bracket(at, moments[--num_open].record, KIND_END);
        if (is_span(next.record)) {
            at = put_bracket(at, next.record, KIND_BEGIN);
            moments[num_open++] = next;
        } else
            *at++ = *next.record;
    }
    while (num_open > 0) at = put_bracket(at, moments[--num_open].record, KIND_END);
    return at;
}

/* Writes the records to `into`, which has room for twice as many. Returns the end; NULL without
 * memory. */
static Record *pair(const Record *records, size_t count, Record *into)
{
    Moment *moments = malloc((count + 1) * sizeof *moments);
    if (moments == NULL) return NULL;
    for (size_t i = 0; i < count; i++) {
        const Record *record = &records[i];
        moments[i] = (Moment){record->begin, is_span(record) ? record->end.integer : record->begin,
                              record};
    }
    qsort(moments, count, sizeof *moments, compare);
    Record *end = put_brackets(into, moments, count);
    free(moments);
    return end;
}

PyObject *pair_records(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Py_buffer packed, into;
    if (!PyArg_ParseTuple(arguments, "y*w*", &packed, &into)) return NULL;
    PyObject *result = NULL;
    size_t count = (size_t)packed.len / sizeof(Record);
    if ((size_t)into.len < 2 * count * sizeof(Record))
        PyErr_SetString(PyExc_ValueError, "There is no room for every span's begin and end.");
    else {
        Record *end;
        Py_BEGIN_ALLOW_THREADS
        end = pair(packed.buf, count, into.buf);
        Py_END_ALLOW_THREADS
        result = end == NULL ? PyErr_NoMemory()
                             : PyLong_FromSsize_t((char *)end - (char *)into.buf);
    }
    PyBuffer_Release(&packed);
    PyBuffer_Release(&into);
    return result;
}
