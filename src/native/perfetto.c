/* See perfetto.h. */

#define _GNU_SOURCE /* strtod_l */

#include "perfetto.h"

#include <locale.h>
#include <stdlib.h>

#include "json.h"

#define MOST_INTERNED ((size_t)8 << 20)
#define MOST_WAITING ((size_t)32 << 20)
#define COUNTER_BIT ((uint64_t)1 << 63)

enum { VARINT = 0, FIXED64 = 1, BYTES = 2 };
enum { SLICE_BEGIN = 1, SLICE_END = 2, INSTANT = 3, COUNTER = 4 };
enum { STATE_CLEARED = 1, NEEDS_STATE = 2 };
/* In the order in which they come, where they are at the same moment of the same track. */
enum { KIND_END, KIND_BEGIN, KIND_EMPTY_END, KIND_WITHIN, KIND_FLOW };

/* -- protobuf -- */

static inline void put_varint(Bytes *bytes, uint64_t number)
{
    if (number < 128) {
        bytes_put_char(bytes, (char)number);
        return;
    }
    char *room = bytes_room(bytes, 10);
    if (room == NULL)
        return;
    size_t length = 0;
    for (; number >= 128; number >>= 7)
        room[length++] = (char)(number | 128);
    room[length++] = (char)number;
    bytes->length += length;
}

static void put_tag(Bytes *bytes, unsigned field, unsigned type) { put_varint(bytes, field << 3 | type); }

static void put_unsigned(Bytes *bytes, unsigned field, uint64_t number)
{
    put_tag(bytes, field, VARINT);
    put_varint(bytes, number);
}

static void put_double(Bytes *bytes, unsigned field, double number)
{
    put_tag(bytes, field, FIXED64);
    bytes_put(bytes, &number, sizeof number); /* every machine that we run on is little-endian */
}

/* Begins a message or string whose length is not known yet; one byte is kept for it. */
static size_t begin_message(Bytes *bytes, unsigned field)
{
    put_tag(bytes, field, BYTES);
    bytes_put_char(bytes, 0);
    return bytes->length;
}

static void end_message(Bytes *bytes, size_t begin)
{
    size_t length = bytes->length - begin, extra = 0;
    if (bytes->has_failed)
        return;
    for (size_t rest = length >> 7; rest > 0; rest >>= 7)
        extra++;
    if (extra > 0) {
        if (bytes_room(bytes, extra) == NULL)
            return;
        memmove(bytes->at + begin + extra, bytes->at + begin, length);
        bytes->length += extra;
    }
    char *at = bytes->at + begin - 1;
    for (; length >= 128; length >>= 7)
        *at++ = (char)(length | 128);
    *at = (char)length;
}

/* -- JSON strings as UTF-8 -- */

static unsigned hex_of(const char *at)
{
    unsigned number = 0;
    for (int i = 0; i < 4; i++) {
        char byte = at[i];
        unsigned digit = byte >= '0' && byte <= '9' ? (unsigned)(byte - '0') : ((unsigned)byte | 32u) - 'a' + 10;
        number = number << 4 | (digit & 15);
    }
    return number;
}

static void put_character(Bytes *bytes, unsigned code)
{
    char text[4];
    size_t length;
    if (code < 0x80) {
        text[0] = (char)code;
        length = 1;
    } else if (code < 0x800) {
        text[0] = (char)(0xc0 | code >> 6);
        text[1] = (char)(0x80 | (code & 63));
        length = 2;
    } else if (code < 0x10000) {
        text[0] = (char)(0xe0 | code >> 12);
        text[1] = (char)(0x80 | (code >> 6 & 63));
        text[2] = (char)(0x80 | (code & 63));
        length = 3;
    } else {
        text[0] = (char)(0xf0 | code >> 18);
        text[1] = (char)(0x80 | (code >> 12 & 63));
        text[2] = (char)(0x80 | (code >> 6 & 63));
        text[3] = (char)(0x80 | (code & 63));
        length = 4;
    }
    bytes_put(bytes, text, length);
}

/* `at` is behind a backslash; returns what is behind the escape. */
static const char *put_escaped(Bytes *bytes, const char *at, const char *end)
{
    static const char short_escapes[] = "b\bf\fn\nr\rt\t";
    if (*at != 'u') {
        const char *found = NULL;
        for (const char *it = short_escapes; *it != 0 && found == NULL; it += 2)
            found = *it == *at ? it + 1 : NULL;
        bytes_put_char(bytes, found != NULL ? *found : *at);
        return at + 1;
    }
    if (end - at < 5)
        return end;
    unsigned code = hex_of(at + 1);
    at += 5;
    if (code >= 0xd800 && code < 0xdc00 && end - at >= 6 && at[0] == '\\' && at[1] == 'u') {
        unsigned low = hex_of(at + 2);
        if (low >= 0xdc00 && low < 0xe000) {
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
            at += 6;
        }
    }
    put_character(bytes, code >= 0xd800 && code < 0xe000 ? 0xfffd : code);
    return at;
}

/* The inside of a JSON string. */
static void put_inside(Bytes *bytes, const char *at, const char *end)
{
    while (at < end) {
        const char *escape = memchr(at, '\\', (size_t)(end - at));
        if (escape == NULL || end - escape < 2) {
            bytes_put(bytes, at, (size_t)(end - at));
            return;
        }
        bytes_put(bytes, at, (size_t)(escape - at));
        at = put_escaped(bytes, escape + 1, end);
    }
}

/* A JSON scalar as text: a string without its quotes. */
static void put_text(Bytes *bytes, unsigned field, const char *at, size_t length)
{
    size_t begin = begin_message(bytes, field);
    if (length >= 2 && *at == '"')
        put_inside(bytes, at + 1, at + length - 1);
    else
        bytes_put(bytes, at, length);
    end_message(bytes, begin);
}

/* -- names that are written once -- */

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

static double number_of(const char *at, size_t length)
{
    static locale_t plain;
    char text[64];
    if (plain == (locale_t)0)
        plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (length >= sizeof text)
        length = sizeof text - 1;
    memcpy(text, at, length);
    text[length] = 0;
    return strtod_l(text, NULL, plain);
}

/* Whether a JSON number is a whole one that 64 bits hold. */
static int whole_number(const char *at, size_t length, int64_t *number)
{
    int is_negative = length > 0 && *at == '-';
    if (length - (size_t)is_negative > 18 || length == (size_t)is_negative)
        return 0;
    int64_t sum = 0;
    for (size_t i = (size_t)is_negative; i < length; i++) {
        if (at[i] < '0' || at[i] > '9')
            return 0;
        sum = sum * 10 + (at[i] - '0');
    }
    *number = is_negative ? -sum : sum;
    return 1;
}

static const char *put_value(PacketEncoder *encoder, Bytes *bytes, const char *at, const char *end, int depth);

/* Members of a list (`field` 12) or an object (11), each an annotation of its own. Returns what is behind; NULL if it is
 * not as it should be. */
static const char *put_members(PacketEncoder *encoder, Bytes *bytes, const char *at, const char *end, unsigned field,
                               int depth)
{
    int is_object = *at == '{', num_commas = 0;
    JsonFault fault = JSON_FINE;
    at = json_skip_space(at + 1, end);
    while (at < end && *at != '}' && *at != ']') {
        const char *key = NULL;
        size_t key_length = 0;
        unsigned marks = 0;
        if (is_object)
            at = json_skip_key(at, end, &key, &key_length, &marks, &fault);
        if (at == NULL)
            return NULL;
        size_t begin = begin_message(bytes, field);
        if (is_object)
            put_unsigned(bytes, 1, intern(encoder, &encoder->keys, 3, (Text){key - 1, key_length + 2}));
        at = put_value(encoder, bytes, at, end, depth + 1);
        end_message(bytes, begin);
        if (at == NULL)
            return NULL;
        at = json_skip_comma(at, end, &num_commas);
    }
    return at < end ? at + 1 : NULL;
}

static void put_number(Bytes *bytes, const char *at, size_t length)
{
    int64_t whole;
    if (whole_number(at, length, &whole))
        put_unsigned(bytes, 4, (uint64_t)whole);
    else
        put_double(bytes, 5, number_of(at, length));
}

static const char *put_value(PacketEncoder *encoder, Bytes *bytes, const char *at, const char *end, int depth)
{
    JsonFault fault = JSON_FINE;
    int is_nested = at < end && (*at == '{' || *at == '[');
    if (is_nested && depth < 32) /* deeper than anybody unfolds */
        return put_members(encoder, bytes, at, end, *at == '{' ? 11 : 12, depth);
    const char *behind = json_skip_value(at, end, &fault);
    if (behind == NULL)
        return NULL;
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

static void put_args(PacketEncoder *encoder, Bytes *body, const Event *event, const PacketPlace *place)
{
    Text args = event->fields[FIELD_ARGS];
    if (args.at != NULL && *args.at == '{')
        put_members(encoder, body, args.at, args.at + args.length, 4, 0);
    if (place->said != NULL) {
        size_t begin = begin_message(body, 4);
        put_unsigned(body, 1, intern(encoder, &encoder->keys, 3, (Text){"\"kinetoscope\"", 13}));
        size_t text = begin_message(body, 6);
        put_inside(body, place->said->at, place->said->at + place->said->length);
        end_message(body, text);
        end_message(body, begin);
    }
}

/* -- packets -- */

static void begin_sequence(PacketEncoder *encoder, Bytes *out)
{
    size_t begin = begin_message(out, 1);
    put_unsigned(out, 10, encoder->sequence);
    put_unsigned(out, 13, STATE_CLEARED);
    end_message(out, begin);
    table_free(&encoder->names);
    table_free(&encoder->categories);
    table_free(&encoder->keys);
    encoder->is_begun = 1;
}

/* Writes the names in hand as a packet of their own; they must come before whatever uses them. */
static void put_interned(PacketEncoder *encoder, Bytes *out)
{
    if (encoder->interned.length == 0)
        return;
    size_t begin = begin_message(out, 1);
    put_unsigned(out, 10, encoder->sequence);
    put_unsigned(out, 13, NEEDS_STATE);
    size_t interned = begin_message(out, 12);
    bytes_put(out, encoder->interned.at, encoder->interned.length);
    end_message(out, interned);
    end_message(out, begin);
    encoder->interned.length = 0;
}

static void put_packet(PacketEncoder *encoder, Bytes *out, int64_t ts, const Bytes *body)
{
    size_t begin = begin_message(out, 1);
    put_unsigned(out, 8, (uint64_t)ts);
    put_unsigned(out, 10, encoder->sequence);
    put_unsigned(out, 13, NEEDS_STATE);
    put_tag(out, 11, BYTES);
    put_varint(out, body->length);
    bytes_put(out, body->at, body->length);
    end_message(out, begin);
}

static void put_end(PacketEncoder *encoder, Bytes *out, int64_t ts, uint64_t track)
{
    Bytes *body = &encoder->body;
    body->length = 0;
    put_unsigned(body, 9, SLICE_END);
    put_unsigned(body, 11, track);
    put_packet(encoder, out, ts, body);
}

/* Keeps what was put into `waiting` since `at` for its turn. */
static void note_unit(PacketEncoder *encoder, const PacketPlace *place, int64_t ts, int64_t order, unsigned kind,
                      size_t at)
{
    if (!array_grow((void **)&encoder->units, encoder->num_units, &encoder->units_capacity, sizeof *encoder->units)) {
        encoder->has_failed = 1;
        return;
    }
    encoder->units[encoder->num_units++] =
        (PacketUnit){place->track, ts, order, encoder->num_waited++, at, encoder->waiting.length - at, (uint8_t)kind,
                     (uint8_t)place->is_disordered};
}

static void put_header(PacketEncoder *encoder, const Event *event, unsigned type, uint64_t track)
{
    Bytes *body = &encoder->body;
    body->length = 0;
    if (type != 0)
        put_unsigned(body, 9, type);
    put_unsigned(body, 11, track);
    put_unsigned(body, 10, intern(encoder, &encoder->names, 2, event->fields[FIELD_NAME]));
    if (event->fields[FIELD_CAT].at != NULL)
        put_unsigned(body, 3, intern(encoder, &encoder->categories, 1, event->fields[FIELD_CAT]));
}

static void packet_span(PacketEncoder *encoder, const Event *event, const PacketPlace *place, Bytes *out)
{
    put_header(encoder, event, SLICE_BEGIN, place->track);
    put_args(encoder, &encoder->body, event, place);
    put_interned(encoder, out);
    int64_t dur = place->dur > 0 ? place->dur : 0;
    size_t at = encoder->waiting.length;
    put_packet(encoder, &encoder->waiting, place->ts, &encoder->body);
    note_unit(encoder, place, place->ts, -dur, KIND_BEGIN, at);
    at = encoder->waiting.length;
    put_end(encoder, &encoder->waiting, place->ts + dur, place->track);
    note_unit(encoder, place, place->ts + dur, 0, dur > 0 ? KIND_END : KIND_EMPTY_END, at);
}

/* Events of the old format that have no counterpart: flows, and asynchronous spans. */
static void packet_legacy(PacketEncoder *encoder, const Event *event, const PacketPlace *place)
{
    Bytes *body = &encoder->body;
    Text bind = event->fields[FIELD_BP];
    put_header(encoder, event, 0, place->track);
    size_t legacy = begin_message(body, 6);
    put_unsigned(body, 2, (uint64_t)event->phase);
    if (place->has_id)
        put_unsigned(body, 6, (uint64_t)place->id);
    if (bind.at != NULL && TEXT_IS(bind, "\"e\""))
        put_unsigned(body, 12, 1);
    end_message(body, legacy);
    put_args(encoder, body, event, place);
}

static uint64_t hash_of(uint64_t hash, const char *at, size_t length)
{
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (uint8_t)at[i]) * UINT64_C(1099511628211);
    return hash;
}

/* The track of one series of a counter, described when it is new. */
static uint64_t counter_track(PacketEncoder *encoder, Text name, Text series, const PacketPlace *place, Bytes *out)
{
    uint64_t uuid = hash_of(hash_of(UINT64_C(14695981039346656037), (const char *)&place->process, 8), name.at, name.length);
    uuid = hash_of(uuid, series.at, series.length) | COUNTER_BIT;
    size_t before = encoder->counters.num_entries;
    if (table_intern(&encoder->counters, (const char *)&uuid, sizeof uuid) == TABLE_FULL)
        encoder->has_failed = 1;
    if (encoder->counters.num_entries == before)
        return uuid;
    size_t packet = begin_message(out, 1);
    put_unsigned(out, 10, encoder->sequence);
    size_t descriptor = begin_message(out, 60);
    put_unsigned(out, 1, uuid);
    put_unsigned(out, 5, place->process);
    size_t title = begin_message(out, 2);
    if (name.length >= 2)
        put_inside(out, name.at + 1, name.at + name.length - 1);
    bytes_put_char(out, ' ');
    put_inside(out, series.at + 1, series.at + series.length - 1);
    end_message(out, title);
    end_message(out, begin_message(out, 8));
    end_message(out, descriptor);
    end_message(out, packet);
    return uuid;
}

static void packet_counter(PacketEncoder *encoder, const Event *event, const PacketPlace *place, Bytes *out)
{
    Text args = event->fields[FIELD_ARGS];
    if (args.at == NULL || *args.at != '{')
        return;
    const char *end = args.at + args.length, *at = json_skip_space(args.at + 1, end);
    JsonFault fault = JSON_FINE;
    while (at != NULL && *at == '"') {
        const char *key;
        size_t length;
        unsigned marks = 0;
        int num_commas = 0;
        const char *value = json_skip_key(at, end, &key, &length, &marks, &fault);
        at = value != NULL ? json_skip_value(value, end, &fault) : NULL;
        if (at == NULL)
            return;
        if (*value == '-' || (*value >= '0' && *value <= '9')) {
            Bytes *body = &encoder->body;
            uint64_t track = counter_track(encoder, event->fields[FIELD_NAME], (Text){key - 1, length + 2}, place, out);
            body->length = 0;
            put_unsigned(body, 9, COUNTER);
            put_unsigned(body, 11, track);
            put_double(body, 44, number_of(value, (size_t)(at - value)));
            put_packet(encoder, out, place->ts, body);
        }
        at = json_skip_comma(at, end, &num_commas);
    }
}

static size_t interned_bytes(const PacketEncoder *encoder)
{
    return encoder->names.keys.length + encoder->categories.keys.length + encoder->keys.keys.length;
}

void packet_event(PacketEncoder *encoder, const Event *event, const PacketPlace *place, Bytes *out)
{
    /* What waits refers to names by their number: then they stay. */
    if (!encoder->is_begun || (interned_bytes(encoder) > MOST_INTERNED && encoder->num_units == 0))
        begin_sequence(encoder, out);
    if (encoder->most_waiting == 0)
        encoder->most_waiting = MOST_WAITING;
    Text scope = event->fields[FIELD_SCOPE];
    int is_wide = scope.at != NULL && (TEXT_IS(scope, "\"g\"") || TEXT_IS(scope, "\"p\""));
    if (event->fields[FIELD_TS].at == NULL || event->phase == 0)
        return;
    switch (event->phase) {
    case 'X':
        packet_span(encoder, event, place, out);
        if (encoder->waiting.length > encoder->most_waiting)
            packet_flush(encoder, 0, out);
        return;
    case 'C':
        packet_counter(encoder, event, place, out);
        return;
    case 'B':
        put_header(encoder, event, SLICE_BEGIN, place->track);
        put_args(encoder, &encoder->body, event, place);
        break;
    case 'E':
        encoder->body.length = 0;
        put_unsigned(&encoder->body, 9, SLICE_END);
        put_unsigned(&encoder->body, 11, place->track);
        put_args(encoder, &encoder->body, event, place);
        break;
    case 'i':
    case 'I':
        put_header(encoder, event, INSTANT, is_wide ? place->process : place->track);
        put_args(encoder, &encoder->body, event, place);
        break;
    case 's':
    case 't':
    case 'f':
    case 'b':
    case 'n':
    case 'e':
        packet_legacy(encoder, event, place);
        break;
    default:
        return; /* what no viewer of these packets shows */
    }
    put_interned(encoder, out);
    size_t at = encoder->waiting.length;
    put_packet(encoder, &encoder->waiting, place->ts, &encoder->body);
    int is_flow = event->phase == 's' || event->phase == 't' || event->phase == 'f';
    note_unit(encoder, place, place->ts, 0, event->phase == 'E' ? KIND_END : is_flow ? KIND_FLOW : KIND_WITHIN, at);
    if (encoder->waiting.length > encoder->most_waiting)
        packet_flush(encoder, 0, out);
}

/* An empty span ends where it begins: both stay together, as they came. */
static int sorted_as(const PacketUnit *unit) { return unit->kind == KIND_EMPTY_END ? KIND_BEGIN : unit->kind; }

static int compare_units(const void *one, const void *other)
{
    const PacketUnit *first = one, *second = other;
    if (first->track != second->track)
        return first->track < second->track ? -1 : 1;
    if (first->ts != second->ts)
        return first->ts < second->ts ? -1 : 1;
    int kind = sorted_as(first), other_kind = sorted_as(second);
    if (kind != other_kind)
        return kind < other_kind ? -1 : 1;
    if (first->order != second->order)
        return first->order < second->order ? -1 : 1;
    return first->serial < second->serial ? -1 : 1;
}

static void put_kind(const PacketEncoder *encoder, size_t first, size_t end, unsigned kind, Bytes *out)
{
    for (size_t i = first; i < end; i++) {
        if (encoder->units[i].kind == kind)
            bytes_put(out, encoder->waiting.at + encoder->units[i].at, encoder->units[i].length);
    }
}

static int has_kind(const PacketEncoder *encoder, size_t first, size_t end, unsigned kind)
{
    for (size_t i = first; i < end; i++) {
        if (encoder->units[i].kind == kind)
            return 1;
    }
    return 0;
}

/* Writes the packets of one moment of one track, which are in order. A flow belongs to the span that begins then, or else
 * to one that ends then: it must come before that end. */
static void put_moment(const PacketEncoder *encoder, size_t first, size_t end, Bytes *out)
{
    int has_flow = encoder->units[end - 1].kind == KIND_FLOW;
    int begins = has_flow && has_kind(encoder, first, end, KIND_BEGIN);
    if (has_flow && !begins)
        put_kind(encoder, first, end, KIND_FLOW, out);
    for (size_t i = first; i < end; i++) {
        const PacketUnit *unit = &encoder->units[i];
        if (!has_flow || (unit->kind != KIND_FLOW && unit->kind != KIND_EMPTY_END))
            bytes_put(out, encoder->waiting.at + unit->at, unit->length);
    }
    if (begins) {
        put_kind(encoder, first, end, KIND_FLOW, out);
        put_kind(encoder, first, end, KIND_EMPTY_END, out);
    }
}

static int64_t latest_begin(const PacketEncoder *encoder, size_t first, size_t end)
{
    int64_t latest = INT64_MIN;
    for (size_t i = first; i < end; i++) {
        if (encoder->units[i].kind == KIND_BEGIN && encoder->units[i].ts > latest)
            latest = encoder->units[i].ts;
    }
    return latest;
}

/* Writes the units of one track up to a moment; those behind it are kept. Returns how many units are kept now. */
static size_t flush_track(PacketEncoder *encoder, size_t first, size_t end, int is_over, size_t num_kept, Bytes *kept,
                          Bytes *out)
{
    int64_t until = is_over ? INT64_MAX : encoder->units[first].is_disordered ? INT64_MIN : latest_begin(encoder, first, end);
    for (size_t i = first; i < end;) {
        size_t behind = i + 1;
        while (behind < end && encoder->units[behind].ts == encoder->units[i].ts)
            behind++;
        if (encoder->units[i].ts < until) {
            put_moment(encoder, i, behind, out);
            i = behind;
            continue;
        }
        for (; i < behind; i++) {
            PacketUnit unit = encoder->units[i];
            size_t at = kept->length;
            bytes_put(kept, encoder->waiting.at + unit.at, unit.length);
            unit.at = at;
            encoder->units[num_kept++] = unit;
        }
    }
    return num_kept;
}

void packet_flush(PacketEncoder *encoder, int is_over, Bytes *out)
{
    Bytes kept = {0};
    size_t num_kept = 0;
    if (encoder->num_units > 0)
        qsort(encoder->units, encoder->num_units, sizeof *encoder->units, compare_units);
    for (size_t i = 0; i < encoder->num_units;) {
        size_t behind = i + 1;
        while (behind < encoder->num_units && encoder->units[behind].track == encoder->units[i].track)
            behind++;
        num_kept = flush_track(encoder, i, behind, is_over, num_kept, &kept, out);
        i = behind;
    }
    encoder->has_failed |= encoder->waiting.has_failed | encoder->body.has_failed | encoder->interned.has_failed;
    bytes_free(&encoder->waiting);
    encoder->waiting = kept;
    encoder->num_units = num_kept;
    encoder->most_waiting = kept.length + MOST_WAITING;
}

void packet_free(PacketEncoder *encoder)
{
    table_free(&encoder->names);
    table_free(&encoder->categories);
    table_free(&encoder->keys);
    table_free(&encoder->counters);
    bytes_free(&encoder->interned);
    bytes_free(&encoder->body);
    bytes_free(&encoder->waiting);
    free(encoder->units);
    memset(encoder, 0, sizeof *encoder);
}
