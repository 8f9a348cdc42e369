/* Steps: reported one by one, or counted without a call into Python. */

#include "pulse/blocks.h"
#include "pulse/slow.h"
#include "pulse/writer.h"

#define POLL_INTERVAL_NS 1000000000

static void begin_writing(PulseWriter *writer)
{
    writer->header.sequence++;
    __atomic_store_n(&writer->pulse->header.sequence, writer->header.sequence, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
}

PyObject *writer_begin_step(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    PulseWriter *writer = (PulseWriter *)self;
    PulseFile *pulse = open_file(writer);
    if (pulse != NULL) {
        int64_t now = current_ns(writer);
        enter_phase(writer, writer->header.phase, now);
        writer->header.step_began = now;
        publish_header(writer);
        if (writer->slow != NULL) slow_begin_step(writer->slow, now);
        memset(writer->by_phase, 0, sizeof writer->by_phase);
    }
    return new_none();
}

/* Return the next element of the ring. Called between begin_writing and publish_step. */
static PulseStep *next_step(PulseWriter *writer)
{
    PulseHeader *header = &writer->header;
    PulseStep *step = &writer->pulse->steps[header->num_steps % PULSE_NUM_EXACT];
    if (header->num_steps >= PULSE_NUM_EXACT)
        fold_step(writer->pulse, header, writer->max_coarse, step);
    return step;
}

static void publish_step(PulseWriter *writer)
{
    writer->header.num_steps++;
    writer->header.sequence++;
    publish_header(writer);
}

/* Subtract the time after a step's earlier end from its phases: first from "other", in which a loop
 * ends. */
static void cut_phases(PulseWriter *writer, int64_t excess)
{
    for (int phase = PULSE_OTHER; phase >= 0 && excess > 0; phase--) {
        int64_t *time = &writer->by_phase[phase], cut = *time < excess ? *time : excess;
        *time -= cut;
        excess -= cut;
    }
}

/* The next step begins now, also if this one ended earlier. */
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
    publish_step(writer);
    if (UNLIKELY(writer->slow != NULL)) slow_end_step(writer->slow, step);
    memset(writer->by_phase, 0, sizeof writer->by_phase);
}

PyObject *writer_end_step(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    PulseWriter *writer = (PulseWriter *)self;
    PulseFile *pulse = open_file(writer);
    if (count != 2 && count != 3)
        return PyErr_Format(PyExc_TypeError,
                            "end_step takes a batch, an epoch, and perhaps a time.");
    int64_t batch = PyLong_AsLongLong(arguments[0]), epoch = PyLong_AsLongLong(arguments[1]);
    int64_t end = count == 3 ? PyLong_AsLongLong(arguments[2]) : INT64_MAX;
    if (PyErr_Occurred()) return NULL;
    if (pulse == NULL) return PyBool_FromLong(0);
    int64_t now = current_ns(writer);
    end_step(writer, batch, (uint32_t)epoch, end < now ? end : now, now);
    int is_due = now - writer->last_due >= POLL_INTERVAL_NS;
    if (is_due) writer->last_due = now;
    return PyBool_FromLong(is_due);
}

PyObject *writer_add_step(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    PulseWriter *writer = (PulseWriter *)self;
    if (count != 3) return PyErr_Format(PyExc_TypeError, "add_step takes a batch and two times.");
    int64_t batch = PyLong_AsLongLong(arguments[0]), begin = PyLong_AsLongLong(arguments[1]);
    int64_t end = PyLong_AsLongLong(arguments[2]);
    if (PyErr_Occurred()) return NULL;
    if (open_file(writer) == NULL) return new_none();
    begin_writing(writer);
    *next_step(writer) = (PulseStep){.step = batch, .begin = begin, .duration = end - begin};
    publish_step(writer);
    return new_none();
}

/* -- steps that are only counted -- */

PyObject *writer_count_steps(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    PulseWriter *writer = (PulseWriter *)self;
    if (count != 4)
        return PyErr_Format(PyExc_TypeError, "count_steps takes a number, a batch, an epoch, and "
                                             "whether fetches are counted, too.");
    int64_t num_steps = PyLong_AsLongLong(arguments[0]), batch = PyLong_AsLongLong(arguments[1]);
    int64_t epoch = PyLong_AsLongLong(arguments[2]);
    int with_fetches = PyObject_IsTrue(arguments[3]);
    if (PyErr_Occurred()) return NULL;
    writer->counting = (Counting){.num_left = num_steps,
                                  .next_batch = batch,
                                  .epoch = (uint32_t)epoch,
                                  .with_fetches = with_fetches,
                                  .batch_began = current_ns(writer)};
    return new_none();
}

PyObject *writer_count_no_more(PyObject *self, PyObject *Py_UNUSED(nothing))
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

PyObject *writer_begin_batch(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    begin_batch((PulseWriter *)self, current_ns((PulseWriter *)self));
    return new_none();
}

PyObject *writer_begin_fetch(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    PulseWriter *writer = (PulseWriter *)self;
    int is_counted = writer->counting.with_fetches && is_training_thread(writer) &&
                     writer->header.phase != PULSE_EVALUATION;
    if (is_counted) end_interval_before_fetch(writer);
    if (is_counted) change_phase(writer, PULSE_DATA_WAIT);
    return PyBool_FromLong(is_counted);
}

PyObject *writer_end_fetch(PyObject *self, PyObject *is_there)
{
    PulseWriter *writer = (PulseWriter *)self;
    if (open_file(writer) == NULL) return new_none();
    int64_t now = current_ns(writer);
    take_built(writer);
    enter_phase(writer, PULSE_OTHER, now);
    publish_header(writer);
    if (is_there == Py_True) begin_batch(writer, now);
    return new_none();
}

/* Return whether these are plain numbers whose sums do not overflow. */
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

PyObject *writer_count_step(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    PulseWriter *writer = (PulseWriter *)self;
    Counting *counting = &writer->counting;
    int64_t samples = counting->samples, tokens = counting->tokens;
    if (counting->num_left <= 0 || open_file(writer) == NULL || count != 2 ||
        !are_counts(arguments, &samples, &tokens))
        return PyBool_FromLong(0);
    int64_t now = current_ns(writer);
    if (now - writer->last_due >= POLL_INTERVAL_NS) return PyBool_FromLong(0);
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

PyObject *writer_counted(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    const Counting *counting = &((PulseWriter *)self)->counting;
    return Py_BuildValue("(LLLLL)", (long long)counting->num_steps, (long long)counting->samples,
                         (long long)counting->tokens, (long long)counting->took,
                         (long long)counting->last_took);
}

PyObject *writer_batch(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    const Counting *counting = &((PulseWriter *)self)->counting;
    return Py_BuildValue("(LN)", (long long)counting->batch_began,
                         PyBool_FromLong(counting->is_fetched));
}
