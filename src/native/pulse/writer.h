/* PulseWriter: writes the phase of a rank and the times of its steps into a mapped file, which
 * other processes read meanwhile. */

#ifndef KINETOSCOPE_PULSE_WRITER_H
#define KINETOSCOPE_PULSE_WRITER_H

#include "module.h"
#include "pulse/layout.h"
#include "pulse/watch.h"
#include "recorder/clock.h"

#include <stddef.h>
#include <string.h>

/* Steps that need no call into Python, and the sums of those that were counted. */
typedef struct {
    int64_t num_left, next_batch;
    uint32_t epoch;
    int with_fetches; /* fetches need no call into Python, either */
    int is_fetched;   /* the data of the running batch */
    int64_t batch_began, num_steps, samples, tokens, took, last_took;
} Counting;

/* A forward or backward pass, or an optimizer step. */
typedef struct {
    int64_t begin, end;
    uint32_t phase;
} PhaseSpan;

/* The phases since start_phase_log. */
typedef struct {
    PhaseSpan *spans;
    size_t count, capacity, num_dropped;
    int64_t since;
    int is_on;
} PhaseLog;

typedef struct {
    PyObject_HEAD
    Py_buffer file;
    PulseFile *pulse;   /* NULL after close() */
    PulseHeader header; /* the source: the file's is only written, since others may change it */
    PyObject *clock;    /* of tests; NULL for the machine's */
    uint64_t generation;
    int64_t max_coarse;                 /* number of coarse blocks with room in the file */
    int64_t last_due;                   /* when end_step returned True last */
    int64_t by_phase[PULSE_NUM_PHASES]; /* of the running step */
    Counting counting;
    PhaseLog log;
    PyObject *slow;       /* a SlowSteps; or NULL */
    unsigned long thread; /* the training thread, whose hooks count; 0 for none */
    uint32_t before_backward, before_optimizer, before_checkpoint; /* the phases to return to */
    int64_t backward_depth, checkpoint_depth, num_backward;
    int64_t num_nested;         /* steps of optimizers within the running one */
    int has_just_written;       /* a checkpoint, and no phase was entered since */
    PyObject *num_nodes;        /* counts the nodes of autograd graphs of this thread; or NULL */
    int64_t nodes_before;       /* nodes when the interval of PULSE_OTHER started */
    int64_t built_before_fetch; /* nodes built since the last backward pass, up to a fetch */
    int fetches_ahead;          /* the loop fetches the next batch after its forward pass */
    Watch *watch;               /* NULL before `watch` */
} PulseWriter;

/* Rises with each fork: a child has its parent's file mapped and must not write to it. */
extern uint64_t pulse_generation;

/* The file to write to; NULL if it is closed or the parent's. */
static inline PulseFile *open_file(const PulseWriter *writer)
{
    return LIKELY(writer->generation == pulse_generation) ? writer->pulse : NULL;
}

static inline int is_training_thread(const PulseWriter *writer)
{
    return writer->thread == PyThread_get_thread_ident() && open_file(writer) != NULL;
}

int64_t test_clock_ns(PulseWriter *writer);

static inline int64_t current_ns(PulseWriter *writer)
{
    return LIKELY(writer->clock == NULL) ? monotonic_ns() : test_clock_ns(writer);
}

/* Copy the header to the file, and last the sequence number, which marks it as complete. */
static inline void publish_header(PulseWriter *writer)
{
    size_t from = offsetof(PulseHeader, num_steps);
    memcpy((char *)&writer->pulse->header + from, (char *)&writer->header + from,
           sizeof(PulseHeader) - from);
    __atomic_store_n(&writer->pulse->header.sequence, writer->header.sequence, __ATOMIC_RELEASE);
}

/* -- phases.c -- */

/* Enter a phase in the header, which the caller publishes. */
void enter_phase(PulseWriter *writer, uint32_t phase, int64_t now);
/* Enter a phase now, and publish it. */
void change_phase(PulseWriter *writer, uint32_t phase);
/* Return the number of graph nodes built in the running interval, and start the next one. */
int64_t take_built(PulseWriter *writer);
/* Call the interval before a fetch a forward pass if it built a graph. */
void end_interval_before_fetch(PulseWriter *writer);

PyObject *writer_enter(PyObject *self, PyObject *phase);
PyObject *writer_watch_thread(PyObject *self, PyObject *ident);
PyObject *writer_begin_backward(PyObject *self, PyObject *nothing);
PyObject *writer_end_backward(PyObject *self, PyObject *nothing);
PyObject *writer_begin_optimizer(PyObject *self, PyObject *const *arguments, Py_ssize_t count);
PyObject *writer_end_optimizer(PyObject *self, PyObject *const *arguments, Py_ssize_t count);
PyObject *writer_begin_checkpoint(PyObject *self, PyObject *nothing);
PyObject *writer_end_checkpoint(PyObject *self, PyObject *nothing);
PyObject *writer_watch_graph(PyObject *self, PyObject *num_nodes);
PyObject *writer_expect_fetch(PyObject *self, PyObject *nothing);
PyObject *writer_has_no_graph(PyObject *self, PyObject *nothing);
PyObject *writer_num_backward(PyObject *self, PyObject *nothing);
PyObject *writer_start_phase_log(PyObject *self, PyObject *nothing);
PyObject *writer_drain_phase_log(PyObject *self, PyObject *nothing);

/* -- steps.c -- */

PyObject *writer_begin_step(PyObject *self, PyObject *nothing);
PyObject *writer_end_step(PyObject *self, PyObject *const *arguments, Py_ssize_t count);
PyObject *writer_add_step(PyObject *self, PyObject *const *arguments, Py_ssize_t count);
PyObject *writer_count_steps(PyObject *self, PyObject *const *arguments, Py_ssize_t count);
PyObject *writer_count_no_more(PyObject *self, PyObject *nothing);
PyObject *writer_begin_batch(PyObject *self, PyObject *nothing);
PyObject *writer_begin_fetch(PyObject *self, PyObject *nothing);
PyObject *writer_end_fetch(PyObject *self, PyObject *is_there);
PyObject *writer_count_step(PyObject *self, PyObject *const *arguments, Py_ssize_t count);
PyObject *writer_counted(PyObject *self, PyObject *nothing);
PyObject *writer_batch(PyObject *self, PyObject *nothing);

#endif
