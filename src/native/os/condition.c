/* Conditions with a time limit, see os.h. macOS has no condition on the monotonic clock. */

#ifndef _GNU_SOURCE
    #define _GNU_SOURCE
#endif

#include "os/os.h"

#ifdef __APPLE__

void os_cond_init(pthread_cond_t *condition)
{
    pthread_cond_init(condition, NULL);
}

void os_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t duration_ns)
{
    struct timespec duration = {.tv_nsec = (long)duration_ns};
    pthread_cond_timedwait_relative_np(condition, lock, &duration);
}

#else

void os_cond_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

void os_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t duration_ns)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)duration_ns;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(condition, lock, &until);
}

#endif
