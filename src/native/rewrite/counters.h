/* Counters of a trace: which numbers change, and the track of each in a Perfetto trace.
 * formats/perfetto.py says the same in Python.
 *
 *     events ──► counters_survey ──► facts ──► (Python compares) ──► counter_track ──► packets
 *
 * A counter has a name and, in its args, series: "memory/virtual" with "used" and "free". Its
 * subject is what stands before the first slash. Series of one subject stand in one group; those
 * that never change in a group within it. */

#ifndef KINETOSCOPE_COUNTERS_H
#define KINETOSCOPE_COUNTERS_H

#include "text/json.h"
#include "rewrite/event.h"

/* One event of a counter, at one of its series. */
typedef struct {
    Text name, series; /* as UTF-8 */
    double value;
    uint64_t name_hash, hash; /* of the name; of it and the series */
    JsonMembers members;
    Bytes *texts;
} CounterEvent;

/* Goes to the first, or the next, series whose value is a finite number; 0 if there is none.
 * `texts` are two rooms for what has escapes. */
int counter_first(CounterEvent *counter, const Event *event, Bytes texts[2]);
int counter_next(CounterEvent *counter);

/* -- the first pass -- */

typedef struct {
    uint64_t hash, subject_hash;
    double value;
    uint32_t track, has_changed;
} CounterFact;

typedef struct {
    int is_wanted, is_full; /* full: there are more than anybody reads, so nothing is known */
    Table keys;             /* of the facts: a track and a hash */
    CounterFact *facts;
    size_t capacity;
    Bytes texts[2];
} CounterSurvey;

/* 0 if there is no memory. */
int counters_survey(CounterSurvey *survey, const Event *event, uint32_t track);
void counter_survey_free(CounterSurvey *survey);

/* -- the second pass -- */

typedef struct {
    /* uuids, in order, of tracks that do not stand in the group of their subject */
    Bytes alone, unchanged;
    Table described;
    Bytes texts[2];
    int has_failed;
} CounterTracks;

/* The track of the series at hand, described with its groups when it is new. */
uint64_t counter_track(CounterTracks *tracks, const CounterEvent *counter, uint64_t process,
                       unsigned sequence, Bytes *out);
void counter_tracks_free(CounterTracks *tracks);

#endif
