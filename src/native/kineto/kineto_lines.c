/* kinetoscope._native.KinetoLines: kineto_text.h for Python. `kinetoscope.torch.kineto_text` uses
 * it.
 *
 * It reads what Kineto writes and makes lines of it without the GIL, several megabytes per call:
 * when other threads run Python all the time, each return waits 5 ms or more for the GIL. */

#include "module.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#if !defined(_WIN32)
    #include <poll.h>
    #include <sys/ioctl.h>
    #include <unistd.h>
#endif

#include "kineto/kineto_text.h"
#include "owned_bytes.h"
#include "text/bytes.h"

#define READ_BYTES ((size_t)1 << 20)
#define ROOM_BYTES ((size_t)8 << 20) /* lines per call */
#define ENOUGH_BYTES (1 << 18)       /* bytes to wait for, instead of reading every few kilobytes */
#define MAX_NAPS 4
#define NAP_MS 1

typedef struct {
    PyObject_HEAD
    KinetoText lines;
    PyObject *names;    /* holds the texts of `lines.renamed` */
    PyObject *prefixes; /* holds the texts of `lines.own` */
    /* what was read; `first` is the first byte that is not written as a line yet */
    Bytes text;
    size_t first;
    OwnedBytes *out; /* the lines of the last call; NULL before the first */
    int is_busy;
} LinesObject;

static int lines_enter(LinesObject *self)
{
    return is_idle(self, self->is_busy);
}

/* Takes the names to correct from a list of (number, raw, json); 0 with an error set. */
static int take_renamed(LinesObject *self)
{
    KinetoText *lines = &self->lines;
    lines->num_renamed = (size_t)PyList_Size(self->names);
    lines->renamed = calloc(lines->num_renamed + 1, sizeof *lines->renamed);
    if (lines->renamed == NULL) return PyErr_NoMemory() != NULL;
    for (size_t i = 0; i < lines->num_renamed; i++) {
        Renamed *renamed = &lines->renamed[i];
        PyObject *given = PyList_GetItem(self->names, (Py_ssize_t)i);
        long long number;
        BytesArgument raw, json;
        if (!PyTuple_Check(given))
            return PyErr_Format(PyExc_TypeError, "A name is a tuple, not %R.", given) != NULL;
        if (!PyArg_ParseTuple(given, "LO&O&", &number, bytes_argument, &raw, bytes_argument, &json))
            return 0;
        *renamed = (Renamed){.number = number,
                             .raw = raw.at,
                             .raw_length = raw.length,
                             .json = json.at,
                             .json_length = json.length};
    }
    return 1;
}

static PyObject *lines_new(PyTypeObject *type, PyObject *arguments, PyObject *Py_UNUSED(names))
{
    long long shift;
    PyObject *renamed, *prefixes;
    BytesArgument text;
    if (!PyArg_ParseTuple(arguments, "LO!O!O&", &shift, &PyList_Type, &renamed, &PyTuple_Type,
                          &prefixes, bytes_argument, &text))
        return NULL;
    LinesObject *self = object_new(type);
    if (self == NULL) return NULL;
    self->lines.shift = shift;
    /* a copy that no other code can change */
    self->names = PyList_GetSlice(renamed, 0, PyList_Size(renamed));
    self->prefixes = Py_NewRef(prefixes);
    self->lines.own.num_prefixes = (size_t)PyTuple_Size(prefixes);
    self->lines.own.prefixes = texts_of(prefixes);
    if (self->names == NULL || self->lines.own.prefixes == NULL || !take_renamed(self)) {
        Py_DECREF(self);
        return NULL;
    }
    bytes_put(&self->text, text.at, text.length);
    return (PyObject *)self;
}

static void lines_dealloc(LinesObject *self)
{
    Py_XDECREF(self->names);
    Py_XDECREF(self->prefixes);
    free(self->lines.renamed);
    free(self->lines.own.prefixes);
    free(self->lines.own.frames);
    free(self->lines.spans);
    free(self->lines.metadata);
    bytes_free(&self->lines.maybe_changed);
    bytes_free(&self->text);
    owned_drop(self->out);
    object_free(self);
}

/* One byte, which the writing thread sets when it has written everything. */
typedef _Atomic(char) IsWritten;

#if defined(_WIN32)
/* Windows has no named pipes that a library can write to like a file. */
static Py_ssize_t read_more(LinesObject *Py_UNUSED(self), int Py_UNUSED(fd),
                            const IsWritten *Py_UNUSED(is_written))
{
    errno = ENOSYS;
    return -1;
}
#else
/* Waits until there is something to read. Returns whether everything has been written. */
static int wait_for_text(int fd, const IsWritten *is_written)
{
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    for (int naps = 0; !atomic_load_explicit(is_written, memory_order_acquire); naps++) {
        int num_bytes = 0;
        if (poll(&readable, 1, NAP_MS) == 1 &&
            (naps >= MAX_NAPS || ioctl(fd, FIONREAD, &num_bytes) < 0 || num_bytes >= ENOUGH_BYTES))
            return 0;
        if (readable.revents & (POLLHUP | POLLERR | POLLNVAL)) return 0;
        poll(NULL, 0, NAP_MS);
    }
    return 1;
}

/* Appends more text. Returns the number of bytes; 0 at the end, -1 with errno set. */
static Py_ssize_t read_more(LinesObject *self, int fd, const IsWritten *is_written)
{
    Bytes *text = &self->text;
    memmove(text->at, text->at + self->first, text->length - self->first);
    text->length -= self->first;
    self->first = 0;
    char *room = bytes_room(text, READ_BYTES + KINETO_SLACK);
    if (room == NULL) {
        errno = ENOMEM;
        return -1;
    }
    for (;;) {
        int was_written = wait_for_text(fd, is_written);
        Py_ssize_t num_read = read(fd, room, READ_BYTES);
        /* Another process may hold the other end (a child forked meanwhile), so the pipe stays
         * open. Everything was written and nothing is left to read: that is the end. */
        if (num_read < 0 && errno == EAGAIN && was_written) return 0;
        if (num_read >= 0 || (errno != EAGAIN && errno != EINTR)) {
            text->length += num_read > 0 ? (size_t)num_read : 0;
            return num_read;
        }
    }
}
#endif

static enum KinetoStop write_some(LinesObject *self, Bytes *out)
{
    KinetoText *lines = &self->lines;
    Bytes *text = &self->text;
    if (bytes_room(text, KINETO_SLACK) == NULL) return KINETO_FAILED;
    memset(text->at + text->length, 0, KINETO_SLACK);
    lines->text = text->at + self->first;
    lines->text_end = text->at + text->length;
    lines->into = out->at + out->length;
    lines->into_end = out->at + out->capacity;
    enum KinetoStop stop = kineto_write_lines(lines);
    self->first = (size_t)(lines->text - text->at);
    out->length = (size_t)(lines->into - out->at);
    return stop;
}

/* Reads and writes until `out` is full or the text ends; `error` is an errno. */
static enum KinetoStop read_all(LinesObject *self, int fd, const IsWritten *is_written, Bytes *out,
                                int *error)
{
    enum KinetoStop stop = KINETO_MORE;
    while (stop == KINETO_MORE || (stop == KINETO_FULL && out->length == 0)) {
        size_t missing = out->capacity < ROOM_BYTES ? ROOM_BYTES : 0;
        /* an event that does not fit into the whole buffer gets a larger one */
        if (bytes_room(out, stop == KINETO_FULL ? 2 * out->capacity : missing) == NULL)
            return KINETO_FAILED;
        if ((stop = write_some(self, out)) != KINETO_MORE) continue;
        Py_ssize_t num_read = read_more(self, fd, is_written);
        if (num_read < 0) *error = errno;
        if (num_read <= 0) break;
    }
    return stop;
}

/* Reads without the GIL. Returns why it stopped, or -1 with an error set. */
static int read_lines(LinesObject *self, int fd, const IsWritten *is_written)
{
    Bytes *out = lines_enter(self) ? owned_begin(&self->out) : NULL;
    if (out == NULL) return -1;
    enum KinetoStop stop;
    int error = 0;
    self->is_busy = 1;
    Py_BEGIN_ALLOW_THREADS
    stop = read_all(self, fd, is_written, out, &error);
    Py_END_ALLOW_THREADS
    self->is_busy = 0;
    if (error == 0 && stop != KINETO_FAILED) return (int)stop;
    errno = error;
    if (error == 0 || error == ENOMEM)
        PyErr_NoMemory();
    else
        PyErr_SetFromErrno(PyExc_OSError);
    return -1;
}

/* Returns the lines as a view of the buffer they were written to. */
static PyObject *lines_read(LinesObject *self, PyObject *arguments)
{
    Py_buffer is_written;
    int fd, stop = -1;
    if (!PyArg_ParseTuple(arguments, "iy*", &fd, &is_written)) return NULL;
    if (is_written.len == 1)
        stop = read_lines(self, fd, is_written.buf);
    else
        PyErr_SetString(PyExc_ValueError, "The end of the text is marked by one byte.");
    PyBuffer_Release(&is_written);
    PyObject *lines = stop < 0 ? NULL : owned_view(self->out);
    return lines != NULL ? Py_BuildValue("iN", stop, lines) : NULL;
}

static PyObject *list_of_marked(const uint8_t *marks, size_t count)
{
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < count; i++) {
        if (!marks[i]) continue;
        PyObject *index = PyLong_FromSize_t(i);
        if (index == NULL || PyList_Append(list, index) < 0) Py_CLEAR(list);
        Py_XDECREF(index);
    }
    return list;
}

static PyObject *lines_crossings(LinesObject *self, PyObject *Py_UNUSED(nothing))
{
    size_t count = self->lines.num_spans;
    if (!lines_enter(self)) return NULL;
    uint8_t *marks = calloc(count + 1, 1);
    int is_done = 0;
    if (marks != NULL) {
        self->is_busy = 1;
        Py_BEGIN_ALLOW_THREADS
        is_done = kineto_crossings(self->lines.spans, count, marks);
        Py_END_ALLOW_THREADS
        self->is_busy = 0;
    }
    PyObject *list = is_done ? list_of_marked(marks, count) : PyErr_NoMemory();
    free(marks);
    return list;
}

/* The span with that number; NULL with an error set. */
static TextSpan *span_at(LinesObject *self, Py_ssize_t index)
{
    if (!lines_enter(self)) return NULL;
    if (index < 0 || (size_t)index >= self->lines.num_spans) {
        PyErr_SetString(PyExc_IndexError, "There are not so many spans.");
        return NULL;
    }
    return &self->lines.spans[index];
}

static PyObject *lines_span(LinesObject *self, PyObject *arguments)
{
    Py_ssize_t index;
    if (!PyArg_ParseTuple(arguments, "n", &index)) return NULL;
    const TextSpan *span = span_at(self, index);
    return span == NULL
               ? NULL
               : Py_BuildValue("LLKK", (long long)span->begin, (long long)span->end,
                               (unsigned long long)span->track, (unsigned long long)span->at);
}

static PyObject *lines_move(LinesObject *self, PyObject *arguments)
{
    Py_ssize_t index;
    long long begin, end;
    unsigned long long track;
    if (!PyArg_ParseTuple(arguments, "nLLK", &index, &begin, &end, &track)) return NULL;
    TextSpan *span = span_at(self, index);
    if (span == NULL) return NULL;
    span->begin = begin;
    span->end = end;
    span->track = track;
    return new_none();
}

static PyObject *lines_metadata(LinesObject *self, void *Py_UNUSED(closure))
{
    PyObject *list = lines_enter(self) ? PyList_New((Py_ssize_t)self->lines.num_metadata) : NULL;
    for (size_t i = 0; list != NULL && i < self->lines.num_metadata; i++) {
        PyObject *at = PyLong_FromUnsignedLongLong(self->lines.metadata[i]);
        if (at == NULL || PyList_SetItem(list, (Py_ssize_t)i, at) < 0) Py_CLEAR(list);
    }
    return list;
}

static PyObject *lines_rest(LinesObject *self, void *Py_UNUSED(closure))
{
    if (!lines_enter(self)) return NULL;
    const char *text = self->text.at != NULL ? self->text.at + self->first : "";
    return PyBytes_FromStringAndSize(text, (Py_ssize_t)(self->text.length - self->first));
}

static PyObject *lines_are_true(LinesObject *self, void *Py_UNUSED(closure))
{
    return lines_enter(self) ? PyBool_FromLong(self->lines.next_renamed == self->lines.num_renamed)
                             : NULL;
}

static PyObject *lines_have_orphan_frames(LinesObject *self, void *Py_UNUSED(closure))
{
    return lines_enter(self) ? PyBool_FromLong(self->lines.has_orphan_frames) : NULL;
}

static PyObject *lines_maybe_changed_names(LinesObject *self, void *Py_UNUSED(closure))
{
    const Bytes *names = &self->lines.maybe_changed;
    if (!lines_enter(self)) return NULL;
    return names->has_failed ? PyErr_NoMemory()
                             : PyBytes_FromStringAndSize(names->at, (Py_ssize_t)names->length);
}

static PyObject *lines_profiler_frames(LinesObject *self, void *Py_UNUSED(closure))
{
    PyObject *dict = lines_enter(self) ? PyDict_New() : NULL;
    for (size_t i = 0; dict != NULL && i < self->lines.own.num_frames; i++) {
        OwnFrame frame = self->lines.own.frames[i];
        PyObject *number = PyLong_FromLongLong(frame.number);
        PyObject *above = frame.above != NO_FRAME ? PyLong_FromLongLong(frame.above) : new_none();
        if (number == NULL || above == NULL || PyDict_SetItem(dict, number, above) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(number);
        Py_XDECREF(above);
    }
    return dict;
}

static PyMethodDef lines_methods[] = {
    {"read", (PyCFunction)lines_read, METH_VARARGS,
     "(fd, is_written): makes lines of what comes; why it stopped, and the lines."},
    {"crossings", (PyCFunction)lines_crossings, METH_NOARGS,
     "The spans that overlap another of their track."},
    {"span", (PyCFunction)lines_span, METH_VARARGS,
     "(index): begin, end, track, and where its line is."},
    {"move", (PyCFunction)lines_move, METH_VARARGS,
     "(index, begin, end, track): where the span is now."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef lines_values[] = {
    {"metadata", (getter)lines_metadata, NULL,
     "Offsets of the lines that describe processes and threads.", NULL},
    {"rest", (getter)lines_rest, NULL, "What was read and is no line.", NULL},
    {"are_true", (getter)lines_are_true, NULL,
     "Whether every name that was to be put right has been.", NULL},
    {"maybe_changed_names", (getter)lines_maybe_changed_names, NULL,
     "Names that Kineto may have changed, a line each.", NULL},
    {"have_orphan_frames", (getter)lines_have_orphan_frames, NULL,
     "Whether frames were of a thread without a number.", NULL},
    {"own_frames", (getter)lines_profiler_frames, NULL,
     "Of each frame of ours the number, and that of the one above.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot lines_slots[] = {
    {Py_tp_new, lines_new},
    {Py_tp_dealloc, lines_dealloc},
    {Py_tp_methods, lines_methods},
    {Py_tp_getset, lines_values},
    {Py_tp_doc, "(shift_ns, renamed, prefixes, text): what Kineto saves, a line per event; `text` "
                "is its beginning, and `prefixes` are\n"
                "what the names of our own frames begin with."},
    {0, NULL},
};

int kineto_setup(PyObject *module)
{
    return add_type(module, "kinetoscope._native.KinetoLines", sizeof(LinesObject), 0, lines_slots,
                    NULL);
}
