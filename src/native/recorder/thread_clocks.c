/* ThreadClocks: run time, blocked time and run-queue delay of the thread that created it, since the
 * last read. */

#ifndef _GNU_SOURCE
    #define _GNU_SOURCE
#endif

#include "recorder/native.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#define UNKNOWN (-1)

typedef struct {
    int64_t now_ns, ran_ns, delay_ns; /* the last is UNKNOWN where the system does not report it */
} ThreadTimes;

typedef struct {
    PyObject_HEAD
    uint64_t thread; /* 0 before __init__ and after close() */
    int file;        /* -1 if there is none */
    ThreadTimes last;
} ThreadClocks;

static PyObject *running, *starved, *blocked, *waiting;

/* Unlike its address, a thread's number is never reused. */
static __thread uint64_t own_number;
static uint64_t num_numbers;

static uint64_t number_of_this_thread(void)
{
    if (own_number == 0) own_number = ++num_numbers;
    return own_number;
}

/* In a child, the thread that forked is another one, whose clocks start anew. */
static void forget_in_child(void)
{
    own_number = 0;
}

/* Return the second number of the file; UNKNOWN if there is none. */
static int64_t read_delay(int file)
{
    char text[128];
    ssize_t length = file < 0 ? -1 : pread(file, text, sizeof text - 1, 0);
    if (length <= 0) return UNKNOWN;
    text[length] = '\0';
    const char *second = strchr(text, ' ');
    if (second == NULL || second[1] < '0' || second[1] > '9') return UNKNOWN;
    errno = 0;
    long long delay = strtoll(second + 1, NULL, 10);
    return errno == 0 ? delay : UNKNOWN;
}

static ThreadTimes read_times(int file)
{
    int64_t now = read_clock(CLOCK_MONOTONIC), ran = read_clock(CLOCK_THREAD_CPUTIME_ID);
    return (ThreadTimes){now, ran, read_delay(file)};
}

/* Put a number into a dict; 0 with an error set. */
static int put(PyObject *values, PyObject *name, int64_t number)
{
    PyObject *value = values != NULL ? PyLong_FromLongLong(number) : NULL;
    int is_put = value != NULL && PyDict_SetItem(values, name, value) == 0;
    Py_XDECREF(value);
    return is_put;
}

static PyObject *difference(const ThreadTimes *last, const ThreadTimes *now)
{
    int64_t ran = now->ran_ns - last->ran_ns, rest = now->now_ns - last->now_ns - ran;
    if (rest < 0) rest = 0;
    PyObject *values = PyDict_New();
    int is_put = put(values, running, ran);
    if (last->delay_ns == UNKNOWN || now->delay_ns == UNKNOWN)
        is_put = is_put && put(values, waiting, rest);
    else {
        int64_t delay = now->delay_ns - last->delay_ns;
        delay = delay < 0 ? 0 : delay > rest ? rest : delay;
        is_put = is_put && put(values, starved, delay) && put(values, blocked, rest - delay);
    }
    if (!is_put) Py_CLEAR(values);
    return values;
}

/* -- from Python -- */

static PyObject *clocks_read(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    ThreadClocks *clocks = (ThreadClocks *)self;
    if (clocks->thread == 0 || clocks->thread != number_of_this_thread()) return new_none();
    ThreadTimes last = clocks->last;
    clocks->last = read_times(clocks->file);
    return difference(&last, &clocks->last);
}

static PyObject *clocks_close(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    ThreadClocks *clocks = (ThreadClocks *)self;
    if (clocks->file >= 0) close(clocks->file);
    clocks->file = -1;
    clocks->thread = 0;
    return new_none();
}

static PyObject *clocks_new(PyTypeObject *type, PyObject *arguments, PyObject *Py_UNUSED(names))
{
    PyObject *path;
    if (!PyArg_ParseTuple(arguments, "O&", PyUnicode_FSConverter, &path)) return NULL;
    ThreadClocks *clocks = object_new(type);
    if (clocks != NULL) {
        clocks->thread = number_of_this_thread();
        clocks->file = open(PyBytes_AsString(path), O_RDONLY | O_CLOEXEC);
        clocks->last = read_times(clocks->file);
    }
    Py_DECREF(path);
    return (PyObject *)clocks;
}

static void clocks_dealloc(PyObject *self)
{
    ThreadClocks *clocks = (ThreadClocks *)self;
    if (clocks->file >= 0) close(clocks->file);
    object_free(self);
}

static PyMethodDef clocks_methods[] = {
    {"read", clocks_read, METH_NOARGS,
     "The nanoseconds since the last reading, by name; None on another thread, in a forked child, "
     "and after close()."},
    {"close", clocks_close, METH_NOARGS, "Closes the file."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot clocks_slots[] = {
    {Py_tp_new, clocks_new},
    {Py_tp_dealloc, clocks_dealloc},
    {Py_tp_methods, clocks_methods},
    {Py_tp_doc, "(schedstat): the clocks of the calling thread; see _native.pyi."},
    {0, NULL},
};

int thread_clocks_setup(PyObject *module)
{
    running = PyUnicode_InternFromString("running_ns");
    starved = PyUnicode_InternFromString("starved_ns");
    blocked = PyUnicode_InternFromString("blocked_ns");
    waiting = PyUnicode_InternFromString("waiting_ns");
    if (!running || !starved || !blocked || !waiting) return -1;
    pthread_atfork(NULL, NULL, forget_in_child);
    return add_type(module, "kinetoscope._native.ThreadClocks", sizeof(ThreadClocks), 0,
                    clocks_slots, NULL);
}
