/* Learns the shapes of a file's events: the text between their values.
 *
 *     a valid event ──► shapes_learn ──► shapes_match: where the values of the next one are
 *
 * A writer puts the same keys, brackets and blanks around the values of all its events. They are
 * stored as a tree: each value is followed by the few texts that have come after it so far. Text
 * that was strict JSON once is strict JSON again in the same place, so it is only compared; only
 * values are parsed. event_scan reads everything that is new. */

#ifndef KINETOSCOPE_SHAPES_H
#define KINETOSCOPE_SHAPES_H

#include "rewrite/event.h"

#define MAX_SHAPE_BYTES 64 /* longest text between two values, in bytes */

typedef struct {
    char text[MAX_SHAPE_BYTES]; /* including the quote that opens a string */
    uint64_t mask;              /* one bit for each byte of the text */
    uint8_t length;
    uint8_t kind; /* the kind of the value after it; or the event ends */
    /* enum FIELD of that value; -1: a field we do not need, or a member of the args */
    int8_t field;
    uint8_t args_begin; /* 1 + where in the text the args begin; 0: they do not */
    uint8_t args_end;   /* where they end; 0: they do not */
    /* key of a member of the args, with its quotes; length 0: none */
    uint8_t key_at, key_length;
    uint16_t next; /* the next alternative, in a ring */
    /* of the texts that may follow the value, the one that came last; 0: none yet */
    uint16_t behind;
} Shape;

struct Shapes {
    Shape *nodes; /* the first is the root */
    size_t num_nodes, nodes_capacity;
    unsigned num_refused;
};

/* Learns the shape of an event that event_scan accepted, unless the event is unusual. */
void shapes_learn(Shapes *shapes, const Event *event);
/* Reads an event of a known shape, with the arguments of event_scan; 0 if the shape is unknown, or
 * the event is truncated or refused. `event` must be zero or an event that was read before. */
int shapes_match(Shapes *shapes, const char *at, const char *end, unsigned flags, Event *event);
void shapes_free(Shapes *shapes);

/* The key of a member of the args, as written. */
static inline Text shapes_key(const Shapes *shapes, uint32_t node)
{
    const Shape *shape = &shapes->nodes[node];
    return (Text){shape->text + shape->key_at, shape->key_length};
}

#endif
