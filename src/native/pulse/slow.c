/* SlowSteps: tells which of the steps that a pulse counts took much longer than the others.
 *
 * The training thread notes phases and ends steps, with the GIL. Our own thread waits without it,
 * and takes it only when a step is late or was slow. */

#ifndef _GNU_SOURCE
    #define _GNU_SOURCE
#endif

#include "pulse/slow.h"
#include "recorder/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <pythread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NUM_RECENT 256    /* steps, to which a step is compared */
#define MIN_STEPS 64      /* fewer do not tell what is usual */
#define MAX_SLOW 12       /* of these; if more take long, that is a length of their own */
#define REFRESH_EVERY 32  /* steps */
#define MAX_STRETCHES 256 /* of phases, in one step */
#define MAX_MARKS 256     /* in one step, too */
#define MAX_WAITING 8     /* slow steps that were not collected yet */
#define LATE_NS 5000000   /* the least time after the usual one when the first sample is due */
#define SAMPLE_EVERY_NS 10000000
#define MAX_WAIT_NS 1000000000
#define MAX_SLEEP_NS 50000000 /* then another step may run, or be judged */
#define UNKNOWN (-1)

typedef struct {
    int64_t begin, end;
    uint32_t phase;
} Stretch;

typedef struct {
    uint32_t count, left_out;
    Stretch kept[MAX_STRETCHES];
} Stretches;

/* The user's spans in a step, in the order of their ends. */
typedef struct {
    uint32_t count;
    Stretch kept[MAX_MARKS]; /* whose phase is the name's number */
} Marks;

/* The times of a step: `starved` is run-queue delay, UNKNOWN where the system has no count. */
typedef struct {
    int64_t duration, by_phase[PULSE_NUM_PHASES], starved;
} Times;

typedef struct {
    PulseStep step;
    Times times, usual;
    int64_t limit;
    Stretches stretches;
    Marks marks;
} SlowStep;

typedef struct {
    PyObject_HEAD
    unsigned long thread;     /* that made this: the training thread */
    int file;                 /* the schedstat of the training thread; -1 if there is none */
    int64_t starved;          /* what it said last; or UNKNOWN */
    int is_on, is_comparable; /* whether steps are judged, and the one that runs can be */
    int64_t num_judged;
    Times recent[NUM_RECENT]; /* in which they go round */
    int64_t usual, limit;     /* of durations; the limit is INT64_MAX until enough is known */
    Stretches stretches;      /* of the step that runs, as are the marks */
    Marks marks;
    SlowStep *waiting[MAX_WAITING];
    uint32_t num_taken, num_left_out;
    PyThread_type_lock stopped; /* can be taken once it is stopped */
    int is_stopped;
    /* What our thread reads without the GIL. */
    uint32_t num_found;
    int64_t began, late_after; /* the step that runs; INT64_MAX: it is never late */
    int64_t sampled, sampled_at;
} SlowSteps;

static PyTypeObject *slow_type;

int is_slow_steps(PyObject *object)
{
    return Py_TYPE(object) == slow_type;
}

static void share(int64_t *place, int64_t value)
{
    __atomic_store_n(place, value, __ATOMIC_RELEASE);
}

static int64_t shared(const int64_t *place)
{
    return __atomic_load_n(place, __ATOMIC_ACQUIRE);
}

/* -- what is usual -- */

static void swap(int64_t *one, int64_t *other)
{
    int64_t kept = *one;
    *one = *other;
    *other = kept;
}

/* The value that has so many below it; sorts the values partly. */
static int64_t value_at(int64_t *values, uint32_t count, uint32_t middle)
{
    uint32_t first = 0, last = count;
    while (last - first > 1) {
        int64_t pivot = values[first + (last - first) / 2];
        uint32_t below = first, next = first, above = last;
        while (next < above)
            if (values[next] < pivot)
                swap(&values[below++], &values[next++]);
            else if (values[next] > pivot)
                swap(&values[next], &values[--above]);
            else
                next++;
        if (middle < below)
            last = below;
        else if (middle >= above)
            first = above;
        else
            break;
    }
    return values[middle];
}

/* The middle value, of two the greater one. */
static int64_t median_of(int64_t *values, uint32_t count)
{
    return value_at(values, count, count / 2);
}

static uint32_t num_recent(const SlowSteps *slow)
{
    return slow->num_judged < NUM_RECENT ? (uint32_t)slow->num_judged : NUM_RECENT;
}

static int64_t larger(int64_t one, int64_t other)
{
    return one > other ? one : other;
}

/* How long a usual step takes, and how long one may take. Where many are beyond that, they have a
 * length of their own, or vary as much: only what is a third beyond most of these is slow then.
 * Where some of such a length are just below the limit, those that vary a little more are not. */
static void refresh(SlowSteps *slow)
{
    int64_t values[NUM_RECENT], away[NUM_RECENT];
    uint32_t count = num_recent(slow);
    if (count < MIN_STEPS) return;
    for (uint32_t i = 0; i < count; i++) values[i] = slow->recent[i].duration;
    int64_t usual = median_of(values, count);
    int64_t most = value_at(values, count, count - 1 - MAX_SLOW);
    for (uint32_t i = 0; i < count; i++) away[i] = llabs(values[i] - usual);
    int64_t limit = usual + larger(8 * median_of(away, count), usual / 5);
    slow->usual = usual;
    slow->limit = most > limit ? most + most / 3 : larger(limit, most + most / 10);
}

/* The median of what starts at that many bytes within the times of recent steps. */
static int64_t usual_at(const SlowSteps *slow, size_t offset)
{
    int64_t values[NUM_RECENT];
    for (uint32_t i = 0; i < num_recent(slow); i++)
        memcpy(&values[i], (const char *)&slow->recent[i] + offset, sizeof values[i]);
    return median_of(values, num_recent(slow));
}

static void find_usual(const SlowSteps *slow, Times *usual)
{
    usual->duration = slow->usual;
    usual->starved = usual_at(slow, offsetof(Times, starved));
    for (size_t phase = 0; phase < PULSE_NUM_PHASES; phase++)
        usual->by_phase[phase] = usual_at(slow,
                                          offsetof(Times, by_phase) + phase * sizeof(int64_t));
}

/* -- a step -- */

/* The run-queue delay of the training thread since the last call. */
static int64_t starved_since(SlowSteps *slow)
{
    char text[128];
    int64_t before = slow->starved;
    ssize_t length = slow->file < 0 ? -1 : pread(slow->file, text, sizeof text - 1, 0);
    slow->starved = UNKNOWN;
    if (length <= 0) return UNKNOWN;
    text[length] = '\0';
    const char *second = strchr(text, ' ');
    if (second == NULL || second[1] < '0' || second[1] > '9') return UNKNOWN;
    slow->starved = strtoll(second + 1, NULL, 10);
    return before == UNKNOWN || slow->starved < before ? UNKNOWN : slow->starved - before;
}

static void keep(SlowSteps *slow, const PulseStep *step, const Times *times)
{
    uint32_t place = slow->num_found % MAX_WAITING;
    if (slow->num_found - slow->num_taken >= MAX_WAITING) {
        slow->num_left_out++;
        return;
    }
    if (slow->waiting[place] == NULL) slow->waiting[place] = malloc(sizeof(SlowStep));
    SlowStep *kept = slow->waiting[place];
    if (kept == NULL) return;
    kept->step = *step;
    kept->times = *times;
    kept->limit = slow->limit;
    kept->stretches = slow->stretches;
    kept->marks = slow->marks;
    find_usual(slow, &kept->usual);
    __atomic_store_n(&slow->num_found, slow->num_found + 1, __ATOMIC_RELEASE);
}

static void judge_step(SlowSteps *slow, const PulseStep *step, int64_t starved)
{
    Times *times = &slow->recent[slow->num_judged++ % NUM_RECENT];
    times->duration = step->duration;
    times->starved = starved;
    memcpy(times->by_phase, step->by_phase, sizeof times->by_phase);
    int is_slow = step->duration > slow->limit;
    if (is_slow || slow->num_judged % REFRESH_EVERY == 0) refresh(slow);
    if (is_slow && step->duration > slow->limit) keep(slow, step, times);
}

/* Half of the way to what is slow: where steps vary much, few usual ones are sampled. */
static int64_t late_after(const SlowSteps *slow)
{
    if (!slow->is_on || !slow->is_comparable || slow->limit == INT64_MAX) return INT64_MAX;
    int64_t half = (slow->limit - slow->usual) / 2;
    return slow->usual + (half > LATE_NS ? half : LATE_NS);
}

void slow_begin_step(PyObject *object, int64_t begin)
{
    SlowSteps *slow = (SlowSteps *)object;
    slow->stretches.count = slow->stretches.left_out = slow->marks.count = 0;
    share(&slow->began, begin);
}

void slow_note_phase(PyObject *object, uint32_t phase, int64_t begin, int64_t end)
{
    Stretches *stretches = &((SlowSteps *)object)->stretches;
    Stretch *last = stretches->count > 0 ? &stretches->kept[stretches->count - 1] : NULL;
    if (last != NULL && last->phase == phase && last->end == begin)
        last->end = end;
    else if (begin < end && stretches->count < MAX_STRETCHES)
        stretches->kept[stretches->count++] = (Stretch){begin, end, phase};
    else
        stretches->left_out += begin < end;
}

int slow_wants_marks(PyObject *object)
{
    SlowSteps *slow = (SlowSteps *)object;
    return slow->is_on && slow->thread == PyThread_get_thread_ident();
}

/* A span that began in an earlier step is not of this one. */
void slow_note_mark(PyObject *object, uint32_t name, int64_t begin, int64_t end)
{
    SlowSteps *slow = (SlowSteps *)object;
    Marks *marks = &slow->marks;
    if (!slow_wants_marks(object) || begin < slow->began || end < begin) return;
    if (marks->count < MAX_MARKS)
        marks->kept[marks->count++] = (Stretch){begin, end, name};
    else
        slow->stretches.left_out++;
}

void slow_end_step(PyObject *object, const PulseStep *step)
{
    SlowSteps *slow = (SlowSteps *)object;
    if (slow->is_on) {
        int64_t starved = starved_since(slow);
        if (slow->is_comparable) judge_step(slow, step, starved);
        slow->is_comparable = 1;
    }
    share(&slow->late_after, late_after(slow));
    slow_begin_step(object, step->begin + step->duration);
}

/* -- from Python -- */

static PyObject *slow_judge(PyObject *self, PyObject *is_on)
{
    SlowSteps *slow = (SlowSteps *)self;
    int is_wanted = PyObject_IsTrue(is_on);
    if (is_wanted < 0) return NULL;
    if (is_wanted == slow->is_on) return new_none();
    slow->is_on = is_wanted;
    slow->is_comparable = 0; /* a part of the step that runs was different */
    slow->starved = UNKNOWN;
    share(&slow->late_after, late_after(slow));
    return new_none();
}

/* When our thread has to look again; 0: at once. */
static int64_t due_at(const SlowSteps *slow)
{
    int64_t began = shared(&slow->began), after = shared(&slow->late_after), sampled, next;
    if (__atomic_load_n(&slow->num_found, __ATOMIC_ACQUIRE) != slow->num_taken) return 0;
    sampled = shared(&slow->sampled);
    if (sampled != 0 && sampled != began) return 0;
    if (after == INT64_MAX) return INT64_MAX;
    next = sampled != 0 ? shared(&slow->sampled_at) + SAMPLE_EVERY_NS : 0;
    return began + after > next ? began + after : next;
}

/* Waits at most a second, or until it is stopped; whether there is something to look at. */
static int wait_until_due(SlowSteps *slow)
{
    int64_t until = monotonic_ns() + MAX_WAIT_NS, now, due;
    while ((now = monotonic_ns()) < until) {
        if ((due = due_at(slow)) <= now) return 1;
        int64_t wait_ns = due - now < MAX_SLEEP_NS ? due - now : MAX_SLEEP_NS;
        PyLockStatus status = PyThread_acquire_lock_timed(slow->stopped, wait_ns / 1000 + 1, 0);
        if (status != PY_LOCK_ACQUIRED) continue;
        PyThread_release_lock(slow->stopped);
        return 0;
    }
    return 0;
}

static PyObject *slow_wait(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    SlowSteps *slow = (SlowSteps *)self;
    int is_due;
    Py_BEGIN_ALLOW_THREADS
    is_due = wait_until_due(slow);
    Py_END_ALLOW_THREADS
    return PyBool_FromLong(is_due);
}

static PyObject *slow_late_step(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    SlowSteps *slow = (SlowSteps *)self;
    int64_t now = monotonic_ns(), after = slow->late_after;
    int is_late = after != INT64_MAX && now - slow->began >= after;
    share(&slow->sampled, is_late ? slow->began : 0);
    share(&slow->sampled_at, now);
    return PyLong_FromLongLong(is_late ? slow->began : 0);
}

static PyObject *begin_of_step(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    return PyLong_FromLongLong(((SlowSteps *)self)->began);
}

static PyObject *slow_stop(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    SlowSteps *slow = (SlowSteps *)self;
    if (!slow->is_stopped) PyThread_release_lock(slow->stopped);
    slow->is_stopped = 1;
    return new_none();
}

static PyObject *known_time(int64_t time)
{
    return time == UNKNOWN ? new_none() : PyLong_FromLongLong(time);
}

static PyObject *times_tuple(const Times *times)
{
    PyObject *phases = PyTuple_New(PULSE_NUM_PHASES);
    for (Py_ssize_t i = 0; phases != NULL && i < PULSE_NUM_PHASES; i++) {
        PyObject *time = PyLong_FromLongLong(times->by_phase[i]);
        if (time == NULL || PyTuple_SetItem(phases, i, time) < 0) Py_CLEAR(phases);
    }
    if (phases == NULL) return NULL;
    return Py_BuildValue("(LNN)", (long long)times->duration, phases, known_time(times->starved));
}

static PyObject *stretches_list(const Stretch *kept, uint32_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (uint32_t i = 0; list != NULL && i < count; i++) {
        const Stretch *each = &kept[i];
        PyObject *item = Py_BuildValue("(kLL)", (unsigned long)each->phase, (long long)each->begin,
                                       (long long)each->end);
        if (item == NULL || PyList_SetItem(list, (Py_ssize_t)i, item) < 0) Py_CLEAR(list);
    }
    return list;
}

static PyObject *slow_take(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    SlowSteps *slow = (SlowSteps *)self;
    if (slow->num_found == slow->num_taken) return new_none();
    const SlowStep *found = slow->waiting[slow->num_taken % MAX_WAITING];
    PyObject *times = times_tuple(&found->times), *usual = times_tuple(&found->usual);
    PyObject *stretches = stretches_list(found->stretches.kept, found->stretches.count);
    PyObject *marks = stretches_list(found->marks.kept, found->marks.count);
    const PulseStep *step = &found->step;
    PyObject *taken = NULL;
    if (times != NULL && usual != NULL && stretches != NULL && marks != NULL)
        taken = Py_BuildValue("(LkLOOLOOk)", (long long)step->step, (unsigned long)step->epoch,
                              (long long)step->begin, times, usual, (long long)found->limit,
                              stretches, marks, (unsigned long)found->stretches.left_out);
    slow->num_taken++; /* only now: from here on another step may take its place */
    Py_XDECREF(times);
    Py_XDECREF(usual);
    Py_XDECREF(stretches);
    Py_XDECREF(marks);
    return taken;
}

static PyObject *slow_num_left_out(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    return PyLong_FromUnsignedLong(((SlowSteps *)self)->num_left_out);
}

/* -- the type -- */

static PyObject *slow_new(PyTypeObject *type, PyObject *arguments, PyObject *Py_UNUSED(names))
{
    const char *schedstat = NULL;
    if (!PyArg_ParseTuple(arguments, "s", &schedstat)) return NULL;
    SlowSteps *slow = object_new(type);
    if (slow == NULL) return NULL;
    slow->thread = PyThread_get_thread_ident();
    slow->file = -1;
    slow->starved = UNKNOWN;
    slow->limit = slow->late_after = INT64_MAX;
    slow->stopped = PyThread_allocate_lock();
    if (slow->stopped == NULL) {
        Py_DECREF(slow);
        return PyErr_NoMemory();
    }
    PyThread_acquire_lock(slow->stopped, 1);
    slow->file = open(schedstat, O_RDONLY | O_CLOEXEC);
    return (PyObject *)slow;
}

static void slow_dealloc(PyObject *self)
{
    SlowSteps *slow = (SlowSteps *)self;
    if (slow->file >= 0) close(slow->file);
    for (int i = 0; i < MAX_WAITING; i++) free(slow->waiting[i]);
    if (slow->stopped != NULL) {
        if (!slow->is_stopped) PyThread_release_lock(slow->stopped);
        PyThread_free_lock(slow->stopped);
    }
    object_free(self);
}

static PyMethodDef slow_methods[] = {
    {"judge", slow_judge, METH_O,
     "(is_on): whether steps are compared from now on; not the one that runs, if this changes."},
    {"wait", slow_wait, METH_NOARGS,
     "(): waits at most a second, or until stop(); whether a step is late or was slow."},
    {"late_step", slow_late_step, METH_NOARGS,
     "(): when the step that runs began, if it is late, and is sampled now; else 0."},
    {"began", begin_of_step, METH_NOARGS, "(): when the step that runs began."},
    {"take", slow_take, METH_NOARGS, "(): the next slow step, or None."},
    {"num_left_out", slow_num_left_out, METH_NOARGS,
     "(): how many slow steps there were beyond those that can wait to be taken."},
    {"stop", slow_stop, METH_NOARGS, "Ends wait() on another thread."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slow_slots[] = {
    {Py_tp_new, slow_new},
    {Py_tp_dealloc, slow_dealloc},
    {Py_tp_methods, slow_methods},
    {Py_tp_doc, "(schedstat): finds the slow steps of a pulse; see _native.pyi."},
    {0, NULL},
};

int slow_steps_setup(PyObject *module)
{
    return add_type(module, "kinetoscope._native.SlowSteps", sizeof(SlowSteps), 0, slow_slots,
                    &slow_type);
}
