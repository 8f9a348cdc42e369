/* Counters of a trace: finds which numbers change, and the track of each in a Perfetto trace.
 *
 *     events ──► counters_survey ──► facts ──► (Python compares) ──► counter_track ──► packets
 *
 * A counter has a name and, in its args, series: "memory/virtual" with "used" and "free". Its
 * subject is the part before the first slash. Series of one subject form a group; series that never
 * change form a group within it. */

#ifndef KINETOSCOPE_COUNTERS_H
#define KINETOSCOPE_COUNTERS_H

#include "text/json.h"
#include "rewrite/event.h"

/* One event of a counter, and one of its series. */
typedef struct {
    Text name, series; /* as UTF-8 */
    double value;
    uint64_t name_hash, hash; /* of the name; of the name and the series */
    JsonMembers members;
    Bytes *texts;
} CounterEvent;

/* Goes to the first or next series whose value is a finite number; 0 if there is none. `texts` are
 * two buffers for names with escapes. */
int counter_first(CounterEvent *counter, const Event *event, Bytes texts[2]);
int counter_next(CounterEvent *counter);

/* -- the first pass -- */

typedef struct {
    uint64_t hash, subject_hash;
    double value;
    uint32_t track, has_changed;
} CounterFact;

typedef struct {
    int is_wanted, is_full; /* full: there are too many, so nothing is reported */
    Table keys;             /* keys of the facts: a track and a hash */
    CounterFact *facts;
    size_t capacity;
    Bytes texts[2];
} CounterSurvey;

/* Notes the values of an event; 0 if there is no memory. */
int counters_survey(CounterSurvey *survey, const Event *event, uint32_t track);
void counter_survey_free(CounterSurvey *survey);

/* -- the second pass -- */

typedef struct {
    /* sorted uuids of tracks that are not directly in the group of their subject */
    Bytes alone, unchanged;
    Table described;
    Bytes texts[2];
    int has_failed;
} CounterTracks;

/* The track of the current series. A new track is described first, with its groups. */
uint64_t counter_track(CounterTracks *tracks, const CounterEvent *counter, uint64_t process,
                       unsigned sequence, Bytes *out);
void counter_tracks_free(CounterTracks *tracks);

#endif
