/* See tracks.h. */

#include "rewrite/tracks.h"

#include <stdlib.h>

#define MAX_NUMBER 18

/* Whether a text is a whole number in its usual form. */
static int is_plain_number(Text text)
{
    size_t i = *text.at == '-';
    if (i == text.length || (text.at[i] == '0' && text.length > 1)) return 0;
    for (; i < text.length; i++) {
        if (text.at[i] < '0' || text.at[i] > '9') return 0;
    }
    return 1;
}

/* Whether a pid or tid is written in the usual way: a plain number, or a string without escapes. */
static int is_canonical(Text text)
{
    if (text.at == NULL) return 1;
    return *text.at == '"' ? memchr(text.at, '\\', text.length) == NULL : is_plain_number(text);
}

int tracks_take(const Event *event, unsigned flags)
{
    return (flags & INSPECT_CANONICAL) ||
           (is_canonical(event->fields[FIELD_PID]) && is_canonical(event->fields[FIELD_TID]));
}

/* The number in a tid that is written as a string, or else the tid itself; `plain_tid` in
 * formats/track_ids.py. */
static Text plain_tid(Text tid)
{
    if (tid.at == NULL || *tid.at != '"') return tid;
    Text number = {tid.at + 1, tid.length - 2};
    if (TEXT_BEGINS(number, "stream ")) number = (Text){number.at + 7, number.length - 7};
    if (number.length == 0 || number.length > MAX_NUMBER) return tid;
    for (size_t i = 0; i < number.length; i++) {
        if (number.at[i] < '0' || number.at[i] > '9') return tid;
    }
    while (number.length > 1 && *number.at == '0')
        number = (Text){number.at + 1, number.length - 1};
    return number;
}

/* The number that a table gives to a pid and a tid; TABLE_FULL if there is none. */
static uint32_t place_number(const Tracks *tracks, Table *table, Text pid, Text tid)
{
    char small[512], *key = small;
    size_t length = pid.length + 1 + tid.length;
    if (length > sizeof small && (key = malloc(length)) == NULL) return TABLE_FULL;
    memcpy(key, pid.at != NULL ? pid.at : "", pid.length);
    key[pid.length] = 0;
    memcpy(key + pid.length + 1, tid.at != NULL ? tid.at : "", tid.length);
    uint32_t number = tracks->are_all_known ? table_find(table, key, length)
                                            : table_intern(table, key, length);
    if (key != small) free(key);
    return number;
}

static int is_last_place(const Tracks *tracks, Text pid, Text tid)
{
    if (tracks->last_place >= tracks->places.num_entries || tracks->last_pid_length != pid.length)
        return 0;
    size_t length;
    const char *key = table_key(&tracks->places, tracks->last_place, &length);
    return length == pid.length + 1 + tid.length &&
           memcmp(key, pid.at != NULL ? pid.at : "", pid.length) == 0 &&
           memcmp(key + pid.length + 1, tid.at != NULL ? tid.at : "", tid.length) == 0;
}

uint32_t tracks_number(Tracks *tracks, Text *pid, Text tid)
{
    *pid = none_if_null(*pid);
    tid = plain_tid(none_if_null(tid));
    if (tracks->is_for_viewers && pid->at == NULL) *pid = (Text){"0", 1};
    if (tracks->is_for_viewers && (tid.at == NULL || TEXT_IS(tid, "0"))) tid = *pid;
    return place_number(tracks, &tracks->keys, *pid, tid);
}

/* The track of a pid and tid in a form that was not seen before; makes a new track if needed.
 * TABLE_FULL if there is no memory, or no such track. */
static uint32_t track_of_place(Tracks *tracks, Text pid, Text tid)
{
    /* room first: a key without a track would be worse than a missing key */
    if (!array_room_for_next((void **)&tracks->all, tracks->num, &tracks->capacity,
                             sizeof *tracks->all))
        return TABLE_FULL;
    uint32_t number = tracks_number(tracks, &pid, tid);
    if (number == TABLE_FULL || tracks->are_all_known) return number;
    if (number == tracks->num) {
        tracks->all[tracks->num++] = (TextTrack){.first_serial = UINT64_MAX,
                                                 .pid_length = (uint32_t)pid.length,
                                                 .num_levels = 1,
                                                 .first_output = NO_OUTPUT,
                                                 .flows.latest_end = INT64_MIN};
    }
    if (none_if_null(tid).at != NULL) {
        tracks->all[number].has_text_tid |= *tid.at == '"';
        tracks->all[number].has_number_tid |= *tid.at != '"';
    }
    return number;
}

TextTrack *tracks_find(Tracks *tracks, const Event *event, unsigned flags, EventFault *fault)
{
    Text pid = event->fields[FIELD_PID], tid = event->fields[FIELD_TID];
    if (is_last_place(tracks, pid, tid)) return &tracks->all[tracks->track[tracks->last_place]];
    if (!tracks_take(event, flags)) {
        *fault = EVENT_REFUSED;
        return NULL;
    }
    size_t num_known = tracks->places.num_entries;
    if (!array_room_for_next((void **)&tracks->track, num_known, &tracks->places_capacity,
                             sizeof *tracks->track))
        return NULL;
    uint32_t place = place_number(tracks, &tracks->places, pid, tid);
    uint32_t track = place < num_known ? tracks->track[place] : track_of_place(tracks, pid, tid);
    if (place == num_known) tracks->track[place] = track;
    if (track == TABLE_FULL) return NULL;
    tracks->last_place = place;
    tracks->last_pid_length = (uint32_t)pid.length;
    return &tracks->all[track];
}

Text tracks_thread(const Tracks *tracks, const TextTrack *track)
{
    size_t length;
    const char *key = table_key(&tracks->keys, (uint32_t)(track - tracks->all), &length);
    size_t before = (size_t)track->pid_length + 1;
    return length > before ? (Text){key + before, length - before} : (Text){NULL, 0};
}

void tracks_free(Tracks *tracks)
{
    for (size_t i = 0; i < tracks->num; i++) {
        free(tracks->all[i].pending);
        free(tracks->all[i].kept);
        free(tracks->all[i].flows.early);
        end_order_free(&tracks->all[i].ends);
        nest_free(&tracks->all[i].nested);
    }
    free(tracks->all);
    free(tracks->track);
    table_free(&tracks->places);
    table_free(&tracks->keys);
}
