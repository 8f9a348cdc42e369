/* Finds the fastest way to read CLOCK_MONOTONIC, and calibrates the time stamp counter against
 * it. */

#ifndef _GNU_SOURCE
    #define _GNU_SOURCE
#endif
#include "recorder/clock.h"

#include "os/os.h"

int (*clock_read)(clockid_t, struct timespec *) = clock_gettime;

void clock_setup(void)
{
    clock_read = os_clock_reader();
}

TscLine tsc_line;

#if defined(__x86_64__)

static uint64_t first_ticks;
static int64_t first_ns;

/* Reads both clocks several times, and keeps the pair that was read closest together. */
static void read_pair(uint64_t *ticks, int64_t *ns)
{
    uint64_t narrowest = UINT64_MAX;
    for (int i = 0; i < 16; i++) {
        uint64_t before = __rdtsc();
        int64_t now = read_clock(CLOCK_MONOTONIC);
        uint64_t width = __rdtsc() - before;
        if (width < narrowest) {
            narrowest = width;
            *ticks = before + width / 2;
            *ns = now;
        }
    }
}

void tsc_realign(void)
{
    if (!tsc_line.is_used) return;
    uint64_t ticks;
    int64_t ns;
    read_pair(&ticks, &ns);
    TscLine line = {1, ticks, ns, 0};
    line.ns_per_tick = (uint64_t)(((unsigned __int128)(ns - first_ns) << 32) /
                                  (ticks - first_ticks));
    tsc_line = line;
}

const char *tsc_start(void)
{
    if (tsc_line.is_used) return NULL;
    if (!os_cpu_has(" constant_tsc"))
        return "the rate of this CPU's time stamp counter is not constant (no constant_tsc "
               "in /proc/cpuinfo)";
    if (!os_cpu_has(" nonstop_tsc"))
        return "this CPU's time stamp counter stops in sleep (no nonstop_tsc in "
               "/proc/cpuinfo)";
    struct timespec pause = {0, 20000000};
    read_pair(&first_ticks, &first_ns);
    nanosleep(&pause, NULL);
    tsc_line.is_used = 1;
    tsc_realign();
    return NULL;
}

#else

const char *tsc_start(void)
{
    return "only x86-64 CPUs have a time stamp counter that is used here";
}
void tsc_realign(void)
{
}

#endif
