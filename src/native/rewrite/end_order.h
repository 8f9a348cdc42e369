/* Finds the spans of one track that begin together, if spans come in the order of their ends, as a
 * recorder writes them.
 *
 * Perfetto sorts packets by time, so such spans can be written as they come. The exception is a
 * span that begins at the same moment as one that encloses it: it must wait for that one. The first
 * pass over a file finds such moments. */

#ifndef KINETOSCOPE_END_ORDER_H
#define KINETOSCOPE_END_ORDER_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    int64_t *begins; /* of the spans that no later span encloses so far, sorted */
    size_t num_begins, begins_capacity;
    int64_t *shared; /* moments at which several spans begin; once for each span after the first */
    size_t num_shared, shared_capacity;
    int64_t forgotten; /* the latest of the begins that were forgotten */
    int64_t last_begin, last_end;
    uint8_t has_begun, is_broken; /* is_broken: not all spans come in that order */
} EndOrder;

/* Notes a span; 0 if there is no memory. `is_disordered`: not all spans so far came in the order of
 * their begins. */
int end_order_note(EndOrder *order, int64_t begin, int64_t dur, int is_disordered);
/* Call it when all spans were noted. */
void end_order_finish(EndOrder *order);
/* How many more spans may begin at that moment, besides the first. */
size_t end_order_shared(const EndOrder *order, int64_t begin);
void end_order_free(EndOrder *order);

#endif
