/* The tracks of a file: which pids and tids mean the same track.
 *
 *     a pid and a tid, as written ──► tracks_find ──► TextTrack */

#ifndef KINETOSCOPE_TRACKS_H
#define KINETOSCOPE_TRACKS_H

#include "text/bytes.h"
#include "rewrite/end_order.h"
#include "rewrite/event.h"
#include "rewrite/nest.h"
#include "rewrite/viewers.h"

#define NO_OUTPUT UINT32_MAX

enum TrackRole { ROLE_NONE, ROLE_LOOP, ROLE_BACKWARD };

/* The events of one (pid, tid) of the file. Its key is the pid, a zero byte and the tid. Different
 * forms of one number, such as the tids 8, "8" and "stream 8", have the same key. */
typedef struct {
    uint64_t first_serial;
    NestSpan *pending; /* spans that wait to be nested */
    size_t num_pending, pending_capacity;
    NestLevel nested;
    int64_t last_begin, last_dur; /* of the span that was nested last */
    uint32_t pid_length;          /* length of the pid in its key */
    uint32_t first_output;
    uint32_t num_levels;
    int64_t previous_begin, previous_dur; /* of the previous span */
    uint64_t num_spans;
    uint8_t was_cut;       /* a span of it was cut, so the order may have changed */
    uint8_t is_disordered; /* its spans do not come in the order of their begins */
    uint8_t role, is_device, is_unsorted, has_nested;
    uint8_t has_number_tid, has_text_tid; /* how its tid is written, if it is a number */
    FlowPlace flows;
    EndOrder ends;
    uint8_t *kept; /* for each open B event: whether it is in the window */
    size_t num_kept, kept_capacity;
} TextTrack;

/* All tracks of a file. With `is_for_viewers`, a tid of 0 or none is the main thread's, as viewers
 * read it. */
typedef struct {
    TextTrack *all;
    size_t num, capacity;
    int is_for_viewers;
    int are_all_known; /* the first pass is over: no track is added */
    Table keys;        /* of the tracks: the pid, a zero byte and the tid */
    Table places;      /* pids and tids as written */
    uint32_t *track;   /* of each place */
    size_t places_capacity;
    uint32_t last_place, last_pid_length;
} Tracks;

/* The track of an event; a new one is added, unless all are known. NULL with EVENT_REFUSED in
 * `fault` if Python must write its pid or tid anew first; NULL if there is no memory, or no such
 * track. */
TextTrack *tracks_find(Tracks *tracks, const Event *event, unsigned flags, EventFault *fault);
/* Whether its pid and tid are written in the usual way: numbers without a sign or leading zeros,
 * strings without escapes. */
int tracks_take(const Event *event, unsigned flags);
/* The number of the track for this pid and tid; TABLE_FULL if there is no memory, or no such
 * track. */
uint32_t tracks_number(Tracks *tracks, Text *pid, Text tid);
/* The tid of a track; empty if it has none. */
Text tracks_thread(const Tracks *tracks, const TextTrack *track);
void tracks_free(Tracks *tracks);

static inline Text none_if_null(Text text)
{
    return text.at != NULL && TEXT_IS(text, "null") ? (Text){NULL, 0} : text;
}

#endif
