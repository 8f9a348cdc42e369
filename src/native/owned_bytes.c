/* See owned_bytes.h. */

#include "owned_bytes.h"

struct OwnedBytes {
    PyObject_HEAD
    Bytes bytes;
};

static PyTypeObject *owned_type;

Bytes *owned_begin(OwnedBytes **owned)
{
    /* each buffer that Python has of it holds a reference */
    if (*owned == NULL || !has_one_reference(*owned)) {
        OwnedBytes *other = object_new(owned_type);
        if (other == NULL) return NULL;
        owned_drop(*owned);
        *owned = other;
    }
    (*owned)->bytes.length = 0;
    return &(*owned)->bytes;
}

PyObject *owned_view(OwnedBytes *owned)
{
    return PyMemoryView_FromObject((PyObject *)owned);
}

void owned_drop(OwnedBytes *owned)
{
    Py_XDECREF((PyObject *)owned);
}

static int owned_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
    const Bytes *bytes = &((OwnedBytes *)self)->bytes;
    return PyBuffer_FillInfo(view, self, bytes->at != NULL ? bytes->at : "",
                             (Py_ssize_t)bytes->length, 1, flags);
}

static void owned_dealloc(PyObject *self)
{
    bytes_free(&((OwnedBytes *)self)->bytes);
    object_free(self);
}

static PyType_Slot owned_slots[] = {
    {Py_tp_doc, "What C has written: a buffer."},
    {Py_tp_dealloc, owned_dealloc},
    {Py_bf_getbuffer, owned_getbuffer},
    {0, NULL},
};

int owned_setup(PyObject *module)
{
    return add_type(module, "kinetoscope._native.OwnedBytes", sizeof(OwnedBytes),
                    Py_TPFLAGS_DISALLOW_INSTANTIATION, owned_slots, &owned_type);
}
