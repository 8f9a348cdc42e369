/* Packets that name and order the processes and threads of a Perfetto trace. */

#include "module.h"
#include "rewrite/protobuf.h"

#define OWN_SEQUENCE 1 /* the one that BEGINNING in formats/perfetto.py begins */

typedef struct {
    uint64_t uuid, process; /* the same for a process */
    int64_t pid, tid;
    Text name;
    int is_ordered;
    uint64_t sort_index;
} Described;

static void put_packet(const Described *track, Bytes *out)
{
    int is_process = track->uuid == track->process;
    size_t packet = begin_message(out, 1);
    put_unsigned(out, 10, OWN_SEQUENCE);
    size_t descriptor = begin_message(out, 60);
    put_unsigned(out, 1, track->uuid);
    if (!is_process) put_unsigned(out, 5, track->process);
    size_t described = begin_message(out, is_process ? 3 : 4);
    put_unsigned(out, 1, (uint64_t)track->pid);
    if (!is_process) put_unsigned(out, 2, (uint64_t)track->tid);
    if (track->is_ordered) put_unsigned(out, 3, track->sort_index);
    size_t title = begin_message(out, is_process ? 6 : 5);
    bytes_put(out, track->name.at, track->name.length);
    end_message(out, title);
    end_message(out, described);
    if (!is_process && track->is_ordered && track->sort_index <= INT32_MAX)
        put_unsigned(out, 12, track->sort_index);
    end_message(out, descriptor);
    end_message(out, packet);
}

PyObject *track_packet(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long uuid, process;
    long long pid, tid;
    BytesArgument name;
    PyObject *sort_index;
    if (!PyArg_ParseTuple(args, "KKLLO&O:track_packet", &uuid, &process, &pid, &tid, bytes_argument,
                          &name, &sort_index))
        return NULL;
    Described track = {.uuid = uuid, .process = process, .pid = pid, .tid = tid};
    track.name = (Text){name.at, name.length};
    track.is_ordered = sort_index != Py_None;
    if (track.is_ordered) track.sort_index = PyLong_AsUnsignedLongLongMask(sort_index);
    if (PyErr_Occurred()) return NULL;
    Bytes out = {0};
    put_packet(&track, &out);
    PyObject *packet = out.has_failed ? PyErr_NoMemory()
                                      : PyBytes_FromStringAndSize(out.at, (Py_ssize_t)out.length);
    bytes_free(&out);
    return packet;
}
