/* Checks the phases of training every 250 ms, on a thread that never takes the GIL. A thread of
 * Python's waits here until a phase lasts too long, a recording is requested, or the time is up.
 * That thread cannot do the checks itself, since it cannot continue while the GIL is held. */

#ifndef _GNU_SOURCE
    #define _GNU_SOURCE
#endif

#include "pulse/watch.h"

#include "os/os.h"
#include "recorder/clock.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define CHECK_INTERVAL_NS INT64_C(250000000)
#define CHECKS_PER_REQUEST 4
#define OTHERS_MAY_WRITE 022

/* If two checks are further apart, the process was suspended or waited for a CPU: this time is no
 * stall of training. `kinetoscope.pulse.layout` has both numbers for Python. */
#define FROZEN_NS (4 * CHECK_INTERVAL_NS)
/* After this time without a probe by a thread of Python's, the GIL is held. */
#define MAX_PROBE_NS INT64_C(10000000000)

/* Start of a request; kinetoscope/formats/record_request.py has its format. */
#define REQUEST_MAGIC "KSRECORD"
#define REQUEST_BYTES 512

typedef struct {
    char magic[8];
    uint32_t sequence;
} RequestHead;

struct Watch {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int refs; /* of its thread, and of its creator */
    int is_stopped, is_awaited, woken;
    const PulseHeader *header;
    PulseFile *file;
    char *request;
    Awaited awaited;
    int64_t checked_at, since,
        frozen;                      /* the last check; start of its phase, and frozen time in it */
    int held_signal;                 /* 0 for none */
    int64_t suspected_at, suspected; /* when a suspicion was reported; its duration so far */
};

/* Return the number of a request, or 0 if others may write to the file. It is opened anew each
 * time: a network file system shows what others wrote only when a file is opened. */
static uint32_t sequence_in(const char *path)
{
    struct stat found;
    RequestHead head = {0};
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0) return 0;
    int is_valid = fstat(file, &found) == 0 && S_ISREG(found.st_mode) &&
                   found.st_uid == geteuid() && !(found.st_mode & OTHERS_MAY_WRITE) &&
                   found.st_size == REQUEST_BYTES &&
                   pread(file, &head, sizeof head, 0) == (ssize_t)sizeof head &&
                   memcmp(head.magic, REQUEST_MAGIC, sizeof head.magic) == 0;
    close(file);
    return is_valid ? head.sequence : 0;
}

/* Add the time for which the process was frozen in the phase that started at `since`. */
static void add_frozen_time(Watch *watch, int64_t since, int64_t now)
{
    int64_t apart = now - (watch->checked_at > since ? watch->checked_at : since);
    if (watch->since != since) watch->frozen = 0;
    if (apart > FROZEN_NS) watch->frozen += apart;
    watch->since = since;
}

/* The handler runs on this thread and disturbs no other. Without one, the signal would end the
 * process. */
static void signal_own_thread(int number)
{
    struct sigaction handler;
    sigset_t only, before;
    if (sigaction(number, NULL, &handler) != 0 || handler.sa_handler == SIG_DFL) return;
    sigemptyset(&only);
    sigaddset(&only, number);
    pthread_sigmask(SIG_UNBLOCK, &only, &before);
    pthread_kill(pthread_self(), number);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Report that the GIL is held if a suspicion was not probed: this thread, which needs no GIL, could
 * check for long enough, so another thread could have probed it but for the GIL. */
static void check_suspicion(Watch *watch, int64_t now)
{
    PulseWatched *watched = &watch->file->watched;
    uint32_t stuck = PULSE_SUSPECTED;
    int64_t reported = __atomic_load_n(&watched->reported, __ATOMIC_RELAXED);
    int64_t apart = now - watch->checked_at;
    if (__atomic_load_n(&watched->stuck, __ATOMIC_RELAXED) != stuck) return;
    if (watch->suspected_at != reported)
        watch->suspected = 0;
    else if (apart <= FROZEN_NS)
        watch->suspected += apart;
    watch->suspected_at = reported;
    if (watch->suspected <= MAX_PROBE_NS) return;
    /* Stacks must not be read while Python runs; here no Python has run for long. They are written
     * first: a reader of PULSE_HELD expects them. */
    if (watch->held_signal != 0) signal_own_thread(watch->held_signal);
    __atomic_compare_exchange_n(&watched->stuck, &stuck, PULSE_HELD, 0, __ATOMIC_RELAXED,
                                __ATOMIC_RELAXED);
}

/* Return whether the running phase is stuck. Then the file has this suspicion: if the GIL is held,
 * nothing more can be determined. */
static int is_stuck(Watch *watch, int64_t now)
{
    const PulseHeader *header = watch->header;
    const Awaited *awaited = &watch->awaited;
    PulseWatched *watched = &watch->file->watched;
    int64_t since = __atomic_load_n(&header->phase_since, __ATOMIC_ACQUIRE);
    uint32_t phase = __atomic_load_n(&header->phase, __ATOMIC_ACQUIRE);
    add_frozen_time(watch, since, now);
    if (since == awaited->stuck_since || phase >= PULSE_NUM_PHASES) return 0;
    if (now - since - watch->frozen <= awaited->limits[phase]) return 0;
    if (since != __atomic_load_n(&header->phase_since, __ATOMIC_ACQUIRE)) return 0;
    if (watched->since != since || watched->stuck == PULSE_NOT_STUCK)
        *watched = (PulseWatched){.stuck = PULSE_SUSPECTED,
                                  .phase = phase,
                                  .since = since,
                                  .reported = now,
                                  .thread = watched->thread};
    check_suspicion(watch, now);
    return 1;
}

static void wake(Watch *watch, int woken)
{
    if (!watch->is_awaited) return; /* the next check finds it again */
    watch->is_awaited = 0;
    watch->woken = woken;
    pthread_cond_broadcast(&watch->changed);
}

static void check_request(Watch *watch)
{
    pthread_mutex_unlock(&watch->lock); /* a file system may not respond */
    uint32_t sequence = sequence_in(watch->request);
    pthread_mutex_lock(&watch->lock);
    if (sequence != 0 && sequence != watch->awaited.sequence) wake(watch, WOKEN_REQUESTED);
}

/* Sleep until the next check, without the lock, unless something changes. */
static void sleep_until_check(Watch *watch)
{
    os_cond_wait(&watch->changed, &watch->lock, CHECK_INTERVAL_NS);
}

static void *run_checks(void *argument)
{
    Watch *watch = argument;
    pthread_mutex_lock(&watch->lock);
    for (unsigned checks = 0; !watch->is_stopped; checks++) {
        if (watch->request != NULL && checks % CHECKS_PER_REQUEST == 0) check_request(watch);
        if (watch->is_stopped) break;
        int64_t now = monotonic_ns();
        if (is_stuck(watch, now))
            wake(watch, WOKEN_STUCK);
        else if (now >= watch->awaited.until)
            wake(watch, WOKEN_DUE);
        watch->checked_at = now;
        sleep_until_check(watch);
    }
    pthread_mutex_unlock(&watch->lock);
    watch_drop(watch);
    return NULL;
}

/* -- from the writer -- */

static int start_thread(Watch *watch)
{
    pthread_t thread;
    sigset_t all, before;
    pthread_mutex_init(&watch->lock, NULL);
    os_cond_init(&watch->changed);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for Python's threads */
    int failed = pthread_create(&thread, NULL, run_checks, watch);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!failed) pthread_detach(thread);
    return failed;
}

Watch *watch_start(const PulseHeader *header, PulseFile *file, const char *request)
{
    Watch *watch = calloc(1, sizeof *watch);
    if (watch == NULL) return NULL;
    watch->refs = 2;
    watch->header = header;
    watch->file = file;
    watch->checked_at = monotonic_ns();
    watch->request = request != NULL ? strdup(request) : NULL;
    for (int phase = 0; phase < PULSE_NUM_PHASES; phase++) watch->awaited.limits[phase] = INT64_MAX;
    if (start_thread(watch) == 0) return watch;
    free(watch->request);
    free(watch);
    return NULL;
}

int watch_wait(Watch *watch, const Awaited *awaited)
{
    pthread_mutex_lock(&watch->lock);
    watch->awaited = *awaited;
    watch->is_awaited = 1;
    while (watch->is_awaited && !watch->is_stopped)
        pthread_cond_wait(&watch->changed, &watch->lock);
    int woken = watch->is_stopped ? WOKEN_STOPPED : watch->woken;
    watch->is_awaited = 0;
    pthread_mutex_unlock(&watch->lock);
    return woken;
}

void watch_stop(Watch *watch)
{
    pthread_mutex_lock(&watch->lock);
    watch->is_stopped = 1;
    pthread_cond_broadcast(&watch->changed);
    pthread_mutex_unlock(&watch->lock);
}

void watch_signal_if_held(Watch *watch, int signal_number)
{
    pthread_mutex_lock(&watch->lock);
    watch->held_signal = signal_number;
    pthread_mutex_unlock(&watch->lock);
}

void watch_keep(Watch *watch)
{
    pthread_mutex_lock(&watch->lock);
    watch->refs++;
    pthread_mutex_unlock(&watch->lock);
}

void watch_drop(Watch *watch)
{
    pthread_mutex_lock(&watch->lock);
    int refs = --watch->refs;
    pthread_mutex_unlock(&watch->lock);
    if (refs > 0) return;
    pthread_cond_destroy(&watch->changed);
    pthread_mutex_destroy(&watch->lock);
    free(watch->request);
    free(watch);
}
