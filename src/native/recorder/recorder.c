/* The Recorder: the object that holds the others, its settings, and what remains of it after a
 * fork. */

#include "recorder/native.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>

#define DEFAULT_LIMIT_BYTES ((int64_t)256 << 20)

PyTypeObject *recorder_type;
static Recorder *living;
static uint64_t num_serials;

/* -- calling Python -- */

int64_t recorder_read_clock(Recorder *recorder)
{
    PyObject *answer = PyObject_CallNoArgs(recorder->now);
    if (answer == NULL) return -1;
    int64_t now = PyLong_AsLongLong(answer);
    Py_DECREF(answer);
    return now;
}

int recorder_request(Recorder *recorder)
{
    recorder->wants_request = 0;
    if (recorder->request == NULL || recorder->is_requested) return 0;
    recorder->is_requested = 1;
    PyObject *request = Py_NewRef(recorder->request);
    PyObject *answer = PyObject_CallNoArgs(request);
    int is_error = answer == NULL && PyErr_ExceptionMatches(PyExc_Exception);
    if (is_error) PyErr_WriteUnraisable(request);
    Py_XDECREF(answer);
    Py_DECREF(request);
    return answer == NULL && !is_error ? -1 : 0;
}

int recorder_call_listener(Recorder *recorder, const char *method, uint32_t name, int64_t at,
                           PyObject *what)
{
    PyObject *listener = Py_NewRef(recorder->listener);
    PyObject *answer = PyObject_CallMethod(listener, method, what != NULL ? "ILO" : "IL", name,
                                           (long long)at, what);
    Py_DECREF(listener);
    Py_XDECREF(answer);
    return answer == NULL ? -1 : 0;
}

/* -- fork -- */

/* Runs in the child before any Python code: what is open and mapped there belongs to the parent. */
static void forget_in_child(void)
{
    for (Recorder *recorder = living; recorder != NULL; recorder = recorder->next) {
        recorder->slow = NULL; /* the parent's */
        memset(&recorder->own_control, 0, sizeof recorder->own_control);
        recorder->control = &recorder->own_control;
        recorder->serial = ++num_serials;
        for (Track *track = recorder->tracks; track != NULL; track = track->next_track)
            track->is_foreign = 1;
    }
}

static void leave_tracks(Recorder *recorder)
{
    while (recorder->tracks != NULL) {
        Track *track = recorder->tracks;
        recorder->tracks = track->next_track;
        recorder->serial = ++num_serials; /* so no thread uses the old track any more */
        track_leave(track);
        track_drop(track);
    }
}

static PyObject *forget(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    Recorder *recorder = (Recorder *)self;
    recorder->is_requested = recorder->wants_request = 0;
    recorder_use_own_control(recorder);
    Py_CLEAR(recorder->listener);
    Py_CLEAR(recorder->request);
    leave_tracks(recorder);
    return recorder_use_memory(recorder) < 0 ? NULL : new_none();
}

/* -- settings -- */

static PyObject *leave_files(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    ((Recorder *)self)->store->leaves_files = 1;
    return new_none();
}

static PyObject *watch_slow_steps(PyObject *self, PyObject *slow)
{
    Recorder *recorder = (Recorder *)self;
    if (slow != Py_None && !is_slow_steps(slow)) {
        PyErr_SetString(PyExc_TypeError, "Slow steps are watched by a SlowSteps, or None.");
        return NULL;
    }
    PyObject *before = recorder->slow;
    recorder->slow = slow == Py_None ? NULL : Py_NewRef(slow);
    Py_XDECREF(before);
    return new_none();
}

static PyObject *get_spool_errno(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLong(((Recorder *)self)->store->last_error);
}

static PyObject *get_used_bytes(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(((Recorder *)self)->store->used_bytes);
}

static PyObject *get_closed_ns(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(((Recorder *)self)->closed_ns);
}

static PyObject *get_loss(PyObject *self, void *Py_UNUSED(closure))
{
    return PyFloat_FromDouble(((Recorder *)self)->loss);
}

static PyObject *get_control(PyObject *self, void *field)
{
    const char *control = (const char *)((Recorder *)self)->control;
    return PyLong_FromUnsignedLong(shared_load((const SharedWord *)(control + (size_t)field)));
}

static int set_control(PyObject *self, PyObject *value, void *field)
{
    Recorder *recorder = (Recorder *)self;
    unsigned long number = value != NULL ? PyLong_AsUnsignedLong(value) : 0;
    if (PyErr_Occurred()) return -1;
    if (recorder_stop_following(recorder) < 0) return -1;
    shared_store((SharedWord *)((char *)recorder->control + (size_t)field), (uint32_t)number);
    return 0;
}

static PyObject *get_callable(PyObject *self, void *field)
{
    PyObject *callable = *(PyObject **)((char *)self + (size_t)field);
    return Py_NewRef(callable != NULL ? callable : Py_None);
}

static int set_callable(PyObject *self, PyObject *value, void *field)
{
    PyObject **callable = (PyObject **)((char *)self + (size_t)field), *old = *callable;
    *callable = value == NULL || value == Py_None ? NULL : Py_NewRef(value);
    Py_XDECREF(old);
    return 0;
}

/* -- the type -- */

static PyObject *recorder_new(PyTypeObject *type, PyObject *Py_UNUSED(arguments),
                              PyObject *Py_UNUSED(names))
{
    Recorder *recorder = object_new(type);
    if (recorder == NULL) return NULL;
    recorder->control = &recorder->own_control;
    recorder->serial = ++num_serials;
    recorder->store = store_new(NULL, 0, DEFAULT_LIMIT_BYTES);
    recorder->series = PyDict_New();
    recorder->loss_name = PyUnicode_InternFromString("loss");
    recorder->loss = Py_NAN;
    recorder->next = living;
    living = recorder;
    if (recorder->store == NULL || recorder->series == NULL || recorder->loss_name == NULL) {
        Py_DECREF((PyObject *)recorder);
        return PyErr_NoMemory();
    }
    return (PyObject *)recorder;
}

static int recorder_init(PyObject *self, PyObject *arguments, PyObject *names)
{
    static char *keywords[] = {"now", NULL};
    PyObject *now;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "O", keywords, &now)) return -1;
    return set_callable(self, now, (void *)offsetof(Recorder, now));
}

static int recorder_traverse(PyObject *self, visitproc visit, void *arg)
{
    Recorder *recorder = (Recorder *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(recorder->listener);
    Py_VISIT(recorder->now);
    Py_VISIT(recorder->request);
    for (Track *track = recorder->tracks; track != NULL; track = track->next_track)
        for (uint32_t slot = 0; slot < track->num_made; slot++)
            Py_VISIT(track->entries[slot]->exit);
    return 0;
}

static int recorder_clear(PyObject *self)
{
    /* A finalizer in the same cycle may still use a span. It then finds a recorder that records
     * nothing and uses the machine's clock. */
    Recorder *recorder = (Recorder *)self;
    memset(&recorder->own_control, 0, sizeof recorder->own_control);
    recorder->control = &recorder->own_control;
    Py_CLEAR(recorder->now);
    Py_CLEAR(recorder->listener);
    Py_CLEAR(recorder->request);
    leave_tracks(recorder);
    return 0;
}

static void recorder_dealloc(PyObject *self)
{
    Recorder *recorder = (Recorder *)self;
    PyObject_GC_UnTrack(self);
    Recorder **link = &living;
    while (*link != recorder) link = &(*link)->next;
    *link = recorder->next;
    recorder_clear(self);
    Py_CLEAR(recorder->slow);
    region_unmap(&recorder->control_file);
    region_unlink(recorder->store, &recorder->control_file, "run");
    Py_CLEAR(recorder->series);
    Py_CLEAR(recorder->loss_name);
    store_drop(recorder->store);
    object_free(self);
}

static PyMethodDef recorder_methods[] = {
    {"open_window", recorder_open_window, METH_NOARGS, "Begins to keep what is recorded."},
    {"take_at_close", recorder_close_window, METH_VARARGS,
     "(continues=False): closes the window, truncates the open spans, and returns [(track, tid, "
     "name, is_main, num_dropped, [Chunk])] of all threads. With `continues`, the next window "
     "opens at the same nanosecond."},
    {"take_filled", recorder_take_filled, METH_NOARGS,
     "(window, the same of the chunks filled so far); the window stays open."},
    {"remove_ended", recorder_remove_ended, METH_NOARGS,
     "Gives back what is left of threads that have ended."},
    {"ready_spares", recorder_ready_spares, METH_NOARGS,
     "Readies a chunk for each thread that will need one."},
    {"set_folder", recorder_set_folder, METH_VARARGS,
     "(folder or None, rank, limit_bytes): where chunks are kept from now on."},
    {"leave_files", leave_files, METH_NOARGS,
     "Its files stay when it goes, and when what was taken out of it does."},
    {"follow_parent", recorder_follow_parent, METH_VARARGS,
     "(folder, run_file, limit_bytes): records by the parent's run file, into files of "
     "its own."},
    {"watch_slow_steps", watch_slow_steps, METH_O,
     "(slow or None): a SlowSteps, which gets its thread's spans that are not recorded."},
    {"forget", forget, METH_NOARGS,
     "Starts anew, in memory, without threads and listeners: for a forked child."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef recorder_properties[] = {
    {"action", get_control, set_control, "The bit of the current action; 0 for nothing at all.",
     (void *)offsetof(Control, action)},
    {"batch", get_control, set_control, "The current batch.", (void *)offsetof(Control, batch)},
    {"window", get_control, NULL, "The number of the open window, from 1; 0 if none is.",
     (void *)offsetof(Control, window)},
    {"closed_ns", get_closed_ns, NULL, "When the last window closed, on the monotonic clock.",
     NULL},
    {"listener", get_callable, set_callable, "Is notified of everything at once; or None.",
     (void *)offsetof(Recorder, listener)},
    {"request", get_callable, set_callable,
     "Is called when `prepare` should be, on another thread; or None.",
     (void *)offsetof(Recorder, request)},
    {"spool_errno", get_spool_errno, NULL,
     "The errno of the last error that kept records in memory, or 0.", NULL},
    {"loss", get_loss, NULL, "The last loss of a counter, recorded or not; NaN for none.", NULL},
    {"used_bytes", get_used_bytes, NULL, "Bytes of all chunks that exist.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot recorder_slots[] = {
    {Py_tp_new, recorder_new},
    {Py_tp_init, recorder_init},
    {Py_tp_dealloc, recorder_dealloc},
    {Py_tp_traverse, recorder_traverse},
    {Py_tp_clear, recorder_clear},
    {Py_tp_methods, recorder_methods},
    {Py_tp_getset, recorder_properties},
    {Py_tp_doc, "Records spans, instants and counters of all threads; see NativeRecorder."},
    {0, NULL},
};

int recorder_setup(PyObject *module)
{
    pthread_atfork(NULL, NULL, forget_in_child);
    return add_type(module, "kinetoscope._native.Recorder", sizeof(Recorder),
                    Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, recorder_slots, &recorder_type);
}
