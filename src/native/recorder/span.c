/* Span: a reusable name. Any number of spans, instants and counters can be recorded under it. */

#include "recorder/native.h"

#include <stddef.h>

PyTypeObject *span_type;
static uint64_t num_spans;

int span_find_name(Span *span)
{
    PyObject *recorder;
    do {
        recorder = (PyObject *)span->recorder;
        PyObject *id = PyObject_CallMethod((PyObject *)span, "intern", NULL);
        if (id == NULL) return -1;
        unsigned long name = PyLong_AsUnsignedLong(id);
        Py_DECREF(id);
        if (PyErr_Occurred()) return -1;
        span->name_id = (uint32_t)name;
        /* it was attached to another recorder meanwhile */
    } while (recorder != (PyObject *)span->recorder);
    return 0;
}

int span_record_instant(Span *span)
{
    if (!span_has_name(span)) return -1;
    Recorder *recorder = span->recorder;
    Track *track;
    int64_t now;
    if (recorder_find_track(recorder, &track, &now) < 0) return -1;
    if (LIKELY(track != NULL)) {
        Value nothing = {0};
        uint64_t tail = record_tail(track->num_open, KIND_INSTANT, 0, 0);
        track_append(track, now, nothing, span->name_id, shared_load(&recorder->control->batch),
                     tail);
        if (recorder_settle(recorder) < 0) return -1;
    }
    return recorder_notify(recorder, "on_instant", span->name_id, now, NULL);
}

static PyObject *span_instant(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    Span *span = (Span *)self;
    if (span_is_active(span) && span_record_instant(span) < 0) return NULL;
    return new_none();
}

/* -- the type -- */

static void set_recorder(Span *span, PyObject *recorder, uint32_t name_id)
{
    PyObject *old = (PyObject *)span->recorder;
    span_drop_handed(span);
    Py_CLEAR(span->enter); /* it holds the span */
    span->recorder = (Recorder *)Py_NewRef(recorder);
    span->name_id = name_id;
    span->own_series = -1;
    Py_XDECREF(old);
}

static int span_init(PyObject *self, PyObject *arguments, PyObject *names)
{
    static char *keywords[] = {"recorder", "name_id", "mask", "edges", NULL};
    Span *span = (Span *)self;
    PyObject *recorder;
    unsigned int name_id, mask, edges = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "O!II|I", keywords, recorder_type, &recorder,
                                     &name_id, &mask, &edges))
        return -1;
    set_recorder(span, recorder, name_id);
    span->id = ++num_spans;
    span->mask = mask;
    span->edges = edges;
    return 0;
}

static PyObject *span_attach(PyObject *self, PyObject *arguments)
{
    PyObject *recorder;
    unsigned int name_id;
    if (!PyArg_ParseTuple(arguments, "O!I", recorder_type, &recorder, &name_id)) return NULL;
    set_recorder((Span *)self, recorder, name_id);
    return new_none();
}

static PyObject *span_new(PyTypeObject *type, PyObject *arguments, PyObject *Py_UNUSED(names))
{
    /* The span must have a recorder before __init__ runs, since a subclass may never call it. */
    if (PyTuple_Size(arguments) < 1 ||
        !PyObject_TypeCheck(PyTuple_GetItem(arguments, 0), recorder_type)) {
        PyErr_SetString(PyExc_TypeError,
                        "The first argument of a native span is a native recorder.");
        return NULL;
    }
    PyObject *self = object_new(type);
    if (self != NULL) set_recorder((Span *)self, PyTuple_GetItem(arguments, 0), 0);
    return self;
}

static int span_traverse(PyObject *self, visitproc visit, void *arg)
{
    Span *span = (Span *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(span->recorder);
    Py_VISIT(span->enter);
    Py_VISIT(span->handed);
    return 0;
}

static int span_clear(PyObject *self)
{
    /* The recorder stays: a finalizer in the same cycle may still enter the span. */
    Py_CLEAR(((Span *)self)->enter);
    span_drop_handed((Span *)self);
    return 0;
}

static void span_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    span_clear(self);
    Py_CLEAR(((Span *)self)->recorder);
    object_free(self);
}

static PyMethodDef span_methods[] = {
    {"attach", span_attach, METH_VARARGS,
     "Makes the span record into another recorder from now on."},
    {"begin", span_begin, METH_NOARGS,
     "Begins a span; gives the token that ends it, or None if it is not recorded."},
    {"end", span_end, METH_O,
     "Ends the span of a token; does nothing for None or a token ended before."},
    {"begin_at", span_begin_at, METH_O,
     "Begins a span at a time on the monotonic clock that has passed; gives its token, or None."},
    {"end_at", span_end_at, METH_VARARGS,
     "(token, end_ns): ends the span of a token at a time that has passed."},
    {"abandon", span_abandon, METH_O, "Forgets the span of a token: it turned out to be none."},
    {"instant", span_instant, METH_NOARGS, "Records this moment."},
    {"counter", span_counter, METH_O,
     "Records values at this moment: a mapping of names to numbers, or one number, named after the "
     "span."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef span_members[] = {
    {"_recorder", T_OBJECT_EX, offsetof(Span, recorder), READONLY, "Where it records."},
    {"name_id", T_UINT, offsetof(Span, name_id), READONLY, "The id of its name there."},
    {"mask", T_UINT, offsetof(Span, mask), 0, "The bits of the actions under which it records."},
    {"edges", T_UINT, offsetof(Span, edges), 0, "At which edges it records an instant as well."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot span_slots[] = {
    {Py_tp_new, span_new},
    {Py_tp_init, span_init},
    {Py_tp_dealloc, span_dealloc},
    {Py_tp_traverse, span_traverse},
    {Py_tp_clear, span_clear},
    {Py_tp_methods, span_methods},
    {Py_tp_members, span_members},
    {Py_tp_doc, "A reusable span; see NativeSpan."},
    {0, NULL},
};

int span_setup(PyObject *module)
{
    if (add_type(module, "kinetoscope._native.Span", sizeof(Span),
                 Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, span_slots, &span_type) < 0)
        return -1;
    return with_setup();
}
