/* See packet_order.h. */

#include "rewrite/packet_order.h"

#include <stdlib.h>

#include "rewrite/protobuf.h"

#define MAX_WAITING ((size_t)8 << 20)

enum { SLICE_END = 2, NEEDS_STATE = 2 };

/* -- units that wait -- */

PacketTrack *packet_track(PacketOrder *order, uint32_t number)
{
    if (number >= order->num_tracks) {
        if (!array_room_up_to((void **)&order->tracks, number, &order->tracks_capacity,
                              sizeof *order->tracks)) {
            order->has_failed = 1;
            return NULL;
        }
        order->num_tracks = (size_t)number + 1;
    }
    return &order->tracks[number];
}

void packet_wait(PacketOrder *order, uint32_t track, int64_t ts, int64_t dur, unsigned kind,
                 size_t at)
{
    PacketTrack *owner = packet_track(order, track);
    size_t length = order->waiting.length - at;
    if (owner == NULL || length > UINT32_MAX ||
        !array_room_for_next((void **)&order->units, order->num_units, &order->units_capacity,
                             sizeof *order->units)) {
        order->has_failed = 1;
        return;
    }
    if (order->max_waiting == 0) order->max_waiting = MAX_WAITING;
    owner->num_units++;
    order->units[order->num_units++] = (PacketUnit){
        ts, dur, order->num_waited++, at, (uint32_t)length, track, (uint8_t)kind};
}

/* The units, grouped by track, in the order in which they came; NULL if there is no memory. */
static PacketUnit *units_by_track(const PacketOrder *order)
{
    PacketUnit *units = malloc((order->num_units + 1) * sizeof *units);
    size_t *places = calloc(order->num_tracks + 1, sizeof *places);
    if (units == NULL || places == NULL) {
        free(units);
        free(places);
        return NULL;
    }
    for (size_t i = 0; i < order->num_tracks; i++)
        places[i + 1] = places[i] + order->tracks[i].num_units;
    for (size_t i = 0; i < order->num_units; i++)
        units[places[order->units[i].track]++] = order->units[i];
    free(places);
    return units;
}

static int compare_units(const void *one, const void *other)
{
    const PacketUnit *first = one, *second = other;
    if (first->ts != second->ts) return first->ts < second->ts ? -1 : 1;
    if (first->kind != second->kind) return first->kind < second->kind ? -1 : 1;
    if (first->dur != second->dur)
        return first->dur > second->dur ? -1 : 1; /* longer spans first */
    return first->serial < second->serial ? -1 : 1;
}

/* Insertion sort: they are mostly in order. */
static void sort_units(PacketUnit *units, size_t num_units)
{
    for (size_t i = 1; i < num_units; i++) {
        if (compare_units(&units[i - 1], &units[i]) > 0) {
            qsort(units, num_units, sizeof *units, compare_units);
            return;
        }
    }
}

/* Keeps units and their content for the next flush. */
static void keep_units(PacketOrder *order, const PacketUnit *units, size_t num_units, Bytes *kept)
{
    for (size_t i = 0; i < num_units; i++) {
        PacketUnit unit = units[i];
        unit.at = kept->length;
        bytes_put(kept, order->waiting.at + units[i].at, units[i].length);
        order->units[order->num_units++] = unit;
    }
}

/* -- packets -- */

void packet_put(const PacketOrder *order, Bytes *out, int64_t ts, const char *body, size_t length)
{
    size_t inside = 1 + varint_length((uint64_t)ts) + 1 + varint_length(order->sequence) + 2 + 1 +
                    varint_length(length) + length;
    char *at = bytes_room(out, NUMBER_BYTES + inside);
    if (at == NULL) return;
    at = write_length(at, 1, inside);
    at = write_unsigned(at, 8, (uint64_t)ts);
    at = write_unsigned(at, 10, order->sequence);
    at = write_unsigned(at, 13, NEEDS_STATE);
    at = write_length(at, 11, length);
    copy_short(at, body, length);
    out->length = (size_t)(at + length - out->at);
}

static void put_unit(const PacketOrder *order, const PacketUnit *unit, Bytes *out)
{
    packet_put(order, out, unit->ts, order->waiting.at + unit->at, unit->length);
}

static void put_end(const PacketOrder *order, const PacketTrack *track, int64_t ts, Bytes *out)
{
    char body[2 * NUMBER_BYTES],
        *at = write_unsigned(write_unsigned(body, 9, SLICE_END), 11, track->uuid);
    packet_put(order, out, ts, body, (size_t)(at - body));
}

static void open_span(PacketOrder *order, PacketTrack *track, int64_t end)
{
    if (!array_room_for_next((void **)&track->ends, track->num_ends, &track->ends_capacity,
                             sizeof *track->ends)) {
        order->has_failed = 1;
        return;
    }
    size_t place = track->num_ends++;
    for (; place > 0 && track->ends[place - 1] < end; place--) /* only if spans do not nest */
        track->ends[place] = track->ends[place - 1];
    track->ends[place] = end;
}

/* Writes the ends of the spans that end at or before a moment. */
static void close_spans(const PacketOrder *order, PacketTrack *track, int64_t until, Bytes *out)
{
    for (; track->num_ends > 0 && track->ends[track->num_ends - 1] <= until; track->num_ends--)
        put_end(order, track, track->ends[track->num_ends - 1], out);
}

/* -- moments -- */

static void put_flows(const PacketOrder *order, const PacketUnit *units, size_t num_units,
                      Bytes *out)
{
    for (size_t i = 0; i < num_units; i++) {
        if (units[i].kind == UNIT_FLOW) put_unit(order, &units[i], out);
    }
}

static int has_begin(const PacketUnit *units, size_t num_units)
{
    for (size_t i = 0; i < num_units; i++) {
        if (units[i].kind == UNIT_BEGIN) return 1;
    }
    return 0;
}

/* Writes the units of one moment of one track, which are sorted. A flow belongs to the span that
 * begins then, or else to one that ends then, and must come before that end. */
static void put_moment(PacketOrder *order, PacketTrack *track, const PacketUnit *units,
                       size_t num_units, Bytes *out)
{
    int64_t now = units->ts;
    int has_flow = units[num_units - 1].kind == UNIT_FLOW,
        begins = has_flow && has_begin(units, num_units);
    close_spans(order, track, now - 1, out);
    if (has_flow && !begins) put_flows(order, units, num_units, out);
    close_spans(order, track, now, out);
    size_t num_empty = 0;
    for (size_t i = 0; i < num_units && units[i].kind != UNIT_FLOW; i++) {
        put_unit(order, &units[i], out);
        if (units[i].kind != UNIT_BEGIN || units[i].dur == PAIRED) continue;
        if (units[i].dur > 0)
            open_span(order, track, now + units[i].dur);
        else if (has_flow)
            num_empty++;
        else
            put_end(order, track, now, out);
    }
    if (begins) put_flows(order, units, num_units, out);
    for (; num_empty > 0; num_empty--) put_end(order, track, now, out);
}

static int64_t latest_begin(const PacketUnit *units, size_t num_units)
{
    for (size_t i = num_units; i > 0; i--) {
        if (units[i - 1].kind == UNIT_BEGIN) return units[i - 1].ts;
    }
    return INT64_MIN;
}

/* Writes the units of one track up to a moment. Returns how many. */
static size_t flush_track(PacketOrder *order, PacketTrack *track, PacketUnit *units,
                          size_t num_units, int is_over, Bytes *out)
{
    sort_units(units, num_units);
    int64_t until = track->is_disordered ? INT64_MIN : latest_begin(units, num_units);
    size_t first = 0;
    while (first < num_units && (is_over || units[first].ts < until)) {
        size_t behind = first + 1;
        while (behind < num_units && units[behind].ts == units[first].ts) behind++;
        put_moment(order, track, units + first, behind - first, out);
        first = behind;
    }
    if (is_over) close_spans(order, track, INT64_MAX, out);
    return first;
}

/* -- spans in the order of their ends -- */

static void put_held_begin(const PacketOrder *order, const PacketTrack *track,
                           const PacketHeld *held, Bytes *out)
{
    packet_put(order, out, held->ts, held->body, held->length);
    if (held->dur == 0) /* a later end was written when the span came */
        put_end(order, track, held->ts, out);
}

/* Writes the held spans that begin together, longer ones first. `first` is the first held one of
 * that moment. They came in the order of their durations. */
static void release(PacketOrder *order, PacketTrack *track, size_t first, Bytes *out)
{
    for (size_t end = track->num_held, begin; end > first; end = begin) {
        for (begin = end - 1; begin > first &&
                              track->held[begin - 1].dur == track->held[end - 1].dur &&
                              track->held[begin - 1].ts == track->held[end - 1].ts;)
            begin--;
        for (size_t i = begin; i < end; i++) {
            put_held_begin(order, track, &track->held[i], out);
            free(track->held[i].body);
        }
    }
    order->num_held -= track->num_held - first;
    track->num_held = first;
}

/* Holds a begin back; 0 if there is no memory. */
static int hold(PacketOrder *order, PacketTrack *track, PacketHeld held)
{
    char *body = malloc(held.length + 1);
    if (body == NULL || !array_room_for_next((void **)&track->held, track->num_held,
                                             &track->held_capacity, sizeof *track->held)) {
        free(body);
        return 0;
    }
    memcpy(body, held.body, held.length);
    held.body = body;
    track->held[track->num_held++] = held;
    order->num_held++;
    return 1;
}

void packet_put_by_end(PacketOrder *order, uint32_t number, int64_t ts, int64_t dur,
                       size_t num_shared, size_t at, Bytes *out)
{
    PacketTrack *track = packet_track(order, number);
    PacketHeld begun = {ts, dur, num_shared, order->waiting.at + at, order->waiting.length - at};
    order->waiting.length = at;
    if (num_shared == 0) {
        packet_put(order, out, ts, begun.body, begun.length);
    } else {
        size_t first = track->num_held;
        while (first > 0 && track->held[first - 1].ts == ts) first--;
        if (!hold(order, track, begun))
            order->has_failed = 1;
        else if (track->num_held - first > num_shared)
            release(order, track, first, out);
    }
    if (dur > 0 || (dur == 0 && num_shared == 0)) put_end(order, track, ts + dur, out);
}

void packet_flush(PacketOrder *order, int is_over, Bytes *out)
{
    Bytes kept = {0};
    PacketUnit *units = units_by_track(order), *first = units;
    if (units == NULL) {
        order->has_failed = 1;
        return;
    }
    order->num_units = 0;
    for (size_t i = 0; i < order->num_tracks; i++) {
        PacketTrack *track = &order->tracks[i];
        size_t num_units = track->num_units,
               num_written = flush_track(order, track, first, num_units, is_over, out);
        track->num_units = num_units - num_written;
        if (is_over) release(order, track, 0, out);
        keep_units(order, first + num_written, track->num_units, &kept);
        first += num_units;
    }
    free(units);
    order->has_failed |= order->waiting.has_failed | kept.has_failed;
    bytes_free(&order->waiting);
    order->waiting = kept;
    /* so that units that stay long are seldom copied */
    order->max_waiting = 2 * kept.length + MAX_WAITING;
}

void packet_order_free(PacketOrder *order)
{
    bytes_free(&order->waiting);
    for (size_t i = 0; i < order->num_tracks; i++) {
        free(order->tracks[i].ends);
        for (size_t k = 0; k < order->tracks[i].num_held; k++) free(order->tracks[i].held[k].body);
        free(order->tracks[i].held);
    }
    free(order->tracks);
    free(order->units);
    memset(order, 0, sizeof *order);
}
