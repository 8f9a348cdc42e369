/* StackSamples: repeated samples of a thread's Python stack, taken by another thread, as nested
 * spans on the sampled thread's track.
 *
 * A wait needs no GIL, and a sample takes it for about 20 microseconds. A thread that releases the
 * GIL only briefly, as most operators of torch do, takes it again before another one wakes up, and
 * the switch interval starts anew. So the thread is requested to yield the GIL (Py_AddPendingCall,
 * which only the main thread runs). Python 3.13 and later runs that at the next call or iteration
 * of a loop, earlier versions only after the thread has next taken the GIL. */

#include "recorder/native.h"

#include <pythread.h>
#include <stddef.h>
#include <stdlib.h>

#include "recorder/thread_stack.h"
#include "os/os.h"

/* Time between the starts of a frame and of the frame that it calls, so that viewers can
 * distinguish the outer one. */
#define APART_NS 10
#define MAX_WAIT_S 3600
/* If the sampler waits longer than this for the GIL, a running thread continues with other lines
 * before it releases the GIL. */
#define LATE_NS 200000
/* If the sampler gets the GIL between these times, the switch interval was over (5 ms): the thread
 * ran Python until then. After the second one, other threads had the GIL in between. */
#define SWITCHED_NS 4900000
#define CONTENDED_NS 6000000
/* The thread yields for this time at most, in case the sampler does not wake up. */
#define MAX_YIELD_US 500
/* If the thread has the GIL again only after this time, another thread had it, or the machine is
 * busy. Then the next sample is taken without a request; if this recurs, the next 3, 7, 15 and at
 * most 31: each request costs the thread those milliseconds. */
#define LONG_YIELD_NS 2000000
#define MAX_SKIPPED 31
#define MAX_INTERVAL_NS INT64_C(1000000000000000000)

typedef struct {
    PyObject *span, *token;
} OpenSpan;

typedef struct {
    PyObject_HEAD
    Recorder *recorder;
    long native_id;    /* of the thread, for its state; 0 for none */
    int state_file;    /* while it samples, if the system reports states; else -1 */
    ThreadState state; /* read last, before the GIL was requested */
    int is_late;       /* the stack was read long after that */
    int64_t interval_ns, requested_ns;
    uint64_t random;
    PyThread_type_lock stopped; /* free once it has to stop */
    int is_stopped;
    int is_busy;             /* a thread samples, and may be waiting without the GIL */
    int can_request;         /* the thread is the main thread, as far as is known */
    SharedWord is_requested; /* the thread has not yielded yet */
    int num_to_skip;         /* samples before the next request */
    int backoff;             /* num_to_skip after the last long yield, halved by each short one */
    int is_sampling;         /* run() was called; it shares a reference with the pending call */
    int is_waiting;          /* for the GIL, after a request */
    PyThread_type_lock got_gil; /* locked meanwhile */
    uint32_t window;
    ThreadStack stack;
    OpenSpan open[MAX_SPANS];
    uint32_t num_open;
} StackSamples;

static int64_t later(int64_t time, int64_t by_ns)
{
    int64_t sum;
    return __builtin_add_overflow(time, by_ns, &sum) ? INT64_MAX : sum;
}

/* -- spans -- */

/* End all open spans but the outermost `num_kept`; 0 with an error set. */
static int end_spans(StackSamples *samples, uint32_t num_kept, int64_t end)
{
    while (samples->num_open > num_kept) {
        OpenSpan innermost = samples->open[--samples->num_open];
        PyObject *nothing = token_end_at(innermost.token, end);
        Py_DECREF(innermost.token);
        Py_DECREF(innermost.span);
        if (nothing == NULL) return 0;
        Py_DECREF(nothing);
    }
    return 1;
}

static uint32_t num_same_frames(const StackSamples *samples)
{
    uint32_t num_same = 0;
    const ThreadStack *stack = &samples->stack;
    while (num_same < samples->num_open && num_same < stack->num_spans &&
           samples->open[num_same].span == stack->spans[stack->num_spans - 1 - num_same])
        num_same++;
    return num_same;
}

/* End all open spans, which were truncated when their window closed. 0 with an error set. */
static int begin_window(StackSamples *samples, uint32_t window, int64_t now)
{
    if (!end_spans(samples, 0, now)) return 0;
    samples->window = window;
    PyObject *nothing = PyObject_CallMethod((PyObject *)samples, "begin_window", "N",
                                            PyBool_FromLong(samples->state != STATE_UNKNOWN));
    Py_XDECREF(nothing);
    return nothing != NULL;
}

/* Return the name of the thread's state for its stack, or NULL. */
static const char *last_state(const StackSamples *samples)
{
    if (samples->state == STATE_RUNNING) return samples->is_late ? "late" : NULL;
    return state_names[samples->state];
}

/* Record a sample of the thread's stack that was requested at that time; 0 with an error set. */
static int take_sample(StackSamples *samples, int64_t requested)
{
    ThreadStack *stack = &samples->stack;
    if (samples->window != recorder_window(samples->recorder) || thread_stack_is_full(stack))
        thread_stack_drop_lines(stack); /* open spans stay open */
    if (!thread_stack_read(stack, last_state(samples))) return 0;
    uint32_t window = recorder_window(samples->recorder);
    if (window != samples->window) { /* before this window there was no sample */
        requested = recorder_now(samples->recorder);
        if (recorder_failed(requested) || !begin_window(samples, window, requested)) return 0;
    }
    if (!end_spans(samples, num_same_frames(samples), requested)) return 0;
    while (samples->num_open < stack->num_spans) {
        uint32_t depth = samples->num_open;
        PyObject *span = stack->spans[stack->num_spans - 1 - depth];
        PyObject *token = span_token_at((Span *)span, later(requested, (int64_t)depth * APART_NS));
        if (token == NULL) return 0;
        samples->open[depth] = (OpenSpan){Py_NewRef(span), token};
        samples->num_open++;
    }
    return 1;
}

/* End all open spans, and free all that a later window may not need; 0 with an error set. */
static int end_all(StackSamples *samples, int64_t end)
{
    thread_stack_drop_lines(&samples->stack);
    return end_spans(samples, 0, end);
}

static int end_now(StackSamples *samples)
{
    int64_t now = samples->num_open > 0 ? recorder_now(samples->recorder) : 0;
    return !recorder_failed(now) && end_all(samples, now);
}

/* -- when to sample -- */

/* Return a random number from 0 to 1 (xorshift64). */
static double next_random(StackSamples *samples)
{
    samples->random ^= samples->random << 13;
    samples->random ^= samples->random >> 7;
    samples->random ^= samples->random << 17;
    return (double)(samples->random >> 11) * 0x1p-53;
}

static int64_t next_time(StackSamples *samples, int64_t now)
{
    double interval_ns = (double)samples->interval_ns;
    double gap_ns = interval_ns * (0.75 + 0.5 * next_random(samples));
    samples->requested_ns = later(samples->requested_ns, (int64_t)gap_ns);
    if (samples->requested_ns < now) /* samples were missed */
        samples->requested_ns = later(now, (int64_t)(interval_ns * next_random(samples)));
    return samples->requested_ns;
}

/* Wait without the GIL, at most until it has to stop; return whether it has. */
static int wait_to_stop(StackSamples *samples, int64_t wait_ns)
{
    PyLockStatus status;
    if (samples->is_stopped) return 1;
    Py_BEGIN_ALLOW_THREADS
    status = PyThread_acquire_lock_timed(samples->stopped, wait_ns > 0 ? wait_ns / 1000 : 0, 0);
    Py_END_ALLOW_THREADS
    if (status == PY_LOCK_ACQUIRED) PyThread_release_lock(samples->stopped);
    return samples->is_stopped;
}

/* Called by Python on the main thread: yield the GIL to the sampler, if it waits for it. */
static int yield_gil(void *object)
{
    StackSamples *samples = object;
    samples->can_request &= PyThread_get_thread_ident() == samples->stack.ident;
    if (samples->is_waiting && samples->can_request) {
        int64_t began = monotonic_ns();
        Py_BEGIN_ALLOW_THREADS
        if (PyThread_acquire_lock_timed(samples->got_gil, MAX_YIELD_US, 0) == PY_LOCK_ACQUIRED)
            PyThread_release_lock(samples->got_gil);
        Py_END_ALLOW_THREADS
        int is_long = monotonic_ns() - began > LONG_YIELD_NS;
        int backoff = is_long ? 2 * samples->backoff + 1 : samples->backoff / 2;
        samples->backoff = backoff < MAX_SKIPPED ? backoff : MAX_SKIPPED;
        samples->num_to_skip = is_long ? samples->backoff : 0;
    }
    shared_store(&samples->is_requested, 0);
    if (!samples->is_sampling) Py_DECREF((PyObject *)samples);
    return 0;
}

/* Request a yield of the thread, if it runs and no request is pending. Needs no GIL, but an
 * initialized interpreter: Python may have ended while this thread slept. */
static void request_gil(StackSamples *samples)
{
    int is_running = samples->state == STATE_RUNNING || samples->state == STATE_UNKNOWN;
    if (!is_running || shared_load(&samples->is_requested) || !samples->can_request) return;
    if (!Py_IsInitialized()) return;
    if (samples->num_to_skip > 0) {
        samples->num_to_skip--;
        return;
    }
    PyThread_acquire_lock(samples->got_gil, 0);
    samples->is_waiting = 1;
    shared_store(&samples->is_requested, 1);
    if (Py_AddPendingCall(yield_gil, samples) == 0) return;
    shared_store(&samples->is_requested, 0); /* too many calls are pending */
    samples->is_waiting = 0;
    PyThread_release_lock(samples->got_gil);
}

/* Return whether a running thread may have reached another line during such a wait. */
static int may_be_late(int64_t waited_ns)
{
    return waited_ns > LATE_NS && (waited_ns < SWITCHED_NS || waited_ns >= CONTENDED_NS);
}

/* Wait in the same way, and read the state of the thread before the GIL is requested. */
static int wait_and_read_state(StackSamples *samples, int64_t wait_ns)
{
    PyLockStatus status;
    int64_t read_ns;
    if (samples->is_stopped) return 1;
    Py_BEGIN_ALLOW_THREADS
    status = PyThread_acquire_lock_timed(samples->stopped, wait_ns > 0 ? wait_ns / 1000 : 0, 0);
    samples->state = os_state_read(samples->state_file);
    read_ns = monotonic_ns();
    if (status != PY_LOCK_ACQUIRED) request_gil(samples);
    Py_END_ALLOW_THREADS
    samples->is_late = may_be_late(monotonic_ns() - read_ns);
    if (samples->is_waiting) PyThread_release_lock(samples->got_gil);
    samples->is_waiting = 0;
    if (status == PY_LOCK_ACQUIRED) PyThread_release_lock(samples->stopped);
    return samples->is_stopped;
}

/* -- from Python -- */

static StackSamples *ready(PyObject *self)
{
    StackSamples *samples = (StackSamples *)self;
    if (samples->recorder != NULL) return samples;
    PyErr_SetString(PyExc_RuntimeError, "__init__() of these samples was not called.");
    return NULL;
}

/* Exclude other threads, also while Python code is called or the GIL is released. */
static StackSamples *begin_work(PyObject *self)
{
    StackSamples *samples = ready(self);
    if (samples == NULL || !is_idle(samples, samples->is_busy)) return NULL;
    samples->is_busy = 1;
    return samples;
}

static PyObject *end_work(StackSamples *samples, int is_done, PyObject *result)
{
    samples->is_busy = 0;
    return is_done ? Py_NewRef(result) : NULL;
}

static int is_recording(const StackSamples *samples)
{
    return shared_load(&samples->recorder->control->action) != 0;
}

static PyObject *samples_run(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    StackSamples *samples = begin_work(self);
    if (samples == NULL) return NULL;
    int is_done = 1, is_stopped = samples->is_stopped;
    samples->is_sampling = 1;
    if (!shared_load(&samples->is_requested)) Py_INCREF((PyObject *)samples);
    samples->state_file = os_state_open(samples->native_id);
    while (is_done && !is_stopped && is_recording(samples)) {
        int64_t now = monotonic_ns(), requested = next_time(samples, now);
        is_stopped = wait_and_read_state(samples, requested - now);
        if (!is_stopped && is_recording(samples)) is_done = take_sample(samples, requested);
    }
    os_state_close(samples->state_file);
    samples->state_file = -1;
    samples->state = STATE_UNKNOWN;
    samples->is_sampling = 0;
    if (!shared_load(&samples->is_requested)) Py_DECREF((PyObject *)samples);
    return end_work(samples, is_done && end_now(samples), is_stopped ? Py_True : Py_False);
}

static PyObject *samples_wait(PyObject *self, PyObject *seconds)
{
    double wait_s = PyFloat_AsDouble(seconds);
    if (ready(self) == NULL || (wait_s == -1.0 && PyErr_Occurred() != NULL)) return NULL;
    int64_t wait_ns = wait_s > 0 ? (int64_t)((wait_s < MAX_WAIT_S ? wait_s : MAX_WAIT_S) * 1e9) : 0;
    return PyBool_FromLong(wait_to_stop((StackSamples *)self, wait_ns));
}

static PyObject *samples_stop(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    StackSamples *samples = ready(self);
    if (samples == NULL) return NULL;
    if (!samples->is_stopped) PyThread_release_lock(samples->stopped);
    samples->is_stopped = 1;
    return new_none();
}

static PyObject *samples_next_time(PyObject *self, PyObject *now)
{
    long long now_ns = PyLong_AsLongLong(now);
    if (ready(self) == NULL || (now_ns == -1 && PyErr_Occurred() != NULL)) return NULL;
    return PyLong_FromLongLong(next_time((StackSamples *)self, now_ns));
}

static PyObject *samples_sample(PyObject *self, PyObject *requested)
{
    long long requested_ns = PyLong_AsLongLong(requested);
    if (requested_ns == -1 && PyErr_Occurred() != NULL) return NULL;
    StackSamples *samples = begin_work(self);
    return samples == NULL ? NULL : end_work(samples, take_sample(samples, requested_ns), Py_None);
}

static PyObject *samples_end(PyObject *self, PyObject *end)
{
    long long end_ns = PyLong_AsLongLong(end);
    if (end_ns == -1 && PyErr_Occurred() != NULL) return NULL;
    StackSamples *samples = begin_work(self);
    return samples == NULL ? NULL : end_work(samples, end_all(samples, end_ns), Py_None);
}

/* -- the type -- */

static int samples_init(PyObject *self, PyObject *arguments, PyObject *Py_UNUSED(names))
{
    StackSamples *samples = (StackSamples *)self;
    PyObject *recorder, *outermost;
    unsigned long ident;
    long long interval_ns;
    long native_id = 0;
    if (!PyArg_ParseTuple(arguments, "O!kLO|l", recorder_type, &recorder, &ident, &interval_ns,
                          &outermost, &native_id))
        return -1;
    if (samples->recorder != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "__init__() of these samples was called before.");
        return -1;
    }
    if (interval_ns < 1 || interval_ns > MAX_INTERVAL_NS) {
        PyErr_Format(PyExc_ValueError, "There is no interval of %lld ns.", interval_ns);
        return -1;
    }
    if (samples->got_gil == NULL) samples->got_gil = PyThread_allocate_lock();
    samples->stopped = samples->got_gil != NULL ? PyThread_allocate_lock() : NULL;
    if (samples->stopped == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    PyThread_acquire_lock(samples->stopped, 1);
    samples->can_request = 1;
    samples->random = UINT64_C(0x9e3779b97f4a7c15);
    samples->native_id = native_id;
    samples->state_file = -1;
    samples->interval_ns = interval_ns;
    samples->stack.names = self;
    samples->stack.ident = ident;
    samples->stack.outermost = outermost != Py_None ? Py_NewRef(outermost) : NULL;
    samples->recorder = (Recorder *)Py_NewRef(recorder);
    return 0;
}

static int samples_traverse(PyObject *self, visitproc visit, void *arg)
{
    StackSamples *samples = (StackSamples *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(samples->recorder);
    for (uint32_t i = 0; i < samples->num_open; i++) {
        Py_VISIT(samples->open[i].span);
        Py_VISIT(samples->open[i].token);
    }
    return thread_stack_traverse(&samples->stack, visit, arg);
}

/* Drop everything. Open spans are not recorded, since their ends are unknown. */
static int samples_clear(PyObject *self)
{
    StackSamples *samples = (StackSamples *)self;
    while (samples->num_open > 0) {
        OpenSpan innermost = samples->open[--samples->num_open];
        Py_DECREF(innermost.token);
        Py_DECREF(innermost.span);
    }
    thread_stack_clear(&samples->stack);
    return 0;
}

static void samples_dealloc(PyObject *self)
{
    StackSamples *samples = (StackSamples *)self;
    PyObject_GC_UnTrack(self);
    samples_clear(self);
    Py_CLEAR(samples->stack.outermost);
    Py_CLEAR(samples->recorder);
    if (samples->stopped != NULL) {
        if (!samples->is_stopped) PyThread_release_lock(samples->stopped);
        PyThread_free_lock(samples->stopped);
    }
    if (samples->got_gil != NULL) PyThread_free_lock(samples->got_gil);
    object_free(self);
}

static PyMethodDef samples_methods[] = {
    {"run", samples_run, METH_NOARGS,
     "Samples as long as anything is recorded, or until stop(); whether that was called."},
    {"wait", samples_wait, METH_O, "(seconds): waits, or until stop(); whether that was called."},
    {"stop", samples_stop, METH_NOARGS, "Ends run() and wait() on another thread."},
    {"next_time", samples_next_time, METH_O,
     "(now_ns): when to sample next, which is about an interval after the last time."},
    {"sample", samples_sample, METH_O,
     "(requested_ns): records a sample of the thread that was requested at that time."},
    {"end", samples_end, METH_O, "(end_ns): ends all open spans."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot samples_slots[] = {
    {Py_tp_init, samples_init},
    {Py_tp_dealloc, samples_dealloc},
    {Py_tp_traverse, samples_traverse},
    {Py_tp_clear, samples_clear},
    {Py_tp_methods, samples_methods},
    {Py_tp_doc, "Samples of a thread's stack; see kinetoscope.sources.stack_spans."},
    {0, NULL},
};

int stack_samples_setup(PyObject *module)
{
    if (thread_stack_setup() < 0) return -1;
    return add_type(module, "kinetoscope._native.StackSamples", sizeof(StackSamples),
                    Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, samples_slots, NULL);
}
