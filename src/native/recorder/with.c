/* How `with span:` finds its __enter__ and its __exit__, without searching a stack.
 *
 * `with` looks up __enter__ and __exit__ on the type, through the descriptor protocol, and then
 * calls __enter__. (Python 3.11 to 3.13 look up __enter__ first, 3.14 __exit__.) The lookup of
 * __exit__ returns the bound __exit__ of a free entry. It was made earlier and serves this `with`
 * alone, so each end finds its own begin, however spans overlap. The call of __enter__ then begins
 * that entry.
 *
 * There are rarer and slower ways. If __enter__ is called and no entry was looked up
 * (`contextlib.ExitStack`, or a direct call), it begins an *explicit* entry. If __exit__ is called
 * on an entry that never began, it ends the span's latest explicit entry. */

#include "recorder/native.h"

static PyObject *skipped_exit;             /* the __exit__ of an inactive `with` */
static PyObject *plain_enter, *plain_exit; /* returned when looked up on the class, for ExitStack */

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
    /* the type that was looked up last; types of spans live as long as the module */
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
    int is_recording = span_is_active(span) || span_is_marked(span);
    if (is_recording && !span_has_name(span)) return NULL;
    if (UNLIKELY(span->handed != NULL)) span_drop_handed(span);
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
