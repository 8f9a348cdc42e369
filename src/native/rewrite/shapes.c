/* See shapes.h. */

#include "rewrite/shapes.h"

#include <stdlib.h>

#include "text/bytes.h"
#include "text/json.h"
#include "text/numbers.h"

#if defined(__SSE2__)
    #include <emmintrin.h>
#endif

#define MAX_NODES 2048
#define MAX_ALTERNATIVES 24 /* the most alternatives that are compared at one place */
/* after so many refused events nothing more is learnt: all have different shapes */
#define MAX_REFUSED 10000
/* bytes that may be read without checking the end of the text */
#define READ_AHEAD (MAX_SHAPE_BYTES + 8 * (int)sizeof(uint64_t))

enum { VALUE_STRING, VALUE_NUMBER, VALUE_TIME, VALUE_OTHER, VALUE_NONE };

/* -- learning -- */

/* An event that is being added to the tree. */
typedef struct {
    Shapes *shapes;
    const char *from; /* after the last value */
    uint32_t last;    /* the node of that value */
    Shape shape;      /* of the current text */
    unsigned num_members;
} Learning;

static int is_same(const Shape *one, const Shape *other)
{
    return one->length == other->length && one->kind == other->kind &&
           one->args_begin == other->args_begin && one->args_end == other->args_end &&
           memcmp(one->text, other->text, one->length) == 0;
}

/* Goes to the node of the current text; a new one is added after the last node. 0 if there is no
 * room. */
static int take_step(Learning *learning)
{
    Shapes *shapes = learning->shapes;
    uint32_t first = shapes->nodes[learning->last].behind, node = first;
    for (unsigned i = 0; node != 0 && i < MAX_ALTERNATIVES; i++) {
        if (is_same(&shapes->nodes[node], &learning->shape)) {
            learning->last = node;
            return 1;
        }
        node = shapes->nodes[node].next;
        if (node == first) break;
    }
    if ((node != 0 && node != first) || shapes->num_nodes >= MAX_NODES ||
        !array_room_for_next((void **)&shapes->nodes, shapes->num_nodes, &shapes->nodes_capacity,
                             sizeof *shapes->nodes))
        return 0;
    node = (uint32_t)shapes->num_nodes++;
    learning->shape.next = (uint16_t)(first != 0 ? shapes->nodes[first].next : node);
    shapes->nodes[node] = learning->shape;
    if (first != 0)
        shapes->nodes[first].next = (uint16_t)node;
    else
        shapes->nodes[learning->last].behind = (uint16_t)node;
    learning->last = node;
    return 1;
}

/* Ends the current text at `to`; a value of that kind follows. */
static int learn_text(Learning *learning, const char *to, unsigned kind, int field)
{
    size_t length = (size_t)(to - learning->from);
    if (length > MAX_SHAPE_BYTES) return 0;
    Shape *shape = &learning->shape;
    memcpy(shape->text, learning->from, length);
    shape->length = (uint8_t)length;
    shape->mask = length == 64 ? UINT64_MAX : ((uint64_t)1 << length) - 1;
    shape->kind = (uint8_t)kind;
    shape->field = (int8_t)field;
    int is_learnt = take_step(learning);
    memset(shape, 0, sizeof *shape);
    return is_learnt;
}

/* Learns a value that is read as a whole. Returns the byte after it; NULL if its place cannot be
 * learnt. */
static const char *learn_value(Learning *learning, const char *at, const char *end, int field)
{
    JsonFault fault = JSON_FINE;
    const char *behind = json_skip_value(at, end, &fault);
    int is_number = *at == '-' || (*at >= '0' && *at <= '9'),
        is_time = field == FIELD_TS || field == FIELD_DUR;
    unsigned kind = *at == '"'   ? VALUE_STRING
                    : !is_number ? VALUE_OTHER
                    : is_time    ? VALUE_TIME
                                 : VALUE_NUMBER;
    if (behind == NULL || !learn_text(learning, at + (kind == VALUE_STRING), kind, field))
        return NULL;
    return learning->from = behind;
}

/* Notes a place in the current text; 0 if it is too far. */
static int note_place(const Learning *learning, const char *at, unsigned more, uint8_t *place)
{
    size_t found = (size_t)(at - learning->from) + more;
    *place = (uint8_t)found;
    return found <= MAX_SHAPE_BYTES;
}

/* `at` is at the bracket that opens the args. Returns the byte after them, or NULL. */
static const char *learn_args(Learning *learning, const char *at, const char *end)
{
    if (!note_place(learning, at, 1, &learning->shape.args_begin)) return NULL;
    JsonMembers members = json_members(at, end);
    while (json_next(&members)) {
        Text key = members.key;
        if (key.length > MAX_SHAPE_BYTES || learning->num_members++ == MAX_MEMBERS ||
            !note_place(learning, key.at - 1, 0, &learning->shape.key_at))
            return NULL;
        learning->shape.key_length = (uint8_t)(key.length + 2);
        members.at = learn_value(learning, members.at, end, -1);
    }
    return members.at != NULL && note_place(learning, members.at - 1, 1, &learning->shape.args_end)
               ? members.at
               : NULL;
}

static int learn_event(Learning *learning, const Event *event)
{
    JsonMembers members = json_members(event->begin, event->end);
    while (json_next(&members)) {
        const char *at = members.at;
        int field = event_field(members.key.at, members.key.length);
        members.at = field == FIELD_ARGS && *at == '{'
                         ? learn_args(learning, at, event->end)
                         : learn_value(learning, at, event->end, field);
    }
    return members.at != NULL && learn_text(learning, members.at, VALUE_NONE, -1);
}

void shapes_learn(Shapes *shapes, const Event *event)
{
    Learning learning = {.shapes = shapes, .from = event->begin};
    if (shapes->num_refused >= MAX_REFUSED || event->num_fields == 0) return;
    if (shapes->num_nodes == 0) {
        if (!array_room_for_next((void **)&shapes->nodes, 0, &shapes->nodes_capacity,
                                 sizeof *shapes->nodes))
            return;
        memset(&shapes->nodes[shapes->num_nodes++], 0, sizeof *shapes->nodes);
    }
    shapes->num_refused += !learn_event(&learning, event);
}

void shapes_free(Shapes *shapes)
{
    free(shapes->nodes);
    memset(shapes, 0, sizeof *shapes);
}

/* -- reading -- */

#define HOT static inline __attribute__((always_inline))

HOT int is_digit(char byte)
{
    return (uint8_t)(byte - '0') < 10;
}

#if defined(__SSE2__)
/* Compares 32 bytes: a bit is set where they are equal. */
HOT uint64_t same_bytes(const char *one, const char *other)
{
    __m128i first = _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)one),
                                   _mm_loadu_si128((const __m128i *)other));
    __m128i second = _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)(one + 16)),
                                    _mm_loadu_si128((const __m128i *)(other + 16)));
    return (uint64_t)_mm_movemask_epi8(first) | (uint64_t)_mm_movemask_epi8(second) << 16;
}
#endif

/* Whether the text at `at` is this one and a value of its kind follows. MAX_SHAPE_BYTES may be
 * read. */
HOT int is_here(const Shape *shape, const char *at)
{
#if defined(__SSE2__)
    uint64_t same = same_bytes(at, shape->text);
    if (shape->length > 32) same |= same_bytes(at + 32, shape->text + 32) << 32;
    if ((same & shape->mask) != shape->mask) return 0;
#else
    if (memcmp(at, shape->text, shape->length) != 0) return 0;
#endif
    if (shape->kind == VALUE_STRING || shape->kind == VALUE_NONE) return 1;
    int is_number = is_digit(at[shape->length]) || at[shape->length] == '-';
    return is_number == (shape->kind != VALUE_OTHER);
}

/* Skips one or more digits, up to three words of them; else NULL. */
HOT const char *skip_digits(const char *at)
{
    const char *first = at;
    for (unsigned i = 0; i < 3; i++) {
        unsigned length = num_digits(word_at(at));
        at += length;
        if (length < 8) return at > first ? at : NULL;
    }
    return NULL;
}

/* Skips a number without an exponent; NULL for anything else. READ_AHEAD bytes may be read. */
HOT const char *skip_number(const char *at)
{
    const char *first = at += *at == '-';
    at = skip_digits(at);
    if (at == NULL || (*first == '0' && at > first + 1)) return NULL;
    if (*at == '.' && (at = skip_digits(at + 1)) == NULL) return NULL;
    return *at == 'e' || *at == 'E' ? NULL : at;
}

/* `at` is after the opening quote. */
HOT const char *skip_string(const char *at, const char *end, unsigned *marks)
{
    JsonFault fault = JSON_FINE;
    at = json_skip_plain(at, end);
    return at < end && *at == '"' ? at + 1 : json_skip_string(at, end, marks, &fault);
}

HOT const char *skip_value(const Shape *shape, const char *at, const char *end, Event *event,
                           unsigned *marks)
{
    JsonFault fault = JSON_FINE;
    switch (shape->kind) {
        case VALUE_STRING: return skip_string(at, end, marks);
        case VALUE_NUMBER: return skip_number(at);
        case VALUE_TIME:
            return read_us_ahead(at, shape->field == FIELD_TS ? &event->ts : &event->dur);
        default:
            *marks |= JSON_ESCAPED; /* it may contain strings */
            return json_skip_value(at, end, &fault);
    }
}

HOT void note_field(Event *event, int field, const char *at, size_t length)
{
    event->fields[field] = (Text){at, length};
    event->order[event->num_fields++] = (uint8_t)field;
}

/* The shape that is here, among those that may follow `last`; 0 if none is. The next time it is
 * tried first. */
HOT uint32_t next_shape(Shapes *shapes, uint32_t last, const char *at)
{
    Shape *nodes = shapes->nodes;
    uint32_t first = nodes[last].behind, node = first;
    while (node != 0) {
        if (is_here(&nodes[node], at)) {
            nodes[last].behind = (uint16_t)node;
            return node;
        }
        node = nodes[node].next;
        if (node == first) return 0;
    }
    return 0;
}

int shapes_match(Shapes *shapes, const char *at, const char *end, unsigned flags, Event *event)
{
    unsigned marks = 0;
    uint32_t node = 0;
    int is_in_args = 0;
    if (shapes->num_nodes == 0) return 0;
    for (unsigned i = 0; i < event->num_fields; i++)
        event->fields[event->order[i]] = (Text){NULL, 0};
    event->begin = at;
    event->num_fields = 0;
    event->num_members = 0;
    event->ts = event->dur = 0;
    for (;;) {
        if (end - at < READ_AHEAD || (node = next_shape(shapes, node, at)) == 0) return 0;
        const Shape *shape = &shapes->nodes[node];
        if (shape->args_end != 0 && is_in_args) {
            Text *args = &event->fields[FIELD_ARGS];
            args->length = (size_t)(at + shape->args_end - args->at);
            is_in_args = 0;
        }
        if (shape->args_begin != 0) {
            const char *args = at + shape->args_begin - 1;
            note_field(event, FIELD_ARGS, args, 0);
            is_in_args = shape->args_end == 0;
            if (!is_in_args)
                event->fields[FIELD_ARGS].length = (size_t)(shape->args_end - shape->args_begin +
                                                            1);
        }
        const char *value = at += shape->length;
        if (shape->kind == VALUE_NONE) {
            event->end = at;
            break;
        }
        at = skip_value(shape, at, end, event, &marks);
        if (at == NULL) return 0;
        value -= shape->kind == VALUE_STRING;
        if (shape->field >= 0)
            note_field(event, shape->field, value, (size_t)(at - value));
        else if (shape->key_length != 0)
            event->members[event->num_members++] = (EventMember){node,
                                                                 {value, (size_t)(at - value)}};
    }
    event->has_members = 1;
    return event_interpret(event, flags, !(marks & JSON_ESCAPED));
}
