/* StackSamples: which line of Python a thread is at, asked again and again from another thread, as
 * nested spans on that thread's track.
 *
 * Waiting needs no GIL, and a sample holds it for about 20 microseconds. A thread that gives the
 * GIL away only for moments, as most operators of torch do, has it back before another one wakes
 * up, and the time after which Python takes it away begins anew. So the thread is asked to give way
 * (Py_AddPendingCall, which only the main thread does). Python 3.13 and later sees that at the next
 * call or turn of a loop, earlier ones only after the thread has next taken the GIL. */

#include "recorder/native.h"

#include <pythread.h>
#include <stddef.h>
#include <stdlib.h>

#include "recorder/thread_stack.h"
#include "os/os.h"

/* Between the begins of a frame and of the one that it calls, so that viewers can tell which is
 * outside. */
#define APART_NS 10
#define MAX_WAIT_S 3600
/* While the sampler waits for the GIL for longer than this, a thread that ran continues with other
 * lines, until it gives the GIL away. */
#define LATE_NS 200000
/* If the sampler gets it between these times, Python took it away: the thread ran Python all the
 * time (sys.getswitchinterval(), 5 ms). After the second, others had it in between. */
#define SWITCHED_NS 4900000
#define STARVED_NS 6000000
/* The thread gives way for this time at most, should the sampler not wake up. */
#define MAX_WAY_US 500
/* If it has the GIL back only after this time, another thread had it, which the sampler waits for
 * without a request as well, or the machine is busy. The next sample is not requested then; if that
 * recurs 3, 7, 15 and at most 31 samples: each request costs the thread those milliseconds. */
#define LONG_WAY_NS 2000000
#define MAX_UNASKED 31
#define MAX_INTERVAL_NS INT64_C(1000000000000000000)

typedef struct {
    PyObject *span, *token;
} OpenSpan;

typedef struct {
    PyObject_HEAD
    Recorder *recorder;
    long native_id;    /* of the thread, for its state; 0 if that is not wanted */
    int state_file;    /* while it samples, if the system says it; else -1 */
    ThreadState state; /* as of the last look, before the GIL was asked for */
    int is_late;       /* the stack was read long after that */
    int64_t interval_ns, asked_ns;
    uint64_t random;
    PyThread_type_lock stopped; /* can be taken once it is to stop */
    int is_stopped;
    int is_busy;         /* a thread samples, and may be waiting without the GIL */
    int can_ask;         /* the thread to give way: it is the main thread, as far as is known */
    SharedWord is_asked; /* it has not done so yet */
    int num_unasked;     /* samples before it is asked again */
    int backoff;         /* num_unasked after the last long way, halved by each short one */
    int is_sampling;     /* run() was called; it and what was asked share a reference */
    int is_waiting;      /* for the GIL, after the thread was asked */
    PyThread_type_lock got_gil; /* held meanwhile */
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

/* Ends all open spans but the outermost `num_kept`; 0 with an error set. */
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

/* Ends what is open: it was cut when its window closed. 0 with an error set. */
static int begin_window(StackSamples *samples, uint32_t window, int64_t now)
{
    if (!end_spans(samples, 0, now)) return 0;
    samples->window = window;
    PyObject *nothing = PyObject_CallMethod((PyObject *)samples, "begin_window", "N",
                                            PyBool_FromLong(samples->state != STATE_UNKNOWN));
    Py_XDECREF(nothing);
    return nothing != NULL;
}

/* What the stack says of the state of the thread, or NULL. */
static const char *last_state(const StackSamples *samples)
{
    if (samples->state == STATE_RUNNING) return samples->is_late ? "late" : NULL;
    return state_names[samples->state];
}

/* Records what the thread is doing, which was asked for at that time; 0 with an error set. */
static int take_sample(StackSamples *samples, int64_t asked)
{
    ThreadStack *stack = &samples->stack;
    if (samples->window != recorder_window(samples->recorder) || thread_stack_is_full(stack))
        thread_stack_forget(stack); /* what is open stays open */
    if (!thread_stack_read(stack, last_state(samples))) return 0;
    uint32_t window = recorder_window(samples->recorder);
    if (window != samples->window) { /* before this window there was no sample */
        asked = recorder_now(samples->recorder);
        if (recorder_failed(asked) || !begin_window(samples, window, asked)) return 0;
    }
    if (!end_spans(samples, num_same_frames(samples), asked)) return 0;
    while (samples->num_open < stack->num_spans) {
        uint32_t depth = samples->num_open;
        PyObject *span = stack->spans[stack->num_spans - 1 - depth];
        PyObject *token = span_token_at((Span *)span, later(asked, (int64_t)depth * APART_NS));
        if (token == NULL) return 0;
        samples->open[depth] = (OpenSpan){Py_NewRef(span), token};
        samples->num_open++;
    }
    return 1;
}

/* Ends all open spans, and forgets what a later window may not need; 0 with an error set. */
static int end_all(StackSamples *samples, int64_t end)
{
    thread_stack_forget(&samples->stack);
    return end_spans(samples, 0, end);
}

static int end_now(StackSamples *samples)
{
    int64_t now = samples->num_open > 0 ? recorder_now(samples->recorder) : 0;
    return !recorder_failed(now) && end_all(samples, now);
}

/* -- when to sample -- */

/* A random number from 0 to 1 (xorshift64). */
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
    samples->asked_ns = later(samples->asked_ns, (int64_t)gap_ns);
    if (samples->asked_ns < now) /* samples were missed */
        samples->asked_ns = later(now, (int64_t)(interval_ns * next_random(samples)));
    return samples->asked_ns;
}

/* Waits that long without the GIL, or until it is to stop; whether it is to stop. */
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

/* Called by Python on the main thread: yields the GIL to the sampler, if it waits for it. */
static int yield_gil(void *object)
{
    StackSamples *samples = object;
    samples->can_ask &= PyThread_get_thread_ident() == samples->stack.ident;
    if (samples->is_waiting && samples->can_ask) {
        int64_t began = monotonic_ns();
        Py_BEGIN_ALLOW_THREADS
        if (PyThread_acquire_lock_timed(samples->got_gil, MAX_WAY_US, 0) == PY_LOCK_ACQUIRED)
            PyThread_release_lock(samples->got_gil);
        Py_END_ALLOW_THREADS
        int is_long = monotonic_ns() - began > LONG_WAY_NS;
        int backoff = is_long ? 2 * samples->backoff + 1 : samples->backoff / 2;
        samples->backoff = backoff < MAX_UNASKED ? backoff : MAX_UNASKED;
        samples->num_unasked = is_long ? samples->backoff : 0;
    }
    shared_store(&samples->is_asked, 0);
    if (!samples->is_sampling) Py_DECREF((PyObject *)samples);
    return 0;
}

/* Asks the thread to do that, if it runs and has done what it was asked before. Needs no GIL; but
 * what it uses is gone once Python has ended, which a thread that sleeps meanwhile does not see. */
static void ask_for_way(StackSamples *samples)
{
    int is_running = samples->state == STATE_RUNNING || samples->state == STATE_UNKNOWN;
    if (!is_running || shared_load(&samples->is_asked) || !samples->can_ask) return;
    if (!Py_IsInitialized()) return;
    if (samples->num_unasked > 0) {
        samples->num_unasked--;
        return;
    }
    PyThread_acquire_lock(samples->got_gil, 0);
    samples->is_waiting = 1;
    shared_store(&samples->is_asked, 1);
    if (Py_AddPendingCall(yield_gil, samples) == 0) return;
    shared_store(&samples->is_asked, 0); /* others have asked for too much */
    samples->is_waiting = 0;
    PyThread_release_lock(samples->got_gil);
}

/* Whether a thread that ran may have gone on to another line while the sampler waited so long. */
static int may_be_late(int64_t waited_ns)
{
    return waited_ns > LATE_NS && (waited_ns < SWITCHED_NS || waited_ns >= STARVED_NS);
}

/* Waits in the same way, and then looks at the state of the thread, before it asks for the GIL. */
static int wait_and_look(StackSamples *samples, int64_t wait_ns)
{
    PyLockStatus status;
    int64_t looked;
    if (samples->is_stopped) return 1;
    Py_BEGIN_ALLOW_THREADS
    status = PyThread_acquire_lock_timed(samples->stopped, wait_ns > 0 ? wait_ns / 1000 : 0, 0);
    samples->state = os_state_read(samples->state_file);
    looked = monotonic_ns();
    if (status != PY_LOCK_ACQUIRED) ask_for_way(samples);
    Py_END_ALLOW_THREADS
    samples->is_late = may_be_late(monotonic_ns() - looked);
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

/* Keeps other threads out, also while Python code is called or the GIL is released. */
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
    if (!shared_load(&samples->is_asked)) Py_INCREF((PyObject *)samples);
    samples->state_file = os_state_open(samples->native_id);
    while (is_done && !is_stopped && is_recording(samples)) {
        int64_t now = monotonic_ns(), asked = next_time(samples, now);
        is_stopped = wait_and_look(samples, asked - now);
        if (!is_stopped && is_recording(samples)) is_done = take_sample(samples, asked);
    }
    os_state_close(samples->state_file);
    samples->state_file = -1;
    samples->state = STATE_UNKNOWN;
    samples->is_sampling = 0;
    if (!shared_load(&samples->is_asked)) Py_DECREF((PyObject *)samples);
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

static PyObject *samples_sample(PyObject *self, PyObject *asked)
{
    long long asked_ns = PyLong_AsLongLong(asked);
    if (asked_ns == -1 && PyErr_Occurred() != NULL) return NULL;
    StackSamples *samples = begin_work(self);
    return samples == NULL ? NULL : end_work(samples, take_sample(samples, asked_ns), Py_None);
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
    samples->can_ask = 1;
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

/* Forgets everything. What is open is not recorded: its end is unknown by now. */
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
     "(asked_ns): records what the thread is doing, which was asked for at that time."},
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
