/* Spans and entries: the path that every `with span:` takes.
 *
 * `with` looks up __enter__ and __exit__ on the type, through the descriptor protocol, and then
 * calls __enter__ (Python 3.11 to 3.13 look up __enter__ first, 3.14 __exit__). Looking up __exit__
 * hands out an entry: its bound __exit__ was made long ago, and belongs to this one `with` alone.
 * So each end finds its own begin, however spans overlap, with no stack to search. The call of
 * __enter__ then begins the entry that was handed out.
 *
 * Other ways in are rarer, and slower. __enter__ called with no entry handed out
 * (`contextlib.ExitStack`, or by hand) begins an *explicit* entry. __exit__ of an entry that was
 * never begun ends the span's latest explicit one. */

#include "recorder/native.h"

#include <stddef.h>

PyTypeObject *entry_type;
static PyTypeObject *span_type;

static PyObject *skipped_exit;             /* what an inactive `with` calls at its end */
static PyObject *plain_enter, *plain_exit; /* what the class answers, for ExitStack */
static uint64_t num_spans;

static inline int is_active(const Span *span)
{
    return (shared_load(&span->recorder->control->action) & span->mask) != 0;
}

/* of a span that has not been recorded; NO_NAME in kinetoscope/recording/recorder.py */
#define NO_NAME UINT32_MAX

/* Asks the span for the id of its name in its recorder. */
static int give_name(Span *span)
{
    PyObject *recorder;
    do {
        recorder = (PyObject *)span->recorder;
        PyObject *id = PyObject_CallMethod((PyObject *)span, "intern", NULL);
        if (id == NULL) return -1;
        unsigned long name = PyLong_AsUnsignedLong(id);
        Py_DECREF(id);
        if (PyErr_Occurred()) return -1;
        span->name_id = (uint32_t)name;
    } while (recorder != (PyObject *)span->recorder); /* it was attached to another one meanwhile */
    return 0;
}

static ALWAYS_INLINE int has_name(Span *span)
{
    return LIKELY(span->name_id != NO_NAME) || give_name(span) == 0;
}

/* -- beginning and ending -- */

static int tell_listener(Recorder *recorder, const char *method, const char *format, uint32_t name,
                         PyObject *entry, int64_t at)
{
    PyObject *listener = recorder->listener;
    if (listener == NULL) return 0;
    Py_INCREF(listener);
    PyObject *answer = entry != NULL
                           ? PyObject_CallMethod(listener, method, format, name, entry,
                                                 (long long)at)
                           : PyObject_CallMethod(listener, method, format, name, (long long)at);
    Py_DECREF(listener);
    Py_XDECREF(answer);
    return answer == NULL ? -1 : 0;
}

static ALWAYS_INLINE int record_instant(Span *span)
{
    if (!has_name(span)) return -1;
    Recorder *recorder = span->recorder;
    int64_t now = recorder_now(recorder);
    if (recorder_failed(now)) return -1;
    if (LIKELY(shared_load(&recorder->control->window) != 0)) {
        Track *track = track_of_this_thread(recorder);
        if (track == NULL) return -1;
        Value nothing = {0};
        uint64_t tail = record_tail(track->num_open, KIND_INSTANT, 0, 0);
        track_append(track, now, nothing, span->name_id, shared_load(&recorder->control->batch),
                     tail);
        recorder_settle(recorder);
    }
    return tell_listener(recorder, "on_instant", "IL", span->name_id, NULL, now);
}

static int announce_begin(Span *span, Entry *entry, int64_t begin)
{
    if (tell_listener(span->recorder, "on_begin", "IOL", span->name_id, (PyObject *)entry, begin) <
        0)
        return -1;
    return span->edges & 1 && is_active(span) ? record_instant(span) : 0;
}

static int announce_end(Span *span, Entry *entry, Recorder *recorder, uint32_t name, int64_t end)
{
    if (span->edges & 2 && is_active(span) && record_instant(span) < 0) return -1;
    return tell_listener(recorder, "on_end", "IOL", name, (PyObject *)entry, end);
}

/* Whether a child's parent closed the window while the child looked at it and then at the clock:
 * the span would begin after the end of its window, and be in none. */
static ALWAYS_INLINE int has_closed(const Entry *entry, const Recorder *recorder)
{
    return entry->window != 0 && recorder->is_child &&
           entry->window != shared_load(&recorder->control->window);
}

/* Begins an entry, which gets a record at its end if a window is open now. The clock is read
 * last. */
static ALWAYS_INLINE int begin_entry(Span *span, Entry *entry, int is_explicit, int is_recording)
{
    Track *track = entry->track;
    Recorder *recorder = track->recorder;
    entry->is_explicit = (uint8_t)is_explicit;
    entry->is_told = (uint8_t)is_recording;
    entry->order = ++recorder->num_begun;
    Record *slot;
    uint64_t tail;
    int64_t now;
    do {
        entry->window = is_recording ? shared_load(&recorder->control->window) : 0;
        if (UNLIKELY(!track->head_is_final) && entry->window != 0) track_finish_head(track);
        slot = &track->slots[entry->slot];
        shared_barrier(); /* after its last span was cleared */
        slot->name = span->name_id;
        slot->batch = shared_load(&recorder->control->batch);
        tail = record_tail(track->num_open, KIND_SPAN, 0, entry->window);
        now = is_recording ? recorder_now(recorder) : 0;
        if (recorder_failed(now)) {
            Py_CLEAR(entry->span);
            track_free_entry(track, entry);
            return -1;
        }
    } while (UNLIKELY(has_closed(entry, recorder)));
    entry->state = ENTRY_OPEN;
    track->num_open++;
    slot = &track->slots[entry->slot];
    slot->begin = now;
    /* kept here for the end, also where the slot itself stays unpublished */
    slot->end.integer = (int64_t)tail;
    if (LIKELY(entry->window != 0)) record_publish(slot, tail);
    if (UNLIKELY(is_recording && (recorder->listener != NULL || span->edges != 0)))
        return announce_begin(span, entry, now);
    return 0;
}

/* What remains to be done when a span has ended and there is more to do than usual. */
static int tell_end(Span *span, Entry *entry, Recorder *recorder, uint32_t name, int64_t end)
{
    Py_INCREF((PyObject *)recorder);
    recorder_settle(recorder);
    int result = 0;
    if (entry->is_told && end >= 0 && (recorder->listener != NULL || span->edges != 0))
        result = announce_end(span, entry, recorder, name, end);
    Py_DECREF((PyObject *)recorder);
    return result;
}

/* Ends an open entry; `end` < 0 forgets it. What the entry held is released last, since that may
 * run anything. */
static ALWAYS_INLINE int end_entry(Entry *entry, int64_t end)
{
    Track *track = entry->track;
    Recorder *recorder = track->recorder;
    Span *span = entry->span;
    int result = 0;
    entry->span = NULL;
    if (LIKELY(recorder != NULL && !track->is_foreign)) {
        Record *slot = &track->slots[entry->slot];
        uint32_t name = slot->name;
        if (LIKELY(entry->window != 0)) {
            int is_open = entry->window == shared_load(&recorder->control->window);
            if (LIKELY((is_open || recorder->is_child) && end >= 0)) { /* see follow_parent */
                Value value = {end};
                uint64_t tail = (uint64_t)slot->end.integer & 0xffffffffu; /* without the window */
                track_append(track, slot->begin, value, name, slot->batch, tail);
            }
            record_publish(slot, 0);
        }
        track->num_open--;
        track_free_entry(track, entry);
        if (UNLIKELY(recorder->wants_request || recorder->listener != NULL || span->edges != 0))
            result = tell_end(span, entry, recorder, name, end);
    } else
        entry->state = ENTRY_IDLE;
    Py_XDECREF((PyObject *)span);
    return result;
}

/* A listener failed to hear of the begin: there is no span then. */
static void give_up(Entry *entry)
{
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    if (entry->state == ENTRY_OPEN) end_entry(entry, -1);
    PyErr_Restore(type, error, trace);
}

/* An entry for the span on this thread, which holds the span. */
static ALWAYS_INLINE Entry *take_entry(Span *span)
{
    Track *track = track_of_this_thread(span->recorder);
    Entry *entry = track != NULL ? track_take_entry(track) : NULL;
    if (LIKELY(entry != NULL)) {
        entry->span = (Span *)Py_NewRef((PyObject *)span);
        entry->span_id = span->id;
    }
    return entry;
}

/* Gives back an entry that was handed out and never begun. */
static void take_back(Entry *entry)
{
    Span *span = entry->span;
    entry->span = NULL;
    if (entry->track->recorder != NULL && !entry->track->is_foreign)
        track_free_entry(entry->track, entry);
    else
        entry->state = ENTRY_IDLE;
    Py_XDECREF((PyObject *)span);
}

/* Forgets what was looked up for a `with` that did not come about. */
static void forget_handed(Span *span)
{
    PyObject *handed = span->handed;
    span->handed = NULL;
    if (handed != NULL && handed != Py_None && ((Entry *)handed)->state == ENTRY_HANDED)
        take_back((Entry *)handed);
    Py_XDECREF(handed);
}

/* -- the lookup -- */

typedef struct {
    PyObject_HEAD
} Descriptor;

static int is_span(PyObject *object)
{
    /* the type asked about last; types of spans live as long as the module */
    static PyTypeObject *known;
    if (LIKELY(Py_TYPE(object) == known)) return 1;
    if (!PyObject_TypeCheck(object, span_type)) {
        PyErr_SetString(PyExc_TypeError,
                        "This __enter__ or __exit__ belongs to a span, and to nothing else.");
        return 0;
    }
    Py_INCREF((PyObject *)Py_TYPE(object));
    Py_XDECREF((PyObject *)known);
    known = Py_TYPE(object);
    return 1;
}

static PyMethodDef bound_enter, bound_exit;

static PyObject *enter_get(PyObject *descriptor, PyObject *object, PyObject *Py_UNUSED(type))
{
    (void)descriptor;
    if (object == NULL) return Py_NewRef(plain_enter);
    if (UNLIKELY(!is_span(object))) return NULL;
    Span *span = (Span *)object;
    if (UNLIKELY(span->enter == NULL)) span->enter = PyCFunction_NewEx(&bound_enter, object, NULL);
    return Py_XNewRef(span->enter);
}

static PyObject *exit_get(PyObject *descriptor, PyObject *object, PyObject *Py_UNUSED(type))
{
    (void)descriptor;
    if (object == NULL) return Py_NewRef(plain_exit);
    if (UNLIKELY(!is_span(object))) return NULL;
    Span *span = (Span *)object;
    int is_recording = is_active(span);
    if (is_recording && !has_name(span)) return NULL;
    if (UNLIKELY(span->handed != NULL)) forget_handed(span);
    if (!is_recording) {
        span->handed = new_none();
        return Py_NewRef(skipped_exit);
    }
    Entry *entry = take_entry(span);
    if (UNLIKELY(entry == NULL)) return NULL;
    entry->state = ENTRY_HANDED;
    span->handed = Py_NewRef((PyObject *)entry);
    return Py_NewRef(entry->track->exits[entry->slot]);
}

/* -- the calls -- */

static PyObject *span_enter(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    Span *span = (Span *)self;
    PyObject *handed = span->handed;
    span->handed = NULL;
    if (LIKELY(handed != NULL)) {
        int result = 0;
        if (handed != Py_None && LIKELY(((Entry *)handed)->state == ENTRY_HANDED)) {
            result = begin_entry(span, (Entry *)handed, 0, 1);
            if (UNLIKELY(result < 0)) give_up((Entry *)handed);
        }
        Py_DECREF(handed);
        return result < 0 ? NULL : Py_NewRef(self);
    }
    /* An inactive one as well: a span that began unrecorded must not end another one. */
    int is_recording = is_active(span);
    Entry *entry = !is_recording || has_name(span) ? take_entry(span) : NULL;
    if (entry == NULL) return NULL;
    Py_INCREF((PyObject *)entry);
    int result = begin_entry(span, entry, 1, is_recording);
    if (result < 0) give_up(entry);
    Py_DECREF((PyObject *)entry);
    return result < 0 ? NULL : Py_NewRef(self);
}

/* The latest open entry of a span, on `only` or on every thread but that one. */
static Entry *latest_entry(Recorder *recorder, uint64_t span_id, Track *only, int is_explicit)
{
    Entry *latest = NULL;
    for (Track *track = recorder->tracks; track != NULL; track = track->next_track)
        for (uint32_t slot = 0; (track == only) == (only != NULL) && slot < track->num_made;
             slot++) {
            Entry *entry = track->entries[slot];
            if (entry->state == ENTRY_OPEN && entry->span_id == span_id &&
                entry->is_explicit == is_explicit &&
                (latest == NULL || entry->order > latest->order))
                latest = entry;
        }
    return latest;
}

/* Ends the span's latest explicit entry: on this thread, or on whichever has one (a generator may
 * be closed anywhere); else the latest of a `with` on this thread. */
static int end_explicit(Recorder *recorder, uint64_t span_id, int64_t now)
{
    Track *mine = track_of_this_thread(recorder);
    if (mine == NULL) return -1;
    Entry *entry = latest_entry(recorder, span_id, mine, 1);
    if (entry == NULL) entry = latest_entry(recorder, span_id, NULL, 1);
    if (entry == NULL) entry = latest_entry(recorder, span_id, mine, 0);
    if (entry == NULL) return 0;
    Py_INCREF((PyObject *)entry);
    int result = end_entry(entry, now);
    Py_DECREF((PyObject *)entry);
    return result;
}

static PyObject *entry_exit(PyObject *self, PyObject *const *Py_UNUSED(arguments),
                            Py_ssize_t Py_UNUSED(count))
{
    Entry *entry = (Entry *)self;
    Recorder *recorder = entry->track->recorder;
    int64_t now = recorder != NULL ? recorder_now(recorder) : 0;
    if (recorder_failed(now)) return NULL;
    int result;
    if (LIKELY(entry->state == ENTRY_OPEN))
        result = end_entry(entry, now);
    else if (recorder == NULL)
        result = 0;
    else {
        if (entry->state == ENTRY_HANDED && entry->span->handed == self) forget_handed(entry->span);
        result = end_explicit(recorder, entry->span_id, now);
    }
    return result < 0 ? NULL : new_none();
}

static PyObject *span_exit(PyObject *self, PyObject *Py_UNUSED(arguments))
{
    Span *span = (Span *)self;
    int64_t now = recorder_now(span->recorder);
    if (recorder_failed(now) || end_explicit(span->recorder, span->id, now) < 0) return NULL;
    return new_none();
}

static PyObject *end_skipped(PyObject *Py_UNUSED(self), PyObject *const *Py_UNUSED(arguments),
                             Py_ssize_t Py_UNUSED(count))
{
    return new_none();
}

/* -- tokens -- */

static PyObject *span_begin(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    Span *span = (Span *)self;
    if (!is_active(span)) return new_none();
    Entry *entry = has_name(span) ? take_entry(span) : NULL;
    if (entry == NULL) return NULL;
    Py_INCREF((PyObject *)entry);
    if (begin_entry(span, entry, 0, 1) < 0) {
        give_up(entry);
        Py_DECREF((PyObject *)entry);
        return NULL;
    }
    if (entry->window != 0 || !span->recorder->is_child) return (PyObject *)entry;
    /* the parent has just closed the window: this is not recorded */
    int error = end_entry(entry, -1);
    Py_DECREF((PyObject *)entry);
    return error < 0 ? NULL : new_none();
}

static PyObject *finish_token(PyObject *token, int is_end)
{
    if (token == Py_None) return new_none();
    if (Py_TYPE(token) != entry_type)
        return PyErr_Format(PyExc_TypeError,
                            "A span is ended by the token that begin() gave, not by %R.", token);
    Entry *entry = (Entry *)token;
    Recorder *recorder = entry->track->recorder;
    if (entry->state != ENTRY_OPEN) return new_none();
    int64_t now = is_end && recorder != NULL ? recorder_now(recorder) : -1;
    if ((is_end && recorder_failed(now)) ||
        (entry->state == ENTRY_OPEN && end_entry(entry, now) < 0))
        return NULL;
    return new_none();
}

static PyObject *span_end(PyObject *Py_UNUSED(self), PyObject *token)
{
    return finish_token(token, 1);
}
static PyObject *span_abandon(PyObject *Py_UNUSED(self), PyObject *token)
{
    return finish_token(token, 0);
}

/* -- instants and counters -- */

static PyObject *span_instant(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    Span *span = (Span *)self;
    if (is_active(span) && record_instant(span) < 0) return NULL;
    return new_none();
}

/* A plain number as it stands in a record. Returns its flags, or -1 if it is something else (no
 * error is set). */
static ALWAYS_INLINE int plain_number(PyObject *number, Value *value)
{
    if (PyFloat_CheckExact(number)) {
        value->real = PyFloat_AsDouble(number);
        return FLAG_FLOAT;
    }
    if (!PyLong_CheckExact(number)) return -1;
    int overflow;
    value->integer = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (LIKELY(overflow == 0 && value->integer != INT64_MIN)) return 0;
    value->real = PyLong_AsDouble(number);
    if (value->real == -1.0 && PyErr_Occurred()) {
        PyErr_Clear();
        value->real = overflow < 0 ? -Py_HUGE_VAL : Py_HUGE_VAL;
    }
    return FLAG_FLOAT;
}

#define MOST_SERIES (1 << 16)

/* The id of a value's name; -1 with an error set. */
static int64_t series_id(Recorder *recorder, PyObject *name)
{
    PyObject *id = PyDict_GetItemWithError(recorder->series, name);
    if (LIKELY(id != NULL)) return PyLong_AsLongLong(id);
    if (PyErr_Occurred()) return -1;
    if (PyDict_Size(recorder->series) >= MOST_SERIES) PyDict_Clear(recorder->series);
    Py_INCREF(name);
    id = PyObject_CallMethod((PyObject *)recorder, "intern_series", "O", name);
    int64_t result = id == NULL || PyDict_SetItem(recorder->series, name, id) < 0
                         ? -1
                         : PyLong_AsLongLong(id);
    Py_XDECREF(id);
    Py_DECREF(name);
    return result;
}

static int tell_counter(Span *span, int64_t now, PyObject *values)
{
    PyObject *listener = span->recorder->listener;
    if (LIKELY(listener == NULL)) return 0;
    Py_INCREF(listener);
    PyObject *answer = PyObject_CallMethod(listener, "on_counter", "ILO", span->name_id,
                                           (long long)now, values);
    Py_DECREF(listener);
    Py_XDECREF(answer);
    return answer == NULL ? -1 : 0;
}

static ALWAYS_INLINE void append_value(Recorder *recorder, Track *track, Span *span, int64_t now,
                                       Value value, int flags, int64_t series)
{
    uint64_t tail = record_tail(0, KIND_COUNTER, (uint32_t)flags, (uint32_t)series);
    track_append(track, now, value, span->name_id, shared_load(&recorder->control->batch), tail);
}

typedef struct {
    Value value;
    int64_t series;
    int flags;
} Reading;

/* Reads a dict into at most `space` readings. Returns their number, or -1 with an error set, or -2
 * if there is anything but strings and plain numbers in it. */
static Py_ssize_t read_plain_dict(Recorder *recorder, PyObject *values, Reading *readings,
                                  Py_ssize_t space)
{
    PyObject *name, *number;
    Py_ssize_t count = 0, position = 0;
    for (; count < space && PyDict_Next(values, &position, &name, &number); count++) {
        Reading *reading = &readings[count];
        if (!PyUnicode_CheckExact(name) ||
            (reading->flags = plain_number(number, &reading->value)) < 0)
            return -2;
        if ((reading->series = series_id(recorder, name)) < 0) return -1;
    }
    return count;
}

static int record_readings(Span *span, PyObject *values, const Reading *readings, Py_ssize_t count)
{
    Recorder *recorder = span->recorder;
    int64_t now = recorder_now(recorder);
    if (recorder_failed(now)) return -1;
    if (shared_load(&recorder->control->window) != 0) {
        Track *track = track_of_this_thread(recorder);
        if (track == NULL) return -1;
        for (const Reading *it = readings; it < readings + count; it++)
            append_value(recorder, track, span, now, it->value, it->flags, it->series);
        recorder_settle(recorder);
    }
    return tell_counter(span, now, values);
}

#define USUAL_COUNTER 32

/* Records the values of a dict whose keys are strings and whose values are plain numbers. Returns
 * 0, or without having recorded anything 1 if the dict holds something else; -1 with an error
 * set. */
static int record_plain_dict(Span *span, PyObject *values)
{
    Reading usual[USUAL_COUNTER], *readings = usual;
    Py_ssize_t size = PyDict_Size(values);
    if (size > USUAL_COUNTER &&
        (readings = PyMem_Malloc((size_t)size * sizeof *readings)) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    Py_ssize_t count = read_plain_dict(span->recorder, values, readings, size);
    int result = count >= 0 ? record_readings(span, values, readings, count) : count == -2 ? 1 : -1;
    if (readings != usual) PyMem_Free(readings);
    return result;
}

/* One number is named after the span itself. Returns 1 for what is no plain number, -1 with an
 * error set. */
static ALWAYS_INLINE int record_one_number(Span *span, PyObject *number)
{
    Recorder *recorder = span->recorder;
    Value value;
    int flags = plain_number(number, &value);
    if (flags < 0 || span->own_series < 0 || recorder->listener != NULL) return 1;
    int64_t now = recorder_now(recorder);
    if (recorder_failed(now)) return -1;
    if (shared_load(&recorder->control->window) != 0) {
        Track *track = track_of_this_thread(recorder);
        if (track == NULL) return -1;
        append_value(recorder, track, span, now, value, flags, span->own_series);
        recorder_settle(recorder);
    }
    return 0;
}

/* The way of everything that is not plain: the span says which names and numbers are meant. */
static int record_any_counter(Span *span, PyObject *values)
{
    PyObject *pairs = PyObject_CallMethod((PyObject *)span, "plain_values", "O", values);
    if (pairs == NULL) return -1;
    int result = -1;
    if (!PyDict_CheckExact(pairs))
        PyErr_SetString(PyExc_TypeError, "plain_values must give a dict.");
    else
        result = record_plain_dict(span, pairs);
    if (result > 0) {
        PyErr_SetString(PyExc_ValueError,
                        "plain_values must give plain numbers, named by strings.");
        result = -1;
    }
    PyObject *name, *number;
    Py_ssize_t position = 0;
    if (result == 0 && PyLong_CheckExact(values) + PyFloat_CheckExact(values) &&
        PyDict_Next(pairs, &position, &name, &number))
        span->own_series = series_id(span->recorder, name);
    Py_DECREF(pairs);
    return result;
}

static PyObject *span_counter(PyObject *self, PyObject *values)
{
    Span *span = (Span *)self;
    if (!is_active(span)) return new_none();
    if (!has_name(span)) return NULL;
    int result = PyDict_CheckExact(values) ? record_plain_dict(span, values)
                                           : record_one_number(span, values);
    if (UNLIKELY(result > 0)) result = record_any_counter(span, values);
    return result < 0 ? NULL : new_none();
}

/* -- Span -- */

static void set_recorder(Span *span, PyObject *recorder, uint32_t name_id)
{
    PyObject *old = (PyObject *)span->recorder;
    forget_handed(span);
    Py_CLEAR(span->enter); /* which holds the span */
    span->recorder = (Recorder *)Py_NewRef(recorder);
    span->name_id = name_id;
    span->own_series = -1;
    Py_XDECREF(old);
}

static int span_init(PyObject *self, PyObject *arguments, PyObject *names)
{
    static char *keywords[] = {"recorder", "name_id", "mask", "edges", NULL};
    Span *span = (Span *)self;
    PyObject *recorder;
    unsigned int name_id, mask, edges = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "O!II|I", keywords, recorder_type, &recorder,
                                     &name_id, &mask, &edges))
        return -1;
    set_recorder(span, recorder, name_id);
    span->id = ++num_spans;
    span->mask = mask;
    span->edges = edges;
    return 0;
}

static PyObject *span_attach(PyObject *self, PyObject *arguments)
{
    PyObject *recorder;
    unsigned int name_id;
    if (!PyArg_ParseTuple(arguments, "O!I", recorder_type, &recorder, &name_id)) return NULL;
    set_recorder((Span *)self, recorder, name_id);
    return new_none();
}

static PyObject *span_new(PyTypeObject *type, PyObject *arguments, PyObject *Py_UNUSED(names))
{
    /* Before __init__ has run, and even if a subclass never runs it, the span must have a
     * recorder. */
    if (PyTuple_Size(arguments) < 1 ||
        !PyObject_TypeCheck(PyTuple_GetItem(arguments, 0), recorder_type)) {
        PyErr_SetString(PyExc_TypeError,
                        "The first argument of a native span is a native recorder.");
        return NULL;
    }
    PyObject *self = object_new(type);
    if (self != NULL) set_recorder((Span *)self, PyTuple_GetItem(arguments, 0), 0);
    return self;
}

static int span_traverse(PyObject *self, visitproc visit, void *arg)
{
    Span *span = (Span *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(span->recorder);
    Py_VISIT(span->enter);
    Py_VISIT(span->handed);
    return 0;
}

static int span_clear(PyObject *self)
{
    /* The recorder stays: a span in a cycle that is being collected may still be entered, by a
     * finalizer. */
    Py_CLEAR(((Span *)self)->enter);
    forget_handed((Span *)self);
    return 0;
}

static void span_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    span_clear(self);
    Py_CLEAR(((Span *)self)->recorder);
    object_free(self);
}

static PyMethodDef span_methods[] = {
    {"attach", span_attach, METH_VARARGS,
     "Makes the span record into another recorder from now on."},
    {"begin", span_begin, METH_NOARGS,
     "Begins a span; gives the token that ends it, or None if it is not recorded."},
    {"end", span_end, METH_O,
     "Ends the span of a token; does nothing for None or a token ended before."},
    {"abandon", span_abandon, METH_O, "Forgets the span of a token: it turned out to be none."},
    {"instant", span_instant, METH_NOARGS, "Records this moment."},
    {"counter", span_counter, METH_O,
     "Records values at this moment: a mapping of names to numbers, or one number, named after the "
     "span."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef span_members[] = {
    {"_recorder", T_OBJECT_EX, offsetof(Span, recorder), READONLY, "Where it records."},
    {"name_id", T_UINT, offsetof(Span, name_id), READONLY, "The id of its name there."},
    {"mask", T_UINT, offsetof(Span, mask), 0, "The bits of the actions under which it records."},
    {"edges", T_UINT, offsetof(Span, edges), 0, "At which edges it records an instant as well."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot span_slots[] = {
    {Py_tp_new, span_new},
    {Py_tp_init, span_init},
    {Py_tp_dealloc, span_dealloc},
    {Py_tp_traverse, span_traverse},
    {Py_tp_clear, span_clear},
    {Py_tp_methods, span_methods},
    {Py_tp_members, span_members},
    {Py_tp_doc, "A reusable span; see kinetoscope.recording.recorder.Span."},
    {0, NULL},
};

/* -- Entry -- */

PyObject *entry_new(Track *track, uint32_t slot, Entry **result)
{
    Entry *entry = object_new(entry_type);
    if (entry == NULL) return NULL;
    entry->track = track;
    track_keep(track);
    entry->slot = slot;
    PyObject *exit = PyCFunction_NewEx(&bound_exit, (PyObject *)entry, NULL);
    Py_DECREF((PyObject *)entry); /* from here on its __exit__ holds it */
    *result = entry;
    return exit;
}

static int entry_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((Entry *)self)->span);
    return 0;
}

static int entry_clear(PyObject *self)
{
    Entry *entry = (Entry *)self;
    entry->state = ENTRY_IDLE;
    Py_CLEAR(entry->span);
    return 0;
}

static void entry_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    Py_CLEAR(((Entry *)self)->span);
    track_drop(((Entry *)self)->track);
    object_free(self);
}

static PyType_Slot entry_slots[] = {
    {Py_tp_dealloc, entry_dealloc},
    {Py_tp_traverse, entry_traverse},
    {Py_tp_clear, entry_clear},
    {Py_tp_doc, "A span in progress, and the token that ends it."},
    {0, NULL},
};

/* -- setting up -- */

static PyMethodDef bound_enter = {"__enter__", span_enter, METH_NOARGS, "Begins the span."};
static PyMethodDef bound_exit = {"__exit__", (PyCFunction)(void (*)(void))entry_exit, METH_FASTCALL,
                                 "Ends the span."};
static PyMethodDef unbound_exit = {"__exit__", span_exit, METH_VARARGS, "Ends the span."};
static PyMethodDef skipped = {"__exit__", (PyCFunction)(void (*)(void))end_skipped, METH_FASTCALL,
                              "Ends a span that is not recorded."};

static PyType_Slot enter_slots[] = {{Py_tp_descr_get, enter_get}, {0, NULL}};
static PyType_Slot exit_slots[] = {{Py_tp_descr_get, exit_get}, {0, NULL}};
#define OURS_ALONE (Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION)
static PyType_Spec enter_spec = {"kinetoscope._native.Enter", sizeof(Descriptor), 0, OURS_ALONE,
                                 enter_slots};
static PyType_Spec exit_spec = {"kinetoscope._native.Exit", sizeof(Descriptor), 0, OURS_ALONE,
                                exit_slots};

static int install_descriptor(PyType_Spec *spec, const char *name)
{
    PyObject *type = PyType_FromSpec(spec);
    PyObject *descriptor = type != NULL ? (PyObject *)PyObject_New(Descriptor, (PyTypeObject *)type)
                                        : NULL;
    int result = descriptor != NULL
                     ? PyObject_SetAttrString((PyObject *)span_type, name, descriptor)
                     : -1;
    Py_XDECREF(descriptor);
    Py_XDECREF((PyObject *)type);
    return result;
}

int span_setup(PyObject *module)
{
    if (add_type(module, "kinetoscope._native.Entry", sizeof(Entry),
                 Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, entry_slots,
                 &entry_type) < 0 ||
        add_type(module, "kinetoscope._native.Span", sizeof(Span),
                 Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, span_slots, &span_type) < 0)
        return -1;
    skipped_exit = PyCFunction_NewEx(&skipped, NULL, NULL);
    plain_enter = PyDescr_NewMethod(span_type, &bound_enter);
    plain_exit = PyDescr_NewMethod(span_type, &unbound_exit);
    if (skipped_exit == NULL || plain_enter == NULL || plain_exit == NULL) return -1;
    return install_descriptor(&enter_spec, "__enter__") < 0 ||
                   install_descriptor(&exit_spec, "__exit__") < 0
               ? -1
               : 0;
}
