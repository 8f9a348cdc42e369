/* One event on its way out: its text, with other values in place of some. */

#ifndef KINETOSCOPE_PUT_EVENT_H
#define KINETOSCOPE_PUT_EVENT_H

#include "text/bytes.h"
#include "rewrite/event.h"

/* What takes the place of fields of one event. */
typedef struct {
    Text pid, tid;     /* none where the event has none, and keeps it so */
    const Bytes *said; /* what nesting did to it, or NULL */
    int64_t ts, dur;
    int64_t id_shift;
    int64_t new_id;          /* of a flow that begins again, or 0 */
    int shifts_ids, narrows; /* ids are moved; instants belong to their thread */
} Rewrite;

/* Writes an event, with a comma and a line break before it. */
void put_event(Bytes *out, const Event *event, const Rewrite *rewrite);

#endif
