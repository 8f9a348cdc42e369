/* StackSamples: which line of Python a thread is at, asked again and again from another thread, as
 * nested spans on that thread's track.
 *
 * Waiting needs no GIL, and a sample holds it for a few microseconds. Frames are read as Python
 * code would read them, so this works with every version of Python. */

#include "recorder/native.h"

#include <pythread.h>
#include <stddef.h>
#include <stdlib.h>

/* Of a deeper stack, the frames between these ends are left out. */
#define MOST_INNER 100
#define MOST_OUTER 100
#define MOST_FRAMES (MOST_INNER + 1 + MOST_OUTER)
#define MOST_LOOKED 10000 /* frames beyond the inner ones, in search of the outermost */
#define MOST_PLACES 10000 /* when there are more, all are forgotten, and with them their code */
/* Between the begins of a frame and of the one that it calls, so that viewers can tell which is
 * outside. */
#define APART_NS 10
#define LONGEST_WAIT_S 3600
#define LONGEST_INTERVAL_NS INT64_C(1000000000000000000)

/* An instruction of a function. */
typedef struct {
    PyObject *code;
    int64_t offset;
} Place;

typedef struct {
    PyObject *span, *token;
} OpenSpan;

typedef struct {
    PyObject_HEAD
    Recorder *recorder;
    unsigned long ident;
    PyObject *outermost; /* the code of the frame with which stacks begin, or NULL */
    int64_t interval_ns, asked_ns;
    uint64_t random;
    PyThread_type_lock stopped; /* can be taken once it is to stop */
    int is_stopped;
    int is_busy; /* a thread samples, and may be waiting without the GIL */
    uint32_t window;
    Table places;
    PyObject **spans; /* of each place; Py_None if its frames are left out */
    size_t spans_capacity;
    PyObject *gap; /* the span that stands for frames that are left out; NULL before the first */
    OpenSpan open[MOST_FRAMES];
    uint32_t num_open;
    PyObject *stack[MOST_FRAMES]; /* as of the last look, the innermost frame first; borrowed */
    uint32_t num_frames;
} StackSamples;

static PyObject *name_of_code, *name_of_offset, *name_of_line, *name_of_caller;

static int64_t later(int64_t time, int64_t by_ns)
{
    int64_t sum;
    return __builtin_add_overflow(time, by_ns, &sum) ? INT64_MAX : sum;
}

/* -- the stack of the thread -- */

/* 0 with an error set if Python gave something else; then it is released. */
static int require_span(PyObject *span)
{
    if (PyObject_TypeCheck(span, span_type)) return 1;
    PyErr_SetString(PyExc_TypeError, "A line is recorded as a native span.");
    Py_DECREF(span);
    return 0;
}

/* Asks Python for the span of a place; 0 with an error set. */
static int name_place(StackSamples *samples, uint32_t number, const Place *place, PyObject *frame)
{
    PyObject *line = PyObject_GetAttr(frame, name_of_line);
    PyObject *span = line == NULL ? NULL
                                  : PyObject_CallMethod((PyObject *)samples, "span_of_line", "OO",
                                                        place->code, line);
    Py_XDECREF(line);
    if (span == NULL) return 0;
    if (span != Py_None && !require_span(span)) return 0;
    samples->spans[number] = span;
    Py_INCREF(place->code); /* no other code gets its address */
    return 1;
}

/* The span of the line that a frame is at, or None. Borrowed. NULL with an error set. */
static PyObject *span_of_frame(StackSamples *samples, PyObject *frame, PyObject *code)
{
    PyObject *offset = PyObject_GetAttr(frame, name_of_offset);
    if (offset == NULL) return NULL;
    Place place = {code, PyLong_AsLongLong(offset)};
    Py_DECREF(offset);
    if (place.offset == -1 && PyErr_Occurred() != NULL) return NULL;
    size_t num_known = samples->places.num_entries;
    if (!array_room_for_next((void **)&samples->spans, num_known, &samples->spans_capacity,
                             sizeof *samples->spans))
        return PyErr_NoMemory();
    uint32_t number = table_intern(&samples->places, (const char *)&place, sizeof place);
    if (number == TABLE_FULL) return PyErr_NoMemory();
    if (number == num_known) samples->spans[number] = NULL;
    if (samples->spans[number] == NULL && !name_place(samples, number, &place, frame)) return NULL;
    return samples->spans[number];
}

/* Adds a frame to the stack, and returns its caller, or None. NULL with an error set. */
static PyObject *add_frame(StackSamples *samples, PyObject *frame)
{
    PyObject *code = PyObject_GetAttr(frame, name_of_code);
    PyObject *span = code == NULL ? NULL : span_of_frame(samples, frame, code);
    int is_outermost = code == samples->outermost;
    Py_XDECREF(code);
    if (span == NULL) return NULL;
    if (span != Py_None) samples->stack[samples->num_frames++] = span;
    return is_outermost ? new_none() : PyObject_GetAttr(frame, name_of_caller);
}

/* The frame that the thread is in, or None if it has ended. NULL with an error set. */
static PyObject *innermost_frame(const StackSamples *samples)
{
    PyObject *current_frames = PySys_GetObject("_current_frames"); /* borrowed */
    if (current_frames == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "This Python has no sys._current_frames.");
        return NULL;
    }
    PyObject *frames = PyObject_CallNoArgs(current_frames);
    PyObject *ident = frames == NULL ? NULL : PyLong_FromUnsignedLong(samples->ident);
    PyObject *frame = ident == NULL ? NULL : PyDict_GetItemWithError(frames, ident);
    if (frame != NULL)
        Py_INCREF(frame);
    else if (ident != NULL && PyErr_Occurred() == NULL)
        frame = new_none();
    Py_XDECREF(ident);
    Py_XDECREF(frames);
    return frame;
}

/* The caller of a frame, or None. NULL with an error set. */
static PyObject *caller_of(const StackSamples *samples, PyObject *frame)
{
    PyObject *code = PyObject_GetAttr(frame, name_of_code);
    int is_outermost = code == samples->outermost;
    Py_XDECREF(code);
    if (code == NULL) return NULL;
    return is_outermost ? new_none() : PyObject_GetAttr(frame, name_of_caller);
}

/* Says in the stack that frames are left out; 0 with an error set. */
static int add_gap(StackSamples *samples)
{
    if (samples->gap == NULL) {
        PyObject *gap = PyObject_CallMethod((PyObject *)samples, "span_of_gap", NULL);
        if (gap == NULL || !require_span(gap)) return 0;
        samples->gap = gap;
    }
    samples->stack[samples->num_frames++] = samples->gap;
    return 1;
}

/* Adds the outermost frames of those from this one on, which it takes over, and a gap before them
 * if there are more. Of an endless stack the outermost ones are not found. 0 with an error set. */
static int add_outer_frames(StackSamples *samples, PyObject *frame)
{
    PyObject *last[MOST_OUTER] = {NULL};
    uint32_t num = 0;
    for (; frame != NULL && frame != Py_None && num < MOST_LOOKED; num++) {
        PyObject *caller = caller_of(samples, frame);
        Py_XDECREF(last[num % MOST_OUTER]);
        last[num % MOST_OUTER] = frame;
        frame = caller;
    }
    int is_done = frame != NULL && (num <= MOST_OUTER || add_gap(samples));
    uint32_t next = frame != Py_None ? num : num > MOST_OUTER ? num - MOST_OUTER : 0;
    Py_XDECREF(frame);
    for (; is_done && next < num; next++) {
        PyObject *caller = add_frame(samples, last[next % MOST_OUTER]);
        Py_XDECREF(caller);
        is_done = caller != NULL;
    }
    for (uint32_t i = 0; i < MOST_OUTER; i++) Py_XDECREF(last[i]);
    return is_done;
}

/* Reads the stack; 0 with an error set. No frame is kept, as its tensors would be, too. */
static int read_stack(StackSamples *samples)
{
    samples->num_frames = 0;
    PyObject *frame = innermost_frame(samples);
    while (frame != NULL && frame != Py_None && samples->num_frames < MOST_INNER) {
        PyObject *caller = add_frame(samples, frame);
        Py_DECREF(frame);
        frame = caller;
    }
    return add_outer_frames(samples, frame);
}

/* Forgets all places, and the code that was kept for them. What is open stays open. */
static void forget_places(StackSamples *samples)
{
    Table places = samples->places;
    PyObject **spans = samples->spans;
    memset(&samples->places, 0, sizeof samples->places);
    samples->spans = NULL;
    samples->spans_capacity = 0;
    samples->num_frames = 0;
    for (size_t i = 0; i < places.num_entries; i++) {
        size_t length;
        Place place;
        memcpy(&place, table_key(&places, (uint32_t)i, &length), sizeof place);
        if (spans[i] == NULL) continue; /* Python could not name it */
        Py_DECREF(place.code);
        Py_DECREF(spans[i]);
    }
    free(spans);
    table_free(&places);
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
    while (num_same < samples->num_open && num_same < samples->num_frames &&
           samples->open[num_same].span == samples->stack[samples->num_frames - 1 - num_same])
        num_same++;
    return num_same;
}

/* Ends what is open: it was cut when its window closed. 0 with an error set. */
static int begin_window(StackSamples *samples, uint32_t window, int64_t now)
{
    if (!end_spans(samples, 0, now)) return 0;
    samples->window = window;
    PyObject *nothing = PyObject_CallMethod((PyObject *)samples, "begin_window", NULL);
    Py_XDECREF(nothing);
    return nothing != NULL;
}

/* Records what the thread is doing, which was asked for at that time; 0 with an error set. */
static int take_sample(StackSamples *samples, int64_t asked)
{
    if (samples->window != recorder_window(samples->recorder) ||
        samples->places.num_entries > MOST_PLACES)
        forget_places(samples);
    if (!read_stack(samples)) return 0;
    uint32_t window = recorder_window(samples->recorder);
    if (window != samples->window) { /* before this window there was no sample */
        asked = recorder_now(samples->recorder);
        if (recorder_failed(asked) || !begin_window(samples, window, asked)) return 0;
    }
    if (!end_spans(samples, num_same_frames(samples), asked)) return 0;
    while (samples->num_open < samples->num_frames) {
        uint32_t depth = samples->num_open;
        PyObject *span = samples->stack[samples->num_frames - 1 - depth];
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
    forget_places(samples);
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
    while (is_done && !is_stopped && is_recording(samples)) {
        int64_t now = monotonic_ns(), asked = next_time(samples, now);
        is_stopped = wait_to_stop(samples, asked - now);
        if (!is_stopped && is_recording(samples)) is_done = take_sample(samples, asked);
    }
    return end_work(samples, is_done && end_now(samples), is_stopped ? Py_True : Py_False);
}

static PyObject *samples_wait(PyObject *self, PyObject *seconds)
{
    double wait_s = PyFloat_AsDouble(seconds);
    if (ready(self) == NULL || (wait_s == -1.0 && PyErr_Occurred() != NULL)) return NULL;
    int64_t wait_ns = wait_s > 0
                          ? (int64_t)((wait_s < LONGEST_WAIT_S ? wait_s : LONGEST_WAIT_S) * 1e9)
                          : 0;
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
    if (!PyArg_ParseTuple(arguments, "O!kLO", recorder_type, &recorder, &ident, &interval_ns,
                          &outermost))
        return -1;
    if (samples->recorder != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "__init__() of these samples was called before.");
        return -1;
    }
    if (interval_ns < 1 || interval_ns > LONGEST_INTERVAL_NS) {
        PyErr_Format(PyExc_ValueError, "There is no interval of %lld ns.", interval_ns);
        return -1;
    }
    samples->stopped = PyThread_allocate_lock();
    if (samples->stopped == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    PyThread_acquire_lock(samples->stopped, 1);
    samples->random = UINT64_C(0x9e3779b97f4a7c15);
    samples->ident = ident;
    samples->interval_ns = interval_ns;
    samples->outermost = outermost != Py_None ? Py_NewRef(outermost) : NULL;
    samples->recorder = (Recorder *)Py_NewRef(recorder);
    return 0;
}

static int samples_traverse(PyObject *self, visitproc visit, void *arg)
{
    StackSamples *samples = (StackSamples *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(samples->recorder);
    for (size_t i = 0; samples->spans != NULL && i < samples->places.num_entries; i++)
        Py_VISIT(samples->spans[i]);
    for (uint32_t i = 0; i < samples->num_open; i++) {
        Py_VISIT(samples->open[i].span);
        Py_VISIT(samples->open[i].token);
    }
    Py_VISIT(samples->gap);
    return 0;
}

/* Forgets everything. What is open is not recorded: nobody can say any more when it ended. */
static int samples_clear(PyObject *self)
{
    StackSamples *samples = (StackSamples *)self;
    while (samples->num_open > 0) {
        OpenSpan innermost = samples->open[--samples->num_open];
        Py_DECREF(innermost.token);
        Py_DECREF(innermost.span);
    }
    forget_places(samples);
    Py_CLEAR(samples->gap);
    return 0;
}

static void samples_dealloc(PyObject *self)
{
    StackSamples *samples = (StackSamples *)self;
    PyObject_GC_UnTrack(self);
    samples_clear(self);
    Py_CLEAR(samples->outermost);
    Py_CLEAR(samples->recorder);
    if (samples->stopped != NULL) {
        if (!samples->is_stopped) PyThread_release_lock(samples->stopped);
        PyThread_free_lock(samples->stopped);
    }
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
    name_of_code = PyUnicode_InternFromString("f_code");
    name_of_offset = PyUnicode_InternFromString("f_lasti");
    name_of_line = PyUnicode_InternFromString("f_lineno");
    name_of_caller = PyUnicode_InternFromString("f_back");
    if (!name_of_code || !name_of_offset || !name_of_line || !name_of_caller) return -1;
    return add_type(module, "kinetoscope._native.StackSamples", sizeof(StackSamples),
                    Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, samples_slots, NULL);
}
