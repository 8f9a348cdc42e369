/* kinetoscope._native: the module. It keeps state per process, so it does not support sub-interpreters. */

#include "native.h"

static PyObject *use_tsc(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    const char *reason = tsc_start();
    if (reason != NULL)
        return PyErr_Format(PyExc_OSError, "The time stamp counter cannot be the clock: %s.", reason);
    return new_none();
}

static PyMethodDef functions[] = {
    {"use_tsc", use_tsc, METH_NOARGS, "Reads time from the processor's time stamp counter from now on."},
    {"drain_sample", drain_sample, METH_VARARGS,
     "(records, num_names): the indexes of the first record of each kind and name; None if they need Python's care."},
    {"drain_chrome", drain_chrome, METH_VARARGS,
     "(records, first, into, names, categories, place, clock): writes lines; how many bytes, and the next record."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "kinetoscope._native",
    .m_doc = "The recorder in C; `kinetoscope.recording.native_recorder` is its face.",
    .m_size = -1, /* one per process */
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__native(void);
PyMODINIT_FUNC PyInit__native(void)
{
    clock_setup();
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && (track_setup() < 0 || chunk_setup(module) < 0 || recorder_setup(module) < 0 ||
                           span_setup(module) < 0 || text_setup(module) < 0))
        Py_CLEAR(module);
    return module;
}
