#ifndef KINETOSCOPE_PULSE_SLOW_H
#define KINETOSCOPE_PULSE_SLOW_H

#include "module.h"
#include "pulse/layout.h"

/* Whether an object is a SlowSteps, which the functions below take. */
int is_slow_steps(PyObject *object);

/* The step that runs began at that time. */
void slow_begin_step(PyObject *slow, int64_t begin);
/* The training thread was in that phase of it for a while. */
void slow_note_phase(PyObject *slow, uint32_t phase, int64_t begin, int64_t end);
/* It has ended, and the next one has begun. */
void slow_end_step(PyObject *slow, const PulseStep *step);

/* Whether steps are compared now, and the calling thread's: then spans are wanted that nothing
 * records. */
int slow_wants_marks(PyObject *slow);
/* A span of the step that runs. */
void slow_note_mark(PyObject *slow, uint32_t name, int64_t begin, int64_t end);

int slow_steps_setup(PyObject *module);

#endif
