/* Looks at what training does while nobody holds the GIL for it: a thread waits here until a phase
 * lasts too long, somebody asks for a recording, or the time is up. */

#ifndef _GNU_SOURCE
    #define _GNU_SOURCE
#endif

#include "pulse/watch.h"

#include "recorder/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOOK_EVERY_NS INT64_C(250000000)
#define LOOKS_PER_REQUEST 4
#define OTHERS_MAY_WRITE 022

/* How a request begins; kinetoscope/formats/record_request.py has all of it. */
#define REQUEST_MAGIC "KSRECORD"
#define REQUEST_BYTES 512

typedef struct {
    char magic[8];
    uint32_t sequence;
} RequestHead;

int watch_setup(Watch *watch)
{
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes) != 0) return -1;
#ifndef __APPLE__
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
#endif
    int failed = pthread_mutex_init(&watch->lock, NULL) != 0 ||
                 pthread_cond_init(&watch->stopping, &attributes) != 0;
    pthread_condattr_destroy(&attributes);
    return failed ? -1 : 0;
}

void watch_drop(Watch *watch)
{
    pthread_cond_destroy(&watch->stopping);
    pthread_mutex_destroy(&watch->lock);
}

void watch_stop(Watch *watch)
{
    pthread_mutex_lock(&watch->lock);
    watch->is_stopped = 1;
    pthread_cond_broadcast(&watch->stopping);
    pthread_mutex_unlock(&watch->lock);
}

/* The number in a file, if it is a request of this user's that nobody else may write to; else 0. It
 * is opened anew each time: a network file system tells what others wrote when a file is opened. */
static uint32_t sequence_in(const char *path)
{
    struct stat found;
    RequestHead head = {0};
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0) return 0;
    int is_ours = fstat(file, &found) == 0 && S_ISREG(found.st_mode) && found.st_uid == geteuid() &&
                  !(found.st_mode & OTHERS_MAY_WRITE) && found.st_size == REQUEST_BYTES &&
                  pread(file, &head, sizeof head, 0) == (ssize_t)sizeof head &&
                  memcmp(head.magic, REQUEST_MAGIC, sizeof head.magic) == 0;
    close(file);
    return is_ours ? head.sequence : 0;
}

/* Whether the phase that runs is stuck. Then the file says that this is suspected: if the GIL is
 * held, nobody can say more. */
static int is_stuck(const PulseHeader *header, PulseFile *file, const Awaited *awaited, int64_t now)
{
    int64_t since = __atomic_load_n(&header->phase_since, __ATOMIC_ACQUIRE);
    uint32_t phase = __atomic_load_n(&header->phase, __ATOMIC_ACQUIRE);
    if (since == awaited->spared || phase >= PULSE_NUM_PHASES) return 0;
    if (now - since <= awaited->limits[phase]) return 0;
    if (since != __atomic_load_n(&header->phase_since, __ATOMIC_ACQUIRE)) return 0;
    file->watched = (PulseWatched){
        .stuck = PULSE_SUSPECTED, .phase = phase, .since = since, .told = now};
    return 1;
}

/* Sleeps until the next look, with the lock, which others may have meanwhile. */
static void sleep_until(Watch *watch, int64_t now, int64_t until)
{
    int64_t next = now + LOOK_EVERY_NS < until ? now + LOOK_EVERY_NS : until;
#ifdef __APPLE__
    struct timespec time = {.tv_nsec = next - now};
    pthread_cond_timedwait_relative_np(&watch->stopping, &watch->lock, &time);
#else
    struct timespec time = {.tv_sec = next / 1000000000, .tv_nsec = next % 1000000000};
    pthread_cond_timedwait(&watch->stopping, &watch->lock, &time);
#endif
}

int watch_wait(Watch *watch, const PulseHeader *header, PulseFile *file, const Awaited *awaited)
{
    int woken = -1;
    pthread_mutex_lock(&watch->lock);
    for (int looks = 0; woken < 0; looks++) {
        if (awaited->request != NULL && looks % LOOKS_PER_REQUEST == 0 && !watch->is_stopped) {
            pthread_mutex_unlock(&watch->lock); /* a file system may not answer */
            uint32_t sequence = sequence_in(awaited->request);
            pthread_mutex_lock(&watch->lock);
            if (sequence != 0 && sequence != awaited->sequence) woken = WOKEN_ASKED;
        }
        int64_t now = monotonic_ns();
        if (watch->is_stopped)
            woken = WOKEN_STOPPED;
        else if (is_stuck(header, file, awaited, now))
            woken = WOKEN_STUCK;
        else if (woken < 0 && now >= awaited->until)
            woken = WOKEN_DUE;
        else if (woken < 0)
            sleep_until(watch, now, awaited->until);
    }
    pthread_mutex_unlock(&watch->lock);
    return woken;
}
