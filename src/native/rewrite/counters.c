/* See counters.h. */

#include "rewrite/counters.h"

#include <math.h>
#include <stdlib.h>

#include "text/json.h"
#include "text/json_text.h"
#include "text/numbers.h"
#include "rewrite/protobuf.h"

#define MAX_FACTS 65536
#define COUNTER_BIT ((uint64_t)1 << 63)
/* Separators in the hashed text: bytes that UTF-8 does not have. */
#define SERIES_MARK "\xff"
#define GROUP_MARK "\xfe"

/* -- the series of one event -- */

int counter_first(CounterEvent *counter, const Event *event, Bytes texts[2])
{
    Text args = event->fields[FIELD_ARGS];
    if (args.at == NULL || *args.at != '{') return 0;
    counter->texts = texts;
    counter->name = json_plain_text(event->fields[FIELD_NAME], &counter->texts[0]);
    counter->name_hash = stable_hash(stable_hash(STABLE_BASIS, counter->name.at,
                                                 counter->name.length),
                                     SERIES_MARK, 1);
    counter->members = json_members(args.at, args.at + args.length);
    return counter_next(counter);
}

static int is_number(char first)
{
    return first == '-' || (first >= '0' && first <= '9');
}

int counter_next(CounterEvent *counter)
{
    while (json_next(&counter->members)) {
        Text value = json_skip_member(&counter->members), key = counter->members.key;
        if (value.at == NULL) return 0;
        if (!is_number(*value.at)) continue;
        counter->value = read_double(value);
        if (!isfinite(counter->value)) continue;
        counter->series = json_plain_text((Text){key.at - 1, key.length + 2}, &counter->texts[1]);
        counter->hash = stable_hash(counter->name_hash, counter->series.at, counter->series.length);
        return 1;
    }
    return 0;
}

/* Counters are grouped by this: the name up to its first slash, or the whole name. */
static Text subject_of(Text name)
{
    const char *slash = memchr(name.at, '/', name.length);
    return slash != NULL && slash > name.at ? (Text){name.at, (size_t)(slash - name.at)} : name;
}

static uint64_t subject_hash(Text subject)
{
    return stable_hash(stable_hash(STABLE_BASIS, subject.at, subject.length), GROUP_MARK, 1);
}

/* -- the first pass -- */

static int note_series(CounterSurvey *survey, const CounterEvent *counter, uint32_t track)
{
    uint64_t key[2] = {counter->hash, track};
    size_t num_facts = survey->keys.num_entries;
    /* room first, so that each key has a fact */
    if (!array_room_for_next((void **)&survey->facts, num_facts, &survey->capacity,
                             sizeof *survey->facts))
        return 0;
    uint32_t number = table_intern(&survey->keys, (const char *)key, sizeof key);
    if (number == TABLE_FULL) return 0;
    CounterFact *fact = &survey->facts[number];
    if (number < num_facts)
        fact->has_changed |= fact->value != counter->value;
    else
        *fact = (CounterFact){counter->hash, subject_hash(subject_of(counter->name)),
                              counter->value, track, 0};
    survey->is_full = survey->keys.num_entries > MAX_FACTS;
    return 1;
}

int counters_survey(CounterSurvey *survey, const Event *event, uint32_t track)
{
    CounterEvent counter;
    int is_there = event->fields[FIELD_TS].at != NULL &&
                   counter_first(&counter, event, survey->texts);
    for (; is_there && !survey->is_full; is_there = counter_next(&counter)) {
        if (!note_series(survey, &counter, track)) return 0;
    }
    return !survey->texts[0].has_failed && !survey->texts[1].has_failed;
}

void counter_survey_free(CounterSurvey *survey)
{
    table_free(&survey->keys);
    free(survey->facts);
    bytes_free(&survey->texts[0]);
    bytes_free(&survey->texts[1]);
}

/* -- the second pass -- */

static uint64_t uuid_of(uint64_t hash, uint64_t process)
{
    return (hash ^ process) * STABLE_PRIME | COUNTER_BIT;
}

static int compare_uuids(const void *one, const void *other)
{
    uint64_t first = *(const uint64_t *)one, second = *(const uint64_t *)other;
    return first < second ? -1 : first > second;
}

static int is_among(uint64_t uuid, const Bytes *uuids)
{
    return uuids->length > 0 && bsearch(&uuid, uuids->at, uuids->length / sizeof uuid, sizeof uuid,
                                        compare_uuids) != NULL;
}

/* Whether no packet has described this track or group yet. */
static int is_new(CounterTracks *tracks, uint64_t uuid)
{
    size_t before = tracks->described.num_entries;
    tracks->has_failed |= table_intern(&tracks->described, (const char *)&uuid, sizeof uuid) ==
                          TABLE_FULL;
    return tracks->described.num_entries > before;
}

/* A track or group to describe. Its name has two parts; one may be empty. */
typedef struct {
    uint64_t uuid, parent;
    Text first, second;
    int is_counter;
} Track;

static void put_track(const Track *track, unsigned sequence, Bytes *out)
{
    size_t packet = begin_message(out, 1);
    put_unsigned(out, 10, sequence);
    size_t descriptor = begin_message(out, 60);
    put_unsigned(out, 1, track->uuid);
    put_unsigned(out, 5, track->parent);
    size_t title = begin_message(out, 2);
    bytes_put(out, track->first.at, track->first.length);
    if (track->first.length > 0 && track->second.length > 0) bytes_put_char(out, ' ');
    bytes_put(out, track->second.at, track->second.length);
    end_message(out, title);
    if (track->is_counter) end_message(out, begin_message(out, 8));
    end_message(out, descriptor);
    end_message(out, packet);
}

static uint64_t group(CounterTracks *tracks, uint64_t hash, uint64_t process, uint64_t parent,
                      Text name, unsigned sequence, Bytes *out)
{
    uint64_t uuid = uuid_of(hash, process);
    if (is_new(tracks, uuid))
        put_track(&(Track){.uuid = uuid, .parent = parent, .first = name}, sequence, out);
    return uuid;
}

uint64_t counter_track(CounterTracks *tracks, const CounterEvent *counter, uint64_t process,
                       unsigned sequence, Bytes *out)
{
    Text name = counter->name, subject = subject_of(name);
    Track track = {uuid_of(counter->hash, process), process, name, counter->series, 1};
    if (!is_new(tracks, track.uuid)) return track.uuid;
    if (subject.length > 0 && !is_among(track.uuid, &tracks->alone)) {
        uint64_t hash = subject_hash(subject);
        size_t length = subject.length + (subject.length < name.length);
        track.first = (Text){name.at + length, name.length - length};
        track.parent = group(tracks, hash, process, process, subject, sequence, out);
        if (is_among(track.uuid, &tracks->unchanged))
            track.parent = group(tracks, stable_hash(hash, GROUP_MARK, 1), process, track.parent,
                                 (Text){"unchanged", 9}, sequence, out);
    }
    put_track(&track, sequence, out);
    tracks->has_failed |= tracks->texts[0].has_failed | tracks->texts[1].has_failed;
    return track.uuid;
}

void counter_tracks_free(CounterTracks *tracks)
{
    bytes_free(&tracks->alone);
    bytes_free(&tracks->unchanged);
    table_free(&tracks->described);
    bytes_free(&tracks->texts[0]);
    bytes_free(&tracks->texts[1]);
}
