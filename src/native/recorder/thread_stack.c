/* The stack of a thread: its frames as spans, which Python creates once per line. */

#include "recorder/thread_stack.h"

#include <stdlib.h>

#include "recorder/native.h"

#define MAX_SEARCHED 10000     /* frames beyond the inner ones, in search of the outermost */
#define MAX_INSTRUCTIONS 10000 /* with more, all are dropped, and their code is released */

/* An instruction of a function. */
typedef struct {
    PyObject *code;
    int64_t offset;
} Instruction;

static PyObject *name_of_code, *name_of_offset, *name_of_line, *name_of_caller;

/* Return 0 with an error set, and release the object, if it is no span. */
static int require_span(PyObject *span)
{
    if (PyObject_TypeCheck(span, span_type)) return 1;
    PyErr_SetString(PyExc_TypeError, "A line is recorded as a native span.");
    Py_DECREF(span);
    return 0;
}

/* Get from Python the span of an instruction; 0 with an error set. */
static int name_line(ThreadStack *stack, uint32_t number, const Instruction *instruction,
                     PyObject *frame)
{
    PyObject *line = PyObject_GetAttr(frame, name_of_line);
    PyObject *span = line == NULL ? NULL
                                  : PyObject_CallMethod(stack->names, "span_of_line", "OO",
                                                        instruction->code, line);
    Py_XDECREF(line);
    if (span == NULL) return 0;
    if (span != Py_None && !require_span(span)) return 0;
    stack->spans_of_instructions[number] = span;
    Py_INCREF(instruction->code); /* so that no other code gets its address */
    return 1;
}

/* Return the span of a frame's current line, or None. Borrowed. NULL with an error set. */
static PyObject *span_of_frame(ThreadStack *stack, PyObject *frame, PyObject *code)
{
    PyObject *offset = PyObject_GetAttr(frame, name_of_offset);
    if (offset == NULL) return NULL;
    Instruction instruction = {code, PyLong_AsLongLong(offset)};
    Py_DECREF(offset);
    if (instruction.offset == -1 && PyErr_Occurred() != NULL) return NULL;
    size_t num_known = stack->instructions.num_entries;
    if (!array_room_for_next((void **)&stack->spans_of_instructions, num_known,
                             &stack->spans_capacity, sizeof *stack->spans_of_instructions))
        return PyErr_NoMemory();
    uint32_t number = table_intern(&stack->instructions, (const char *)&instruction,
                                   sizeof instruction);
    if (number == TABLE_FULL) return PyErr_NoMemory();
    if (number == num_known) stack->spans_of_instructions[number] = NULL;
    if (stack->spans_of_instructions[number] == NULL &&
        !name_line(stack, number, &instruction, frame))
        return NULL;
    return stack->spans_of_instructions[number];
}

/* Return the caller of a frame with this code, whose reference it takes, or None. NULL with an
 * error set. */
static PyObject *caller_beyond(ThreadStack *stack, PyObject *frame, PyObject *code)
{
    int is_outermost = code == stack->outermost;
    Py_DECREF(code);
    if (is_outermost) return new_none();
    PyObject *caller = PyObject_GetAttr(frame, name_of_caller);
    if (caller == Py_None && stack->outermost != NULL) stack->is_outside = 1;
    return caller;
}

/* Add a frame to the stack, and return its caller, or None. NULL with an error set. */
static PyObject *add_frame(ThreadStack *stack, PyObject *frame)
{
    PyObject *code = PyObject_GetAttr(frame, name_of_code);
    PyObject *span = code == NULL ? NULL : span_of_frame(stack, frame, code);
    if (span == NULL) {
        Py_XDECREF(code);
        return NULL;
    }
    if (span != Py_None) stack->spans[stack->num_spans++] = span;
    return caller_beyond(stack, frame, code);
}

/* Return the thread's current frame, or None if it has ended. NULL with an error set. */
static PyObject *innermost_frame(const ThreadStack *stack)
{
    PyObject *current_frames = PySys_GetObject("_current_frames"); /* borrowed */
    if (current_frames == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "This Python has no sys._current_frames.");
        return NULL;
    }
    PyObject *frames = PyObject_CallNoArgs(current_frames);
    PyObject *ident = frames == NULL ? NULL : PyLong_FromUnsignedLong(stack->ident);
    PyObject *frame = ident == NULL ? NULL : PyDict_GetItemWithError(frames, ident);
    if (frame != NULL)
        Py_INCREF(frame);
    else if (ident != NULL && PyErr_Occurred() == NULL)
        frame = new_none();
    Py_XDECREF(ident);
    Py_XDECREF(frames);
    return frame;
}

/* Return the caller of a frame, or None. NULL with an error set. */
static PyObject *caller_of(ThreadStack *stack, PyObject *frame)
{
    PyObject *code = PyObject_GetAttr(frame, name_of_code);
    return code == NULL ? NULL : caller_beyond(stack, frame, code);
}

/* Add the span that stands for omitted frames; 0 with an error set. */
static int add_gap(ThreadStack *stack)
{
    if (stack->gap == NULL) {
        PyObject *gap = PyObject_CallMethod(stack->names, "span_of_gap", NULL);
        if (gap == NULL || !require_span(gap)) return 0;
        stack->gap = gap;
    }
    stack->spans[stack->num_spans++] = stack->gap;
    return 1;
}

/* Add the outermost frames from this one on, whose reference it takes, and a gap if frames are
 * omitted. The search is limited: of an endless stack no outer frames are added. 0 with an error
 * set. */
static int add_outer_frames(ThreadStack *stack, PyObject *frame)
{
    PyObject *last[MAX_OUTER] = {NULL};
    uint32_t num = 0;
    for (; frame != NULL && frame != Py_None && num < MAX_SEARCHED; num++) {
        PyObject *caller = caller_of(stack, frame);
        Py_XDECREF(last[num % MAX_OUTER]);
        last[num % MAX_OUTER] = frame;
        frame = caller;
    }
    int is_done = frame != NULL && (num <= MAX_OUTER || add_gap(stack));
    uint32_t next = frame != Py_None ? num : num > MAX_OUTER ? num - MAX_OUTER : 0;
    Py_XDECREF(frame);
    for (; is_done && next < num; next++) {
        PyObject *caller = add_frame(stack, last[next % MAX_OUTER]);
        Py_XDECREF(caller);
        is_done = caller != NULL;
    }
    for (uint32_t i = 0; i < MAX_OUTER; i++) Py_XDECREF(last[i]);
    return is_done;
}

/* Begin the stack with the state of the thread; 0 with an error set. Python names the state, since
 * only there it is known which thread had the GIL. */
static int add_state(ThreadStack *stack, const char *state)
{
    PyObject *span = PyObject_CallMethod(stack->names, "span_of_state", "s", state);
    if (span == NULL || !require_span(span)) return 0;
    Py_XDECREF(stack->state_span);
    stack->state_span = span;
    stack->spans[stack->num_spans++] = span;
    return 1;
}

int thread_stack_read(ThreadStack *stack, const char *state)
{
    stack->num_spans = 0;
    stack->is_outside = 0;
    PyObject *frame = innermost_frame(stack);
    if (frame != NULL && frame != Py_None && state != NULL && !add_state(stack, state)) {
        Py_DECREF(frame);
        return 0;
    }
    uint32_t most = stack->num_spans + MAX_INNER;
    while (frame != NULL && frame != Py_None && stack->num_spans < most) {
        PyObject *caller = add_frame(stack, frame);
        Py_DECREF(frame);
        frame = caller;
    }
    if (!add_outer_frames(stack, frame)) return 0;
    if (stack->is_outside) stack->num_spans = 0;
    return 1;
}

void thread_stack_drop_lines(ThreadStack *stack)
{
    Table instructions = stack->instructions;
    PyObject **spans = stack->spans_of_instructions;
    memset(&stack->instructions, 0, sizeof stack->instructions);
    stack->spans_of_instructions = NULL;
    stack->spans_capacity = 0;
    stack->num_spans = 0;
    for (size_t i = 0; i < instructions.num_entries; i++) {
        size_t length;
        Instruction instruction;
        memcpy(&instruction, table_key(&instructions, (uint32_t)i, &length), sizeof instruction);
        if (spans[i] == NULL) continue; /* Python raised an error */
        Py_DECREF(instruction.code);
        Py_DECREF(spans[i]);
    }
    free(spans);
    table_free(&instructions);
}

int thread_stack_is_full(const ThreadStack *stack)
{
    return stack->instructions.num_entries > MAX_INSTRUCTIONS;
}

int thread_stack_traverse(const ThreadStack *stack, visitproc visit, void *arg)
{
    for (size_t i = 0; stack->spans_of_instructions != NULL && i < stack->instructions.num_entries;
         i++)
        Py_VISIT(stack->spans_of_instructions[i]);
    Py_VISIT(stack->gap);
    Py_VISIT(stack->state_span);
    return 0;
}

void thread_stack_clear(ThreadStack *stack)
{
    thread_stack_drop_lines(stack);
    Py_CLEAR(stack->gap);
    Py_CLEAR(stack->state_span);
}

int thread_stack_setup(void)
{
    name_of_code = PyUnicode_InternFromString("f_code");
    name_of_offset = PyUnicode_InternFromString("f_lasti");
    name_of_line = PyUnicode_InternFromString("f_lineno");
    name_of_caller = PyUnicode_InternFromString("f_back");
    return name_of_code && name_of_offset && name_of_line && name_of_caller ? 0 : -1;
}
