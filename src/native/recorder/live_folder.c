/* The folder of the chunks and of the control, which has the current action. Both are in memory or
 * in files of a live folder. A child process has separate chunk files and uses its parent's
 * control. */

#include "recorder/native.h"

#include <errno.h>
#include <string.h>

void recorder_use_own_control(Recorder *recorder)
{
    region_unmap(&recorder->control_file);
    recorder->control_file = (Region){NULL, 0, 0};
    recorder->control = &recorder->own_control;
    recorder->is_child = 0;
}

/* Use the control in a file from now on. */
static void use_control(Recorder *recorder, Region file, int is_child)
{
    recorder_use_own_control(recorder);
    recorder->control_file = file;
    recorder->control = file.start;
    recorder->is_child = is_child;
}

/* Put new records into a new store from now on; -1 with an error set, also if the store is NULL. */
static int use_store(Recorder *recorder, Store *store)
{
    int is_ready = store != NULL;
    for (Track *track = recorder->tracks; is_ready && track != NULL; track = track->next_track) {
        Py_CLEAR(track->spare);
        is_ready = track_move_head_to_memory(track);
        track->head_is_final = 0;
    }
    store_drop(is_ready ? recorder->store : store);
    if (is_ready) recorder->store = store;
    if (!is_ready) PyErr_NoMemory();
    return is_ready ? 0 : -1;
}

int recorder_use_memory(Recorder *recorder)
{
    const Store *store = recorder->store;
    return use_store(recorder, store_new(NULL, store->rank, store->limit_bytes));
}

int recorder_stop_following(Recorder *recorder)
{
    if (!recorder->is_child) return 0;
    if (recorder_use_memory(recorder) < 0) return -1;
    uint32_t window = recorder_window(recorder);
    if (recorder->num_windows < window)
        recorder->num_windows = window; /* a span that is open now belongs to no later window */
    memset(&recorder->own_control, 0, sizeof recorder->own_control);
    recorder_use_own_control(recorder);
    return 0;
}

/* Put the control into a file that child processes can map. Without it, they do not record. */
static void share_control(Recorder *recorder)
{
    Store *store = recorder->store;
    Region file;
    if (!region_create_file(store, &file, 4096, "run")) return;
    Control control = *recorder->control;
    memcpy(control.magic, CONTROL_MAGIC, sizeof control.magic);
    control.version = FORMAT_VERSION;
    control.pid = (uint32_t)store->pid;
    control.rank = store->rank;
    memcpy(file.start, &control, sizeof control);
    use_control(recorder, file, 0);
}

PyObject *recorder_set_folder(PyObject *self, PyObject *arguments)
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
    recorder->own_control = *recorder->control;
    Region shared = recorder->control_file;
    recorder_use_own_control(recorder);
    region_unlink_unless_left(recorder->store, &shared, "run");
    if (use_store(recorder, store) < 0) return NULL;
    if (folder == Py_None || store->error != 0) return new_none();
    share_control(recorder);
    Track *track = track_of_this_thread(recorder);
    if (track == NULL) return NULL;
    track_finish_head(track);
    track_expect_much(track); /* the thread that opens the folder is the training thread */
    track_prepare_spare(track);
    return new_none();
}

/* Map a parent's control. Return 0 with OSError set if there is none, or if it is truncated or of
 * another version. */
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

/* In a child process: record by the parent's control in `run_file`, into separate files in
 * `folder`. A span that ends after its window has closed is recorded, too, since the parent reads
 * the files a little later. */
PyObject *recorder_follow_parent(PyObject *self, PyObject *arguments)
{
    Recorder *recorder = (Recorder *)self;
    PyObject *folder, *run_file;
    long long limit_bytes;
    if (!PyArg_ParseTuple(arguments, "O&O&L", PyUnicode_FSConverter, &folder, PyUnicode_FSConverter,
                          &run_file, &limit_bytes))
        return NULL;
    Region file = {NULL, 0, 0};
    int is_followed = open_run_file(run_file, &file);
    if (is_followed) {
        uint32_t rank = ((const Control *)file.start)->rank;
        Store *store = store_new(PyBytes_AsString(folder), rank, limit_bytes);
        is_followed = use_store(recorder, store) == 0;
    }
    Py_DECREF(folder);
    Py_DECREF(run_file);
    if (!is_followed) {
        region_unmap(&file);
        return NULL;
    }
    recorder->store->is_child = 1;
    use_control(recorder, file, 1);
    return new_none();
}
