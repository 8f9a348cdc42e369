#ifndef KINETOSCOPE_PULSE_WATCH_H
#define KINETOSCOPE_PULSE_WATCH_H

#include "pulse/layout.h"

#include <pthread.h>

/* Why `watch_wait` returned. */
#define WOKEN_STOPPED 0
#define WOKEN_DUE 1   /* the time is up */
#define WOKEN_STUCK 2 /* a phase lasts longer than its limit */
#define WOKEN_ASKED 3 /* the request is another one */

/* What one thread waits for, without the GIL. */
typedef struct {
    pthread_mutex_t lock; /* while it looks at the pulse */
    pthread_cond_t stopping;
    int is_stopped;
} Watch;

typedef struct {
    int64_t limits[PULSE_NUM_PHASES]; /* nanoseconds */
    int64_t spared;                   /* a phase that began then is known to be stuck */
    int64_t until;
    const char *request; /* its file, or NULL */
    uint32_t sequence;   /* of the request that is known */
} Awaited;

int watch_setup(Watch *watch);
/* The training thread's header, and the file that tells it. Nothing of both is used after
 * `watch_stop`. */
int watch_wait(Watch *watch, const PulseHeader *header, PulseFile *file, const Awaited *awaited);
void watch_stop(Watch *watch);
void watch_drop(Watch *watch);

#endif
