/* Finds the fastest way to read CLOCK_MONOTONIC, and calibrates the time stamp counter against
 * it. */

#define _GNU_SOURCE
#include "recorder/clock.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int (*clock_read)(clockid_t, struct timespec *) = clock_gettime;

/* Whether clock_gettime is the C library's own. If another library replaces it (libfaketime, for
 * example), Python and the anchors use the replacement, so records must use it too. */
static int is_librarys_own(void)
{
    void *library = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    int is_own = library != NULL &&
                 dlsym(RTLD_DEFAULT, "clock_gettime") == dlsym(library, "clock_gettime");
    if (library != NULL) dlclose(library);
    return is_own;
}

void clock_setup(void)
{
    if (!is_librarys_own()) return;
    void *kernel = dlopen("linux-vdso.so.1", RTLD_LAZY | RTLD_NOLOAD);
    void *found = kernel != NULL ? dlsym(kernel, "__vdso_clock_gettime") : NULL;
    if (found != NULL) memcpy(&clock_read, &found, sizeof found);
}

TscLine tsc_line;

#if defined(__x86_64__)

static uint64_t first_ticks;
static int64_t first_ns;

static int processor_has(const char *flag)
{
    char line[8192];
    FILE *file = fopen("/proc/cpuinfo", "r");
    int found = 0;
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL)
        found = strncmp(line, "flags", 5) == 0 && strstr(line, flag) != NULL;
    if (file != NULL) fclose(file);
    return found;
}

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
    if (!processor_has(" constant_tsc"))
        return "the rate of this processor's time stamp counter is not constant (no constant_tsc "
               "in /proc/cpuinfo)";
    if (!processor_has(" nonstop_tsc"))
        return "this processor's time stamp counter stops in sleep (no nonstop_tsc in "
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
    return "only x86-64 processors have a time stamp counter that is used here";
}
void tsc_realign(void)
{
}

#endif
