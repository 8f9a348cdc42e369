/* PulseWriter: writes what a rank is doing, and how long each of its steps took, into a mapped file
 * that others read meanwhile. */

#ifndef _GNU_SOURCE
    #define _GNU_SOURCE
#endif

#include "module.h"
#include "pulse/layout.h"
#include "recorder/clock.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>

#define LOOK_EVERY_NS 1000000000

/* Steps that need nothing but to be counted, and what was counted of them. */
typedef struct {
    int64_t num_left, next_batch;
    uint32_t epoch;
    int is_fetched; /* the data of the batch that is running */
    int64_t batch_began, num_steps, samples, tokens, took, last_took;
} Counting;

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

/* -- blocks -- */

static void add_sum(PulseSum *to, const PulseSum *more, int is_first)
{
    to->sum = is_first ? more->sum : to->sum + more->sum;
    to->squares = is_first ? more->squares : to->squares + more->squares;
    to->least = is_first || more->least < to->least ? more->least : to->least;
    to->most = is_first || more->most > to->most ? more->most : to->most;
}

/* Adds a block of later steps. */
static void add_block(PulseBlock *to, const PulseBlock *more)
{
    int is_first = to->count == 0;
    if (is_first) {
        to->step = more->step;
        to->begin = more->begin;
        to->epoch = more->epoch;
        to->known = more->known;
    }
    if (is_first || more->sums[0].most > to->sums[0].most) to->slowest = more->slowest;
    to->known &= more->known;
    to->count += more->count;
    for (unsigned i = 0; i <= PULSE_NUM_PHASES; i++)
        add_sum(&to->sums[i], &more->sums[i], is_first);
}

static PulseSum sum_of(int64_t duration)
{
    return (PulseSum){duration, (double)duration * (double)duration, (float)duration,
                      (float)duration};
}

static PulseBlock block_of(const PulseStep *step)
{
    PulseBlock block = {.step = step->step,
                        .begin = step->begin,
                        .slowest = step->step,
                        .count = 1,
                        .epoch = step->epoch,
                        .known = step->known};
    block.sums[0] = sum_of(step->duration);
    for (unsigned i = 0; i < PULSE_NUM_PHASES; i++) block.sums[1 + i] = sum_of(step->by_phase[i]);
    return block;
}

/* Makes room for more coarse blocks: each two become one. */
static void fold_in_pairs(PulseFile *pulse, PulseHeader *header)
{
    for (int64_t i = 0; i < header->num_coarse / 2; i++) {
        PulseBlock pair = pulse->coarse[2 * i];
        add_block(&pair, &pulse->coarse[2 * i + 1]);
        pulse->coarse[i] = pair;
    }
    header->num_coarse /= 2;
    header->steps_per_coarse *= 2;
}

static void fold_fine(PulseWriter *writer, const PulseBlock *fine)
{
    PulseFile *pulse = writer->pulse;
    PulseHeader *header = &writer->header;
    PulseBlock *coarse = &pulse->coarse[header->num_coarse];
    add_block(coarse, fine);
    if (coarse->count < header->steps_per_coarse) return;
    if (++header->num_coarse == writer->num_places) fold_in_pairs(pulse, header);
    memset(&pulse->coarse[header->num_coarse], 0, sizeof *coarse);
}

/* Takes up a step whose place another one needs. */
static void fold_step(PulseWriter *writer, const PulseStep *step)
{
    PulseFile *pulse = writer->pulse;
    PulseHeader *header = &writer->header;
    PulseBlock *fine = &pulse->fine[header->num_fine % PULSE_FINE_PLACES], of_step = block_of(step);
    add_block(fine, &of_step);
    if (fine->count < PULSE_PER_FINE) return;
    if (++header->num_fine - header->first_fine > PULSE_NUM_FINE)
        fold_fine(writer, &pulse->fine[header->first_fine++ % PULSE_FINE_PLACES]);
    memset(&pulse->fine[header->num_fine % PULSE_FINE_PLACES], 0, sizeof *fine);
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

static void enter_phase(PulseWriter *writer, uint32_t phase, int64_t now)
{
    PulseHeader *header = &writer->header;
    writer->by_phase[header->phase] += now - header->phase_since;
    header->phase = phase;
    header->known |= UINT32_C(1) << phase; /* from now on, a step without it spends no time in it */
    header->phase_since = header->heartbeat = now;
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
    enter_phase(writer, (uint32_t)number, now_of(writer));
    show_header(writer);
    return PyLong_FromUnsignedLong(before);
}

/* A backward pass begins: what went before it was the forward pass, which nothing else tells, also
 * within the closure of an optimizer's step. */
static PyObject *writer_enter_backward(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    PulseWriter *writer = (PulseWriter *)self;
    PulseFile *pulse = file_of(writer);
    if (pulse == NULL) return PyLong_FromLong(PULSE_BACKWARD);
    PulseHeader *header = &writer->header;
    uint32_t before = header->phase;
    if (before == PULSE_OTHER || before == PULSE_OPTIMIZER) {
        header->phase = PULSE_FORWARD;
        header->known |= UINT32_C(1) << PULSE_FORWARD;
    }
    enter_phase(writer, PULSE_BACKWARD, now_of(writer));
    show_header(writer);
    return PyLong_FromUnsignedLong(before);
}

static PyObject *writer_begin_step(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    PulseWriter *writer = (PulseWriter *)self;
    PulseFile *pulse = file_of(writer);
    if (pulse != NULL) {
        int64_t now = now_of(writer);
        enter_phase(writer, writer->header.phase, now);
        writer->header.step_began = now;
        show_header(writer);
        memset(writer->by_phase, 0, sizeof writer->by_phase);
    }
    return new_none();
}

static void end_step(PulseWriter *writer, int64_t batch, uint32_t epoch, int64_t now)
{
    PulseHeader *header = &writer->header;
    enter_phase(writer, header->phase, now);
    begin_writing(writer);
    PulseStep *step = &writer->pulse->steps[header->num_steps % PULSE_NUM_EXACT];
    if (header->num_steps >= PULSE_NUM_EXACT) fold_step(writer, step);
    *step = (PulseStep){.step = batch,
                        .begin = header->step_began,
                        .duration = now - header->step_began,
                        .epoch = epoch,
                        .known = header->known};
    memcpy(step->by_phase, writer->by_phase, sizeof step->by_phase);
    header->num_steps++;
    header->step_began = now;
    header->sequence++;
    show_header(writer);
    memset(writer->by_phase, 0, sizeof writer->by_phase);
}

static PyObject *writer_end_step(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    PulseWriter *writer = (PulseWriter *)self;
    PulseFile *pulse = file_of(writer);
    if (count != 2) return PyErr_Format(PyExc_TypeError, "end_step takes a batch and an epoch.");
    int64_t batch = PyLong_AsLongLong(arguments[0]), epoch = PyLong_AsLongLong(arguments[1]);
    if (PyErr_Occurred()) return NULL;
    if (pulse == NULL) return PyBool_FromLong(0);
    int64_t now = now_of(writer);
    end_step(writer, batch, (uint32_t)epoch, now);
    int is_due = now - writer->looked_at >= LOOK_EVERY_NS;
    if (is_due) writer->looked_at = now;
    return PyBool_FromLong(is_due);
}

/* -- steps that are only counted -- */

static PyObject *writer_count_steps(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    PulseWriter *writer = (PulseWriter *)self;
    if (count != 3)
        return PyErr_Format(PyExc_TypeError, "count_steps takes a number, a batch and an epoch.");
    int64_t num_steps = PyLong_AsLongLong(arguments[0]), batch = PyLong_AsLongLong(arguments[1]);
    int64_t epoch = PyLong_AsLongLong(arguments[2]);
    if (PyErr_Occurred()) return NULL;
    writer->counting = (Counting){.num_left = num_steps,
                                  .next_batch = batch,
                                  .epoch = (uint32_t)epoch,
                                  .batch_began = now_of(writer)};
    return new_none();
}

static PyObject *writer_count_no_more(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    ((PulseWriter *)self)->counting.num_left = 0;
    return new_none();
}

static PyObject *writer_begin_batch(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    PulseWriter *writer = (PulseWriter *)self;
    if (!writer->counting.is_fetched) writer->counting.batch_began = now_of(writer);
    writer->counting.is_fetched = 1;
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
    end_step(writer, counting->next_batch++, counting->epoch, now);
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

/* -- from Python -- */

static void release(PulseWriter *writer)
{
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
    Py_VISIT(((PulseWriter *)self)->file.obj);
    return 0;
}

static int writer_clear(PyObject *self)
{
    Py_CLEAR(((PulseWriter *)self)->now);
    return 0;
}

static void writer_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    release((PulseWriter *)self);
    writer_clear(self);
    object_free(self);
}

static PyMethodDef writer_methods[] = {
    {"enter", writer_enter, METH_O, "(phase): begins a phase; returns the one before."},
    {"enter_backward", writer_enter_backward, METH_NOARGS,
     "(): begins a backward pass, before which was the forward pass; returns the phase before."},
    {"begin_step", writer_begin_step, METH_NOARGS, "(): what was before belongs to no step."},
    {"end_step", (PyCFunction)(void (*)(void))writer_end_step, METH_FASTCALL,
     "(batch, epoch): ends a step, and begins the next one. Returns whether a second has passed "
     "since it last returned True."},
    {"count_steps", (PyCFunction)(void (*)(void))writer_count_steps, METH_FASTCALL,
     "(num_steps, batch, epoch): so many steps, from that batch on, need nothing but count_step."},
    {"count_no_more", writer_count_no_more, METH_NOARGS, "(): the next step needs more."},
    {"begin_batch", writer_begin_batch, METH_NOARGS, "(): the data of the batch is there."},
    {"count_step", (PyCFunction)(void (*)(void))writer_count_step, METH_FASTCALL,
     "(samples, tokens): ends a step, if it needs nothing else, and returns whether it does not. "
     "Once a second one does."},
    {"counted", writer_counted, METH_NOARGS,
     "(): how many steps count_step has ended since count_steps, their samples, tokens and "
     "nanoseconds, and the nanoseconds of the last."},
    {"batch", writer_batch, METH_NOARGS,
     "(): when the batch that is running began, and whether its data is there."},
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
     "kinetoscope.pulse.pure_writer."},
    {0, NULL},
};

int pulse_setup(PyObject *module)
{
    pthread_atfork(NULL, NULL, begin_generation);
    return add_type(module, "kinetoscope._native.PulseWriter", sizeof(PulseWriter),
                    Py_TPFLAGS_HAVE_GC, writer_slots, NULL);
}
