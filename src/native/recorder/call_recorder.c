/* CallRecorder: records the calls of a Python function as spans. While a window is open, that is
 * the function which calls torch modules.
 *
 * CPython calls a function through a pointer in it, its vectorcall. Ours is there while a recorder
 * runs. Python code does not see it: the function, its code and the class around it are unchanged.
 * So torch's compiler and torch.fx, which keep, compare and read them, do not notice. */

#include "recorder/native.h"

#include <dlfcn.h>
#include <stddef.h>

typedef PyObject *(*Vectorcall)(PyObject *, PyObject *const *, size_t, PyObject *);

/* PY_VECTORCALL_ARGUMENTS_OFFSET, which the limited API has since 3.12 */
#define ARGUMENTS_OFFSET ((size_t)1 << (8 * sizeof(size_t) - 1))

typedef struct {
    PyObject_HEAD
    PyObject *function;
    PyObject *known; /* dict: id of an object -> (weak reference to it, its span or None, ...) */
    PyObject *find;  /* (object, outermost one): returns such a span, and adds it to the dict */
} CallRecorder;

/* the recorder that runs, with a reference; NULL if none does */
static CallRecorder *running;
/* what calls a function without us; stays set for calls in progress when the recorder stops */
static Vectorcall plain_call;
/* the first argument of the outermost call on this thread, that of the innermost one with a span,
 * and that span; their callers hold the references */
static __thread PyObject *outermost, *innermost, *innermost_span;
static PyTypeObject *function_type;
static size_t function_bytes;

/* -- calls -- */

/* Whether an entry of the dict is of this object, which may be where a dead one was. */
static int is_entry_of(PyObject *entry, PyObject *object)
{
    if (!PyTuple_Check(entry) || PyTuple_Size(entry) < 2) return 0;
    PyObject *reference = PyTuple_GetItem(entry, 0);
    return PyWeakref_Check(reference) && PyWeakref_GetObject(reference) == object;
}

/* A new reference to the span of an object, or to None. NULL with an error set. */
static PyObject *find_span(CallRecorder *self, PyObject *object)
{
    PyObject *key = PyLong_FromVoidPtr(object);
    if (key == NULL) return NULL;
    PyObject *entry = PyDict_GetItemWithError(self->known, key);
    Py_DECREF(key);
    if (entry == NULL && PyErr_Occurred() != NULL) return NULL;
    if (LIKELY(entry != NULL && is_entry_of(entry, object)))
        return Py_NewRef(PyTuple_GetItem(entry, 1));
    Py_INCREF((PyObject *)self); /* the code below may stop it */
    PyObject *span = PyObject_CallFunctionObjArgs(self->find, object,
                                                  outermost != NULL ? outermost : object, NULL);
    Py_DECREF((PyObject *)self);
    return span;
}

/* Whether a call is that of the object in a wrapper, which has the same span. */
static int is_within_wrapper(PyObject *object, PyObject *span)
{
    return span == innermost_span && object != innermost;
}

/* Ends the span also after an exception, which stays set. -1 with an error set if ending fails. */
static int end_call(PyObject *token)
{
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    PyObject *ended = span_end(NULL, token);
    Py_DECREF(token);
    if (ended == NULL) { /* Ctrl-C replaces the exception, as in a `finally` */
        Py_XDECREF(type);
        Py_XDECREF(error);
        Py_XDECREF(trace);
        return -1;
    }
    Py_DECREF(ended);
    PyErr_Restore(type, error, trace);
    return 0;
}

static PyObject *recorded_call(PyObject *function, PyObject *const *arguments, size_t count,
                               PyObject *names)
{
    if (running == NULL || (count & ~ARGUMENTS_OFFSET) == 0)
        return plain_call(function, arguments, count, names);
    PyObject *object = arguments[0], *span = find_span(running, object);
    if (span == NULL) return NULL;
    PyObject *before = outermost, *before_object = innermost, *before_span = innermost_span;
    int is_recorded = PyObject_TypeCheck(span, span_type) && !is_within_wrapper(object, span);
    PyObject *token = is_recorded ? span_begin(span, NULL) : new_none(), *result = NULL;
    if (token != NULL) {
        if (outermost == NULL) outermost = object;
        if (is_recorded) innermost = object, innermost_span = span;
        result = plain_call(function, arguments, count, names);
        outermost = before, innermost = before_object, innermost_span = before_span;
        if (end_call(token) < 0) Py_CLEAR(result);
    }
    Py_DECREF(span);
    return result;
}

/* -- the pointer in a function -- */

static Vectorcall get_vectorcall(PyObject *function)
{
    /* neither this function nor the setter is in the limited API */
    Vectorcall (*get)(PyObject *) = (Vectorcall (*)(PyObject *))dlsym(RTLD_DEFAULT,
                                                                      "PyVectorcall_Function");
    return get != NULL ? get(function) : NULL;
}

/* Where a function has this pointer; NULL if that is not clear. */
static Vectorcall *find_pointer(PyObject *function, Vectorcall value)
{
    Vectorcall *found = NULL, *end = (Vectorcall *)(void *)((char *)function + function_bytes);
    for (Vectorcall *at = (Vectorcall *)(void *)(function + 1); at < end; at++) {
        if (*at != value) continue;
        if (found != NULL) return NULL;
        found = at;
    }
    return found;
}

/* Replaces the pointer. Returns -1, without an error set, if this Python has no way to do it. */
static int set_vectorcall(PyObject *function, Vectorcall value)
{
    void (*set)(PyObject *,
                Vectorcall) = (void (*)(PyObject *, Vectorcall))dlsym(RTLD_DEFAULT,
                                                                      "PyFunction_SetVectorcall");
    if (set != NULL) {
        set(function, value);
        return 0;
    }
    /* CPython 3.11 has no such function; calls with a fixed number of arguments that Python code
     * makes of the function itself pass it by there. */
    Vectorcall *pointer = find_pointer(function, get_vectorcall(function));
    if (pointer == NULL) return -1;
    *pointer = value;
    return 0;
}

/* -- the type -- */

static PyObject *call_recorder_start(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    CallRecorder *self = (CallRecorder *)object;
    if (running != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "another recorder of calls is running");
        return NULL;
    }
    Vectorcall current = get_vectorcall(self->function);
    if (current == NULL || (plain_call != NULL && current != plain_call)) {
        PyErr_SetString(PyExc_RuntimeError, "other code has changed how the function is called");
        return NULL;
    }
    plain_call = current;
    if (set_vectorcall(self->function, recorded_call) < 0) {
        PyErr_SetString(PyExc_RuntimeError, "this version of Python is not supported");
        return NULL;
    }
    running = (CallRecorder *)Py_NewRef(object);
    return new_none();
}

static PyObject *call_recorder_stop(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    if (running == (CallRecorder *)object) {
        /* if other code has replaced the pointer since, it stays, and ours only passes calls on */
        if (get_vectorcall(running->function) == recorded_call)
            set_vectorcall(running->function, plain_call);
        running = NULL;
        Py_DECREF(object);
    }
    return new_none();
}

static PyObject *call_recorder_new(PyTypeObject *type, PyObject *arguments,
                                   PyObject *Py_UNUSED(names))
{
    PyObject *function, *known, *find;
    if (!PyArg_ParseTuple(arguments, "O!O!O", function_type, &function, &PyDict_Type, &known,
                          &find))
        return NULL;
    CallRecorder *self = object_new(type);
    if (self != NULL) {
        self->function = Py_NewRef(function);
        self->known = Py_NewRef(known);
        self->find = Py_NewRef(find);
    }
    return (PyObject *)self;
}

static int call_recorder_traverse(PyObject *object, visitproc visit, void *arg)
{
    CallRecorder *self = (CallRecorder *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->function);
    Py_VISIT(self->known);
    Py_VISIT(self->find);
    return 0;
}

static int call_recorder_clear(PyObject *object)
{
    CallRecorder *self = (CallRecorder *)object;
    Py_CLEAR(self->function);
    Py_CLEAR(self->known);
    Py_CLEAR(self->find);
    return 0;
}

static void call_recorder_dealloc(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    call_recorder_clear(object);
    object_free(object);
}

static PyMethodDef call_recorder_methods[] = {
    {"start", call_recorder_start, METH_NOARGS,
     "Record calls from now on. Raises RuntimeError if that is not possible."},
    {"stop", call_recorder_stop, METH_NOARGS, "Record no more calls."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot call_recorder_slots[] = {
    {Py_tp_new, call_recorder_new},
    {Py_tp_dealloc, call_recorder_dealloc},
    {Py_tp_traverse, call_recorder_traverse},
    {Py_tp_clear, call_recorder_clear},
    {Py_tp_methods, call_recorder_methods},
    {Py_tp_doc, "CallRecorder(function, known, find): records calls of a function as spans."},
    {0, NULL},
};

int call_recorder_setup(PyObject *module)
{
    PyObject *types = PyImport_ImportModule("types");
    function_type = types != NULL ? (PyTypeObject *)PyObject_GetAttrString(types, "FunctionType")
                                  : NULL;
    Py_XDECREF(types);
    if (function_type == NULL) return -1;
    PyObject *bytes = PyObject_GetAttrString((PyObject *)function_type, "__basicsize__");
    function_bytes = bytes != NULL ? PyLong_AsSize_t(bytes) : 0;
    Py_XDECREF(bytes);
    if (PyErr_Occurred() != NULL) return -1;
    return add_type(module, "kinetoscope._native.CallRecorder", sizeof(CallRecorder),
                    Py_TPFLAGS_HAVE_GC, call_recorder_slots, NULL);
}
