/* SlowSteps: finds the steps of a pulse that took much longer than others.
 *
 * The training thread adds phases and ends steps, with the GIL. The sampling thread waits without
 * it, and takes it only when a step is late or was slow. */

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

#define NUM_RECENT 256    /* steps, with which a step is compared */
#define MIN_STEPS 64      /* fewer give no reliable median */
#define MAX_SLOW 12       /* of these; if more are long, they are a group of longer steps */
#define REFRESH_EVERY 32  /* steps */
#define MAX_INTERVALS 256 /* of phases, in one step */
#define MAX_MARKS 256     /* in one step, too */
#define MAX_WAITING 8     /* slow steps that were not taken yet */
#define LATE_NS 5000000   /* the first sample is due at least so long after the median */
#define SAMPLE_EVERY_NS 10000000
#define MAX_WAIT_NS 1000000000
#define MAX_SLEEP_NS 50000000 /* then another step may run or be compared */
#define UNKNOWN (-1)

typedef struct {
    int64_t begin, end;
    uint32_t phase;
} Interval;

typedef struct {
    uint32_t count, left_out;
    Interval kept[MAX_INTERVALS];
} Intervals;

/* The user's spans in a step, in the order of their ends. */
typedef struct {
    uint32_t count;
    Interval kept[MAX_MARKS]; /* whose phase is the name's number */
} Marks;

/* The times of a step: `starved` is run-queue delay, UNKNOWN where the system has no count. */
typedef struct {
    int64_t duration, by_phase[PULSE_NUM_PHASES], starved;
} Times;

typedef struct {
    PulseStep step;
    Times times, usual;
    int64_t limit;
    Intervals intervals;
    Marks marks;
} SlowStep;

typedef struct {
    PyObject_HEAD
    unsigned long thread;     /* that made this: the training thread */
    int file;                 /* the schedstat of the training thread; -1 if there is none */
    int64_t starved;          /* its last value; or UNKNOWN */
    int is_on, is_comparable; /* whether steps are compared, and the running one can be */
    int64_t num_compared;
    Times recent[NUM_RECENT]; /* a ring */
    int64_t usual, limit;     /* of durations; the limit is INT64_MAX before MIN_STEPS */
    Intervals intervals;      /* of the running step, as are the marks */
    Marks marks;
    SlowStep *waiting[MAX_WAITING];
    uint32_t num_taken, num_left_out;
    PyThread_type_lock stopped; /* free once it is stopped */
    int is_stopped;
    /* Read by the sampling thread without the GIL. */
    uint32_t num_found;
    int64_t began, late_after; /* of the running step; INT64_MAX: it is never late */
    int64_t sampled, sampled_at;
} SlowSteps;

static PyTypeObject *slow_type;

int is_slow_steps(PyObject *object)
{
    return Py_TYPE(object) == slow_type;
}

static void store_shared(int64_t *address, int64_t value)
{
    __atomic_store_n(address, value, __ATOMIC_RELEASE);
}

static int64_t load_shared(const int64_t *address)
{
    return __atomic_load_n(address, __ATOMIC_ACQUIRE);
}

/* -- medians and the limit -- */

static void swap(int64_t *one, int64_t *other)
{
    int64_t kept = *one;
    *one = *other;
    *other = kept;
}

/* Return the value with so many values below it; sorts the values partly. */
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

/* Return the median; of two middle values, the greater one. */
static int64_t median_of(int64_t *values, uint32_t count)
{
    return value_at(values, count, count / 2);
}

static uint32_t num_recent(const SlowSteps *slow)
{
    return slow->num_compared < NUM_RECENT ? (uint32_t)slow->num_compared : NUM_RECENT;
}

static int64_t larger(int64_t one, int64_t other)
{
    return one > other ? one : other;
}

/* Update the median and the limit. If more than MAX_SLOW steps exceed the limit, there is a group
 * of longer steps, or steps vary as much: then only a step that exceeds most of these by a third is
 * slow. If such a group is just below the limit, a step must exceed most of it by a tenth. */
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

/* Return the median of the field at that offset in the times of recent steps. */
static int64_t median_at(const SlowSteps *slow, size_t offset)
{
    int64_t values[NUM_RECENT];
    for (uint32_t i = 0; i < num_recent(slow); i++)
        memcpy(&values[i], (const char *)&slow->recent[i] + offset, sizeof values[i]);
    return median_of(values, num_recent(slow));
}

static void fill_medians(const SlowSteps *slow, Times *usual)
{
    usual->duration = slow->usual;
    usual->starved = median_at(slow, offsetof(Times, starved));
    for (size_t phase = 0; phase < PULSE_NUM_PHASES; phase++)
        usual->by_phase[phase] = median_at(slow,
                                           offsetof(Times, by_phase) + phase * sizeof(int64_t));
}

/* -- a step -- */

/* Return the run-queue delay of the training thread since the last call. */
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

static void store(SlowSteps *slow, const PulseStep *step, const Times *times)
{
    uint32_t index = slow->num_found % MAX_WAITING;
    if (slow->num_found - slow->num_taken >= MAX_WAITING) {
        slow->num_left_out++;
        return;
    }
    if (slow->waiting[index] == NULL) slow->waiting[index] = malloc(sizeof(SlowStep));
    SlowStep *kept = slow->waiting[index];
    if (kept == NULL) return;
    kept->step = *step;
    kept->times = *times;
    kept->limit = slow->limit;
    kept->intervals = slow->intervals;
    kept->marks = slow->marks;
    fill_medians(slow, &kept->usual);
    __atomic_store_n(&slow->num_found, slow->num_found + 1, __ATOMIC_RELEASE);
}

static void compare_step(SlowSteps *slow, const PulseStep *step, int64_t starved)
{
    Times *times = &slow->recent[slow->num_compared++ % NUM_RECENT];
    times->duration = step->duration;
    times->starved = starved;
    memcpy(times->by_phase, step->by_phase, sizeof times->by_phase);
    int is_slow = step->duration > slow->limit;
    if (is_slow || slow->num_compared % REFRESH_EVERY == 0) refresh(slow);
    if (is_slow && step->duration > slow->limit) store(slow, step, times);
}

/* Return the duration after which a step is sampled: halfway from the median to the limit. Where
 * steps vary much, few usual ones are sampled. */
static int64_t late_after(const SlowSteps *slow)
{
    if (!slow->is_on || !slow->is_comparable || slow->limit == INT64_MAX) return INT64_MAX;
    int64_t half = (slow->limit - slow->usual) / 2;
    return slow->usual + (half > LATE_NS ? half : LATE_NS);
}

void slow_begin_step(PyObject *object, int64_t begin)
{
    SlowSteps *slow = (SlowSteps *)object;
    slow->intervals.count = slow->intervals.left_out = slow->marks.count = 0;
    store_shared(&slow->began, begin);
}

void slow_add_phase(PyObject *object, uint32_t phase, int64_t begin, int64_t end)
{
    Intervals *intervals = &((SlowSteps *)object)->intervals;
    Interval *last = intervals->count > 0 ? &intervals->kept[intervals->count - 1] : NULL;
    if (last != NULL && last->phase == phase && last->end == begin)
        last->end = end;
    else if (begin < end && intervals->count < MAX_INTERVALS)
        intervals->kept[intervals->count++] = (Interval){begin, end, phase};
    else
        intervals->left_out += begin < end;
}

int slow_wants_marks(PyObject *object)
{
    SlowSteps *slow = (SlowSteps *)object;
    return slow->is_on && slow->thread == PyThread_get_thread_ident();
}

/* Spans that began in an earlier step are left out. */
void slow_add_mark(PyObject *object, uint32_t name, int64_t begin, int64_t end)
{
    SlowSteps *slow = (SlowSteps *)object;
    Marks *marks = &slow->marks;
    if (!slow_wants_marks(object) || begin < slow->began || end < begin) return;
    if (marks->count < MAX_MARKS)
        marks->kept[marks->count++] = (Interval){begin, end, name};
    else
        slow->intervals.left_out++;
}

void slow_end_step(PyObject *object, const PulseStep *step)
{
    SlowSteps *slow = (SlowSteps *)object;
    if (slow->is_on) {
        int64_t starved = starved_since(slow);
        if (slow->is_comparable) compare_step(slow, step, starved);
        slow->is_comparable = 1;
    }
    store_shared(&slow->late_after, late_after(slow));
    slow_begin_step(object, step->begin + step->duration);
}

/* -- from Python -- */

static PyObject *slow_set_enabled(PyObject *self, PyObject *is_on)
{
    SlowSteps *slow = (SlowSteps *)self;
    int is_wanted = PyObject_IsTrue(is_on);
    if (is_wanted < 0) return NULL;
    if (is_wanted == slow->is_on) return new_none();
    slow->is_on = is_wanted;
    slow->is_comparable = 0; /* a part of the running step was different */
    slow->starved = UNKNOWN;
    store_shared(&slow->late_after, late_after(slow));
    return new_none();
}

/* Return the time of the next sample; 0: a step can be taken now. */
static int64_t due_at(const SlowSteps *slow)
{
    int64_t began = load_shared(&slow->began), after = load_shared(&slow->late_after), sampled,
            next;
    if (__atomic_load_n(&slow->num_found, __ATOMIC_ACQUIRE) != slow->num_taken) return 0;
    sampled = load_shared(&slow->sampled);
    if (sampled != 0 && sampled != began) return 0;
    if (after == INT64_MAX) return INT64_MAX;
    next = sampled != 0 ? load_shared(&slow->sampled_at) + SAMPLE_EVERY_NS : 0;
    return began + after > next ? began + after : next;
}

/* Wait at most a second, or until it is stopped; return whether a sample or a step is due. */
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
    store_shared(&slow->sampled, is_late ? slow->began : 0);
    store_shared(&slow->sampled_at, now);
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

static PyObject *intervals_list(const Interval *kept, uint32_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (uint32_t i = 0; list != NULL && i < count; i++) {
        const Interval *each = &kept[i];
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
    PyObject *intervals = intervals_list(found->intervals.kept, found->intervals.count);
    PyObject *marks = intervals_list(found->marks.kept, found->marks.count);
    const PulseStep *step = &found->step;
    PyObject *taken = NULL;
    if (times != NULL && usual != NULL && intervals != NULL && marks != NULL)
        taken = Py_BuildValue("(LkLOOLOOk)", (long long)step->step, (unsigned long)step->epoch,
                              (long long)step->begin, times, usual, (long long)found->limit,
                              intervals, marks, (unsigned long)found->intervals.left_out);
    slow->num_taken++; /* last: now another step may overwrite this one */
    Py_XDECREF(times);
    Py_XDECREF(usual);
    Py_XDECREF(intervals);
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
    {"set_enabled", slow_set_enabled, METH_O,
     "(is_on): compares steps from now on, or stops; leaves out the running one if this changes."},
    {"wait", slow_wait, METH_NOARGS,
     "(): waits at most a second, or until stop(); returns whether a step is late or was slow."},
    {"late_step", slow_late_step, METH_NOARGS,
     "(): the start of the running step if it is late, which counts as sampled now; else 0."},
    {"began", begin_of_step, METH_NOARGS, "(): the start of the running step."},
    {"take", slow_take, METH_NOARGS, "(): the next slow step, or None."},
    {"num_left_out", slow_num_left_out, METH_NOARGS,
     "(): the number of slow steps for which there was no space."},
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
