/* ModuleCall: replaces torch.nn.Module.__call__ while a window is open, and records each call as a
 * span.
 *
 * `module(x)` finds it on the type and, since it is a method descriptor, calls it with the module
 * first; no Python frame is added. Looked up by name (`module.__call__`, `super().__call__`) it
 * returns the original method. So code that keeps or compares the method, as torch's compiler and
 * torch.fx do, never sees it. */

#include "recorder/native.h"

#include <stddef.h>

typedef struct {
    PyObject_HEAD
    PyObject *original;
    PyObject *spans; /* dict: id of a module -> (weak reference to it, its span or None) */
    PyObject *find;  /* (module, outermost module): returns such a span, and adds it to the dict */
} ModuleCall;

/* the module whose call is the outermost one on this thread; its caller holds the reference */
static __thread PyObject *outermost;
static PyObject *method_type;

/* Whether an entry of the dict is of this module, which may be where a dead one was. */
static int is_entry_of(PyObject *entry, PyObject *module)
{
    if (!PyTuple_Check(entry) || PyTuple_Size(entry) != 2) return 0;
    PyObject *reference = PyTuple_GetItem(entry, 0);
    return PyWeakref_Check(reference) && PyWeakref_GetObject(reference) == module;
}

/* A new reference to the span of a module, or to None. NULL with an error set. */
static PyObject *find_span(ModuleCall *self, PyObject *module)
{
    PyObject *key = PyLong_FromVoidPtr(module);
    if (key == NULL) return NULL;
    PyObject *entry = PyDict_GetItemWithError(self->spans, key);
    Py_DECREF(key);
    if (entry == NULL && PyErr_Occurred() != NULL) return NULL;
    if (LIKELY(entry != NULL && is_entry_of(entry, module)))
        return Py_NewRef(PyTuple_GetItem(entry, 1));
    return PyObject_CallFunctionObjArgs(self->find, module, outermost != NULL ? outermost : module,
                                        NULL);
}

/* A token of the span that begins now, None if none is recorded, or NULL with an error set. */
static PyObject *begin_call(ModuleCall *self, PyObject *module)
{
    PyObject *span = find_span(self, module);
    if (span == NULL) return NULL;
    PyObject *token = PyObject_TypeCheck(span, span_type) ? span_begin(span, NULL) : new_none();
    Py_DECREF(span);
    return token;
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

static PyObject *module_call(PyObject *object, PyObject *arguments, PyObject *names)
{
    ModuleCall *self = (ModuleCall *)object;
    PyObject *module = PyTuple_Size(arguments) > 0 ? PyTuple_GetItem(arguments, 0) : NULL;
    PyObject *token = module != NULL ? begin_call(self, module) : new_none();
    if (token == NULL) return NULL;
    PyObject *before = outermost, *original = Py_NewRef(self->original);
    if (before == NULL) outermost = module;
    PyObject *result = PyObject_Call(original, arguments, names);
    outermost = before;
    Py_DECREF(original);
    if (end_call(token) < 0) Py_CLEAR(result);
    return result;
}

/* -- the type -- */

static PyObject *module_call_get(PyObject *object, PyObject *module, PyObject *Py_UNUSED(type))
{
    PyObject *original = ((ModuleCall *)object)->original;
    if (module == NULL || module == Py_None) return Py_NewRef(original);
    return PyObject_CallFunctionObjArgs(method_type, original, module, NULL);
}

static PyObject *module_call_new(PyTypeObject *type, PyObject *arguments,
                                 PyObject *Py_UNUSED(names))
{
    PyObject *original, *spans, *find;
    if (!PyArg_ParseTuple(arguments, "OO!O", &original, &PyDict_Type, &spans, &find)) return NULL;
    ModuleCall *self = object_new(type);
    if (self != NULL) {
        self->original = Py_NewRef(original);
        self->spans = Py_NewRef(spans);
        self->find = Py_NewRef(find);
    }
    return (PyObject *)self;
}

static int module_call_traverse(PyObject *object, visitproc visit, void *arg)
{
    ModuleCall *self = (ModuleCall *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->original);
    Py_VISIT(self->spans);
    Py_VISIT(self->find);
    return 0;
}

static int module_call_clear(PyObject *object)
{
    ModuleCall *self = (ModuleCall *)object;
    Py_CLEAR(self->original);
    Py_CLEAR(self->spans);
    Py_CLEAR(self->find);
    return 0;
}

static void module_call_dealloc(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    module_call_clear(object);
    object_free(object);
}

static PyMemberDef module_call_members[] = {
    {"original", T_OBJECT_EX, offsetof(ModuleCall, original), READONLY, "The replaced method."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot module_call_slots[] = {
    {Py_tp_new, module_call_new},
    {Py_tp_call, module_call},
    {Py_tp_descr_get, module_call_get},
    {Py_tp_dealloc, module_call_dealloc},
    {Py_tp_traverse, module_call_traverse},
    {Py_tp_clear, module_call_clear},
    {Py_tp_members, module_call_members},
    {Py_tp_doc, "ModuleCall(original, spans, find): a method that records its calls as spans."},
    {0, NULL},
};

int module_call_setup(PyObject *module)
{
    PyObject *types = PyImport_ImportModule("types");
    method_type = types != NULL ? PyObject_GetAttrString(types, "MethodType") : NULL;
    Py_XDECREF(types);
    if (method_type == NULL) return -1;
    return add_type(module, "kinetoscope._native.ModuleCall", sizeof(ModuleCall),
                    Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_METHOD_DESCRIPTOR, module_call_slots, NULL);
}
