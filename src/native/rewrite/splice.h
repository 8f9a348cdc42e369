/* Where in an event the values stand that a merge writes anew, so that its second pass reads
 * nothing else of it.
 *
 *     first pass: event ──► splices_note
 *     second pass: text ──► splices_read ──► the same event, but for its other fields
 */

#ifndef KINETOSCOPE_SPLICE_H
#define KINETOSCOPE_SPLICE_H

#include "rewrite/event.h"

#define SPLICE_FIELDS 4 /* pid, tid, ts and dur */

typedef struct {
    uint32_t length; /* of the event; 0 if it is to be read as a whole again */
    uint16_t first;  /* where the first value begins */
    char phase;
    /* two bits for each value, the first in the lowest: which field it is, counted from FIELD_PID
     * on */
    uint8_t order;
    /* of the values, and between them; no length: no such value */
    uint8_t lengths[SPLICE_FIELDS], gaps[SPLICE_FIELDS - 1];
} Splice;

/* Of all events of a file, one after another, as long as there is room. */
typedef struct {
    Splice *splices;
    size_t num, capacity, next;
    int is_full; /* the events behind these are read as a whole */
    /* the one that was read last: only its place, its phase, its times and those four fields are
     * set */
    Event event;
} Splices;

/* Notes the next event; `event` is NULL for one that somebody else must write anew. */
void splices_note(Splices *splices, const Event *event);
/* The next event, which begins at `at`; NULL if it is to be read as a whole. */
const Event *splices_read(Splices *splices, const char *at, const char *end);
/* Goes on to the event behind it, however it was read. */
static inline void splices_pass(Splices *splices)
{
    splices->next++;
}
void splices_free(Splices *splices);

#endif
