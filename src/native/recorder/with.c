/* How `with span:` finds its __enter__ and its __exit__, without a stack to search.
 *
 * `with` looks up __enter__ and __exit__ on the type, through the descriptor protocol, and then
 * calls __enter__ (Python 3.11 to 3.13 look up __enter__ first, 3.14 __exit__). Looking up __exit__
 * hands out an entry: its bound __exit__ was made long ago, and belongs to this one `with` alone.
 * So each end finds its own begin, however spans overlap. The call of __enter__ then begins the
 * entry that was handed out.
 *
 * Other ways in are rarer, and slower. __enter__ called with no entry handed out
 * (`contextlib.ExitStack`, or by hand) begins an *explicit* entry. __exit__ of an entry that was
 * never begun ends the span's latest explicit one. */

#include "recorder/native.h"

static PyObject *skipped_exit;             /* what an inactive `with` calls at its end */
static PyObject *plain_enter, *plain_exit; /* what the class answers, for ExitStack */

static PyObject *end_skipped(PyObject *Py_UNUSED(self), PyObject *const *Py_UNUSED(arguments),
                             Py_ssize_t Py_UNUSED(count))
{
    return new_none();
}

static PyMethodDef bound_enter = {"__enter__", span_enter, METH_NOARGS, "Begins the span."};
static PyMethodDef unbound_exit = {"__exit__", span_exit, METH_VARARGS, "Ends the span."};
static PyMethodDef skipped = {"__exit__", (PyCFunction)(void (*)(void))end_skipped, METH_FASTCALL,
                              "Ends a span that is not recorded."};

static ALWAYS_INLINE int is_span(PyObject *object)
{
    /* the type asked about last; types of spans live as long as the module */
    static PyTypeObject *known;
    if (LIKELY(Py_TYPE(object) == known)) return 1;
    if (!PyObject_TypeCheck(object, span_type)) {
        PyErr_SetString(PyExc_TypeError,
                        "This __enter__ or __exit__ belongs to a span, and to nothing else.");
        return 0;
    }
    Py_INCREF((PyObject *)Py_TYPE(object));
    Py_XDECREF((PyObject *)known);
    known = Py_TYPE(object);
    return 1;
}

static PyObject *enter_get(PyObject *Py_UNUSED(descriptor), PyObject *object,
                           PyObject *Py_UNUSED(type))
{
    if (object == NULL) return Py_NewRef(plain_enter);
    if (UNLIKELY(!is_span(object))) return NULL;
    Span *span = (Span *)object;
    if (UNLIKELY(span->enter == NULL)) span->enter = PyCFunction_NewEx(&bound_enter, object, NULL);
    return Py_XNewRef(span->enter);
}

static PyObject *exit_get(PyObject *Py_UNUSED(descriptor), PyObject *object,
                          PyObject *Py_UNUSED(type))
{
    if (object == NULL) return Py_NewRef(plain_exit);
    if (UNLIKELY(!is_span(object))) return NULL;
    Span *span = (Span *)object;
    int is_recording = span_is_active(span);
    if (is_recording && !span_has_name(span)) return NULL;
    if (UNLIKELY(span->handed != NULL)) span_forget_handed(span);
    if (!is_recording) {
        span->handed = new_none();
        return Py_NewRef(skipped_exit);
    }
    Entry *entry = span_take_entry(span);
    if (UNLIKELY(entry == NULL)) return NULL;
    entry->state = ENTRY_HANDED;
    span->handed = Py_NewRef((PyObject *)entry);
    return Py_NewRef(entry->exit);
}

/* -- setting up -- */

typedef struct {
    PyObject_HEAD
} Descriptor;

static PyType_Slot enter_slots[] = {{Py_tp_descr_get, enter_get}, {0, NULL}};
static PyType_Slot exit_slots[] = {{Py_tp_descr_get, exit_get}, {0, NULL}};
#define OURS_ALONE (Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION)
static PyType_Spec enter_spec = {"kinetoscope._native.Enter", sizeof(Descriptor), 0, OURS_ALONE,
                                 enter_slots};
static PyType_Spec exit_spec = {"kinetoscope._native.Exit", sizeof(Descriptor), 0, OURS_ALONE,
                                exit_slots};

static int install_descriptor(PyType_Spec *spec, const char *name)
{
    PyObject *type = PyType_FromSpec(spec);
    PyObject *descriptor = type != NULL ? object_new((PyTypeObject *)type) : NULL;
    int result = descriptor != NULL
                     ? PyObject_SetAttrString((PyObject *)span_type, name, descriptor)
                     : -1;
    Py_XDECREF(descriptor);
    Py_XDECREF(type);
    return result;
}

int with_setup(void)
{
    skipped_exit = PyCFunction_NewEx(&skipped, NULL, NULL);
    plain_enter = PyDescr_NewMethod(span_type, &bound_enter);
    plain_exit = PyDescr_NewMethod(span_type, &unbound_exit);
    if (skipped_exit == NULL || plain_enter == NULL || plain_exit == NULL) return -1;
    if (install_descriptor(&enter_spec, "__enter__") < 0) return -1;
    return install_descriptor(&exit_spec, "__exit__");
}
