/* OwnedBytes: what C has written and Python reads without a copy. It stays as it is for as long as
 * Python looks at it. */

#ifndef KINETOSCOPE_OWNED_BYTES_H
#define KINETOSCOPE_OWNED_BYTES_H

#include "module.h"
#include "text/bytes.h"

typedef struct OwnedBytes OwnedBytes;

/* Where to write next: the bytes of `*owned`, empty again, or of a new object in its place if
 * Python still looks at them, or `*owned` is NULL. The caller keeps the one reference there. NULL
 * with an error set. */
Bytes *owned_begin(OwnedBytes **owned);
/* What was written since, as a memoryview that holds the object; NULL with an error set. */
PyObject *owned_view(OwnedBytes *owned);
void owned_drop(OwnedBytes *owned);

#endif
