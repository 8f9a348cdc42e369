/* Kineto's text: writes the events of a trace that Kineto saves as short lines. Does not use
 * Python.
 *
 *     Kineto's text ──► kineto_write_lines: a line per event, checked, true names ──► a trace
 *                          └──► a TextSpan of each ──► kineto_crossings: which do not nest?
 *
 * Our own Python frames are left out, and their children get the next frame above as parent. Only
 * what every viewer can read is accepted: strict JSON in ASCII. kineto_write_lines stops at
 * anything else; Python converts the rest, with the same result (`torch/export.py`). */

#ifndef KINETOSCOPE_KINETO_TEXT_H
#define KINETOSCOPE_KINETO_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "text/bytes.h"
#include "kineto/profiler_frames.h"

/* Why kineto_write_lines stopped; `_StopReason` in torch/kineto_text.py. */
enum KinetoStop { KINETO_MORE, KINETO_FULL, KINETO_ENDED, KINETO_DAMAGED, KINETO_FAILED };

#define RECENT_NAMES 256 /* names that were kept lately, so that they are not kept again */

#define KINETO_SLACK 256 /* bytes that may be read and written after the end of a buffer */

typedef struct {
    int64_t begin, end; /* nanoseconds since the base of the trace */
    uint64_t track;     /* a hash of the text of pid and tid */
    uint64_t at;        /* where its line begins in everything that was written */
} TextSpan;

/* A name that Kineto changed: the number of its activity, the text that Kineto wrote, and the right
 * text, as JSON. */
typedef struct {
    int64_t number;
    const char *raw, *json;
    size_t raw_length, json_length;
} Renamed;

typedef struct {
    const char *text, *text_end; /* what is left to read */
    char *into, *into_end;       /* where to write */
    uint64_t at;                 /* the position of `into` in everything that was written */
    int64_t shift;               /* subtracted from all times, in nanoseconds */
    int64_t number;              /* number of activities so far */
    Renamed *renamed;            /* in the order of the activities */
    size_t num_renamed, next_renamed;
    TextSpan *spans;
    size_t num_spans, spans_capacity;
    uint64_t *metadata; /* where the lines with metadata of processes and threads are */
    size_t num_metadata, metadata_capacity;
    Bytes maybe_changed; /* names that Kineto may have changed, a line each */
    uint64_t last_maybe_changed[RECENT_NAMES];
    int has_orphan_frames;
    OwnFrames own; /* our own frames, which get no line */
} KinetoText;

/* Writes complete events until it must stop; then `text` is after the last of them. */
enum KinetoStop kineto_write_lines(KinetoText *lines);

/* Marks each span that overlaps another one of its track, where neither contains the other; 0 if
 * there is no memory. */
int kineto_crossings(const TextSpan *spans, size_t count, uint8_t *marks);

#endif
