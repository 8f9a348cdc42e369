/* Chrome events as packets of a Perfetto trace: fields of one event flow in, protobuf flows out.
 *
 * The format is "perfetto/protos/perfetto/trace/trace_packet.proto"; formats/perfetto.py says the
 * same in Python, and names the fields. One encoder writes one sequence of packets, with names of
 * its own. */

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
    Table names, categories, keys; /* strings as JSON; their number is that in the trace, less 1 */
    CounterTracks counters;
    uint32_t *shape_keys; /* by the shape of a member: the number of its key; 0: not known yet */
    size_t num_shape_keys;
    Bytes last_category;
    uint64_t last_category_number;
    Bytes interned, body; /* of the packet in hand */
    int has_failed;
} PacketEncoder;

typedef struct {
    uint32_t number;           /* of its track, from 0 */
    uint64_t track, process;   /* uuids */
    int64_t ts, dur, id;       /* unix nanoseconds */
    int has_id, is_disordered; /* spans of its track do not come in the order of their begin */
    /* they come in the order of their end, and there are neither flows nor pairs */
    int is_by_end;
    size_t num_shared; /* then: how many more spans may begin at the same moment */
    const Bytes *said; /* about its nesting, or NULL */
} PacketPlace;

void packet_event(PacketEncoder *encoder, const Shapes *shapes, const Event *event,
                  const PacketPlace *place, Bytes *out);
/* Writes what still waits. */
void packet_finish(PacketEncoder *encoder, Bytes *out);
void packet_free(PacketEncoder *encoder);

#endif
