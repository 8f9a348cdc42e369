/* Packets of a Perfetto trace, in an order that the trace processor understands: events flow in as
 * they come, packets flow out, track by track.
 *
 * What is at one moment of one track must come in a certain order: what ends then, what begins,
 * what lies within, flows. So events wait, in what they say but without their packets, until
 * nothing can come before them any more. */

#ifndef KINETOSCOPE_PACKET_ORDER_H
#define KINETOSCOPE_PACKET_ORDER_H

#include "text/bytes.h"

/* In the order in which they come, where they are at the same moment. */
enum { UNIT_END, UNIT_BEGIN, UNIT_WITHIN, UNIT_FLOW };

#define PAIRED INT64_MAX /* the duration of what begins with a B: its E ends it */

/* An event that waits. */
typedef struct {
    int64_t ts, dur;
    uint64_t serial;
    size_t at; /* what it says, among what waits */
    uint32_t length, track;
    uint8_t kind;
} PacketUnit;

/* The begin of a span, written when the last of those that begin with it has come, which encloses
 * them. */
typedef struct {
    int64_t ts, dur;
    size_t num_shared; /* how many more are to come */
    char *body;
    size_t length;
} PacketHeld;

/* One track of the trace. */
typedef struct {
    uint64_t uuid;
    int64_t *ends; /* of the spans that are open, the outermost first */
    size_t num_ends, ends_capacity;
    size_t num_units;
    PacketHeld *held; /* those of one moment stand together */
    size_t num_held, held_capacity;
    uint8_t is_disordered; /* its spans do not come in the order of their begin */
} PacketTrack;

typedef struct {
    uint32_t sequence; /* of packets, in the trace */
    Bytes waiting;
    PacketUnit *units;
    size_t num_units, units_capacity;
    PacketTrack *tracks; /* by their number */
    size_t num_tracks, tracks_capacity;
    uint64_t num_waited;
    size_t num_held;     /* of all tracks */
    size_t most_waiting; /* bytes; then it is time to flush */
    int has_failed;      /* there was no memory */
} PacketOrder;

/* The track of that number; NULL if there is no memory. */
PacketTrack *packet_track(PacketOrder *order, uint32_t number);
/* Keeps an event for its turn: of what waits, what was put there since `at`. */
void packet_wait(PacketOrder *order, uint32_t track, int64_t ts, int64_t dur, unsigned kind,
                 size_t at);
/* Writes an event at once, of a track whose spans come in the order of their end: of what waits,
 * what was put there since `at`. `dur` is below 0 if it is no span. One that may begin together
 * with `num_shared` more is held until they came. */
void packet_put_by_end(PacketOrder *order, uint32_t track, int64_t ts, int64_t dur,
                       size_t num_shared, size_t at, Bytes *out);
/* Writes what waited; with `is_over` all of it, else what nothing can come before any more. */
void packet_flush(PacketOrder *order, int is_over, Bytes *out);
void packet_order_free(PacketOrder *order);

/* Writes one event of a track as a packet. */
void packet_put(const PacketOrder *order, Bytes *out, int64_t ts, const char *body, size_t length);

static inline int packets_are_many(const PacketOrder *order)
{
    return order->waiting.length > order->most_waiting;
}

#endif
