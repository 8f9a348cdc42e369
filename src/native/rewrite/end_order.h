/* Spans of one track that come in the order of their end, as a recorder writes them: which of them
 * begin together.
 *
 * Perfetto sorts packets by time, so such spans can be written as they come, but for those that
 * begin at the same moment as one that encloses them: these must wait for it. The first pass over a
 * file finds such moments. */

#ifndef KINETOSCOPE_END_ORDER_H
#define KINETOSCOPE_END_ORDER_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    int64_t *begins; /* of the spans that nothing encloses yet, in order */
    size_t num_begins, begins_capacity;
    int64_t *shared; /* the moments at which spans began before; once for each span more */
    size_t num_shared, shared_capacity;
    int64_t forgotten; /* the latest begin of those that `begins` had no room for */
    int64_t last_begin, last_end;
    uint8_t has_begun, is_broken; /* not all spans come in that order */
} EndOrder;

/* Notes a span; 0 if there is no memory. `is_disordered`: so far, not all spans came in the order
 * of their begin. */
int end_order_note(EndOrder *order, int64_t begin, int64_t dur, int is_disordered);
/* All spans were noted. */
void end_order_finish(EndOrder *order);
/* How many spans may begin at that moment beside the first. */
size_t end_order_shared(const EndOrder *order, int64_t begin);
void end_order_free(EndOrder *order);

#endif
