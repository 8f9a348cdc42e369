/* OwnedBytes: bytes that C has written and Python reads without a copy. They do not change while
 * Python holds a view of them. */

#ifndef KINETOSCOPE_OWNED_BYTES_H
#define KINETOSCOPE_OWNED_BYTES_H

#include "module.h"
#include "text/bytes.h"

typedef struct OwnedBytes OwnedBytes;

/* Returns the bytes to write to: those of `*owned`, emptied, or those of a new object stored there,
 * if `*owned` is NULL or Python still has a view of it. `*owned` holds the caller's only reference.
 * NULL with an error set. */
Bytes *owned_begin(OwnedBytes **owned);
/* A memoryview of what was written since owned_begin; it holds the object. NULL with an error
 * set. */
PyObject *owned_view(OwnedBytes *owned);
void owned_drop(OwnedBytes *owned);

#endif
