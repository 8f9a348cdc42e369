#ifndef KINETOSCOPE_PULSE_SLOW_H
#define KINETOSCOPE_PULSE_SLOW_H

#include "module.h"
#include "pulse/layout.h"

/* Return whether an object is a SlowSteps, which the functions below take. */
int is_slow_steps(PyObject *object);

/* Set the start of the running step. */
void slow_begin_step(PyObject *slow, int64_t begin);
/* Add an interval of a phase of the training thread in the running step. */
void slow_add_phase(PyObject *slow, uint32_t phase, int64_t begin, int64_t end);
/* End the running step, and begin the next one. */
void slow_end_step(PyObject *slow, const PulseStep *step);

/* Return whether steps of the calling thread are compared now: they need spans also outside of a
 * window. */
int slow_wants_marks(PyObject *slow);
/* Add a span of the running step. */
void slow_add_mark(PyObject *slow, uint32_t name, int64_t begin, int64_t end);

int slow_steps_setup(PyObject *module);

#endif
