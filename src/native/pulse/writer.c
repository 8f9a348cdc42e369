/* The life of a PulseWriter, the thread that watches its phases, and its methods. */

#ifndef _GNU_SOURCE
    #define _GNU_SOURCE
#endif

#include "pulse/writer.h"
#include "pulse/slow.h"

#include <pthread.h>
#include <stdlib.h>

uint64_t pulse_generation;

static void begin_generation(void)
{
    pulse_generation++;
}

int64_t test_clock_ns(PulseWriter *writer)
{
    PyObject *result = PyObject_CallNoArgs(writer->clock);
    int64_t now = result != NULL ? PyLong_AsLongLong(result) : -1;
    Py_XDECREF(result);
    if (PyErr_Occurred()) PyErr_Clear();
    return now < 0 ? writer->header.heartbeat : now;
}

static PyObject *writer_watch_slow_steps(PyObject *self, PyObject *slow)
{
    PulseWriter *writer = (PulseWriter *)self;
    if (slow != Py_None && !is_slow_steps(slow)) {
        PyErr_SetString(PyExc_TypeError, "Slow steps are watched by a SlowSteps, or None.");
        return NULL;
    }
    PyObject *before = writer->slow;
    writer->slow = slow == Py_None ? NULL : Py_NewRef(slow);
    if (writer->slow != NULL) slow_begin_step(writer->slow, writer->header.step_began);
    Py_XDECREF(before);
    return new_none();
}

/* -- the thread that watches -- */

static int read_limits(PyObject *limits, int64_t into[PULSE_NUM_PHASES])
{
    if (PyTuple_Size(limits) != PULSE_NUM_PHASES && !PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "There is one limit for each phase.");
    for (int phase = 0; !PyErr_Occurred() && phase < PULSE_NUM_PHASES; phase++)
        into[phase] = PyLong_AsLongLong(PyTuple_GetItem(limits, phase));
    return PyErr_Occurred() != NULL ? -1 : 0;
}

static PyObject *writer_watch(PyObject *self, PyObject *request)
{
    PulseWriter *writer = (PulseWriter *)self;
    PulseFile *pulse = open_file(writer);
    const char *path = PyBytes_AsString(request);
    if (path == NULL) return NULL;
    if (pulse != NULL && writer->watch == NULL)
        writer->watch = watch_start(&writer->header, pulse, *path != '\0' ? path : NULL);
    return PyBool_FromLong(writer->watch != NULL);
}

static PyObject *writer_wait(PyObject *self, PyObject *arguments)
{
    PulseWriter *writer = (PulseWriter *)self;
    PyObject *limits;
    long long stuck_since, duration;
    unsigned int sequence;
    Awaited awaited;
    if (!PyArg_ParseTuple(arguments, "O!LLI", &PyTuple_Type, &limits, &stuck_since, &duration,
                          &sequence) ||
        read_limits(limits, awaited.limits) < 0)
        return NULL;
    awaited.stuck_since = stuck_since;
    awaited.sequence = sequence;
    awaited.until = monotonic_ns() + duration;
    int woken = WOKEN_STOPPED;
    if (writer->watch != NULL && open_file(writer) != NULL) {
        Watch *watch = writer->watch;
        watch_keep(watch); /* it may be closed meanwhile */
        Py_BEGIN_ALLOW_THREADS;
        woken = watch_wait(watch, &awaited);
        Py_END_ALLOW_THREADS;
        watch_drop(watch);
    }
    return PyLong_FromLong(woken);
}

static PyObject *writer_stop_waiting(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    PulseWriter *writer = (PulseWriter *)self;
    if (writer->watch != NULL && open_file(writer) != NULL) watch_stop(writer->watch);
    return new_none();
}

static PyObject *writer_signal_if_held(PyObject *self, PyObject *number)
{
    PulseWriter *writer = (PulseWriter *)self;
    int signal_number = (int)PyLong_AsLong(number);
    if (PyErr_Occurred()) return NULL;
    if (writer->watch != NULL && open_file(writer) != NULL)
        watch_signal_if_held(writer->watch, signal_number);
    return new_none();
}

/* Both are read and written with the GIL held. */
static unsigned long num_replies;
static int is_pinged;

static int reply(void *Py_UNUSED(nothing))
{
    num_replies++;
    is_pinged = 0;
    return 0;
}

static PyObject *writer_ping_main_thread(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(nothing))
{
    if (!is_pinged) is_pinged = Py_AddPendingCall(reply, NULL) == 0;
    return PyLong_FromUnsignedLong(num_replies);
}

/* Stop the watch, unless its thread is the parent's: then its lock may never be released. */
static void drop_watch(PulseWriter *writer)
{
    Watch *watch = writer->watch;
    writer->watch = NULL;
    if (watch == NULL || open_file(writer) == NULL) return;
    watch_stop(watch);
    watch_drop(watch);
}

/* -- from Python -- */

static void release(PulseWriter *writer)
{
    drop_watch(writer);
    if (writer->pulse != NULL) PyBuffer_Release(&writer->file);
    writer->pulse = NULL;
}

/* Return the number of coarse blocks that fit into the file, at most `wanted`. */
static Py_ssize_t coarse_capacity(const PulseWriter *writer, Py_ssize_t wanted)
{
    Py_ssize_t capacity = writer->file.len - (Py_ssize_t)offsetof(PulseFile, coarse);
    Py_ssize_t most = capacity / (Py_ssize_t)sizeof(PulseBlock);
    return (wanted < most ? wanted : most) / 2 * 2;
}

static PyObject *writer_extend(PyObject *self, PyObject *num_coarse)
{
    PulseWriter *writer = (PulseWriter *)self;
    Py_ssize_t coarse = coarse_capacity(writer, PyLong_AsSsize_t(num_coarse));
    if (PyErr_Occurred()) return NULL;
    if (writer->pulse != NULL && coarse > writer->max_coarse) writer->max_coarse = coarse;
    return new_none();
}

static PyObject *writer_close(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    release((PulseWriter *)self);
    return new_none();
}

static PyObject *writer_new(PyTypeObject *type, PyObject *arguments, PyObject *Py_UNUSED(names))
{
    PyObject *file, *now = Py_None;
    Py_ssize_t num_coarse = PY_SSIZE_T_MAX;
    if (!PyArg_ParseTuple(arguments, "O|On", &file, &now, &num_coarse)) return NULL;
    PulseWriter *writer = object_new(type);
    if (writer == NULL) return NULL;
    if (PyObject_GetBuffer(file, &writer->file, PyBUF_WRITABLE) < 0) {
        Py_DECREF(writer);
        return NULL;
    }
    writer->pulse = writer->file.buf;
    writer->generation = pulse_generation;
    writer->clock = now == Py_None ? NULL : Py_NewRef(now);
    writer->max_coarse = coarse_capacity(writer, num_coarse);
    if (writer->max_coarse < 2) {
        PyErr_SetString(PyExc_ValueError, "The file is too short for a pulse.");
        Py_DECREF(writer);
        return NULL;
    }
    PulseHeader *header = &writer->header;
    memcpy(header->magic, "KSPULSE", sizeof header->magic);
    header->version = 1;
    header->header_bytes = offsetof(PulseFile, steps);
    header->steps_per_coarse = PULSE_NUM_EXACT;
    header->phase = PULSE_OTHER;
    header->known = UINT32_C(1) << PULSE_OTHER;
    header->heartbeat = header->phase_since = header->step_began = current_ns(writer);
    writer->last_due = header->heartbeat;
    memcpy(&writer->pulse->header, header, sizeof *header);
    return (PyObject *)writer;
}

static int writer_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((PulseWriter *)self)->clock);
    Py_VISIT(((PulseWriter *)self)->num_nodes);
    Py_VISIT(((PulseWriter *)self)->file.obj);
    return 0;
}

static int writer_clear(PyObject *self)
{
    Py_CLEAR(((PulseWriter *)self)->clock);
    Py_CLEAR(((PulseWriter *)self)->num_nodes);
    Py_CLEAR(((PulseWriter *)self)->slow);
    return 0;
}

static void writer_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    release((PulseWriter *)self);
    free(((PulseWriter *)self)->log.spans);
    writer_clear(self);
    object_free(self);
}

static PyMethodDef writer_methods[] = {
    {"enter", writer_enter, METH_O, "(phase): begins a phase; returns the one before."},
    {"watch_thread", writer_watch_thread, METH_O,
     "(ident): hooks count on this thread from now on; 0 for none."},
    {"begin_backward", writer_begin_backward, METH_NOARGS,
     "(): begins a backward pass; the phase before it was the forward pass."},
    {"end_backward", writer_end_backward, METH_NOARGS, "(): returns to the phase before."},
    {"begin_optimizer", (PyCFunction)(void (*)(void))writer_begin_optimizer, METH_FASTCALL,
     "(...): begins a step of an optimizer; a hook of torch's."},
    {"end_optimizer", (PyCFunction)(void (*)(void))writer_end_optimizer, METH_FASTCALL,
     "(...): returns to the phase before; a hook of torch's."},
    {"begin_checkpoint", writer_begin_checkpoint, METH_NOARGS,
     "(): begins a checkpoint, or continues the last one if no other phase came between."},
    {"end_checkpoint", writer_end_checkpoint, METH_NOARGS, "(): returns to the phase before."},
    {"watch_graph", writer_watch_graph, METH_O,
     "(num_nodes): a function that counts the nodes of autograd graphs of the watched thread; or "
     "None."},
    {"expect_fetch", writer_expect_fetch, METH_NOARGS,
     "(): a fetch follows; the interval before it was the forward pass if it built a graph."},
    {"has_no_graph", writer_has_no_graph, METH_NOARGS,
     "(): returns whether the watched thread is in no phase, and has built no graph in it."},
    {"num_backward", writer_num_backward, METH_NOARGS,
     "(): the number of backward passes that began on the watched thread."},
    {"start_phase_log", writer_start_phase_log, METH_NOARGS,
     "(): records each forward or backward pass and optimizer step from now on."},
    {"drain_phase_log", writer_drain_phase_log, METH_NOARGS,
     "(): ends this; returns a list of (phase, begin, end), and the number of dropped ones."},
    {"watch_slow_steps", writer_watch_slow_steps, METH_O,
     "(slow): a SlowSteps gets steps and phases from now on; None for none."},
    {"begin_step", writer_begin_step, METH_NOARGS,
     "(): begins the first step; the time before belongs to no step."},
    {"end_step", (PyCFunction)(void (*)(void))writer_end_step, METH_FASTCALL,
     "(batch, epoch): ends a step, and begins the next one. Returns whether a second has passed "
     "since it last returned True."},
    {"add_step", (PyCFunction)(void (*)(void))writer_add_step, METH_FASTCALL,
     "(batch, begin, end): adds a step that has ended, with unknown phases."},
    {"count_steps", (PyCFunction)(void (*)(void))writer_count_steps, METH_FASTCALL,
     "(num_steps, batch, epoch, with_fetches): the next steps, from that batch on, need only "
     "count_step, and their fetches only begin_fetch and end_fetch."},
    {"count_no_more", writer_count_no_more, METH_NOARGS,
     "(): ends this: the next step needs calls into Python."},
    {"begin_batch", writer_begin_batch, METH_NOARGS, "(): the data of the batch has arrived."},
    {"begin_fetch", writer_begin_fetch, METH_NOARGS,
     "(): begins a wait for data; returns False if the fetch needs calls into Python."},
    {"end_fetch", writer_end_fetch, METH_O,
     "(is_there): ends the wait; is_there: data has arrived."},
    {"count_step", (PyCFunction)(void (*)(void))writer_count_step, METH_FASTCALL,
     "(samples, tokens): ends a step; returns False if it needs calls into Python, as one per "
     "second does."},
    {"counted", writer_counted, METH_NOARGS,
     "(): the number of steps that count_step ended since count_steps, their samples, tokens and "
     "nanoseconds, and the nanoseconds of the last one."},
    {"batch", writer_batch, METH_NOARGS,
     "(): the start of the running batch, and whether its data has arrived."},
    {"watch", writer_watch, METH_O,
     "(request): checks the phases and the file of requests from now on, without the GIL."},
    {"wait", writer_wait, METH_VARARGS,
     "(limits, stuck_since, duration, sequence): waits without the GIL; returns the reason for "
     "its end, a WakeReason of kinetoscope.pulse.layout."},
    {"stop_waiting", writer_stop_waiting, METH_NOARGS, "(): ends `wait`, now and later."},
    {"signal_if_held", writer_signal_if_held, METH_O,
     "(signal): a thread without the GIL sends itself this signal if the GIL is held; 0 for "
     "none."},
    {"ping_main_thread", writer_ping_main_thread, METH_NOARGS,
     "(): pings the main thread, which replies when it runs Python; returns the number of "
     "replies."},
    {"extend", writer_extend, METH_O,
     "(num_coarse): the file has space for so many coarse blocks now."},
    {"close", writer_close, METH_NOARGS, "Releases the file."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot writer_slots[] = {
    {Py_tp_new, writer_new},
    {Py_tp_dealloc, writer_dealloc},
    {Py_tp_traverse, writer_traverse},
    {Py_tp_clear, writer_clear},
    {Py_tp_methods, writer_methods},
    {Py_tp_doc,
     "(file, now=None, num_coarse=all): writes a pulse into a writable buffer of zeros; see "
     "_native.pyi."},
    {0, NULL},
};

int pulse_setup(PyObject *module)
{
    pthread_atfork(NULL, NULL, begin_generation);
    if (slow_steps_setup(module) < 0) return -1;
    return add_type(module, "kinetoscope._native.PulseWriter", sizeof(PulseWriter),
                    Py_TPFLAGS_HAVE_GC, writer_slots, NULL);
}
