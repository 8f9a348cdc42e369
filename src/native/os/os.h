/* Calls that differ between systems: os_linux.c has them for Linux, os_posix.c for macOS, and a
 * build has one of the two; condition.c has those for both. `KINETOSCOPE_PORTABLE=1` builds
 * os_posix.c on Linux. Nothing here uses Python. */

#ifndef KINETOSCOPE_OS_H
#define KINETOSCOPE_OS_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "recorder/thread_state.h"

/* Maps memory (`file` is -1) or a file for writing, with its pages loaded: else the recording
 * thread would pay for the first access to each. Returns MAP_FAILED with errno. */
void *os_map(size_t bytes, int file);
/* Makes a mapping of memory or of a file longer, which may move it. Returns MAP_FAILED with errno,
 * and leaves the mapping as it was. */
void *os_map_longer(void *start, size_t bytes_before, size_t bytes, int file);
/* Reserves space on the disk up to the first `bytes` of a file. Returns 0 or an errno. */
int os_allocate(int file, size_t bytes);

/* The fastest function that reads a clock as clock_gettime does. */
int (*os_clock_reader(void))(clockid_t, struct timespec *);
/* Whether the CPU has a feature, by its name in /proc/cpuinfo with a space before it. */
int os_cpu_has(const char *feature);

/* Makes a condition that os_cond_wait waits for. */
void os_cond_init(pthread_cond_t *condition);
/* Waits for so many nanoseconds, below a second, by the monotonic clock. */
void os_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t duration_ns);

/* Opens the source of a thread's state; -1 where the system does not report it. */
int os_state_open(long native_id);
/* Returns the state of the thread of an open source; takes 3 to 4 us. */
ThreadState os_state_read(int file);
void os_state_close(int file);

#endif
