/* Chrome events as packets of a Perfetto trace: fields of one event flow in, protobuf flows out.
 *
 * The format is "perfetto/protos/perfetto/trace/trace_packet.proto"; formats/perfetto.py says the same in Python, and
 * names the fields. One encoder writes one sequence of packets, with names of its own. */

#ifndef KINETOSCOPE_PERFETTO_H
#define KINETOSCOPE_PERFETTO_H

#include "bytes.h"
#include "event.h"

/* A packet that waits for others of the same moment on its track: what ends then, what begins, and what lies within. */
typedef struct {
    uint64_t track;
    int64_t ts, order; /* longer spans begin first */
    uint64_t serial;
    size_t at, length;
    uint8_t kind, is_disordered;
} PacketUnit;

typedef struct {
    uint32_t sequence;
    int is_begun;
    Table names, categories, keys; /* strings as JSON; their number is that in the trace, less 1 */
    Table counters;
    Bytes interned, body; /* of the packet in hand */
    Bytes waiting;
    PacketUnit *units;
    size_t num_units, units_capacity;
    uint64_t num_waited;
    size_t most_waiting; /* bytes; then what can be written is */
    int has_failed;
} PacketEncoder;

typedef struct {
    uint64_t track, process; /* uuids */
    int64_t ts, dur, id;     /* unix nanoseconds */
    int has_id, is_disordered; /* spans of its track do not come in the order of their begin */
    const Bytes *said;       /* about its nesting, or NULL */
} PacketPlace;

void packet_event(PacketEncoder *encoder, const Event *event, const PacketPlace *place, Bytes *out);
/* Writes what waited; with `is_over` all of it, else what nothing can come before any more. */
void packet_flush(PacketEncoder *encoder, int is_over, Bytes *out);
void packet_free(PacketEncoder *encoder);

#endif
