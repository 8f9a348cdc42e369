/* The clocks of a recorder: CLOCK_MONOTONIC, or on request the CPU's time stamp counter
 * (TSC). */

#ifndef KINETOSCOPE_CLOCK_H
#define KINETOSCOPE_CLOCK_H

#include <stdint.h>
#include <time.h>

typedef struct {
    int is_used;
    uint64_t ticks; /* TSC and CLOCK_MONOTONIC, read at the same moment */
    int64_t monotonic_ns;
    uint64_t ns_per_tick; /* as a fraction of 2^32 */
} TscLine;

extern TscLine tsc_line;

/* Calibrate the TSC, which takes some 20 ms, and use it from now on. Return NULL, or the reason why
 * it cannot be used. */
const char *tsc_start(void);

/* Calibrate the TSC again at each window's start, since the system adjusts the rate of
 * CLOCK_MONOTONIC. */
void tsc_realign(void);

/* Read a clock with the kernel's function in the vDSO, or libc's where that is missing. */
extern int (*clock_read)(clockid_t, struct timespec *);
void clock_setup(void);

static inline int64_t read_clock(clockid_t clock)
{
    struct timespec now;
    clock_read(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

#if defined(__x86_64__)
    #include <x86intrin.h>
static inline int64_t monotonic_ns(void)
{
    if (__builtin_expect(tsc_line.is_used, 0)) {
        int64_t ticks = (int64_t)(__rdtsc() - tsc_line.ticks);
        return tsc_line.monotonic_ns +
               (int64_t)(((__int128)ticks * (int64_t)tsc_line.ns_per_tick) >> 32);
    }
    return read_clock(CLOCK_MONOTONIC);
}
#else
static inline int64_t monotonic_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}
#endif

#endif
