/* One event of a Chrome trace: text flows in, and where its fields stand flows out. Nothing is
 * copied. */

#ifndef KINETOSCOPE_EVENT_H
#define KINETOSCOPE_EVENT_H

#include "text/bytes.h"

enum {
    FIELD_PH,
    FIELD_CAT,
    FIELD_NAME,
    FIELD_PID,
    FIELD_TID,
    FIELD_TS,
    FIELD_DUR,
    FIELD_ID,
    FIELD_ID2,
    FIELD_BIND_ID,
    FIELD_ARGS,
    FIELD_SCOPE,
    FIELD_BP,
    NUM_FIELDS
};

#define MOST_MEMBERS 48 /* of args; one with more is read as a whole */
#define MEMBERS_UNKNOWN UINT32_MAX

/* A member of the args. */
typedef struct {
    uint32_t shape; /* that has its key */
    Text value;
} EventMember;

typedef struct {
    const char *begin, *end;
    Text fields[NUM_FIELDS];   /* as they are written: strings with their quotes */
    uint8_t order[NUM_FIELDS]; /* the fields that there are, as they follow one another */
    unsigned num_fields;
    int has_members;
    char phase;      /* 0 if it is none of one character */
    int64_t ts, dur; /* nanoseconds since the file's base, where there are such fields */
    /* of the args, if they are an object and were looked into; else MEMBERS_UNKNOWN */
    uint32_t num_members;
    EventMember members[MOST_MEMBERS];
} Event;

typedef struct Shapes Shapes;

typedef enum {
    EVENT_FINE,
    EVENT_CUT, /* the text ends within it */
    EVENT_ODD, /* it is no JSON, or somebody more patient should write it anew */
} EventFault;

/* How to look at an event. */
enum {
    LOOK_CANONICAL = 1, /* it was written anew already: take its strings as they are */
    /* the same text was found to be valid before: what was noted of its events holds */
    LOOK_AGAIN = 2,
    LOOK_FIXED = 4, /* its times are ours and exact: to nest, others give way */
};

/* `at` is at a bracket that opens an object. `shapes` are those of the events before. */
EventFault event_scan(Shapes *shapes, const char *at, const char *end, unsigned look, Event *event);

/* What of it shapes.c shares: which field has that key (-1: none of ours), and whether the fields
 * are such as the rest of the code relies on, `is_plain` if no string has an escape. */
int event_field(const char *key, size_t length);
int event_understand(Event *event, unsigned look, int is_plain);

/* A whole number that a double holds, written as a number or as a string: an id that may be counted
 * on from. */
int event_plain_id(Text text, int64_t *id);
/* Whether its phase is one whose id names a flow, an object or an operation. */
int event_has_id_phase(const Event *event);
/* Whether it is what a bare list of ours has in place of the fields beside the events. */
int event_is_header(const Event *event);
/* Metadata that names and orders processes and threads: a merged trace says that anew. */
int event_is_consumed(const Event *event);

#endif
