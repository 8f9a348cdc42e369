/* Orders the packets of a Perfetto trace as its trace processor needs them. Events come in any
 * order; packets are written track by track.
 *
 * Packets of one moment on one track must have a certain order: ends, begins, instants and
 * counters, flows. So events wait, encoded but not yet as packets, until no earlier one can
 * come. */

#ifndef KINETOSCOPE_PACKET_ORDER_H
#define KINETOSCOPE_PACKET_ORDER_H

#include "text/bytes.h"

/* In the order that they have at the same moment. */
enum { UNIT_END, UNIT_BEGIN, UNIT_WITHIN, UNIT_FLOW };

#define PAIRED INT64_MAX /* the duration of a B event: its E event ends it */

/* An event that waits. */
typedef struct {
    int64_t ts, dur;
    uint64_t serial;
    size_t at; /* where its content is in `waiting` */
    uint32_t length, track;
    uint8_t kind;
} PacketUnit;

/* The begin of a span that is written when the outermost span with the same begin has come. */
typedef struct {
    int64_t ts, dur;
    size_t num_shared; /* how many more spans with this begin will come */
    char *body;
    size_t length;
} PacketHeld;

/* One track of the trace. */
typedef struct {
    uint64_t uuid;
    int64_t *ends; /* ends of the open spans, the outermost first */
    size_t num_ends, ends_capacity;
    size_t num_units;
    PacketHeld *held; /* grouped by moment */
    size_t num_held, held_capacity;
    uint8_t is_disordered; /* its spans do not come in the order of their begins */
} PacketTrack;

typedef struct {
    uint32_t sequence; /* number of the packet sequence in the trace */
    Bytes waiting;
    PacketUnit *units;
    size_t num_units, units_capacity;
    PacketTrack *tracks; /* indexed by number */
    size_t num_tracks, tracks_capacity;
    uint64_t num_waited;
    size_t num_held;    /* on all tracks */
    size_t max_waiting; /* bytes; flush when there are more */
    int has_failed;     /* there was no memory */
} PacketOrder;

/* The track with that number; NULL if there is no memory. */
PacketTrack *packet_track(PacketOrder *order, uint32_t number);
/* Lets an event wait. Its content is what was appended to `waiting` since `at`. */
void packet_wait(PacketOrder *order, uint32_t track, int64_t ts, int64_t dur, unsigned kind,
                 size_t at);
/* Writes an event at once, on a track whose spans come in the order of their ends. Its content is
 * what was appended to `waiting` since `at`. `dur` is below 0 if it is not a span. If `num_shared`
 * more spans may begin together with it, it is held until they came. */
void packet_put_by_end(PacketOrder *order, uint32_t track, int64_t ts, int64_t dur,
                       size_t num_shared, size_t at, Bytes *out);
/* Writes the events that no later event can precede any more; with `is_over`, all events. */
void packet_flush(PacketOrder *order, int is_over, Bytes *out);
void packet_order_free(PacketOrder *order);

/* Writes one event of a track as a packet. */
void packet_put(const PacketOrder *order, Bytes *out, int64_t ts, const char *body, size_t length);

static inline int packets_are_many(const PacketOrder *order)
{
    return order->waiting.length > order->max_waiting;
}

#endif
