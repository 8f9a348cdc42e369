/* PulseWriter: writes what a rank is doing, and how long each of its steps took, into a mapped file
 * that others read meanwhile. */

#ifndef _GNU_SOURCE
    #define _GNU_SOURCE
#endif

#include "module.h"
#include "pulse/blocks.h"
#include "pulse/slow.h"
#include "pulse/watch.h"
#include "recorder/clock.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_EVERY_NS 1000000000

/* Steps that need nothing but to be counted, and what was counted of them. */
typedef struct {
    int64_t num_left, next_batch;
    uint32_t epoch;
    int with_fetches; /* fetches need nothing else, either */
    int is_fetched;   /* the data of the batch that is running */
    int64_t batch_began, num_steps, samples, tokens, took, last_took;
} Counting;

/* A stretch of a forward or backward pass, or of an optimizer's step. */
typedef struct {
    int64_t begin, end;
    uint32_t phase;
} Stretch;

#define MOST_STRETCHES (1 << 20)

/* The stretches since note_phases. */
typedef struct {
    Stretch *kept;
    size_t count, room, left_out;
    int64_t since;
    int is_on;
} Notes;

typedef struct {
    PyObject_HEAD
    Py_buffer file;
    PulseFile *pulse;   /* NULL after close() */
    PulseHeader header; /* what is true: others may change the file's, which is only written */
    PyObject *now;      /* the clock, in tests; NULL for the machine's */
    uint64_t generation;
    int64_t num_places;                 /* for coarse blocks */
    int64_t looked_at;                  /* when end_step returned True last */
    int64_t by_phase[PULSE_NUM_PHASES]; /* of the step that is running */
    Counting counting;
    Notes notes;
    PyObject *slow;       /* a SlowSteps, which is told of phases and steps; or NULL */
    unsigned long thread; /* of which torch's hooks tell; 0 for none */
    uint32_t before_backward, before_optimizer, before_checkpoint; /* the phases to go back to */
    int64_t backward_depth, checkpoint_depth, num_backward;
    int64_t num_nested;         /* steps of optimizers within the one that runs */
    int has_just_written;       /* a checkpoint, and nothing was told since */
    PyObject *num_nodes;        /* counts the nodes of autograd graphs of this thread; or NULL */
    int64_t nodes_before;       /* nodes when the stretch of PULSE_OTHER started */
    int64_t built_before_fetch; /* nodes built since the last backward pass, up to a fetch */
    int fetches_ahead;          /* the loop fetches the next batch after its forward pass */
    Watch *watch;               /* NULL before `watch` */
} PulseWriter;

/* A forked child has its parent's file mapped, but nothing to say there. */
static uint64_t generation;

static void begin_generation(void)
{
    generation++;
}

static int64_t now_of(PulseWriter *writer)
{
    if (LIKELY(writer->now == NULL)) return monotonic_ns();
    PyObject *answer = PyObject_CallNoArgs(writer->now);
    int64_t now = answer != NULL ? PyLong_AsLongLong(answer) : -1;
    Py_XDECREF(answer);
    if (PyErr_Occurred()) PyErr_Clear();
    return now < 0 ? writer->header.heartbeat : now;
}

/* The file to write to; NULL if it is closed or the parent's. */
static PulseFile *file_of(const PulseWriter *writer)
{
    return LIKELY(writer->generation == generation) ? writer->pulse : NULL;
}

/* -- a step -- */

static void begin_writing(PulseWriter *writer)
{
    writer->header.sequence++;
    __atomic_store_n(&writer->pulse->header.sequence, writer->header.sequence, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
}

/* Writes the header, and last the number that says that it is whole. */
static void show_header(PulseWriter *writer)
{
    size_t from = offsetof(PulseHeader, num_steps);
    memcpy((char *)&writer->pulse->header + from, (char *)&writer->header + from,
           sizeof(PulseHeader) - from);
    __atomic_store_n(&writer->pulse->header.sequence, writer->header.sequence, __ATOMIC_RELEASE);
}

/* Makes room for one more stretch; 0 if there is none. */
static int has_room(Notes *notes)
{
    if (notes->count < notes->room) return 1;
    size_t room = notes->room ? 2 * notes->room : 1024;
    Stretch *kept = room > MOST_STRETCHES ? NULL : realloc(notes->kept, room * sizeof *kept);
    if (kept == NULL) return 0;
    notes->kept = kept;
    notes->room = room;
    return 1;
}

static void note_stretch(Notes *notes, uint32_t phase, int64_t begin, int64_t end)
{
    if (phase < PULSE_FORWARD || phase > PULSE_OPTIMIZER) return;
    if (begin < notes->since) begin = notes->since;
    Stretch *last = notes->count ? &notes->kept[notes->count - 1] : NULL;
    if (last != NULL && last->phase == phase && last->end == begin)
        last->end = end; /* a step has ended in it */
    else if (begin < end && has_room(notes))
        notes->kept[notes->count++] = (Stretch){begin, end, phase};
    else
        notes->left_out += begin < end;
}

static void enter_phase(PulseWriter *writer, uint32_t phase, int64_t now)
{
    PulseHeader *header = &writer->header;
    if (UNLIKELY(writer->notes.is_on))
        note_stretch(&writer->notes, header->phase, header->phase_since, now);
    if (UNLIKELY(writer->slow != NULL))
        slow_note_phase(writer->slow, header->phase, header->phase_since, now);
    writer->has_just_written = 0;
    writer->by_phase[header->phase] += now - header->phase_since;
    header->phase = phase;
    header->known |= UINT32_C(1) << phase; /* from now on, a step without it spends no time in it */
    header->phase_since = header->heartbeat = now;
}

/* Return how many nodes of autograd graphs this thread has built; -1 if unknown. */
static int64_t count_nodes(PulseWriter *writer)
{
    if (writer->num_nodes == NULL || writer->thread != PyThread_get_thread_ident()) return -1;
    PyObject *answer = PyObject_CallNoArgs(writer->num_nodes);
    int64_t count = answer != NULL ? PyLong_AsLongLong(answer) : -1;
    Py_XDECREF(answer);
    if (PyErr_Occurred()) PyErr_Clear();
    return count;
}

/* Return how many nodes were built in the running stretch, and start the next one. */
static int64_t take_built(PulseWriter *writer)
{
    int64_t count = count_nodes(writer), before = writer->nodes_before;
    writer->nodes_before = count;
    return count < 0 || before < 0 ? 0 : count - before;
}

/* A loop that fetches the next batch between its forward and backward pass builds the graph before
 * the fetch: then the stretch before it is the forward pass. */
static void end_stretch_before_fetch(PulseWriter *writer)
{
    PulseHeader *header = &writer->header;
    if (header->phase != PULSE_OTHER) return;
    int64_t built = take_built(writer);
    writer->built_before_fetch += built;
    if (!writer->fetches_ahead || built == 0) return;
    header->phase = PULSE_FORWARD;
    header->known |= UINT32_C(1) << PULSE_FORWARD;
    enter_phase(writer, PULSE_OTHER, now_of(writer));
}

static void change_phase(PulseWriter *writer, uint32_t phase)
{
    enter_phase(writer, phase, now_of(writer));
    show_header(writer);
}

static PyObject *writer_enter(PyObject *self, PyObject *phase)
{
    PulseWriter *writer = (PulseWriter *)self;
    PulseFile *pulse = file_of(writer);
    unsigned long number = PyLong_AsUnsignedLong(phase);
    if (number >= PULSE_NUM_PHASES) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "There is no such phase.");
        return NULL;
    }
    if (pulse == NULL) return Py_NewRef(phase);
    uint32_t before = writer->header.phase;
    if (number == PULSE_DATA_WAIT) end_stretch_before_fetch(writer);
    if (before == PULSE_DATA_WAIT) take_built(writer);
    change_phase(writer, (uint32_t)number);
    return PyLong_FromUnsignedLong(before);
}

/* -- what torch's hooks tell -- */

static PyObject *writer_watch_thread(PyObject *self, PyObject *ident)
{
    unsigned long thread = PyLong_AsUnsignedLong(ident);
    if (PyErr_Occurred()) return NULL;
    ((PulseWriter *)self)->thread = thread;
    return new_none();
}

static int is_watched(const PulseWriter *writer)
{
    return writer->thread == PyThread_get_thread_ident() && file_of(writer) != NULL;
}

/* What went before a backward pass was the forward pass, which nothing else tells, also within the
 * closure of an optimizer's step. */
static PyObject *writer_begin_backward(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    PulseWriter *writer = (PulseWriter *)self;
    PulseHeader *header = &writer->header;
    if (!is_watched(writer) || ++writer->backward_depth > 1) return new_none();
    writer->num_backward++;
    uint32_t before = writer->before_backward = header->phase;
    int64_t built = take_built(writer);
    if (before == PULSE_OTHER) writer->fetches_ahead = writer->built_before_fetch > built;
    writer->built_before_fetch = 0;
    if (before == PULSE_OTHER || before == PULSE_OPTIMIZER) {
        header->phase = PULSE_FORWARD;
        header->known |= UINT32_C(1) << PULSE_FORWARD;
    }
    change_phase(writer, PULSE_BACKWARD);
    return new_none();
}

static PyObject *writer_end_backward(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    PulseWriter *writer = (PulseWriter *)self;
    if (!is_watched(writer) || --writer->backward_depth > 0) return new_none();
    writer->backward_depth = 0; /* below it, where the hooks came within a pass */
    take_built(writer);
    change_phase(writer, writer->before_backward);
    return new_none();
}

static PyObject *writer_begin_optimizer(PyObject *self, PyObject *const *Py_UNUSED(arguments),
                                        Py_ssize_t Py_UNUSED(count))
{
    PulseWriter *writer = (PulseWriter *)self;
    if (!is_watched(writer)) return new_none();
    if (writer->header.phase == PULSE_OPTIMIZER) {
        writer->num_nested++; /* its class calls the step of the one above, and both are hooked */
    } else {
        writer->num_nested = 0;
        writer->before_optimizer = writer->header.phase;
        change_phase(writer, PULSE_OPTIMIZER);
    }
    return new_none();
}

static PyObject *writer_end_optimizer(PyObject *self, PyObject *const *Py_UNUSED(arguments),
                                      Py_ssize_t Py_UNUSED(count))
{
    PulseWriter *writer = (PulseWriter *)self;
    if (!is_watched(writer)) return new_none();
    if (writer->num_nested > 0)
        writer->num_nested--;
    else {
        take_built(writer);
        writer->built_before_fetch = 0;
        change_phase(writer, writer->before_optimizer);
    }
    return new_none();
}

/* What is written of a checkpoint, which is all from the first call to the last. */
static PyObject *writer_begin_checkpoint(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    PulseWriter *writer = (PulseWriter *)self;
    PulseHeader *header = &writer->header;
    if (!is_watched(writer) || ++writer->checkpoint_depth > 1) return new_none();
    writer->before_checkpoint = header->phase;
    if (writer->has_just_written) header->phase = PULSE_CHECKPOINT;
    change_phase(writer, PULSE_CHECKPOINT);
    return new_none();
}

static PyObject *writer_end_checkpoint(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    PulseWriter *writer = (PulseWriter *)self;
    if (!is_watched(writer) || --writer->checkpoint_depth > 0) return new_none();
    writer->checkpoint_depth = 0;
    change_phase(writer, writer->before_checkpoint);
    writer->has_just_written = 1;
    return new_none();
}

static PyObject *writer_watch_graph(PyObject *self, PyObject *num_nodes)
{
    PulseWriter *writer = (PulseWriter *)self;
    PyObject *before = writer->num_nodes;
    writer->num_nodes = num_nodes == Py_None ? NULL : Py_NewRef(num_nodes);
    writer->nodes_before = count_nodes(writer);
    Py_XDECREF(before);
    return new_none();
}

static PyObject *writer_expect_fetch(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    PulseWriter *writer = (PulseWriter *)self;
    if (is_watched(writer)) end_stretch_before_fetch(writer);
    return new_none();
}

static PyObject *writer_has_no_graph(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    PulseWriter *writer = (PulseWriter *)self;
    int is_other = is_watched(writer) && writer->header.phase == PULSE_OTHER;
    int64_t count = is_other ? count_nodes(writer) : -1;
    return PyBool_FromLong(count >= 0 && count == writer->nodes_before);
}

static PyObject *writer_num_backward(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    return PyLong_FromLongLong(((PulseWriter *)self)->num_backward);
}

/* -- the stretches of phases -- */

static PyObject *writer_note_phases(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    PulseWriter *writer = (PulseWriter *)self;
    writer->notes.since = now_of(writer);
    writer->notes.is_on = 1;
    return new_none();
}

static PyObject *writer_take_phases(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    PulseWriter *writer = (PulseWriter *)self;
    PulseHeader *header = &writer->header;
    Notes taken = writer->notes;
    writer->notes = (Notes){0};
    if (taken.is_on) note_stretch(&taken, header->phase, header->phase_since, now_of(writer));
    PyObject *list = PyList_New((Py_ssize_t)taken.count);
    for (size_t i = 0; list != NULL && i < taken.count; i++) {
        Stretch *each = &taken.kept[i];
        PyObject *item = Py_BuildValue("(kLL)", (unsigned long)each->phase, (long long)each->begin,
                                       (long long)each->end);
        if (item == NULL || PyList_SetItem(list, (Py_ssize_t)i, item) < 0) Py_CLEAR(list);
    }
    free(taken.kept);
    return list == NULL ? NULL : Py_BuildValue("(Nn)", list, (Py_ssize_t)taken.left_out);
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

/* -- steps -- */

static PyObject *writer_begin_step(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    PulseWriter *writer = (PulseWriter *)self;
    PulseFile *pulse = file_of(writer);
    if (pulse != NULL) {
        int64_t now = now_of(writer);
        enter_phase(writer, writer->header.phase, now);
        writer->header.step_began = now;
        show_header(writer);
        if (writer->slow != NULL) slow_begin_step(writer->slow, now);
        memset(writer->by_phase, 0, sizeof writer->by_phase);
    }
    return new_none();
}

/* Return the next place in the ring. Between begin_writing and show_step. */
static PulseStep *next_step(PulseWriter *writer)
{
    PulseHeader *header = &writer->header;
    PulseStep *step = &writer->pulse->steps[header->num_steps % PULSE_NUM_EXACT];
    if (header->num_steps >= PULSE_NUM_EXACT)
        fold_step(writer->pulse, header, writer->num_places, step);
    return step;
}

static void show_step(PulseWriter *writer)
{
    writer->header.num_steps++;
    writer->header.sequence++;
    show_header(writer);
}

/* Take the time after a step's earlier end off its phases: first off "other", in which a loop
 * ends. */
static void cut_phases(PulseWriter *writer, int64_t excess)
{
    for (int phase = PULSE_OTHER; phase >= 0 && excess > 0; phase--) {
        int64_t *time = &writer->by_phase[phase], cut = *time < excess ? *time : excess;
        *time -= cut;
        excess -= cut;
    }
}

/* The next step begins now, also if this one has ended before. */
static void end_step(PulseWriter *writer, int64_t batch, uint32_t epoch, int64_t end, int64_t now)
{
    PulseHeader *header = &writer->header;
    enter_phase(writer, header->phase, now);
    if (end < header->step_began) end = header->step_began;
    cut_phases(writer, now - end);
    begin_writing(writer);
    PulseStep *step = next_step(writer);
    *step = (PulseStep){.step = batch,
                        .begin = header->step_began,
                        .duration = end - header->step_began,
                        .epoch = epoch,
                        .known = header->known};
    memcpy(step->by_phase, writer->by_phase, sizeof step->by_phase);
    header->step_began = now;
    show_step(writer);
    if (UNLIKELY(writer->slow != NULL)) slow_end_step(writer->slow, step);
    memset(writer->by_phase, 0, sizeof writer->by_phase);
}

static PyObject *writer_end_step(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    PulseWriter *writer = (PulseWriter *)self;
    PulseFile *pulse = file_of(writer);
    if (count != 2 && count != 3)
        return PyErr_Format(PyExc_TypeError,
                            "end_step takes a batch, an epoch, and perhaps a time.");
    int64_t batch = PyLong_AsLongLong(arguments[0]), epoch = PyLong_AsLongLong(arguments[1]);
    int64_t end = count == 3 ? PyLong_AsLongLong(arguments[2]) : INT64_MAX;
    if (PyErr_Occurred()) return NULL;
    if (pulse == NULL) return PyBool_FromLong(0);
    int64_t now = now_of(writer);
    end_step(writer, batch, (uint32_t)epoch, end < now ? end : now, now);
    int is_due = now - writer->looked_at >= LOOK_EVERY_NS;
    if (is_due) writer->looked_at = now;
    return PyBool_FromLong(is_due);
}

static PyObject *writer_add_step(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    PulseWriter *writer = (PulseWriter *)self;
    if (count != 3) return PyErr_Format(PyExc_TypeError, "add_step takes a batch and two times.");
    int64_t batch = PyLong_AsLongLong(arguments[0]), begin = PyLong_AsLongLong(arguments[1]);
    int64_t end = PyLong_AsLongLong(arguments[2]);
    if (PyErr_Occurred()) return NULL;
    if (file_of(writer) == NULL) return new_none();
    begin_writing(writer);
    *next_step(writer) = (PulseStep){.step = batch, .begin = begin, .duration = end - begin};
    show_step(writer);
    return new_none();
}

/* -- steps that are only counted -- */

static PyObject *writer_count_steps(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    PulseWriter *writer = (PulseWriter *)self;
    if (count != 4)
        return PyErr_Format(PyExc_TypeError, "count_steps takes a number, a batch, an epoch, and "
                                             "whether fetches need nothing, either.");
    int64_t num_steps = PyLong_AsLongLong(arguments[0]), batch = PyLong_AsLongLong(arguments[1]);
    int64_t epoch = PyLong_AsLongLong(arguments[2]);
    int with_fetches = PyObject_IsTrue(arguments[3]);
    if (PyErr_Occurred()) return NULL;
    writer->counting = (Counting){.num_left = num_steps,
                                  .next_batch = batch,
                                  .epoch = (uint32_t)epoch,
                                  .with_fetches = with_fetches,
                                  .batch_began = now_of(writer)};
    return new_none();
}

static PyObject *writer_count_no_more(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    Counting *counting = &((PulseWriter *)self)->counting;
    counting->num_left = counting->with_fetches = 0;
    return new_none();
}

static void begin_batch(PulseWriter *writer, int64_t now)
{
    if (!writer->counting.is_fetched) writer->counting.batch_began = now;
    writer->counting.is_fetched = 1;
}

static PyObject *writer_begin_batch(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    begin_batch((PulseWriter *)self, now_of((PulseWriter *)self));
    return new_none();
}

static PyObject *writer_begin_fetch(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    PulseWriter *writer = (PulseWriter *)self;
    int is_alone = writer->counting.with_fetches && is_watched(writer) &&
                   writer->header.phase != PULSE_EVALUATION;
    if (is_alone) end_stretch_before_fetch(writer);
    if (is_alone) change_phase(writer, PULSE_DATA_WAIT);
    return PyBool_FromLong(is_alone);
}

static PyObject *writer_end_fetch(PyObject *self, PyObject *is_there)
{
    PulseWriter *writer = (PulseWriter *)self;
    if (file_of(writer) == NULL) return new_none();
    int64_t now = now_of(writer);
    take_built(writer);
    enter_phase(writer, PULSE_OTHER, now);
    show_header(writer);
    if (is_there == Py_True) begin_batch(writer, now);
    return new_none();
}

/* Whether these are plain numbers, whose sum has room. */
static int are_counts(PyObject *const *arguments, int64_t *samples, int64_t *tokens)
{
    const int64_t most = INT64_C(1) << 60;
    int is_beyond = 0, is_too = 0;
    if (!PyLong_CheckExact(arguments[0]) || !PyLong_CheckExact(arguments[1])) return 0;
    *samples += PyLong_AsLongLongAndOverflow(arguments[0], &is_beyond);
    *tokens += PyLong_AsLongLongAndOverflow(arguments[1], &is_too);
    return !is_beyond && !is_too && *samples < most && *samples > -most && *tokens < most &&
           *tokens > -most;
}

static PyObject *writer_count_step(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    PulseWriter *writer = (PulseWriter *)self;
    Counting *counting = &writer->counting;
    int64_t samples = counting->samples, tokens = counting->tokens;
    if (counting->num_left <= 0 || file_of(writer) == NULL || count != 2 ||
        !are_counts(arguments, &samples, &tokens))
        return PyBool_FromLong(0);
    int64_t now = now_of(writer);
    if (now - writer->looked_at >= LOOK_EVERY_NS) return PyBool_FromLong(0);
    end_step(writer, counting->next_batch++, counting->epoch, now, now);
    counting->num_left--;
    counting->num_steps++;
    counting->samples = samples;
    counting->tokens = tokens;
    counting->last_took = now - counting->batch_began;
    counting->took += counting->last_took;
    counting->batch_began = now;
    counting->is_fetched = 0;
    return PyBool_FromLong(1);
}

static PyObject *writer_counted(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    const Counting *counting = &((PulseWriter *)self)->counting;
    return Py_BuildValue("(LLLLL)", (long long)counting->num_steps, (long long)counting->samples,
                         (long long)counting->tokens, (long long)counting->took,
                         (long long)counting->last_took);
}

static PyObject *writer_batch(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    const Counting *counting = &((PulseWriter *)self)->counting;
    return Py_BuildValue("(LN)", (long long)counting->batch_began,
                         PyBool_FromLong(counting->is_fetched));
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
    PulseFile *pulse = file_of(writer);
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
    long long spared, duration;
    unsigned int sequence;
    Awaited awaited;
    if (!PyArg_ParseTuple(arguments, "O!LLI", &PyTuple_Type, &limits, &spared, &duration,
                          &sequence) ||
        read_limits(limits, awaited.limits) < 0)
        return NULL;
    awaited.spared = spared;
    awaited.sequence = sequence;
    awaited.until = monotonic_ns() + duration;
    int woken = WOKEN_STOPPED;
    if (writer->watch != NULL && file_of(writer) != NULL) {
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
    if (writer->watch != NULL && file_of(writer) != NULL) watch_stop(writer->watch);
    return new_none();
}

static PyObject *writer_signal_if_held(PyObject *self, PyObject *number)
{
    PulseWriter *writer = (PulseWriter *)self;
    int signal_number = (int)PyLong_AsLong(number);
    if (PyErr_Occurred()) return NULL;
    if (writer->watch != NULL && file_of(writer) != NULL)
        watch_signal_if_held(writer->watch, signal_number);
    return new_none();
}

/* Both are read and written with the GIL held. */
static unsigned long num_answers;
static int is_asked;

static int answer(void *Py_UNUSED(nothing))
{
    num_answers++;
    is_asked = 0;
    return 0;
}

static PyObject *writer_ask_main_thread(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(nothing))
{
    if (!is_asked) is_asked = Py_AddPendingCall(answer, NULL) == 0;
    return PyLong_FromUnsignedLong(num_answers);
}

/* Ends it, unless its thread is the parent's: then its lock may be held for good. */
static void forget_watch(PulseWriter *writer)
{
    Watch *watch = writer->watch;
    writer->watch = NULL;
    if (watch == NULL || file_of(writer) == NULL) return;
    watch_stop(watch);
    watch_drop(watch);
}

/* -- from Python -- */

static void release(PulseWriter *writer)
{
    forget_watch(writer);
    if (writer->pulse != NULL) PyBuffer_Release(&writer->file);
    writer->pulse = NULL;
}

/* How many coarse blocks there may be, with room in the file. */
static Py_ssize_t places_in(const PulseWriter *writer, Py_ssize_t wanted)
{
    Py_ssize_t room = writer->file.len - (Py_ssize_t)offsetof(PulseFile, coarse);
    Py_ssize_t most = room / (Py_ssize_t)sizeof(PulseBlock);
    return (wanted < most ? wanted : most) / 2 * 2;
}

static PyObject *writer_extend(PyObject *self, PyObject *num_places)
{
    PulseWriter *writer = (PulseWriter *)self;
    Py_ssize_t places = places_in(writer, PyLong_AsSsize_t(num_places));
    if (PyErr_Occurred()) return NULL;
    if (writer->pulse != NULL && places > writer->num_places) writer->num_places = places;
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
    Py_ssize_t num_places = PY_SSIZE_T_MAX;
    if (!PyArg_ParseTuple(arguments, "O|On", &file, &now, &num_places)) return NULL;
    PulseWriter *writer = object_new(type);
    if (writer == NULL) return NULL;
    if (PyObject_GetBuffer(file, &writer->file, PyBUF_WRITABLE) < 0) {
        Py_DECREF(writer);
        return NULL;
    }
    writer->pulse = writer->file.buf;
    writer->generation = generation;
    writer->now = now == Py_None ? NULL : Py_NewRef(now);
    writer->num_places = places_in(writer, num_places);
    if (writer->num_places < 2) {
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
    header->heartbeat = header->phase_since = header->step_began = now_of(writer);
    writer->looked_at = header->heartbeat;
    memcpy(&writer->pulse->header, header, sizeof *header);
    return (PyObject *)writer;
}

static int writer_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((PulseWriter *)self)->now);
    Py_VISIT(((PulseWriter *)self)->num_nodes);
    Py_VISIT(((PulseWriter *)self)->file.obj);
    return 0;
}

static int writer_clear(PyObject *self)
{
    Py_CLEAR(((PulseWriter *)self)->now);
    Py_CLEAR(((PulseWriter *)self)->num_nodes);
    Py_CLEAR(((PulseWriter *)self)->slow);
    return 0;
}

static void writer_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    release((PulseWriter *)self);
    free(((PulseWriter *)self)->notes.kept);
    writer_clear(self);
    object_free(self);
}

static PyMethodDef writer_methods[] = {
    {"enter", writer_enter, METH_O, "(phase): begins a phase; returns the one before."},
    {"watch_thread", writer_watch_thread, METH_O,
     "(ident): what begins and ends from now on is of interest on this thread; 0 for none."},
    {"begin_backward", writer_begin_backward, METH_NOARGS,
     "(): begins a backward pass, before which was the forward pass."},
    {"end_backward", writer_end_backward, METH_NOARGS, "(): back to the phase before."},
    {"begin_optimizer", (PyCFunction)(void (*)(void))writer_begin_optimizer, METH_FASTCALL,
     "(...): begins a step of an optimizer; a hook of torch's."},
    {"end_optimizer", (PyCFunction)(void (*)(void))writer_end_optimizer, METH_FASTCALL,
     "(...): back to the phase before; a hook of torch's."},
    {"begin_checkpoint", writer_begin_checkpoint, METH_NOARGS,
     "(): begins to write a checkpoint, which goes on since the last call if nothing else was."},
    {"end_checkpoint", writer_end_checkpoint, METH_NOARGS, "(): back to the phase before."},
    {"watch_graph", writer_watch_graph, METH_O,
     "(num_nodes): a function that counts the nodes of autograd graphs of the watched thread; or "
     "None."},
    {"expect_fetch", writer_expect_fetch, METH_NOARGS,
     "(): a fetch follows: what came before it was the forward pass, if that built a graph."},
    {"has_no_graph", writer_has_no_graph, METH_NOARGS,
     "(): whether the watched thread is in no phase, and has built no graph since that started."},
    {"num_backward", writer_num_backward, METH_NOARGS,
     "(): how many backward passes have begun on the watched thread."},
    {"note_phases", writer_note_phases, METH_NOARGS,
     "(): keeps each stretch of a forward or backward pass or of an optimizer from now on."},
    {"take_phases", writer_take_phases, METH_NOARGS,
     "(): ends this; returns a list of (phase, begin, end), and how many found no room."},
    {"watch_slow_steps", writer_watch_slow_steps, METH_O,
     "(slow): a SlowSteps is told of steps and phases from now on; or, with None, nobody."},
    {"begin_step", writer_begin_step, METH_NOARGS, "(): what was before belongs to no step."},
    {"end_step", (PyCFunction)(void (*)(void))writer_end_step, METH_FASTCALL,
     "(batch, epoch): ends a step, and begins the next one. Returns whether a second has passed "
     "since it last returned True."},
    {"add_step", (PyCFunction)(void (*)(void))writer_add_step, METH_FASTCALL,
     "(batch, begin, end): adds a step that is over, of unknown phases."},
    {"count_steps", (PyCFunction)(void (*)(void))writer_count_steps, METH_FASTCALL,
     "(num_steps, batch, epoch, with_fetches): so many steps, from that batch on, need nothing but "
     "count_step, and fetches nothing but begin_fetch and end_fetch."},
    {"count_no_more", writer_count_no_more, METH_NOARGS, "(): the next step needs more."},
    {"begin_batch", writer_begin_batch, METH_NOARGS, "(): the data of the batch is there."},
    {"begin_fetch", writer_begin_fetch, METH_NOARGS,
     "(): begins to wait for data, if that needs nothing else, and returns whether it does not."},
    {"end_fetch", writer_end_fetch, METH_O, "(is_there): ends this; whether there is data."},
    {"count_step", (PyCFunction)(void (*)(void))writer_count_step, METH_FASTCALL,
     "(samples, tokens): ends a step, if it needs nothing else, and returns whether it does not. "
     "Once a second one does."},
    {"counted", writer_counted, METH_NOARGS,
     "(): how many steps count_step has ended since count_steps, their samples, tokens and "
     "nanoseconds, and the nanoseconds of the last."},
    {"batch", writer_batch, METH_NOARGS,
     "(): when the batch that is running began, and whether its data is there."},
    {"watch", writer_watch, METH_O,
     "(request): looks at the phases from now on, and at the file of requests, without the GIL."},
    {"wait", writer_wait, METH_VARARGS,
     "(limits, spared, duration, sequence): waits without the GIL, and returns why it does no "
     "more; see kinetoscope.pulse.layout.Woken."},
    {"stop_waiting", writer_stop_waiting, METH_NOARGS, "(): ends `wait`, for good."},
    {"signal_if_held", writer_signal_if_held, METH_O,
     "(signal): if something holds the GIL, a thread without it sends itself this signal; 0 for "
     "none."},
    {"ask_main_thread", writer_ask_main_thread, METH_NOARGS,
     "(): asks the main thread, which answers when it runs Python, and returns how often it has."},
    {"extend", writer_extend, METH_O, "(num_places): so many coarse blocks have room now."},
    {"close", writer_close, METH_NOARGS, "Writes no more."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot writer_slots[] = {
    {Py_tp_new, writer_new},
    {Py_tp_dealloc, writer_dealloc},
    {Py_tp_traverse, writer_traverse},
    {Py_tp_clear, writer_clear},
    {Py_tp_methods, writer_methods},
    {Py_tp_doc,
     "(file, now=None, num_places=all): writes a pulse into a writable buffer of zeros; see "
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
