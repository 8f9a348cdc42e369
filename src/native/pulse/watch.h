#ifndef KINETOSCOPE_PULSE_WATCH_H
#define KINETOSCOPE_PULSE_WATCH_H

#include "pulse/layout.h"

/* Why `watch_wait` returned. */
#define WOKEN_STOPPED 0
#define WOKEN_DUE 1   /* the time is up */
#define WOKEN_STUCK 2 /* a phase lasts longer than its limit */
#define WOKEN_ASKED 3 /* the request is another one */

/* What a thread waits for. */
typedef struct {
    int64_t limits[PULSE_NUM_PHASES]; /* nanoseconds */
    int64_t spared;                   /* a phase that began then is known to be stuck */
    int64_t until;
    uint32_t sequence; /* of the request that is known */
} Awaited;

typedef struct Watch Watch;

/* Watches the thread that writes into this header, which is shown in the file, and a request's file
 * (NULL for none). NULL if there is no memory, or no thread. */
Watch *watch_start(const PulseHeader *header, PulseFile *file, const char *request);
/* Waits, without the GIL. Nothing is waited for once it is stopped. */
int watch_wait(Watch *watch, const Awaited *awaited);
/* From now on nothing of the header and the file is used. */
void watch_stop(Watch *watch);
/* If something holds the GIL, its thread sends itself this signal; 0: none, from now on. */
void watch_signal_if_held(Watch *watch, int signal_number);
void watch_keep(Watch *watch);
void watch_drop(Watch *watch);

#endif
