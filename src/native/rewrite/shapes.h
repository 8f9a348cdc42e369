/* What the events of a file look like: the text between their values, learnt as they come.
 *
 *     a valid event ──► shapes_learn ──► shapes_match: where the values of the next one are
 *
 * A writer puts the same keys, brackets and blanks around the values of all its events. So they are
 * a tree: behind each value come the few texts that have followed it so far. Text that was strict
 * JSON once is so again in the same place, so that it need only be compared; values are looked at
 * anew. Whatever was not seen before is for event_scan to read. */

#ifndef KINETOSCOPE_SHAPES_H
#define KINETOSCOPE_SHAPES_H

#include "rewrite/event.h"

#define SHAPE_LONGEST 64 /* bytes of text between two values */

typedef struct {
    char text[SHAPE_LONGEST]; /* with the quote that opens a string */
    uint64_t mask;            /* a bit for each byte of the text */
    uint8_t length;
    uint8_t kind; /* of the value behind it, or that the event ends */
    /* enum FIELD of that value; -1: a field without a name of ours, or a member of the args */
    int8_t field;
    uint8_t args_begin; /* where in the text the args begin, less 1; 0 if they do not */
    uint8_t args_end;   /* where they end; 0 if they do not */
    /* the key of a member of the args, with its quotes; length 0: none */
    uint8_t key_at, key_length;
    uint16_t next; /* the next of those that may come here, in a ring */
    /* of those that may come behind the value, the one that came last; 0 if none did */
    uint16_t behind;
} Shape;

struct Shapes {
    Shape *nodes; /* the first stands before all events */
    size_t num_nodes, nodes_capacity;
    unsigned num_refused;
};

/* Learns the shape of an event that event_scan took for a fine one, unless it is an unusual one. */
void shapes_learn(Shapes *shapes, const Event *event);
/* Reads an event of a known shape, with the arguments of event_scan; 0 if it is none, or may be cut
 * or odd. `event` holds zeros or an event that was read before. */
int shapes_match(Shapes *shapes, const char *at, const char *end, unsigned look, Event *event);
void shapes_free(Shapes *shapes);

/* The key of a member of the args, as it is written. */
static inline Text shapes_key(const Shapes *shapes, uint32_t node)
{
    const Shape *shape = &shapes->nodes[node];
    return (Text){shape->text + shape->key_at, shape->key_length};
}

#endif
