/* kinetoscope._native: the module. It keeps state per process, so only the first interpreter of a
 * process has it. KINETOSCOPE_WITHOUT_RECORDER leaves out what Windows lacks: the folders os/,
 * recorder/ and pulse/. */

#include "module.h"

#include <stdlib.h>

#ifndef KINETOSCOPE_WITHOUT_RECORDER
    #include "recorder/native.h"
#endif

int add_type(PyObject *module, const char *name, size_t object_bytes, unsigned flags,
             PyType_Slot *slots, PyTypeObject **type)
{
    PyType_Spec spec = {name, (int)object_bytes, 0, Py_TPFLAGS_DEFAULT | flags, slots};
    PyTypeObject *made = (PyTypeObject *)PyType_FromSpec(&spec);
    if (type != NULL) *type = made;
    return made == NULL ? -1 : PyModule_AddType(module, made);
}

int is_idle(void *object, int is_busy)
{
    PyObject *name = is_busy ? PyType_GetName(Py_TYPE((PyObject *)object)) : NULL;
    if (name != NULL)
        PyErr_Format(PyExc_RuntimeError, "A %U is used by one thread at a time.", name);
    Py_XDECREF(name);
    return !is_busy;
}

int bytes_argument(PyObject *given, void *argument)
{
    BytesArgument *bytes = argument;
    char *at;
    Py_ssize_t length;
    if (PyBytes_AsStringAndSize(given, &at, &length) < 0) return 0;
    *bytes = (BytesArgument){.at = at, .length = (size_t)length};
    return 1;
}

Text *texts_of(PyObject *tuple)
{
    Py_ssize_t count = PyTuple_Size(tuple);
    Text *texts = count < 0 ? NULL : malloc(((size_t)count + 1) * sizeof *texts);
    if (texts == NULL) return count < 0 ? NULL : (Text *)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; i++) {
        char *start;
        Py_ssize_t length;
        if (PyBytes_AsStringAndSize(PyTuple_GetItem(tuple, i), &start, &length) < 0) {
            free(texts);
            return NULL;
        }
        texts[i] = (Text){start, (size_t)length};
    }
    return texts;
}

PyObject *table_list(const Table *table)
{
    PyObject *list = PyList_New((Py_ssize_t)table->num_entries);
    for (uint32_t number = 0; list != NULL && number < table->num_entries; number++) {
        size_t length;
        const char *key = table_key(table, number, &length);
        PyObject *bytes = PyBytes_FromStringAndSize(key, (Py_ssize_t)length);
        if (bytes == NULL || PyList_SetItem(list, (Py_ssize_t)number, bytes) < 0) Py_CLEAR(list);
    }
    return list;
}

static int is_in_first_interpreter(void)
{
    return PyInterpreterState_GetID(PyInterpreterState_Get()) == 0;
}

static PyObject *is_usable_here(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    return PyBool_FromLong(is_in_first_interpreter());
}

#ifndef KINETOSCOPE_WITHOUT_RECORDER

static PyObject *use_tsc(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    const char *reason = tsc_start();
    if (reason != NULL)
        return PyErr_Format(PyExc_OSError, "The time stamp counter cannot be the clock: %s.",
                            reason);
    return new_none();
}

#endif

static PyMethodDef functions[] = {
    {"is_usable_here", is_usable_here, METH_NOARGS,
     "Whether this is the first interpreter of the process. Others may use nothing else of this "
     "module."},
#ifndef KINETOSCOPE_WITHOUT_RECORDER
    {"use_tsc", use_tsc, METH_NOARGS, "Reads time from the CPU's time stamp counter from now on."},
    {"seal_chunks", seal_chunks, METH_O,
     "(chunks): gives back the memory of chunks that are full, and the space that their files do "
     "not need."},
    {"discard_chunks", discard_chunks, METH_O,
     "(chunks): deletes the files of chunks whose records were put elsewhere, and gives back their "
     "memory."},
    {"record_columns", record_columns, METH_VARARGS,
     "(records, begin, end, name, batch, depth, kind, flags, series): writes each field of all "
     "records to its buffer."},
    {"pair_records", pair_records, METH_VARARGS,
     "(records, into): writes spans as their begins and ends, for drain_chrome, in order of time; "
     "how many bytes."},
    {"drain_chrome", drain_chrome, METH_VARARGS,
     "(records, first, are_last, into, (names, categories, args), place, clock): writes lines; how "
     "many bytes, the next record,\n"
     "and whether that waits for the part after this one."},
#endif
    {"cover_intervals", cover_intervals, METH_O,
     "(intervals): the pieces of their union, in order. Arrow's stream has begins and ends."},
    {"covered_until", covered_until, METH_VARARGS,
     "(pieces, times): how much the pieces, as cover_intervals returns them, cover before each "
     "time."},
    {"count_begun", count_begun, METH_O,
     "(intervals): how many of them begin in each, with itself. Arrow's stream has begins, in "
     "order, "
     "and ends."},
    {"replay_graph", replay_graph, METH_VARARGS,
     "(nodes, edges): the new time of each node. Arrow's stream of nodes has their times, that of "
     "edges the rows of\nsource and target, and the weight before and after the change."},
    {"nest_spans", nest_spans, METH_VARARGS,
     "(stream): of each span, whose begin, duration and track are in Arrow's stream: "
     "what it has of its own\n"
     "time, the row of the span around it, and how deep it lies."},
    {"track_packet", track_packet, METH_VARARGS,
     "(uuid, process_uuid, pid, tid, name, sort_index): the packet of a Perfetto trace that names "
     "a "
     "process or thread."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "kinetoscope._native",
    .m_doc = "The work of Kinetoscope that is done in C; `kinetoscope.native` decides whether it "
             "is used.",
    .m_size = -1, /* one per process */
    .m_methods = functions,
};

static int set_up(PyObject *module)
{
#ifndef KINETOSCOPE_WITHOUT_RECORDER
    clock_setup();
    if (track_setup() < 0 || chunk_setup(module) < 0 || recorder_setup(module) < 0 ||
        entry_setup(module) < 0 || span_setup(module) < 0 || sample_setup(module) < 0 ||
        stack_samples_setup(module) < 0 || thread_clocks_setup(module) < 0 ||
        call_recorder_setup(module) < 0 || pulse_setup(module) < 0)
        return -1;
#endif
    return owned_setup(module) < 0 || column_setup(module) < 0 || scan_setup(module) < 0 ||
                   text_setup(module) < 0 || kineto_setup(module) < 0
               ? -1
               : 0;
}

PyMODINIT_FUNC PyInit__native(void);
PyMODINIT_FUNC PyInit__native(void)
{
    if (!is_in_first_interpreter()) {
        PyErr_SetString(PyExc_ImportError, "it works in the first interpreter of a process only");
        return NULL;
    }
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && set_up(module) < 0) Py_CLEAR(module);
    return module;
}
