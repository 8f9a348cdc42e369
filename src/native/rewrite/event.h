/* One event of a Chrome trace: finds where its fields are. Nothing is copied. */

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

#define MAX_MEMBERS 48 /* members of args; args with more are read as a whole */
#define MEMBERS_UNKNOWN UINT32_MAX

/* A member of the args. */
typedef struct {
    uint32_t shape; /* the shape that has its key */
    Text value;
} EventMember;

typedef struct {
    const char *begin, *end;
    Text fields[NUM_FIELDS];   /* as written: strings with their quotes */
    uint8_t order[NUM_FIELDS]; /* the fields that the event has, in its order */
    unsigned num_fields;
    int has_members;
    char phase;      /* 0 if it is not one character */
    int64_t ts, dur; /* nanoseconds since the file's base, if there are such fields */
    /* members of the args, if they are an object that was read; else MEMBERS_UNKNOWN */
    uint32_t num_members;
    EventMember members[MAX_MEMBERS];
} Event;

typedef struct Shapes Shapes;

typedef enum {
    EVENT_FINE,
    EVENT_CUT,     /* the text ends in the event */
    EVENT_REFUSED, /* it is not JSON, or Python must write it anew */
} EventFault;

/* Flags for the inspection of an event. */
enum {
    INSPECT_CANONICAL = 1, /* Python wrote it: accept its strings as they are */
    /* the first pass has validated this text */
    INSPECT_AGAIN = 2,
    INSPECT_FIXED =
        4, /* it has exact times of Kinetoscope: other spans are clipped or moved instead of it */
};

/* `at` is at the bracket that opens the event. `shapes` has the shapes of earlier events. */
EventFault event_scan(Shapes *shapes, const char *at, const char *end, unsigned flags,
                      Event *event);

/* Used by shapes.c too. event_field: the field with that key, -1 if we need none. event_interpret:
 * whether the fields have the types that the rest of the code needs; `is_plain` if no string has an
 * escape. */
int event_field(const char *key, size_t length);
int event_interpret(Event *event, unsigned flags, int is_plain);

/* Reads an id that is a whole number in a double's range, written as a number or a string: an
 * offset can be added to it. */
int event_plain_id(Text text, int64_t *id);
/* Whether its time and duration are both 0, as of an event that has lost them. */
int event_lost_its_time(const Event *event);
/* Whether an id names a flow, an object or an operation in this phase. */
int event_has_id_phase(const Event *event);
/* Whether it is the event that holds our header, in a trace that is a bare list. */
int event_is_header(const Event *event);
/* Whether it is metadata with names and order of processes and threads, which a merged trace
 * replaces. */
int event_is_track_metadata(const Event *event);

#endif
