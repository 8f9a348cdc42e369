#ifndef KINETOSCOPE_PULSE_WATCH_H
#define KINETOSCOPE_PULSE_WATCH_H

#include "pulse/layout.h"

/* Reasons why `watch_wait` returned. */
#define WOKEN_STOPPED 0
#define WOKEN_DUE 1       /* the time is up */
#define WOKEN_STUCK 2     /* a phase lasts longer than its limit */
#define WOKEN_REQUESTED 3 /* there is a new request */

/* Conditions of a wait. */
typedef struct {
    int64_t limits[PULSE_NUM_PHASES]; /* nanoseconds */
    int64_t stuck_since;              /* a phase that started then is known to be stuck */
    int64_t until;
    uint32_t sequence; /* of the last request */
} Awaited;

typedef struct Watch Watch;

/* Watch the thread that writes this header, which is copied to the file, and a request's file
 * (NULL for none). Return NULL without memory or a thread. */
Watch *watch_start(const PulseHeader *header, PulseFile *file, const char *request);
/* Wait without the GIL; return at once after `watch_stop`. */
int watch_wait(Watch *watch, const Awaited *awaited);
/* Stop all use of the header and the file. */
void watch_stop(Watch *watch);
/* Set the signal that the thread sends itself if the GIL is held; 0 for none. */
void watch_signal_if_held(Watch *watch, int signal_number);
void watch_keep(Watch *watch);
void watch_drop(Watch *watch);

#endif
