/* Encodes Chrome events as packets of a Perfetto trace, in protobuf.
 *
 * The format is "perfetto/protos/perfetto/trace/trace_packet.proto"; the reference
 * tests/reference/perfetto_packets.py names the fields. One encoder writes one sequence of packets,
 * with its own names. */

#ifndef KINETOSCOPE_PERFETTO_H
#define KINETOSCOPE_PERFETTO_H

#include "text/bytes.h"
#include "rewrite/counters.h"
#include "rewrite/event.h"
#include "rewrite/packet_order.h"
#include "rewrite/shapes.h"

typedef struct {
    PacketOrder order;
    int is_begun;
    Table names, categories, keys; /* strings as JSON; their number in the trace is 1 more */
    CounterTracks counters;
    uint32_t *shape_keys; /* for each shape of a member, the number of its key; 0: unknown yet */
    size_t num_shape_keys;
    Bytes last_category;
    uint64_t last_category_number;
    Bytes interned, body; /* of the current packet */
    int has_failed;
} PacketEncoder;

typedef struct {
    uint32_t number;         /* number of its track, from 0 */
    uint64_t track, process; /* uuids */
    int64_t ts, dur, id;     /* unix nanoseconds */
    /* is_disordered: spans of its track do not come in the order of their begins */
    int has_id, is_disordered;
    /* spans come in the order of their ends, and there are neither flows nor pairs */
    int is_in_end_order;
    size_t num_shared; /* with is_in_end_order: how many more spans may begin at the same moment */
    const Bytes *nesting_note; /* what nesting changed in it, as text, or NULL */
} PacketPlace;

void packet_event(PacketEncoder *encoder, const Shapes *shapes, const Event *event,
                  const PacketPlace *place, Bytes *out);
/* Writes all events that still wait. */
void packet_finish(PacketEncoder *encoder, Bytes *out);
void packet_free(PacketEncoder *encoder);

#endif
