/* The phase of a step: entered by the loop, or by hooks of torch. */

#include "pulse/slow.h"
#include "pulse/writer.h"

#include <stdlib.h>

#define MAX_PHASE_SPANS (1 << 20)

static int has_room(PhaseLog *log)
{
    if (log->count < log->capacity) return 1;
    size_t capacity = log->capacity ? 2 * log->capacity : 1024;
    PhaseSpan *kept = capacity > MAX_PHASE_SPANS ? NULL
                                                 : realloc(log->spans, capacity * sizeof *kept);
    if (kept == NULL) return 0;
    log->spans = kept;
    log->capacity = capacity;
    return 1;
}

static void log_phase(PhaseLog *log, uint32_t phase, int64_t begin, int64_t end)
{
    if (phase < PULSE_FORWARD || phase > PULSE_OPTIMIZER) return;
    if (begin < log->since) begin = log->since;
    PhaseSpan *last = log->count ? &log->spans[log->count - 1] : NULL;
    if (last != NULL && last->phase == phase && last->end == begin)
        last->end = end; /* a step ended in this span */
    else if (begin < end && has_room(log))
        log->spans[log->count++] = (PhaseSpan){begin, end, phase};
    else
        log->num_dropped += begin < end;
}

void enter_phase(PulseWriter *writer, uint32_t phase, int64_t now)
{
    PulseHeader *header = &writer->header;
    if (UNLIKELY(writer->log.is_on))
        log_phase(&writer->log, header->phase, header->phase_since, now);
    if (UNLIKELY(writer->slow != NULL))
        slow_add_phase(writer->slow, header->phase, header->phase_since, now);
    writer->has_just_written = 0;
    writer->by_phase[header->phase] += now - header->phase_since;
    header->phase = phase;
    header->known |= UINT32_C(1) << phase; /* from now on, a step without it spends no time in it */
    header->phase_since = header->heartbeat = now;
}

/* Return the number of autograd graph nodes that this thread has built; -1 if unknown. */
static int64_t count_nodes(PulseWriter *writer)
{
    if (writer->num_nodes == NULL || writer->thread != PyThread_get_thread_ident()) return -1;
    PyObject *answer = PyObject_CallNoArgs(writer->num_nodes);
    int64_t count = answer != NULL ? PyLong_AsLongLong(answer) : -1;
    Py_XDECREF(answer);
    if (PyErr_Occurred()) PyErr_Clear();
    return count;
}

/* Return the number of nodes built in the running interval, and start the next one. */
int64_t take_built(PulseWriter *writer)
{
    int64_t count = count_nodes(writer), before = writer->nodes_before;
    writer->nodes_before = count;
    return count < 0 || before < 0 ? 0 : count - before;
}

/* A loop that fetches the next batch between its forward and backward pass builds the graph before
 * the fetch: then the interval before it is the forward pass. */
void end_interval_before_fetch(PulseWriter *writer)
{
    PulseHeader *header = &writer->header;
    if (header->phase != PULSE_OTHER) return;
    int64_t built = take_built(writer);
    writer->built_before_fetch += built;
    if (!writer->fetches_ahead || built == 0) return;
    header->phase = PULSE_FORWARD;
    header->known |= UINT32_C(1) << PULSE_FORWARD;
    enter_phase(writer, PULSE_OTHER, current_ns(writer));
}

void change_phase(PulseWriter *writer, uint32_t phase)
{
    enter_phase(writer, phase, current_ns(writer));
    publish_header(writer);
}

PyObject *writer_enter(PyObject *self, PyObject *phase)
{
    PulseWriter *writer = (PulseWriter *)self;
    PulseFile *pulse = open_file(writer);
    unsigned long number = PyLong_AsUnsignedLong(phase);
    if (number >= PULSE_NUM_PHASES) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "There is no such phase.");
        return NULL;
    }
    if (pulse == NULL) return Py_NewRef(phase);
    uint32_t before = writer->header.phase;
    if (number == PULSE_DATA_WAIT) end_interval_before_fetch(writer);
    if (before == PULSE_DATA_WAIT) take_built(writer);
    change_phase(writer, (uint32_t)number);
    return PyLong_FromUnsignedLong(before);
}

/* -- called by torch's hooks -- */

PyObject *writer_watch_thread(PyObject *self, PyObject *ident)
{
    unsigned long thread = PyLong_AsUnsignedLong(ident);
    if (PyErr_Occurred()) return NULL;
    ((PulseWriter *)self)->thread = thread;
    return new_none();
}

/* The interval before a backward pass was the forward pass, also within the closure of an
 * optimizer's step. Nothing else shows it. */
PyObject *writer_begin_backward(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    PulseWriter *writer = (PulseWriter *)self;
    PulseHeader *header = &writer->header;
    if (!is_training_thread(writer) || ++writer->backward_depth > 1) return new_none();
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

PyObject *writer_end_backward(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    PulseWriter *writer = (PulseWriter *)self;
    if (!is_training_thread(writer) || --writer->backward_depth > 0) return new_none();
    writer->backward_depth = 0; /* below 0, if hooks were added within a pass */
    take_built(writer);
    change_phase(writer, writer->before_backward);
    return new_none();
}

PyObject *writer_begin_optimizer(PyObject *self, PyObject *const *Py_UNUSED(arguments),
                                 Py_ssize_t Py_UNUSED(count))
{
    PulseWriter *writer = (PulseWriter *)self;
    if (!is_training_thread(writer)) return new_none();
    if (writer->header.phase == PULSE_OPTIMIZER) {
        writer->num_nested++; /* its class calls the step of its base class, and both are hooked */
    } else {
        writer->num_nested = 0;
        writer->before_optimizer = writer->header.phase;
        change_phase(writer, PULSE_OPTIMIZER);
    }
    return new_none();
}

PyObject *writer_end_optimizer(PyObject *self, PyObject *const *Py_UNUSED(arguments),
                               Py_ssize_t Py_UNUSED(count))
{
    PulseWriter *writer = (PulseWriter *)self;
    if (!is_training_thread(writer)) return new_none();
    if (writer->num_nested > 0)
        writer->num_nested--;
    else {
        take_built(writer);
        writer->built_before_fetch = 0;
        change_phase(writer, writer->before_optimizer);
    }
    return new_none();
}

/* A checkpoint lasts from the first call that writes it to the last. */
PyObject *writer_begin_checkpoint(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    PulseWriter *writer = (PulseWriter *)self;
    PulseHeader *header = &writer->header;
    if (!is_training_thread(writer) || ++writer->checkpoint_depth > 1) return new_none();
    writer->before_checkpoint = header->phase;
    if (writer->has_just_written) header->phase = PULSE_CHECKPOINT;
    change_phase(writer, PULSE_CHECKPOINT);
    return new_none();
}

PyObject *writer_end_checkpoint(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    PulseWriter *writer = (PulseWriter *)self;
    if (!is_training_thread(writer) || --writer->checkpoint_depth > 0) return new_none();
    writer->checkpoint_depth = 0;
    change_phase(writer, writer->before_checkpoint);
    writer->has_just_written = 1;
    return new_none();
}

PyObject *writer_watch_graph(PyObject *self, PyObject *num_nodes)
{
    PulseWriter *writer = (PulseWriter *)self;
    PyObject *before = writer->num_nodes;
    writer->num_nodes = num_nodes == Py_None ? NULL : Py_NewRef(num_nodes);
    writer->nodes_before = count_nodes(writer);
    Py_XDECREF(before);
    return new_none();
}

PyObject *writer_expect_fetch(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    PulseWriter *writer = (PulseWriter *)self;
    if (is_training_thread(writer)) end_interval_before_fetch(writer);
    return new_none();
}

PyObject *writer_has_no_graph(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    PulseWriter *writer = (PulseWriter *)self;
    int is_other = is_training_thread(writer) && writer->header.phase == PULSE_OTHER;
    int64_t count = is_other ? count_nodes(writer) : -1;
    return PyBool_FromLong(count >= 0 && count == writer->nodes_before);
}

PyObject *writer_num_backward(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    return PyLong_FromLongLong(((PulseWriter *)self)->num_backward);
}

/* -- the log of phases -- */

PyObject *writer_start_phase_log(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    PulseWriter *writer = (PulseWriter *)self;
    writer->log.since = current_ns(writer);
    writer->log.is_on = 1;
    return new_none();
}

PyObject *writer_drain_phase_log(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    PulseWriter *writer = (PulseWriter *)self;
    PulseHeader *header = &writer->header;
    PhaseLog taken = writer->log;
    writer->log = (PhaseLog){0};
    if (taken.is_on) log_phase(&taken, header->phase, header->phase_since, current_ns(writer));
    PyObject *list = PyList_New((Py_ssize_t)taken.count);
    for (size_t i = 0; list != NULL && i < taken.count; i++) {
        PhaseSpan *each = &taken.spans[i];
        PyObject *item = Py_BuildValue("(kLL)", (unsigned long)each->phase, (long long)each->begin,
                                       (long long)each->end);
        if (item == NULL || PyList_SetItem(list, (Py_ssize_t)i, item) < 0) Py_CLEAR(list);
    }
    free(taken.spans);
    return list == NULL ? NULL : Py_BuildValue("(Nn)", list, (Py_ssize_t)taken.num_dropped);
}
