/* The Recorder: windows, the folder, and what is done in the background. */

#include "recorder/native.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#define DEFAULT_LIMIT_BYTES ((int64_t)256 << 20)

PyTypeObject *recorder_type;
static Recorder *living;
static uint64_t num_serials;

/* -- calling Python -- */

int64_t recorder_ask_clock(Recorder *recorder)
{
    PyObject *answer = PyObject_CallNoArgs(recorder->now);
    if (answer == NULL) return -1;
    int64_t now = PyLong_AsLongLong(answer);
    Py_DECREF(answer);
    return now;
}

void recorder_request(Recorder *recorder)
{
    recorder->wants_request = 0;
    if (recorder->request == NULL || recorder->is_requested) return;
    recorder->is_requested = 1;
    PyObject *request = Py_NewRef(recorder->request);
    PyObject *answer = PyObject_CallNoArgs(request);
    if (answer == NULL) PyErr_WriteUnraisable(request);
    Py_XDECREF(answer);
    Py_DECREF(request);
}

/* -- the folder -- */

/* Keeps the control in `file` from now on, or in the recorder itself. */
static void use_control(Recorder *recorder, const Region *file, int is_child)
{
    Region none = {NULL, 0, 0}, old = recorder->control_file;
    recorder->control_file = file != NULL ? *file : none;
    recorder->control = file != NULL ? file->start : &recorder->own_control;
    recorder->is_child = is_child;
    region_unmap(&old);
}

static int use_store(Recorder *recorder, Store *store)
{
    for (Track *track = recorder->tracks; track != NULL; track = track->next_track) {
        Py_CLEAR(track->spare);
        if (!track_move_head_to_memory(track)) return 0;
        track->head_is_final = 0;
    }
    store_drop(recorder->store);
    recorder->store = store;
    return 1;
}

/* Stops being a child: from here on the recorder is driven by whoever calls it. */
static int stop_following(Recorder *recorder)
{
    Store *store = store_new(NULL, recorder->store->rank, recorder->store->limit_bytes);
    if (store == NULL || !use_store(recorder, store)) return 0;
    uint32_t window = shared_load(&recorder->control->window);
    if (recorder->num_windows < window)
        recorder->num_windows = window; /* a span that is open now belongs to no later window */
    memset(&recorder->own_control, 0, sizeof recorder->own_control);
    use_control(recorder, NULL, 0);
    return 1;
}

/* -- windows -- */

static PyObject *open_window(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    Recorder *recorder = (Recorder *)self;
    if (recorder->is_child && !stop_following(recorder)) return PyErr_NoMemory();
    tsc_realign();
    shared_store(&recorder->control->window, ++recorder->num_windows);
    return new_none();
}

/* Records every span that is open in this window as ending at `boundary`. Runs no Python code. */
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

static int take_into(PyObject *list, Track *track)
{
    if (PyList_Size(track->filled) == 0 && track->num_dropped == 0) return 0;
    PyObject *taken = track_take(track);
    int result = taken == NULL ? -1 : PyList_Append(list, taken);
    Py_XDECREF(taken);
    return result;
}

/* Takes away the tracks that nobody needs any more. Their files are deleted without the GIL. */
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
        link = &recorder->tracks; /* they may be others by now */
    }
}

static PyObject *remove_ended(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    remove_ended_tracks((Recorder *)self);
    return new_none();
}

static PyObject *take_all(Recorder *recorder)
{
    PyObject *list = PyList_New(0);
    for (Track *track = recorder->tracks; list != NULL && track != NULL; track = track->next_track)
        if (take_into(list, track) < 0) Py_CLEAR(list);
    if (list != NULL && PyList_Reverse(list) < 0) Py_CLEAR(list);
    return list;
}

static PyObject *close_window(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    Recorder *recorder = (Recorder *)self;
    if (recorder->is_child && !stop_following(recorder)) return PyErr_NoMemory();
    uint32_t window = shared_load(&recorder->control->window);
    int64_t boundary = recorder_now(recorder);
    if (recorder_failed(boundary)) return NULL;
    for (Track *track = window != 0 ? recorder->tracks : NULL; track != NULL;
         track = track->next_track) {
        cut_open_spans(track, window, boundary);
        track_detach_chunk(track);
    }
    shared_store(&recorder->control->window, 0);
    PyObject *taken = take_all(recorder);
    recorder_settle(recorder);
    return taken;
}

/* Of the chunks that are full. Those of threads that have ended wait for threads to come, unless
 * space is short. */
static PyObject *take_filled(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    Recorder *recorder = (Recorder *)self;
    uint32_t window = shared_load(&recorder->control->window);
    int is_short = recorder->store->used_bytes > recorder->store->limit_bytes / 2;
    for (Track *track = recorder->tracks; is_short && track != NULL; track = track->next_track)
        if (track_is_vacant(track)) track_detach_chunk(track);
    PyObject *taken = take_all(recorder);
    remove_ended_tracks(recorder);
    return taken == NULL ? NULL : Py_BuildValue("(IN)", window, taken);
}

/* -- in the background -- */

static PyObject *ready_spares(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    Recorder *recorder = (Recorder *)self;
    recorder->is_requested = 0;
    for (Track *track = recorder->tracks; track != NULL;) {
        if (!track_lacks_spare(track))
            track = track->next_track;
        else if (track_prepare_spare(track))
            track = recorder->tracks; /* they may be others by now */
        else
            break;
    }
    return new_none();
}

/* -- in a folder -- */

/* Puts the control where child processes can see it. Without it, none of them records. */
static void share_control(Recorder *recorder)
{
    Store *store = recorder->store;
    Region file = {NULL, 0, ++store->num_files};
    int error = region_create(store, &file, 4096, "run");
    if (error != 0) {
        store->error = error;
        return;
    }
    Control control = *recorder->control;
    memcpy(control.magic, CONTROL_MAGIC, sizeof control.magic);
    control.version = FORMAT_VERSION;
    control.pid = (uint32_t)store->pid;
    control.rank = store->rank;
    memcpy(file.start, &control, sizeof control);
    use_control(recorder, &file, 0);
}

static PyObject *set_folder(PyObject *self, PyObject *arguments)
{
    Recorder *recorder = (Recorder *)self;
    PyObject *folder;
    unsigned int rank;
    long long limit_bytes;
    if (!PyArg_ParseTuple(arguments, "OIL", &folder, &rank, &limit_bytes)) return NULL;
    PyObject *path = folder != Py_None ? PyUnicode_EncodeFSDefault(folder) : Py_NewRef(Py_None);
    if (path == NULL) return NULL;
    Store *store = store_new(folder != Py_None ? PyBytes_AsString(path) : NULL, rank, limit_bytes);
    Py_DECREF(path);
    if (store == NULL) return PyErr_NoMemory();
    recorder->own_control = *recorder->control;
    Region shared = recorder->control_file;
    recorder->control_file.start = NULL;
    use_control(recorder, NULL, 0);
    region_unmap(&shared);
    region_unlink_unless_left(recorder->store, &shared, "run");
    if (!use_store(recorder, store)) return PyErr_NoMemory();
    if (folder == Py_None || store->error != 0) return new_none();
    share_control(recorder);
    Track *track = track_of_this_thread(recorder);
    if (track == NULL) return NULL;
    track_finish_head(track);
    track_expect_much(track); /* who opens the folder trains */
    track_prepare_spare(track);
    return new_none();
}

static PyObject *leave_files(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    ((Recorder *)self)->store->is_left = 1;
    return new_none();
}

/* Maps a parent's control. Returns 0 with OSError set if there is none, or one that is cut short or
 * of another version. */
static int open_run_file(PyObject *path, Region *file)
{
    int error = region_open(file, PyBytes_AsString(path), sizeof(Control));
    if (error != 0 && error != EINVAL) {
        errno = error;
        PyErr_SetFromErrnoWithFilename(PyExc_OSError, PyBytes_AsString(path));
        return 0;
    }
    const Control *control = file->start;
    if (error == 0 && memcmp(control->magic, CONTROL_MAGIC, sizeof control->magic) == 0 &&
        control->version == FORMAT_VERSION)
        return 1;
    PyObject *name = PyUnicode_DecodeFSDefault(PyBytes_AsString(path));
    if (name != NULL)
        PyErr_Format(PyExc_OSError,
                     "%R was not written by this version of Kinetoscope, or was cut short.", name);
    Py_XDECREF(name);
    return 0;
}

/* In a child process: records what the parent's control in `run_file` asks for, into files of its
 * own in `folder`. A span that ends after its window has closed is recorded even so, since the
 * parent reads the files some time later. */
static PyObject *follow_parent(PyObject *self, PyObject *arguments)
{
    Recorder *recorder = (Recorder *)self;
    PyObject *folder, *run_file;
    long long limit_bytes;
    if (!PyArg_ParseTuple(arguments, "O&O&L", PyUnicode_FSConverter, &folder, PyUnicode_FSConverter,
                          &run_file, &limit_bytes))
        return NULL;
    Region file = {NULL, 0, 0};
    Store *store = open_run_file(run_file, &file)
                       ? store_new(PyBytes_AsString(folder), 0, limit_bytes)
                       : NULL;
    Py_DECREF(folder);
    Py_DECREF(run_file);
    if (store == NULL || !use_store(recorder, store)) {
        store_drop(store);
        region_unmap(&file);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    store->rank = ((const Control *)file.start)->rank;
    store->is_child = 1;
    use_control(recorder, &file, 1);
    return new_none();
}

static PyObject *get_trouble(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLong(((Recorder *)self)->store->error);
}

static PyObject *get_used_bytes(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(((Recorder *)self)->store->used_bytes);
}

/* -- fork -- */

/* Runs in the child before any Python code does: what is open and mapped belongs to the parent. */
static void forget_in_child(void)
{
    for (Recorder *recorder = living; recorder != NULL; recorder = recorder->next) {
        memset(&recorder->own_control, 0, sizeof recorder->own_control);
        recorder->control = &recorder->own_control;
        recorder->serial = ++num_serials;
        for (Track *track = recorder->tracks; track != NULL; track = track->next_track)
            track->is_foreign = 1;
    }
}

static void leave_tracks(Recorder *recorder)
{
    while (recorder->tracks != NULL) {
        Track *track = recorder->tracks;
        recorder->tracks = track->next_track;
        recorder->serial = ++num_serials; /* no thread takes this one for its track any more */
        track_leave(track);
        track_drop(track);
    }
}

static PyObject *forget(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    Recorder *recorder = (Recorder *)self;
    Store *store = store_new(NULL, recorder->store->rank, recorder->store->limit_bytes);
    if (store == NULL) return PyErr_NoMemory();
    recorder->is_requested = recorder->wants_request = 0;
    use_control(recorder, NULL, 0);
    Py_CLEAR(recorder->listener);
    Py_CLEAR(recorder->request);
    leave_tracks(recorder);
    return use_store(recorder, store) ? new_none() : PyErr_NoMemory();
}

/* -- the type -- */

static PyObject *get_control(PyObject *self, void *field)
{
    const char *control = (const char *)((Recorder *)self)->control;
    return PyLong_FromUnsignedLong(shared_load((const SharedWord *)(control + (size_t)field)));
}

static int set_control(PyObject *self, PyObject *value, void *field)
{
    Recorder *recorder = (Recorder *)self;
    unsigned long number = value != NULL ? PyLong_AsUnsignedLong(value) : 0;
    if (PyErr_Occurred()) return -1;
    if (recorder->is_child && !stop_following(recorder)) {
        PyErr_NoMemory();
        return -1;
    }
    shared_store((SharedWord *)((char *)recorder->control + (size_t)field), (uint32_t)number);
    return 0;
}

static int set_callable(PyObject **field, PyObject *value)
{
    PyObject *old = *field;
    *field = value == NULL || value == Py_None ? NULL : Py_NewRef(value);
    Py_XDECREF(old);
    return 0;
}

static PyObject *get_listener(PyObject *self, void *Py_UNUSED(closure))
{
    PyObject *listener = ((Recorder *)self)->listener;
    return Py_NewRef(listener != NULL ? listener : Py_None);
}

static int set_listener(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    return set_callable(&((Recorder *)self)->listener, value);
}

static PyObject *get_request(PyObject *self, void *Py_UNUSED(closure))
{
    PyObject *request = ((Recorder *)self)->request;
    return Py_NewRef(request != NULL ? request : Py_None);
}

static int set_request(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    return set_callable(&((Recorder *)self)->request, value);
}

static PyObject *recorder_new(PyTypeObject *type, PyObject *Py_UNUSED(arguments),
                              PyObject *Py_UNUSED(names))
{
    Recorder *recorder = object_new(type);
    if (recorder == NULL) return NULL;
    recorder->control = &recorder->own_control;
    recorder->serial = ++num_serials;
    recorder->store = store_new(NULL, 0, DEFAULT_LIMIT_BYTES);
    recorder->series = PyDict_New();
    recorder->next = living;
    if (living != NULL) living->previous = recorder;
    living = recorder;
    if (recorder->store == NULL || recorder->series == NULL) {
        Py_DECREF((PyObject *)recorder);
        return PyErr_NoMemory();
    }
    return (PyObject *)recorder;
}

static int recorder_init(PyObject *self, PyObject *arguments, PyObject *names)
{
    static char *keywords[] = {"now", NULL};
    PyObject *now;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "O", keywords, &now)) return -1;
    return set_callable(&((Recorder *)self)->now, now);
}

static int recorder_traverse(PyObject *self, visitproc visit, void *arg)
{
    Recorder *recorder = (Recorder *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(recorder->listener);
    Py_VISIT(recorder->now);
    Py_VISIT(recorder->request);
    for (Track *track = recorder->tracks; track != NULL; track = track->next_track)
        for (uint32_t slot = 0; slot < track->num_made; slot++) Py_VISIT(track->exits[slot]);
    return 0;
}

static int recorder_clear(PyObject *self)
{
    /* A finalizer in the same cycle may still use a span: that finds a recorder at rest, and the
     * machine's clock. */
    Recorder *recorder = (Recorder *)self;
    memset(&recorder->own_control, 0, sizeof recorder->own_control);
    recorder->control = &recorder->own_control;
    Py_CLEAR(recorder->now);
    Py_CLEAR(recorder->listener);
    Py_CLEAR(recorder->request);
    leave_tracks(recorder);
    return 0;
}

static void unlink_recorder(Recorder *recorder)
{
    if (recorder->previous != NULL)
        recorder->previous->next = recorder->next;
    else if (living == recorder)
        living = recorder->next;
    if (recorder->next != NULL) recorder->next->previous = recorder->previous;
}

static void recorder_dealloc(PyObject *self)
{
    Recorder *recorder = (Recorder *)self;
    PyObject_GC_UnTrack(self);
    unlink_recorder(recorder);
    recorder_clear(self);
    region_unmap(&recorder->control_file);
    region_unlink(recorder->store, &recorder->control_file, "run");
    Py_CLEAR(recorder->series);
    store_drop(recorder->store);
    object_free(self);
}

static PyMethodDef recorder_methods[] = {
    {"open_window", open_window, METH_NOARGS, "Begins to keep what is recorded."},
    {"take_at_close", close_window, METH_NOARGS,
     "Stops keeping, cuts the open spans, and gives [(track, tid, name, is_main, num_dropped, "
     "[Chunk])] of all threads."},
    {"take_filled", take_filled, METH_NOARGS,
     "(window, the same of the chunks filled so far); the window stays open."},
    {"remove_ended", remove_ended, METH_NOARGS,
     "Gives back what is left of threads that have ended."},
    {"ready_spares", ready_spares, METH_NOARGS,
     "Readies a chunk for each thread that will need one."},
    {"set_folder", set_folder, METH_VARARGS,
     "(folder or None, rank, limit_bytes): where chunks are kept from now on."},
    {"leave_files", leave_files, METH_NOARGS,
     "Its files stay when it goes, and when what was taken out of it does."},
    {"follow_parent", follow_parent, METH_VARARGS,
     "(folder, run_file, limit_bytes): records what the parent's run file asks for, into files of "
     "its own."},
    {"forget", forget, METH_NOARGS,
     "Starts anew, in memory, without threads and listeners: for a forked child."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef recorder_properties[] = {
    {"action", get_control, set_control, "The bit of the current action; 0 for nothing at all.",
     (void *)offsetof(Control, action)},
    {"batch", get_control, set_control, "The current batch.", (void *)offsetof(Control, batch)},
    {"window", get_control, NULL, "The number of the open window, from 1; 0 if none is.",
     (void *)offsetof(Control, window)},
    {"listener", get_listener, set_listener, "Is told of everything at once; or None.", NULL},
    {"request", get_request, set_request,
     "Is called when `prepare` should be, on another thread; or None.", NULL},
    {"trouble", get_trouble, NULL, "The errno for which the folder was given up; 0 if it was not.",
     NULL},
    {"used_bytes", get_used_bytes, NULL, "Bytes of all chunks that exist.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot recorder_slots[] = {
    {Py_tp_new, recorder_new},
    {Py_tp_init, recorder_init},
    {Py_tp_dealloc, recorder_dealloc},
    {Py_tp_traverse, recorder_traverse},
    {Py_tp_clear, recorder_clear},
    {Py_tp_methods, recorder_methods},
    {Py_tp_getset, recorder_properties},
    {Py_tp_doc, "Records spans, instants and counters of all threads; see "
                "kinetoscope.recording.recorder.Recorder."},
    {0, NULL},
};

int recorder_setup(PyObject *module)
{
    pthread_atfork(NULL, NULL, forget_in_child);
    return add_type(module, "kinetoscope._native.Recorder", sizeof(Recorder),
                    Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, recorder_slots, &recorder_type);
}
