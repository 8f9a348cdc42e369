/* See perfetto.h. */

#include "rewrite/perfetto.h"

#include <stdlib.h>

#include "text/json.h"
#include "text/json_text.h"
#include "text/numbers.h"
#include "rewrite/protobuf.h"

#define MAX_INTERNED ((size_t)8 << 20)

enum { SLICE_BEGIN = 1, SLICE_END = 2, INSTANT = 3, COUNTER = 4 }; /* types of track events */
enum { STATE_CLEARED = 1, NEEDS_STATE = 2 };

/* Writes a JSON scalar as text: a string without its quotes. */
static void put_text(Bytes *bytes, unsigned field, const char *at, size_t length)
{
    size_t begin = begin_message(bytes, field);
    if (length >= 2 && *at == '"')
        json_put_inside(bytes, at + 1, at + length - 1);
    else
        bytes_put(bytes, at, length);
    end_message(bytes, begin);
}

/* -- interned names -- */

static uint64_t intern(PacketEncoder *encoder, Table *table, unsigned field, Text text)
{
    size_t before = table->num_entries;
    uint32_t number = table_intern(table, text.at != NULL ? text.at : "", text.length);
    if (number == TABLE_FULL) {
        encoder->has_failed = 1;
        return 0;
    }
    if (table->num_entries > before) {
        size_t begin = begin_message(&encoder->interned, field);
        put_unsigned(&encoder->interned, 1, number + 1);
        put_text(&encoder->interned, 2, text.at != NULL ? text.at : "", text.length);
        end_message(&encoder->interned, begin);
    }
    return number + 1;
}

/* -- args -- */

static const char *put_value(PacketEncoder *encoder, Bytes *bytes, const char *at, const char *end,
                             int depth);

/* Writes the members of a list (`field` 12) or an object (11), one annotation each. Returns the
 * byte after them; NULL if they are invalid. */
static const char *put_members(PacketEncoder *encoder, Bytes *bytes, const char *at,
                               const char *end, unsigned field, int depth)
{
    int is_object = *at == '{';
    JsonMembers members = json_members(at, end);
    while (json_next(&members)) {
        size_t begin = begin_message(bytes, field);
        Text key = members.key;
        if (is_object)
            put_unsigned(bytes, 1,
                         intern(encoder, &encoder->keys, 3, (Text){key.at - 1, key.length + 2}));
        members.at = put_value(encoder, bytes, members.at, end, depth + 1);
        end_message(bytes, begin);
    }
    return members.at;
}

static void put_number(Bytes *bytes, const char *at, size_t length)
{
    int64_t whole;
    if (read_integer((Text){at, length}, &whole))
        put_unsigned(bytes, 4, (uint64_t)whole);
    else
        put_double(bytes, 5, read_double((Text){at, length}));
}

static const char *put_value(PacketEncoder *encoder, Bytes *bytes, const char *at, const char *end,
                             int depth)
{
    JsonFault fault = JSON_FINE;
    int is_nested = at < end && (*at == '{' || *at == '[');
    if (is_nested && depth < 32) /* deeper levels are written as text */
        return put_members(encoder, bytes, at, end, *at == '{' ? 11 : 12, depth);
    const char *behind = json_skip_value(at, end, &fault);
    if (behind == NULL) return NULL;
    if (is_nested || *at == '"')
        put_text(bytes, 6, at, (size_t)(behind - at));
    else if (*at == 't' || *at == 'f')
        put_unsigned(bytes, 2, *at == 't');
    else if (*at == 'n')
        put_text(bytes, 6, "null", 4);
    else
        put_number(bytes, at, (size_t)(behind - at));
    return behind;
}

/* The interned number of the key that members of that shape have. */
static uint64_t key_of_shape(PacketEncoder *encoder, const Shapes *shapes, uint32_t shape)
{
    if (shape >= encoder->num_shape_keys) {
        size_t num = shapes->num_nodes + 64;
        uint32_t *grown = realloc(encoder->shape_keys, num * sizeof *grown);
        if (grown == NULL) {
            encoder->has_failed = 1;
            return 0;
        }
        memset(grown + encoder->num_shape_keys, 0, (num - encoder->num_shape_keys) * sizeof *grown);
        encoder->shape_keys = grown;
        encoder->num_shape_keys = num;
    }
    if (encoder->shape_keys[shape] == 0)
        encoder->shape_keys[shape] = (uint32_t)intern(encoder, &encoder->keys, 3,
                                                      shapes_key(shapes, shape));
    return encoder->shape_keys[shape];
}

/* Writes an annotation whose length is known at once: a whole number, or a string without escapes.
 * 0 for other values. */
static int put_plain_member(Bytes *bytes, uint64_t key, Text value)
{
    int64_t whole;
    int is_text = *value.at == '"' && memchr(value.at, '\\', value.length) == NULL;
    if (!is_text && !read_integer(value, &whole)) return 0;
    size_t text = is_text ? value.length - 2 : 0;
    char *at = bytes_room(bytes, 4 * NUMBER_BYTES + text);
    if (at == NULL) return 1;
    at = write_length(at, 4,
                      2 + varint_length(key) +
                          (is_text ? varint_length(text) + text : varint_length((uint64_t)whole)));
    at = write_unsigned(at, 1, key);
    if (is_text) {
        at = write_length(at, 6, text);
        copy_short(at, value.at + 1, text);
        at += text;
    } else {
        at = write_unsigned(at, 4, (uint64_t)whole);
    }
    bytes->length = (size_t)(at - bytes->at);
    return 1;
}

static void put_known_members(PacketEncoder *encoder, const Shapes *shapes, Bytes *body,
                              const Event *event)
{
    for (uint32_t i = 0; i < event->num_members; i++) {
        Text value = event->members[i].value;
        uint64_t key = key_of_shape(encoder, shapes, event->members[i].shape);
        if (put_plain_member(body, key, value)) continue;
        size_t begin = begin_message(body, 4);
        put_unsigned(body, 1, key);
        put_value(encoder, body, value.at, value.at + value.length, 1);
        end_message(body, begin);
    }
}

static void put_args(PacketEncoder *encoder, const Shapes *shapes, Bytes *body, const Event *event,
                     const PacketPlace *place)
{
    Text args = event->fields[FIELD_ARGS];
    if (event->num_members != MEMBERS_UNKNOWN)
        put_known_members(encoder, shapes, body, event);
    else if (args.at != NULL && *args.at == '{')
        put_members(encoder, body, args.at, args.at + args.length, 4, 0);
    if (place->nesting_note != NULL) {
        size_t begin = begin_message(body, 4);
        put_unsigned(body, 1, intern(encoder, &encoder->keys, 3, (Text){"\"kinetoscope\"", 13}));
        size_t text = begin_message(body, 6);
        json_put_inside(body, place->nesting_note->at,
                        place->nesting_note->at + place->nesting_note->length);
        end_message(body, text);
        end_message(body, begin);
    }
}

/* -- packets -- */

static void begin_sequence(PacketEncoder *encoder, Bytes *out)
{
    size_t begin = begin_message(out, 1);
    put_unsigned(out, 10, encoder->order.sequence);
    put_unsigned(out, 13, STATE_CLEARED);
    end_message(out, begin);
    table_free(&encoder->names);
    table_free(&encoder->categories);
    table_free(&encoder->keys);
    if (encoder->num_shape_keys > 0)
        memset(encoder->shape_keys, 0, encoder->num_shape_keys * sizeof *encoder->shape_keys);
    encoder->last_category.length = 0;
    encoder->is_begun = 1;
}

/* Writes the new names as a packet of their own, which must come before packets that use them. */
static void put_interned(PacketEncoder *encoder, Bytes *out)
{
    if (encoder->interned.length == 0) return;
    size_t begin = begin_message(out, 1);
    put_unsigned(out, 10, encoder->order.sequence);
    put_unsigned(out, 13, NEEDS_STATE);
    size_t interned = begin_message(out, 12);
    bytes_put(out, encoder->interned.at, encoder->interned.length);
    end_message(out, interned);
    end_message(out, begin);
    encoder->interned.length = 0;
}

static uint64_t category_of(PacketEncoder *encoder, Text text)
{
    Bytes *last = &encoder->last_category;
    if (last->length == text.length && memcmp(last->at, text.at, text.length) == 0)
        return encoder->last_category_number;
    last->length = 0;
    bytes_put(last, text.at, text.length);
    return encoder->last_category_number = intern(encoder, &encoder->categories, 1, text);
}

static void put_header(PacketEncoder *encoder, const Event *event, unsigned type, uint64_t track)
{
    uint64_t name = intern(encoder, &encoder->names, 2, event->fields[FIELD_NAME]);
    Text category = event->fields[FIELD_CAT];
    char *at = bytes_room(&encoder->order.waiting, 4 * NUMBER_BYTES);
    if (at == NULL) return;
    if (type != 0) at = write_unsigned(at, 9, type);
    at = write_unsigned(at, 11, track);
    at = write_unsigned(at, 10, name);
    if (category.at != NULL) at = write_unsigned(at, 3, category_of(encoder, category));
    encoder->order.waiting.length = (size_t)(at - encoder->order.waiting.at);
}

/* Writes events that only Perfetto's legacy format has: flows and asynchronous spans. */
static void put_legacy(PacketEncoder *encoder, const Event *event, const PacketPlace *place)
{
    Bytes *body = &encoder->order.waiting;
    Text bind = event->fields[FIELD_BP];
    put_header(encoder, event, 0, place->track);
    size_t legacy = begin_message(body, 6);
    put_unsigned(body, 2, (uint64_t)event->phase);
    if (place->has_id) put_unsigned(body, 6, (uint64_t)place->id);
    if (bind.at != NULL && TEXT_IS(bind, "\"e\"")) put_unsigned(body, 12, 1);
    end_message(body, legacy);
}

static void packet_counter(PacketEncoder *encoder, const Event *event, const PacketPlace *place,
                           Bytes *out)
{
    CounterTracks *tracks = &encoder->counters;
    CounterEvent counter;
    for (int is_there = counter_first(&counter, event, tracks->texts); is_there;
         is_there = counter_next(&counter)) {
        Bytes *body = &encoder->body;
        uint64_t track = counter_track(tracks, &counter, place->process, encoder->order.sequence,
                                       out);
        body->length = 0;
        put_unsigned(body, 9, COUNTER);
        put_unsigned(body, 11, track);
        put_double(body, 44, counter.value);
        packet_put(&encoder->order, out, place->ts, body->at, body->length);
    }
}

static size_t interned_bytes(const PacketEncoder *encoder)
{
    return encoder->names.keys.length + encoder->categories.keys.length + encoder->keys.keys.length;
}

/* Appends an event's content, except its args, to what waits, and sets its kind; 0 if the format
 * cannot show it. */
static int put_event(PacketEncoder *encoder, const Event *event, const PacketPlace *place,
                     unsigned *kind)
{
    *kind = UNIT_WITHIN;
    switch (event->phase) {
        case 'X':
        case 'B':
            *kind = UNIT_BEGIN;
            put_header(encoder, event, SLICE_BEGIN, place->track);
            return 1;
        case 'E':
            *kind = UNIT_END;
            put_unsigned(&encoder->order.waiting, 9, SLICE_END);
            put_unsigned(&encoder->order.waiting, 11, place->track);
            return 1;
        case 'i':
        case 'I': put_header(encoder, event, INSTANT, place->track); return 1;
        case 's':
        case 't':
        case 'f':
            *kind = UNIT_FLOW;
            put_legacy(encoder, event, place);
            return 1;
        case 'b':
        case 'n':
        case 'e': put_legacy(encoder, event, place); return 1;
        default: return 0; /* viewers of these packets do not show it */
    }
}

void packet_event(PacketEncoder *encoder, const Shapes *shapes, const Event *event,
                  const PacketPlace *place, Bytes *out)
{
    PacketOrder *order = &encoder->order;
    /* waiting events refer to names by number, so the names must stay */
    if (!encoder->is_begun ||
        (interned_bytes(encoder) > MAX_INTERNED && order->num_units == 0 && order->num_held == 0))
        begin_sequence(encoder, out);
    if (event->fields[FIELD_TS].at == NULL) return;
    if (event->phase == 'C') {
        packet_counter(encoder, event, place, out);
        return;
    }
    unsigned kind;
    size_t at = order->waiting.length;
    PacketTrack *track = packet_track(order, place->number);
    if (track == NULL || !put_event(encoder, event, place, &kind)) return;
    track->uuid = place->track;
    track->is_disordered |= (uint8_t)place->is_disordered;
    put_args(encoder, shapes, &order->waiting, event, place);
    put_interned(encoder, out);
    if (place->is_in_end_order) {
        int64_t dur = event->phase == 'X' ? place->dur : -1;
        packet_put_by_end(order, place->number, place->ts, dur, place->num_shared, at, out);
        return;
    }
    packet_wait(order, place->number, place->ts,
                event->phase == 'B' ? PAIRED
                : place->dur > 0    ? place->dur
                                    : 0,
                kind, at);
    if (packets_are_many(order)) packet_flush(order, 0, out);
}

void packet_finish(PacketEncoder *encoder, Bytes *out)
{
    packet_flush(&encoder->order, 1, out);
    encoder->has_failed |= encoder->order.has_failed | encoder->body.has_failed |
                           encoder->interned.has_failed | encoder->last_category.has_failed |
                           encoder->counters.has_failed;
}

void packet_free(PacketEncoder *encoder)
{
    packet_order_free(&encoder->order);
    table_free(&encoder->names);
    table_free(&encoder->categories);
    table_free(&encoder->keys);
    counter_tracks_free(&encoder->counters);
    bytes_free(&encoder->interned);
    bytes_free(&encoder->body);
    bytes_free(&encoder->last_category);
    free(encoder->shape_keys);
    memset(encoder, 0, sizeof *encoder);
}
