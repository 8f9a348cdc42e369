/* A Chrome trace that is being merged: what was learnt from its text, and how to rewrite it.
 *
 *     text ──► trace_survey ──► facts, nesting ──► (Python plans) ──► trace_rewrite ──► text
 *
 * Both passes read the text in pieces and keep only metadata events, names of steps, 32 bytes for
 * each span that waits to be nested and, while there is room, 16 bytes for each event. They return
 * the place of an event that they cannot handle, and Python writes it anew. */

#ifndef KINETOSCOPE_TRACE_TEXT_H
#define KINETOSCOPE_TRACE_TEXT_H

#include "text/bytes.h"
#include "rewrite/counters.h"
#include "rewrite/perfetto.h"
#include "rewrite/shapes.h"
#include "rewrite/splice.h"
#include "rewrite/tracks.h"

enum TextStatus { TEXT_MORE, TEXT_END, TEXT_REFUSED };

/* Where the events of a track, or of one of its overlap tracks, are written. */
typedef struct {
    Text pid, tid; /* as written; with `keeps_places`, an empty tid means: unchanged */
    int64_t from_ns, to_ns;
    uint8_t is_kept;
    uint64_t track, process; /* uuids in a Perfetto trace */
    unsigned overlap;        /* its number among the overlap tracks; 0: it is not one */
} TextOutput;

typedef struct {
    Shapes shapes;
    Tracks tracks; /* with `is_for_viewers`, tracks that viewers take for one are one */
    Table names, metadata;
    uint64_t *metadata_last; /* the serial of the last event with each text of `metadata` */
    size_t metadata_last_capacity;
    Bytes steps;           /* spans that are batches, as JSON with commas between */
    Bytes align_on;        /* name of the span to align on, as JSON */
    Table flows;           /* flows that began, by id, category and name */
    uint32_t *flow_counts; /* how often each began so far, in the second pass */
    size_t flow_counts_capacity;
    uint64_t num_repeated_flows, num_hidden_flows, num_lone_ends, num_lone_begins, num_negative,
        num_rounded;
    CounterSurvey counters;
    NestOutcome outcome;
    size_t next_action;
    size_t max_pending, num_pending;
    uint64_t serial, num_serials, num_events, num_timed, num_spans;
    int64_t earliest_ns, latest_ns, latest_end_ns, aligned_ns, lowest_id, highest_id;
    /* number of events whose time and duration are 0, number of the first, and the earliest time of
     * the others: see `are_timeless` in formats/health.py */
    uint64_t num_at_zero, first_at_zero;
    int64_t earliest_of_others_ns;
    int has_others, leaves_out_timeless; /* in both passes */
    int nests, has_ids, has_irregular_ids, has_aligned, has_unix_times, has_phases, is_late,
        has_failed;
    int is_surveyed;           /* the first pass is over */
    int has_changed;           /* the second pass reads another text than the first */
    uint64_t num_comma_errors; /* number of missing or extra commas between events */
    Splices splices;
    /* -- the plan -- */
    TextOutput *outputs;
    size_t num_outputs;
    Bytes output_texts;
    Bytes nesting_note; /* what nesting changed in the current event, as text */
    int64_t shift_ns, id_shift;
    /* `over` is above 0; see DriftCorrection in core/clock/file_clock.py */
    int64_t drift_begin_ns, drift_gain_ns, drift_over_ns;
    int writes_packets;
    PacketEncoder packets;
    int ids_are_plain, is_windowed;
    /* a repair: pids, tids, ids and names of tracks stay, except where viewers misread them */
    int keeps_places;
    uint64_t num_written;
} TraceText;

/* Reads complete events from `*at` on, and moves it after them. The first event needs no comma
 * before it. */
enum TextStatus trace_survey(TraceText *text, const char **at, const char *end, int is_first,
                             unsigned flags);
/* Nests the spans that still wait. */
void trace_finish_survey(TraceText *text);
/* In either pass: an event of the file that Python leaves out. */
void trace_leave_out(TraceText *text);

/* As trace_survey; writes the events to `out`, each with a comma and a line break before it. */
enum TextStatus trace_rewrite(TraceText *text, const char **at, const char *end, int is_first,
                              unsigned flags, Bytes *out);
/* Writes everything that had to wait for the end of the file. */
void trace_finish_rewrite(TraceText *text, Bytes *out);
void trace_free(TraceText *text);

#endif
