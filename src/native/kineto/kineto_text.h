/* Kineto's text: the events of a trace that Kineto saves, as short lines. Knows nothing of Python.
 *
 *     text as it comes ──► kineto_write_lines: an event a line, checked, true names ──► a trace
 *                                 └──► a TextSpan of each ──► kineto_crossings: which do not nest?
 *
 * Our own Python frames are left out, and their children get the parent above. Only what every
 * viewer reads passes: strict JSON in ASCII. At anything else the first function stops, and what is
 * left goes through Python (`torch/export.py`), which takes what comes and means the same. */

#ifndef KINETOSCOPE_KINETO_TEXT_H
#define KINETOSCOPE_KINETO_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "text/bytes.h"
#include "kineto/own_frames.h"

/* Why it stopped; `_Stop` in torch/kineto_text.py. */
enum KinetoStop { KINETO_MORE, KINETO_FULL, KINETO_ENDED, KINETO_DAMAGED, KINETO_FAILED };

#define DOUBTFUL_NAMES 256 /* of which is known that they are kept */

#define KINETO_SLACK 256 /* bytes that may be read, and written, behind the end of a buffer */

typedef struct {
    int64_t begin, end; /* nanoseconds since the base of the trace */
    uint64_t track;     /* a hash of the texts of pid and tid */
    uint64_t at;        /* of its line in all that was written */
} TextSpan;

/* A name that Kineto wrote otherwise: of which activity, as it stands there, and as JSON should
 * have it. */
typedef struct {
    int64_t number;
    const char *raw, *json;
    size_t raw_length, json_length;
} Renamed;

typedef struct {
    const char *text, *text_end; /* what is to be read; it moves on */
    char *into, *into_end;       /* where lines go; it moves on */
    uint64_t at;                 /* of `into` in all that was written */
    int64_t shift;               /* nanoseconds by which times are to be earlier */
    int64_t number;              /* of activities so far */
    Renamed *renamed;            /* in the order of their activities */
    size_t num_renamed, next_renamed;
    TextSpan *spans;
    size_t num_spans, spans_capacity;
    uint64_t *metadata; /* where lines are that say something of processes and threads */
    size_t num_metadata, metadata_capacity;
    Bytes doubtful; /* names that Kineto may have changed, a line each */
    uint64_t last_doubtful[DOUBTFUL_NAMES];
    int has_orphan_frames;
    OwnFrames own; /* which get no line */
} KinetoText;

/* Reads whole events until something is to be done; `text` then stands behind the last of them. */
enum KinetoStop kineto_write_lines(KinetoText *lines);

/* Sets the mark of each span that overlaps another of its track without one holding the other; 0 if
 * there is no memory. */
int kineto_crossings(const TextSpan *spans, size_t count, uint8_t *marks);

#endif
