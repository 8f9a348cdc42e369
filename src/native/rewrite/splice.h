/* Notes where the values are that a merge replaces, so that its second pass reads nothing else.
 *
 *     first pass: event ──► splices_note
 *     second pass: text ──► splices_read ──► the same event, with these fields only */

#ifndef KINETOSCOPE_SPLICE_H
#define KINETOSCOPE_SPLICE_H

#include "rewrite/event.h"

#define SPLICE_FIELDS 4 /* pid, tid, ts and dur */

typedef struct {
    uint32_t length; /* of the event; 0: read the whole event again */
    uint16_t first;  /* where the first value begins */
    char phase;
    /* two bits per value, the first in the lowest: which field it is, counted from FIELD_PID */
    uint8_t order;
    /* of the values, and between them; length 0: no such value */
    uint8_t lengths[SPLICE_FIELDS], gaps[SPLICE_FIELDS - 1];
} Splice;

/* Of all events of a file, in order, until there is no more room. */
typedef struct {
    Splice *splices;
    size_t num, capacity, next;
    int is_full; /* later events are read as a whole */
    /* sums over the texts of the events that have splices, in the first and second pass */
    uint64_t noted, passed;
    /* the event that was read last; only its place, phase, times and those four fields are set */
    Event event;
} Splices;

/* Notes the next event; `event` is NULL if Python must write it anew. */
void splices_note(Splices *splices, const Event *event);
/* The next event, which begins at `at`; NULL if it must be read as a whole. */
const Event *splices_read(Splices *splices, const char *at, const char *end);
/* Goes to the next event; call it for every event, with NULL for one that Python wrote anew. 0 if
 * it is not the event that was noted. */
int splices_pass(Splices *splices, const Event *event);
/* Whether the texts that were passed are those that were noted. */
int splices_are_same(const Splices *splices);
void splices_free(Splices *splices);

#endif
