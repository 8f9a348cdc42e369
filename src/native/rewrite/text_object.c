/* kinetoscope._native.TraceText: trace_text.h for Python. `kinetoscope.merge.native_rewrite` uses
 * it.
 *
 * It passes over text without the GIL. Meanwhile the object is marked busy, and calls from other
 * threads raise. */

#include "module.h"

#include <stdlib.h>

#include "owned_bytes.h"
#include "rewrite/trace_text.h"

#ifndef KINETOSCOPE_WITHOUT_RECORDER
    #include "recorder/trace_records.h"
#endif

typedef struct {
    PyObject_HEAD
    TraceText text;
    OwnedBytes *out; /* the lines of the last piece; NULL before the first */
    int is_busy, is_finished;
} TextObject;

static PyObject *text_changed; /* the exception */

static int text_enter(TextObject *self)
{
    return is_idle(self, self->is_busy);
}

static PyObject *text_new(PyTypeObject *type, PyObject *arguments, PyObject *Py_UNUSED(names))
{
    int nests, checks, notes_counters, leaves_out_timeless = 0;
    Py_ssize_t max_pending;
    BytesArgument align_on;
    if (!PyArg_ParseTuple(arguments, "pnO&pp|p", &nests, &max_pending, bytes_argument, &align_on,
                          &checks, &notes_counters, &leaves_out_timeless))
        return NULL;
    TextObject *self = object_new(type);
    if (self == NULL) return NULL;
    self->text.nests = nests;
    self->text.tracks.is_for_viewers = checks;
    self->text.counters.is_wanted = notes_counters;
    self->text.leaves_out_timeless = leaves_out_timeless;
    self->text.max_pending = max_pending > 0 ? (size_t)max_pending : 1;
    self->text.names.max_bytes = (size_t)32 << 20;
    bytes_put(&self->text.align_on, align_on.at, align_on.length);
    return (PyObject *)self;
}

static void text_dealloc(TextObject *self)
{
    trace_free(&self->text);
    owned_drop(self->out);
    object_free(self);
}

/* Whether the text could not be passed over; then an error is set. */
static int raise_failure(const TraceText *text)
{
    if (text->has_failed)
        PyErr_NoMemory();
    else if (text->has_changed)
        PyErr_SetString(text_changed, "The text is not the one that was surveyed.");
    return text->has_failed || text->has_changed;
}

/* Passes over a piece of text without the GIL; its lines go to `out`. Returns the status, or -1
 * with an error set. */
static int pass_over(TextObject *self, PyObject *arguments, Py_ssize_t *position, int writes)
{
    Py_buffer buffer;
    Py_ssize_t end;
    int is_first;
    unsigned flags;
    if (!PyArg_ParseTuple(arguments, "y*nnpI", &buffer, position, &end, &is_first, &flags))
        return -1;
    int status = -1;
    Bytes *out = NULL;
    if (*position < 0 || end > buffer.len || *position > end) {
        PyErr_SetString(PyExc_ValueError, "There is no such piece of the text.");
    } else if (text_enter(self) && (!writes || (out = owned_begin(&self->out)) != NULL)) {
        const char *first = buffer.buf, *at = first + *position;
        self->is_busy = 1;
        Py_BEGIN_ALLOW_THREADS
        status = writes ? trace_rewrite(&self->text, &at, first + end, is_first, flags, out)
                        : trace_survey(&self->text, &at, first + end, is_first, flags);
        Py_END_ALLOW_THREADS
        self->is_busy = 0;
        *position = at - first;
    }
    PyBuffer_Release(&buffer);
    return status < 0 || raise_failure(&self->text) ? -1 : status;
}

static PyObject *text_survey(TextObject *self, PyObject *arguments)
{
    Py_ssize_t position;
    if (self->is_finished)
        return PyErr_Format(PyExc_RuntimeError, "The survey of this text is over.");
    int status = pass_over(self, arguments, &position, 0);
    return status < 0 ? NULL : Py_BuildValue("ni", position, status);
}

/* Returns the lines as a view of the buffer they were written to: a copy would take a quarter of
 * the time more. */
static PyObject *text_rewrite(TextObject *self, PyObject *arguments)
{
    Py_ssize_t position;
    int status = pass_over(self, arguments, &position, 1);
    PyObject *lines = status < 0 ? NULL : owned_view(self->out);
    return lines != NULL ? Py_BuildValue("niN", position, status, lines) : NULL;
}

#ifndef KINETOSCOPE_WITHOUT_RECORDER

/* Takes records of a thread without the GIL and moves `*record` after them; in the second pass
 * their lines go to `out`. */
static enum LineStatus take_records(TextObject *self, const ThreadLines *thread,
                                    const Record **record, Bytes *out)
{
    enum LineStatus status;
    self->is_busy = 1;
    Py_BEGIN_ALLOW_THREADS
    LineLocale locale = line_use_c_locale();
    status = out != NULL ? trace_rewrite_records(&self->text, thread, record, out)
                         : trace_survey_records(&self->text, thread, record);
    line_restore_locale(locale);
    Py_END_ALLOW_THREADS
    self->is_busy = 0;
    return status;
}

/* The number of the next record, after those that were taken; -1 with an error set. */
static Py_ssize_t pass_records(TextObject *self, PyObject *arguments, int writes)
{
    Py_buffer packed;
    Py_ssize_t first, next = -1;
    BytesArgument pid, tid, epochs;
    int are_last;
    PyObject *texts, *clock;
    if (!PyArg_ParseTuple(arguments, "y*npO&O&O!O!O&", &packed, &first, &are_last, bytes_argument,
                          &pid, bytes_argument, &tid, &PyTuple_Type, &texts, &PyTuple_Type, &clock,
                          bytes_argument, &epochs))
        return -1;
    LineStyle style = {0};
    Bytes *out = NULL;
    Py_ssize_t count = packed.len / (Py_ssize_t)sizeof(Record);
    if (first < 0 || first > count) {
        PyErr_SetString(PyExc_ValueError, "There is no such record.");
    } else if (line_style_take(&style, texts, clock, &epochs) && text_enter(self) &&
               (!writes || (out = owned_begin(&self->out)) != NULL)) {
        const Record *records = packed.buf, *record = records + first;
        ThreadLines thread = {
            &style, {pid.at, pid.length}, {tid.at, tid.length}, records + count, are_last};
        enum LineStatus status = take_records(self, &thread, &record, out);
        next = record - records;
        if (raise_failure(&self->text)) {
            next = -1;
        } else if (status == LINE_UNKNOWN) {
            PyErr_Format(PyExc_ValueError, "Record %zd cannot be written.", next);
            next = -1;
        }
    }
    line_style_free(&style);
    PyBuffer_Release(&packed);
    return next;
}

static PyObject *text_survey_records(TextObject *self, PyObject *arguments)
{
    if (self->is_finished)
        return PyErr_Format(PyExc_RuntimeError, "The survey of this text is over.");
    Py_ssize_t next = pass_records(self, arguments, 0);
    return next < 0 ? NULL : PyLong_FromSsize_t(next);
}

static PyObject *text_rewrite_records(TextObject *self, PyObject *arguments)
{
    Py_ssize_t next = pass_records(self, arguments, 1);
    PyObject *lines = next < 0 ? NULL : owned_view(self->out);
    return lines != NULL ? Py_BuildValue("nN", next, lines) : NULL;
}

#endif

static PyObject *text_leave_out(TextObject *self, PyObject *Py_UNUSED(nothing))
{
    if (!text_enter(self)) return NULL;
    trace_leave_out(&self->text);
    return raise_failure(&self->text) ? NULL : new_none();
}

static PyObject *text_finish_rewrite(TextObject *self, PyObject *Py_UNUSED(nothing))
{
    Bytes *out = text_enter(self) ? owned_begin(&self->out) : NULL;
    if (out == NULL) return NULL;
    trace_finish_rewrite(&self->text, out);
    return raise_failure(&self->text) ? NULL : owned_view(self->out);
}

static PyObject *text_finish_survey(TextObject *self, PyObject *Py_UNUSED(nothing))
{
    if (!text_enter(self)) return NULL;
    if (!self->is_finished) {
        self->is_busy = self->is_finished = 1;
        Py_BEGIN_ALLOW_THREADS
        trace_finish_survey(&self->text);
        Py_END_ALLOW_THREADS
        self->is_busy = 0;
    }
    return self->text.has_failed ? PyErr_NoMemory() : new_none();
}

/* One tuple per track: (pid, tid, first event, is a device's, role, tracks with those of overlaps,
 * whether its tid is written as a number, as text); pid and tid as written. */
static PyObject *tracks_of(const TraceText *text)
{
    PyObject *tracks = PyList_New((Py_ssize_t)text->tracks.num);
    for (size_t i = 0; tracks != NULL && i < text->tracks.num; i++) {
        const TextTrack *track = &text->tracks.all[i];
        size_t length;
        const char *key = table_key(&text->tracks.keys, (uint32_t)i, &length);
        PyObject *pid = PyBytes_FromStringAndSize(key, (Py_ssize_t)track->pid_length);
        PyObject *tid = PyBytes_FromStringAndSize(key + track->pid_length + 1,
                                                  (Py_ssize_t)(length - track->pid_length - 1));
        PyObject *described = Py_BuildValue("NNKiiIii", pid, tid,
                                            (unsigned long long)track->first_serial,
                                            (int)track->is_device, (int)track->role,
                                            (unsigned)track->num_levels, (int)track->has_number_tid,
                                            (int)track->has_text_tid);
        if (described == NULL || PyList_SetItem(tracks, (Py_ssize_t)i, described) < 0)
            Py_CLEAR(tracks);
    }
    return tracks;
}

/* CounterFacts as bytes; None if they were not requested, or there are too many. */
static PyObject *counters_of(const CounterSurvey *counters)
{
    if (!counters->is_wanted || counters->is_full) return new_none();
    const char *facts = counters->facts != NULL ? (const char *)counters->facts : "";
    return PyBytes_FromStringAndSize(facts, (Py_ssize_t)(counters->keys.num_entries *
                                                         sizeof *counters->facts));
}

/* When each text of metadata came last, as uint64. */
static PyObject *serials_of(const TraceText *text)
{
    const char *last = text->metadata_last != NULL ? (const char *)text->metadata_last : "";
    return PyBytes_FromStringAndSize(last, (Py_ssize_t)(text->metadata.num_entries *
                                                        sizeof *text->metadata_last));
}

static int put_fact(PyObject *facts, const char *name, PyObject *value)
{
    int status = value == NULL ? -1 : PyDict_SetItemString(facts, name, value);
    Py_XDECREF(value);
    return status;
}

static PyObject *number_if(int is_there, int64_t number)
{
    return is_there ? PyLong_FromLongLong(number) : new_none();
}

static PyObject *text_facts(TextObject *self, PyObject *Py_UNUSED(nothing))
{
    const TraceText *text = &self->text;
    PyObject *facts = text_enter(self) ? PyDict_New() : NULL;
    if (facts == NULL) return NULL;
    const char *steps = text->steps.at != NULL ? text->steps.at : "";
    if (put_fact(facts, "tracks", tracks_of(text)) < 0 ||
        put_fact(facts, "metadata", table_list(&text->metadata)) < 0 ||
        put_fact(facts, "metadata_last", serials_of(text)) < 0 ||
        put_fact(facts, "steps", PyBytes_FromStringAndSize(steps, (Py_ssize_t)text->steps.length)) <
            0 ||
        put_fact(facts, "counters", counters_of(&text->counters)) < 0 ||
        put_fact(facts, "earliest_ns", number_if(text->num_timed > 0, text->earliest_ns)) < 0 ||
        put_fact(facts, "latest_ns",
                 number_if(text->num_timed > 0,
                           text->num_spans > 0 ? text->latest_end_ns : text->latest_ns)) < 0 ||
        put_fact(facts, "num_at_zero", PyLong_FromUnsignedLongLong(text->num_at_zero)) < 0 ||
        put_fact(facts, "first_at_zero", PyLong_FromUnsignedLongLong(text->first_at_zero)) < 0 ||
        put_fact(facts, "earliest_of_others_ns",
                 number_if(text->has_others, text->earliest_of_others_ns)) < 0 ||
        put_fact(facts, "aligned_ns", number_if(text->has_aligned, text->aligned_ns)) < 0 ||
        put_fact(facts, "lowest_id", number_if(text->has_ids, text->lowest_id)) < 0 ||
        put_fact(facts, "highest_id", number_if(text->has_ids, text->highest_id)) < 0 ||
        put_fact(facts, "has_irregular_ids", PyBool_FromLong(text->has_irregular_ids)) < 0 ||
        put_fact(facts, "has_unix_times", PyBool_FromLong(text->has_unix_times)) < 0 ||
        put_fact(facts, "has_phases", PyBool_FromLong(text->has_phases)) < 0 ||
        put_fact(facts, "is_late", PyBool_FromLong(text->is_late)) < 0 ||
        put_fact(facts, "num_actions", PyLong_FromSize_t(text->outcome.num_actions)) < 0 ||
        put_fact(facts, "num_events", PyLong_FromUnsignedLongLong(text->num_events)) < 0 ||
        put_fact(facts, "num_repeated_flows",
                 PyLong_FromUnsignedLongLong(text->num_repeated_flows)) < 0 ||
        put_fact(facts, "num_hidden_flows", PyLong_FromUnsignedLongLong(text->num_hidden_flows)) <
            0 ||
        put_fact(facts, "num_negative", PyLong_FromUnsignedLongLong(text->num_negative)) < 0 ||
        put_fact(facts, "num_rounded", PyLong_FromUnsignedLongLong(text->num_rounded)) < 0 ||
        put_fact(facts, "num_lone_begins", PyLong_FromUnsignedLongLong(text->num_lone_begins)) <
            0 ||
        put_fact(facts, "num_lone_ends", PyLong_FromUnsignedLongLong(text->num_lone_ends)) < 0 ||
        put_fact(facts, "num_clipped", PyLong_FromUnsignedLongLong(text->outcome.num_clipped)) <
            0 ||
        put_fact(facts, "num_moved", PyLong_FromUnsignedLongLong(text->outcome.num_moved)) < 0)
        Py_CLEAR(facts);
    return facts;
}

/* Reads one output from a tuple (pid, tid, is kept, from, to, uuids of track and process, overlap),
 * and adds its pid and tid to `texts`; 0 with an error set. */
static int take_output(TextOutput *output, Bytes *texts, PyObject *given)
{
    BytesArgument pid, tid;
    int is_kept;
    long long from_ns, to_ns;
    unsigned long long track, process;
    if (!PyTuple_Check(given))
        return PyErr_Format(PyExc_TypeError, "An output is a tuple, not %R.", given) != NULL;
    if (!PyArg_ParseTuple(given, "O&O&pLLKKI", bytes_argument, &pid, bytes_argument, &tid, &is_kept,
                          &from_ns, &to_ns, &track, &process, &output->overlap))
        return 0;
    /* `outputs_of` returns their addresses: until then they may move */
    output->pid.length = pid.length;
    bytes_put(texts, pid.at, pid.length);
    output->tid.length = tid.length;
    bytes_put(texts, tid.at, tid.length);
    output->is_kept = (uint8_t)is_kept;
    output->from_ns = from_ns;
    output->to_ns = to_ns;
    output->track = track;
    output->process = process;
    return 1;
}

/* Reads a list of outputs, which point into `texts`; NULL with an error set. */
static TextOutput *outputs_of(PyObject *list, Bytes *texts)
{
    size_t count = (size_t)PyList_Size(list);
    TextOutput *outputs = calloc(count + 1, sizeof *outputs);
    if (outputs == NULL) return (TextOutput *)PyErr_NoMemory();
    int are_taken = 1;
    for (size_t i = 0; are_taken && i < count; i++)
        are_taken = take_output(&outputs[i], texts, PyList_GetItem(list, (Py_ssize_t)i));
    if (texts->has_failed) PyErr_NoMemory();
    if (!are_taken || texts->has_failed) {
        free(outputs);
        return NULL;
    }
    const char *at = texts->at; /* the texts lie there in the order of the outputs */
    for (size_t i = 0; i < count; i++) {
        outputs[i].pid.at = at;
        outputs[i].tid.at = at + outputs[i].pid.length;
        at = outputs[i].tid.at + outputs[i].tid.length;
    }
    return outputs;
}

/* Uses these outputs from now on; -1 with an error set. */
static int use_outputs(TextObject *self, PyObject *given)
{
    Bytes texts = {0};
    /* a copy that no other code can change */
    PyObject *list = PyList_GetSlice(given, 0, PyList_Size(given));
    TextOutput *outputs = list != NULL ? outputs_of(list, &texts) : NULL;
    size_t count = outputs != NULL ? (size_t)PyList_Size(list) : 0;
    Py_XDECREF(list);
    if (outputs == NULL || !text_enter(self)) {
        free(outputs);
        bytes_free(&texts);
        return -1;
    }
    free(self->text.outputs);
    bytes_free(&self->text.output_texts);
    self->text.outputs = outputs;
    self->text.num_outputs = count;
    self->text.output_texts = texts;
    return 0;
}

static PyObject *text_plan(TextObject *self, PyObject *arguments)
{
    TraceText *text = &self->text;
    PyObject *outputs;
    long long shift_ns, id_shift, begin_ns, gain_ns, over_ns;
    int ids_are_plain, is_windowed, keeps_places;
    unsigned sequence;
    if (!PyArg_ParseTuple(arguments, "O!LLpppI(LLL)", &PyList_Type, &outputs, &shift_ns, &id_shift,
                          &ids_are_plain, &is_windowed, &keeps_places, &sequence, &begin_ns,
                          &gain_ns, &over_ns))
        return NULL;
    if (over_ns <= 0) return PyErr_Format(PyExc_ValueError, "Drift is measured over some time.");
    if (use_outputs(self, outputs) < 0) return NULL;
    text->drift_begin_ns = begin_ns;
    text->drift_gain_ns = gain_ns;
    text->drift_over_ns = over_ns;
    text->shift_ns = shift_ns;
    text->id_shift = id_shift;
    text->ids_are_plain = ids_are_plain;
    text->is_windowed = is_windowed;
    text->keeps_places = keeps_places;
    text->writes_packets = sequence != 0;
    text->packets.order.sequence = sequence;
    return new_none();
}

static PyObject *text_place_counters(TextObject *self, PyObject *arguments)
{
    BytesArgument alone, unchanged;
    if (!PyArg_ParseTuple(arguments, "O&O&", bytes_argument, &alone, bytes_argument, &unchanged) ||
        !text_enter(self))
        return NULL;
    CounterTracks *tracks = &self->text.packets.counters;
    tracks->alone.length = tracks->unchanged.length = 0;
    bytes_put(&tracks->alone, alone.at, alone.length);
    bytes_put(&tracks->unchanged, unchanged.at, unchanged.length);
    return tracks->alone.has_failed || tracks->unchanged.has_failed ? PyErr_NoMemory() : new_none();
}

static PyObject *text_num_written(TextObject *self, void *Py_UNUSED(closure))
{
    return text_enter(self) ? PyLong_FromUnsignedLongLong(self->text.num_written) : NULL;
}

static PyObject *text_num_comma_errors(TextObject *self, void *Py_UNUSED(closure))
{
    return text_enter(self) ? PyLong_FromUnsignedLongLong(self->text.num_comma_errors) : NULL;
}

static PyMethodDef text_methods[] = {
    {"survey", (PyCFunction)text_survey, METH_VARARGS,
     "(text, start, end, is_first, flags): where it stopped, and why."},
    {"leave_out", (PyCFunction)text_leave_out, METH_NOARGS,
     "Counts an event that is left out, in both passes."},
    {"finish_survey", (PyCFunction)text_finish_survey, METH_NOARGS, "Ends the survey."},
    {"facts", (PyCFunction)text_facts, METH_NOARGS, "What the survey found."},
    {"plan", (PyCFunction)text_plan, METH_VARARGS,
     "(outputs, shift_ns, id_shift, ids_are_plain, is_windowed, keeps_places, sequence, drift): "
     "how to rewrite; as packets, "
     "if sequence is not 0."},
#ifndef KINETOSCOPE_WITHOUT_RECORDER
    {"survey_records", (PyCFunction)text_survey_records, METH_VARARGS,
     "(records, first, are_last, pid, tid, (names, categories, args, firsts), clock, epochs): the "
     "first record that was not taken."},
    {"rewrite_records", (PyCFunction)text_rewrite_records, METH_VARARGS,
     "(as for survey_records): the first record that was not taken, and lines."},
#endif
    {"place_counters", (PyCFunction)text_place_counters, METH_VARARGS,
     "(alone, unchanged): the uuids, in order, of series that do not stand in the group of their "
     "subject."},
    {"rewrite", (PyCFunction)text_rewrite, METH_VARARGS,
     "(text, start, end, is_first, flags): where it stopped, why, and lines."},
    {"finish_rewrite", (PyCFunction)text_finish_rewrite, METH_NOARGS,
     "What had to wait for the end."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef text_values[] = {
    {"num_stray", (getter)text_num_comma_errors, NULL,
     "How many commas between events are missing or too many.", NULL},
    {"num_written", (getter)text_num_written, NULL, "How many events were rewritten.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot text_slots[] = {
    {Py_tp_new, text_new},
    {Py_tp_dealloc, text_dealloc},
    {Py_tp_methods, text_methods},
    {Py_tp_getset, text_values},
    {Py_tp_doc, "A Chrome trace on its way into a merged one."},
    {0, NULL},
};

int text_setup(PyObject *module)
{
    text_changed = PyErr_NewException("kinetoscope._native.TextChangedError", NULL, NULL);
    if (text_changed == NULL || PyModule_AddObjectRef(module, "TextChangedError", text_changed) < 0)
        return -1;
    return add_type(module, "kinetoscope._native.TraceText", sizeof(TextObject), 0, text_slots,
                    NULL);
}
