/* A patient walk over one JSON value: damaged text flows in, strict JSON with the same meaning flows out.
 *
 *     text ──► walk_value ──► the byte behind the value, and `out`; or a fault, and how far it came
 *
 * Control characters in strings are escaped, bytes that are no UTF-8 replaced, halves of characters written as text, and
 * NaN and infinities become null: what Python's json takes, and no more. Times that are strings become numbers. What it
 * is not sure to read as Python does (exponents, numbers of many digits, deep nesting) it leaves to Python. It allocates
 * for `out` only. */

#ifndef KINETOSCOPE_WALK_H
#define KINETOSCOPE_WALK_H

#include "bytes.h"

typedef enum {
    WALK_FINE,
    WALK_BAD,    /* no JSON, even so */
    WALK_CUT,    /* the text ends within the value */
    WALK_UNSURE, /* somebody else should read it */
} WalkFault;

typedef struct {
    const char *end;
    int skips_commas;     /* they count as space, and are put where they belong */
    int notes_not_finite; /* what was not finite is named in the event, as `chrome.ChromeWriter` does it */
    /* what came of it */
    Bytes out;
    WalkFault fault;
    const char *reached; /* where the fault is */
    int is_changed, is_strict, is_not_utf8;
    unsigned num_not_finite;
    int timeless; /* bits: its `ts`, its `dur` is not finite */
    /* on the way */
    const char *kept; /* what is before it is in `out` */
    unsigned depth;
    Bytes path, notes;
    char phase;
    int has_args, is_path_odd;
} Walk;

/* Walks over the value at `at`, all of which goes to `out`; `walk` is zero but for its settings. Returns the byte behind
 * it, or NULL. */
const char *walk_all(Walk *walk, const char *at);
void walk_free(Walk *walk);

#endif
