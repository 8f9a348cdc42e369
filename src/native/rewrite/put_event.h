/* Writes one event: its text, with some values replaced. */

#ifndef KINETOSCOPE_PUT_EVENT_H
#define KINETOSCOPE_PUT_EVENT_H

#include "text/bytes.h"
#include "rewrite/event.h"

/* The values that replace those of one event. */
typedef struct {
    Text pid, tid;             /* empty if the event has none and gets none */
    const Bytes *nesting_note; /* what nesting changed in it, as text, or NULL */
    int64_t ts, dur;
    int64_t id_shift;
    int64_t new_id; /* new id for a flow that begins again, or 0 */
    /* shifts_ids: an offset is added to ids; narrows: instants become those of their thread */
    int shifts_ids, narrows;
} Rewrite;

/* Writes an event, with a comma and a line break before it. */
void put_event(Bytes *out, const Event *event, const Rewrite *rewrite);

#endif
