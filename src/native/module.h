/* The header of every file that defines something for Python, and the functions that set these
 * files up. */

#ifndef KINETOSCOPE_MODULE_H
#define KINETOSCOPE_MODULE_H

#include <Python.h>
#include <structmember.h>

#include "text/bytes.h"

#ifdef Py_GIL_DISABLED
    #error "The recorder relies on the GIL, which free-threaded builds of Python do not have."
#endif

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "Files are little-endian, and words are read as they lie there.");

#define LIKELY(condition) __builtin_expect(!!(condition), 1)
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)
/* the hot path avoids function calls */
#define ALWAYS_INLINE inline __attribute__((always_inline))

static inline PyObject *new_none(void)
{
    return Py_NewRef(Py_None);
}

/* Whether our reference to an object is the only one. A reference count has at least these 32 bits
 * in every version of Python. */
static inline int has_one_reference(void *object)
{
    return (uint32_t)((PyObject *)object)->ob_refcnt == 1;
}

/* The content of a bytes object, as long as that lives. */
typedef struct {
    const char *at;
    size_t length;
} BytesArgument;

/* Converts a bytes object, for the format "O&". A format with "#" fails in versions of Python older
 * than the headers: before 3.13 they needed PY_SSIZE_T_CLEAN, which newer headers lack.
 */
int bytes_argument(PyObject *given, void *argument);

/* -- objects -- */

/* Makes a type, adds it to the module and, if `type` is not NULL, stores it there. Returns -1 with
 * an error set. */
int add_type(PyObject *module, const char *name, size_t object_bytes, unsigned flags,
             PyType_Slot *slots, PyTypeObject **type);

/* Makes an object of a type, all zero. NULL with an error set. */
static inline void *object_new(PyTypeObject *type)
{
    return ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
}

/* Frees the memory of an object whose members were released. */
static inline void object_free(void *object)
{
    PyTypeObject *type = Py_TYPE((PyObject *)object);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF((PyObject *)type);
}

/* Whether no thread is working with the object without the GIL; 0 with an error set. */
int is_idle(void *object, int is_busy);

/* -- texts -- */

/* The texts in a tuple of bytes objects. The tuple owns the texts, the caller frees the array. NULL
 * with an error set. */
Text *texts_of(PyObject *tuple);
/* The keys of a table, as a list of bytes; NULL with an error set. */
PyObject *table_list(const Table *table);

/* -- parts -- */

/* Each adds its types to the module; -1 with an error set. */
int column_setup(PyObject *module);
int kineto_setup(PyObject *module);
int owned_setup(PyObject *module);
int pulse_setup(PyObject *module);
int scan_setup(PyObject *module);
int text_setup(PyObject *module);

/* scan/nested.c: which span contains which. */
PyObject *nest_spans(PyObject *module, PyObject *args);
PyObject *replay_graph(PyObject *module, PyObject *args);
/* scan/coverage.c: unions of intervals, and the part of an interval that they cover. */
PyObject *cover_intervals(PyObject *module, PyObject *stream);
PyObject *count_begun(PyObject *module, PyObject *stream);
PyObject *covered_until(PyObject *module, PyObject *args);
/* rewrite/track_packet.c: names of processes and threads in a Perfetto trace. */
PyObject *track_packet(PyObject *module, PyObject *args);

#endif
