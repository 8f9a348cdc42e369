/* Entries: spans in progress. A `with` uses the entry that was made for it when its __exit__ was
 * looked up (see with.c). A direct call of __enter__ makes an explicit entry. begin() returns an
 * entry as a token. */

#include "recorder/native.h"

static PyTypeObject *entry_type;

/* -- ending -- */

static int announce_end(Span *span, Entry *entry, Recorder *recorder, uint32_t name, int64_t end)
{
    if (span->edges & 2 && span_is_active(span) && span_record_instant(span) < 0) return -1;
    return recorder_notify(recorder, "on_end", name, end, (PyObject *)entry);
}

/* Finish the end of a span: settle the recorder, and notify listeners if the span was active when
 * it began. */
static int after_end(Span *span, Entry *entry, Recorder *recorder, uint32_t name, int64_t end)
{
    Py_INCREF((PyObject *)recorder);
    int result = recorder_settle(recorder);
    if (result == 0 && entry->was_active && end >= 0)
        result = announce_end(span, entry, recorder, name, end);
    Py_DECREF((PyObject *)recorder);
    return result;
}

/* Returns an entry that is not open to its track's free list. */
static void release(Entry *entry)
{
    Span *span = entry->span;
    entry->span = NULL;
    if (entry->track->recorder != NULL && !entry->track->is_foreign)
        track_free_entry(entry->track, entry);
    else
        entry->state = ENTRY_IDLE;
    Py_XDECREF((PyObject *)span);
}

void span_drop_handed(Span *span)
{
    PyObject *handed = span->handed;
    span->handed = NULL;
    if (handed != NULL && handed != Py_None && ((Entry *)handed)->state == ENTRY_HANDED)
        release((Entry *)handed);
    Py_XDECREF(handed);
}

/* Ends an open entry; with `end` < 0 nothing is recorded. The entry's reference to its span is
 * released last, because that can run any Python code. */
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
            int is_open = entry->window == recorder_window(recorder);
            if (LIKELY((is_open || recorder->is_child) && end >= 0)) { /* see live_folder.c */
                Value value = {end};
                uint64_t tail = (uint64_t)slot->end.integer & 0xffffffffu; /* without the window */
                track_append(track, slot->begin, value, name, slot->batch, tail);
            }
            record_publish(slot, 0);
        } else if (UNLIKELY(recorder->slow != NULL) && slot->begin > 0)
            slow_add_mark(recorder->slow, name, slot->begin, end);
        track->num_open--;
        track_free_entry(track, entry);
        if (UNLIKELY(recorder->wants_request || recorder->listener != NULL || span->edges != 0))
            result = after_end(span, entry, recorder, name, end);
    } else
        entry->state = ENTRY_IDLE;
    Py_XDECREF((PyObject *)span);
    return result;
}

/* -- beginning -- */

/* Notifies the listener of the start. If the listener raises, the span does not begin. */
static int announce_begin(Span *span, Entry *entry, int64_t begin)
{
    PyObject *type, *error, *trace;
    if (recorder_notify(span->recorder, "on_begin", span->name_id, begin, (PyObject *)entry) == 0 &&
        (!(span->edges & 1) || !span_is_active(span) || span_record_instant(span) == 0))
        return 0;
    PyErr_Fetch(&type, &error, &trace);
    if (entry->state == ENTRY_OPEN) end_entry(entry, -1);
    PyErr_Restore(type, error, trace);
    return -1;
}

/* In a child process: whether the parent closed the window between our reading of the window and of
 * the clock. The span would begin after its window's end, so it belongs to no window. */
static ALWAYS_INLINE int has_closed(const Entry *entry, const Recorder *recorder)
{
    return entry->window != 0 && recorder->is_child && entry->window != recorder_window(recorder);
}

/* As the time of a begin: the clock is read. */
#define AT_ONCE INT64_MIN

/* Begins an entry at the time `at`; if a window is open now, the span is recorded at its end. The
 * clock is read last. */
static ALWAYS_INLINE int begin_entry(Span *span, Entry *entry, int is_explicit, int is_recording,
                                     int64_t at)
{
    Track *track = entry->track;
    Recorder *recorder = track->recorder;
    entry->is_explicit = (uint8_t)is_explicit;
    entry->was_active = (uint8_t)is_recording;
    entry->order = ++recorder->num_begun;
    Record *slot;
    uint64_t tail;
    int64_t now;
    do {
        entry->window = is_recording ? recorder_window(recorder) : 0;
        if (UNLIKELY(!track->head_is_final) && entry->window != 0) track_finish_head(track);
        slot = &track->slots[entry->slot];
        shared_barrier(); /* after the slot's last span was cleared */
        slot->name = span->name_id;
        slot->batch = shared_load(&recorder->control->batch);
        tail = record_tail(track->num_open, KIND_SPAN, 0, entry->window);
        int is_timed = is_recording || span_is_marked(span);
        now = at != AT_ONCE ? at : is_timed ? recorder_now(recorder) : 0;
        if (at == AT_ONCE && recorder_failed(now)) {
            release(entry);
            return -1;
        }
    } while (UNLIKELY(has_closed(entry, recorder)));
    entry->state = ENTRY_OPEN;
    track->num_open++;
    slot = &track->slots[entry->slot];
    slot->begin = now;
    /* needed at the end, even if the slot is not published */
    slot->end.integer = (int64_t)tail;
    if (LIKELY(entry->window != 0)) record_publish(slot, tail);
    if (UNLIKELY(is_recording && (recorder->listener != NULL || span->edges != 0)))
        return announce_begin(span, entry, now);
    return 0;
}

/* Begins a new entry on this thread; NULL with an error set. */
static Entry *begin_new(Span *span, int is_explicit, int is_recording, int64_t at)
{
    int needs_name = is_recording || span_is_marked(span);
    Entry *entry = !needs_name || span_has_name(span) ? span_take_entry(span) : NULL;
    if (entry == NULL) return NULL;
    Py_INCREF((PyObject *)entry);
    if (begin_entry(span, entry, is_explicit, is_recording, at) < 0) Py_CLEAR(entry);
    return entry;
}

/* -- __enter__ and __exit__ -- */

PyObject *span_enter(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    Span *span = (Span *)self;
    Entry *entry = (Entry *)span->handed;
    span->handed = NULL;
    int result = 0;
    if (LIKELY(entry != NULL)) {
        if ((PyObject *)entry != Py_None && LIKELY(entry->state == ENTRY_HANDED))
            result = begin_entry(span, entry, 0, span_is_active(span), AT_ONCE);
    } else {
        /* Also if the span is inactive: its __exit__ must not end another span. */
        entry = begin_new(span, 1, span_is_active(span), AT_ONCE);
        if (entry == NULL) return NULL;
    }
    Py_DECREF((PyObject *)entry);
    return result < 0 ? NULL : Py_NewRef(self);
}

/* The latest open entry of a span: on track `only`, or on every other track. */
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

/* Ends the span's latest explicit entry on this thread, or else on any other (a generator may be
 * closed anywhere), or else the latest entry of a `with` on this thread. */
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
        if (entry->state == ENTRY_HANDED && entry->span->handed == self)
            span_drop_handed(entry->span);
        result = end_explicit(recorder, entry->span_id, now);
    }
    return result < 0 ? NULL : new_none();
}

PyObject *span_exit(PyObject *self, PyObject *Py_UNUSED(arguments))
{
    Span *span = (Span *)self;
    int64_t now = recorder_now(span->recorder);
    if (recorder_failed(now) || end_explicit(span->recorder, span->id, now) < 0) return NULL;
    return new_none();
}

/* -- tokens -- */

PyObject *span_token_at(Span *span, int64_t at)
{
    int is_recording = span_is_active(span);
    if (!is_recording && !span_is_marked(span)) return new_none();
    Entry *entry = begin_new(span, 0, is_recording, at);
    if (entry == NULL || entry->window != 0 || !span->recorder->is_child) return (PyObject *)entry;
    /* the parent has just closed the window: the span is not recorded */
    int error = end_entry(entry, -1);
    Py_DECREF((PyObject *)entry);
    return error < 0 ? NULL : new_none();
}

PyObject *span_begin(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    return span_token_at((Span *)self, AT_ONCE);
}

PyObject *span_begin_at(PyObject *self, PyObject *begin_ns)
{
    long long at = PyLong_AsLongLong(begin_ns);
    if (at == -1 && PyErr_Occurred() != NULL) return NULL;
    return span_token_at((Span *)self, at);
}

PyObject *token_end_at(PyObject *token, int64_t at)
{
    if (token == Py_None) return new_none();
    if (Py_TYPE(token) != entry_type)
        return PyErr_Format(PyExc_TypeError,
                            "A span is ended by the token that begin() gave, not by %R.", token);
    Entry *entry = (Entry *)token;
    Recorder *recorder = entry->track->recorder;
    if (entry->state != ENTRY_OPEN) return new_none();
    int64_t end = at == AT_ONCE ? recorder != NULL ? recorder_now(recorder) : -1 : at;
    if ((at == AT_ONCE && recorder_failed(end)) ||
        (entry->state == ENTRY_OPEN && end_entry(entry, end) < 0))
        return NULL;
    return new_none();
}

PyObject *span_end(PyObject *Py_UNUSED(self), PyObject *token)
{
    return token_end_at(token, AT_ONCE);
}

PyObject *span_end_at(PyObject *Py_UNUSED(self), PyObject *arguments)
{
    PyObject *token;
    long long at;
    if (!PyArg_ParseTuple(arguments, "OL", &token, &at)) return NULL;
    return token_end_at(token, at);
}

PyObject *span_abandon(PyObject *Py_UNUSED(self), PyObject *token)
{
    return token_end_at(token, -1);
}

/* -- the type -- */

static PyMethodDef bound_exit = {"__exit__", (PyCFunction)(void (*)(void))entry_exit, METH_FASTCALL,
                                 "Ends the span."};

Entry *entry_new(Track *track)
{
    Entry *entry = object_new(entry_type);
    if (entry == NULL) return NULL;
    entry->track = track;
    track_keep(track);
    PyObject *exit = PyCFunction_NewEx(&bound_exit, (PyObject *)entry, NULL);
    entry->exit = exit;
    Py_DECREF((PyObject *)entry); /* now its __exit__ holds it */
    return exit != NULL ? entry : NULL;
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

int entry_setup(PyObject *module)
{
    return add_type(module, "kinetoscope._native.Entry", sizeof(Entry),
                    Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, entry_slots,
                    &entry_type);
}
