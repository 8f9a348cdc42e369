/* Windows: opens and closes them, and returns their records. */

#include "recorder/native.h"

static void prepare_window(Recorder *recorder)
{
    tsc_realign();
    /* The writer thread may still be saving after a full disk. */
    store_try_again(recorder->store);
}

PyObject *recorder_open_window(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    Recorder *recorder = (Recorder *)self;
    if (recorder_stop_following(recorder) < 0) return NULL;
    prepare_window(recorder);
    shared_store(&recorder->control->window, ++recorder->num_windows);
    return new_none();
}

/* Records every span that is open in this window, with `boundary` as its end. Runs no Python
 * code. */
static void cut_open_spans(Track *track, uint32_t window, int64_t boundary)
{
    for (uint32_t slot = 0; slot < track->num_made; slot++) {
        Record *open = &track->slots[slot];
        if (tail_kind(open->tail) != KIND_SPAN || tail_series(open->tail) != window) continue;
        Value end = {boundary};
        uint64_t tail = (open->tail & 0xffffffffu) | (uint64_t)FLAG_CUT << 24;
        track_append(track, open->begin, end, open->name, open->batch, tail);
        record_publish(open, 0);
    }
}

/* Return a list of the records of each track, the oldest track first; NULL with an error set. Runs
 * no Python code, which up to Python 3.11 a garbage collection may do: another thread could take
 * this window's records, or close it. */
static PyObject *take_all(Recorder *recorder)
{
    int collected = PyGC_Disable();
    PyObject *list = PyList_New(0);
    for (Track *track = recorder->tracks; list != NULL && track != NULL; track = track->next_track)
        if (track_take(track, list) < 0) Py_CLEAR(list);
    if (collected) PyGC_Enable();
    return list;
}

/* With `continues`, the next window opens at the same nanosecond: between two windows, no other
 * thread or child process finds that nothing is recorded. */
PyObject *recorder_close_window(PyObject *self, PyObject *arguments)
{
    Recorder *recorder = (Recorder *)self;
    int continues = 0;
    if (!PyArg_ParseTuple(arguments, "|p", &continues)) return NULL;
    if (recorder_stop_following(recorder) < 0) return NULL;
    if (continues) prepare_window(recorder);
    int64_t boundary = recorder_now(recorder);
    if (recorder_failed(boundary)) return NULL;
    uint32_t window = recorder_window(recorder);
    for (Track *track = window != 0 ? recorder->tracks : NULL; track != NULL;
         track = track->next_track) {
        cut_open_spans(track, window, boundary);
        track_detach_chunk(track);
    }
    shared_store(&recorder->control->window, continues ? ++recorder->num_windows : 0);
    /* A child process reads its clock before it finds that the window has closed. */
    recorder->closed_ns = continues && recorder->now == NULL ? boundary : monotonic_ns();
    PyObject *taken = take_all(recorder);
    if (taken != NULL && recorder_settle(recorder) < 0)
        PyErr_WriteUnraisable(NULL); /* an exception would lose the taken records */
    return taken;
}

/* Removes the tracks that are no longer needed. Deletes their files without the GIL. */
static void remove_ended_tracks(Recorder *recorder)
{
    for (Track **link = &recorder->tracks; *link != NULL;) {
        Track *track = *link;
        if (!track_is_done(track)) {
            link = &track->next_track;
            continue;
        }
        *link = track->next_track;
        Region head = track->head;
        track->head = (Region){NULL, 0, 0};
        track_leave(track);
        track_drop(track);
        Store *store = store_keep(recorder->store);
        Py_BEGIN_ALLOW_THREADS
        region_unmap(&head);
        region_unlink(store, &head, "track");
        Py_END_ALLOW_THREADS
        store_drop(store);
        link = &recorder->tracks; /* the list may have changed meanwhile */
    }
}

PyObject *recorder_remove_ended(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    remove_ended_tracks((Recorder *)self);
    return new_none();
}

/* Return the full chunks. Chunks of threads that have ended are kept for new threads, unless space
 * is short. */
PyObject *recorder_take_filled(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    Recorder *recorder = (Recorder *)self;
    uint32_t window = recorder_window(recorder);
    int is_short = recorder->store->used_bytes > recorder->store->limit_bytes / 2;
    for (Track *track = recorder->tracks; is_short && track != NULL; track = track->next_track)
        if (track_is_vacant(track)) track_detach_chunk(track);
    PyObject *taken = take_all(recorder);
    remove_ended_tracks(recorder);
    return taken == NULL ? NULL : Py_BuildValue("(IN)", window, taken);
}

PyObject *recorder_ready_spares(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    Recorder *recorder = (Recorder *)self;
    recorder->is_requested = 0;
    store_try_again(recorder->store); /* the disk may have space again */
    for (Track *track = recorder->tracks; track != NULL;) {
        if (!track_lacks_spare(track))
            track = track->next_track;
        else if (track_prepare_spare(track))
            track = recorder->tracks; /* the list may have changed meanwhile */
        else
            break;
    }
    return new_none();
}
