/* A Chrome trace on its way into a merged one: what was learnt of its text, and how it is to be
 * rewritten.
 *
 *     text ──► trace_survey ──► facts, nesting ──► (Python plans) ──► trace_rewrite ──► text
 *
 * Both pass over the text in pieces and keep none of it, but for metadata events, the names of
 * steps, and 32 bytes for each span that is not yet nested, and 16 for each event, as far as there
 * is room. What they do not take is handed back with its place: Python writes it anew. */

#ifndef KINETOSCOPE_TRACE_TEXT_H
#define KINETOSCOPE_TRACE_TEXT_H

#include "text/bytes.h"
#include "rewrite/counters.h"
#include "rewrite/perfetto.h"
#include "rewrite/shapes.h"
#include "rewrite/splice.h"
#include "rewrite/tracks.h"

enum TextStatus { TEXT_MORE, TEXT_END, TEXT_ODD };

/* Where events of a track, or of an overlap track of it, go. */
typedef struct {
    Text pid, tid; /* as they are written; where places are kept, an empty tid stays what it is */
    int64_t from_ns, to_ns;
    uint8_t is_kept;
    uint64_t track, process; /* uuids, for Perfetto */
    unsigned overlap;        /* its number among the overlap tracks; 0 if it is none */
} TextOutput;

typedef struct {
    Shapes shapes;
    Tracks tracks; /* what viewers take for one is one, if what they do not show is looked for */
    Table names, metadata;
    Bytes steps;           /* texts of spans that are batches, with commas between */
    Bytes align_on;        /* the name, as JSON */
    Table flows;           /* those that began, by id, category and name */
    uint32_t *flow_counts; /* how often each began, in the second pass */
    size_t flow_counts_capacity;
    uint64_t num_repeated_flows, num_hidden_flows, num_lone_ends, num_lone_begins, num_negative,
        num_rounded;
    CounterSurvey counters;
    NestOutcome outcome;
    size_t next_action;
    size_t most_pending, num_pending;
    uint64_t serial, num_events, num_timed, num_spans;
    int64_t earliest_ns, latest_ns, latest_end_ns, aligned_ns, lowest_id, highest_id;
    int nests, has_ids, has_odd_ids, has_aligned, has_unix_times, has_phases, is_late, has_failed;
    uint64_t num_stray; /* commas between events that are missing or too many */
    Splices splices;
    /* the plan */
    TextOutput *outputs;
    size_t num_outputs;
    Bytes output_texts;
    Bytes said; /* what nesting did to the event at hand */
    int64_t shift_ns, id_shift;
    /* `over` is above 0; see Stretch in merge/alignment.py */
    int64_t stretch_begin_ns, stretch_gain_ns, stretch_over_ns;
    int writes_packets;
    PacketEncoder packets;
    int ids_are_plain, is_windowed;
    /* pids, tids, ids and names of tracks stay, but for what viewers do not show so */
    int keeps_places;
    uint64_t num_written;
} TraceText;

/* Reads whole events from `*at` on, and moves it behind them. The first of all events needs no
 * comma before it. */
enum TextStatus trace_survey(TraceText *text, const char **at, const char *end, int is_first,
                             unsigned look);
/* Nests what is left. */
void trace_finish(TraceText *text);
/* As trace_survey; the events go to `out`, each with a comma and a line break before it. */
enum TextStatus trace_rewrite(TraceText *text, const char **at, const char *end, int is_first,
                              unsigned look, Bytes *out);
/* Writes what had to wait for the end of the file. */
void trace_finish_writing(TraceText *text, Bytes *out);
void trace_free(TraceText *text);

#endif
