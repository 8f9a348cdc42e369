/* The stack of a thread, read from another one: for each frame the span of its current line.
 *
 * Frames are read as Python code would read them, so this works with every version of Python. */

#ifndef KINETOSCOPE_THREAD_STACK_H
#define KINETOSCOPE_THREAD_STACK_H

#include "module.h"

/* Of a deeper stack, the frames between these ends are omitted. */
#define MAX_INNER 100
#define MAX_OUTER 100
#define MAX_FRAMES (MAX_INNER + 1 + MAX_OUTER)
#define MAX_SPANS (1 + MAX_FRAMES) /* the state of the thread is the innermost one */

typedef struct {
    PyObject *names; /* its span_of_line(), span_of_gap() and span_of_state(); borrowed */
    unsigned long ident;
    PyObject *outermost; /* the code of the frame with which stacks begin, or NULL */
    int is_outside;      /* that frame was not found at the last read: then there is no stack */
    Table instructions;
    PyObject **spans_of_instructions; /* Py_None if its frames are omitted */
    size_t spans_capacity;
    PyObject *gap;              /* the span that stands for omitted frames; NULL before the first */
    PyObject *state_span;       /* of the last state that has one, or NULL */
    PyObject *spans[MAX_SPANS]; /* as read last, the innermost first; borrowed */
    uint32_t num_spans;
} ThreadStack;

int thread_stack_setup(void);
/* Read the stack, innermost the state of the thread, if it is not NULL; 0 with an error set. Frames
 * are released, since they reference tensors. */
int thread_stack_read(ThreadStack *stack, const char *state);
/* Return whether so many lines are known that they should be dropped. */
int thread_stack_is_full(const ThreadStack *stack);
/* Drop the spans of all lines, and release their code. */
void thread_stack_drop_lines(ThreadStack *stack);
int thread_stack_traverse(const ThreadStack *stack, visitproc visit, void *arg);
void thread_stack_clear(ThreadStack *stack);

#endif
