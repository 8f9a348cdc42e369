/* See os.h: what macOS has, and any other POSIX system. */

#ifndef _GNU_SOURCE
    #define _GNU_SOURCE
#endif

#include "os/os.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* -- memory and files -- */

void *os_map(size_t bytes, int file)
{
    int flags = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    char *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, file, 0);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (start == MAP_FAILED) return start;
    if (file < 0) return memset(start, 0, bytes); /* a read of memory would load no page */
    for (size_t at = 0; at < bytes; at += page) (void)__atomic_load_n(start + at, __ATOMIC_RELAXED);
    return start;
}

void *os_map_longer(void *start, size_t bytes_before, size_t bytes, int file)
{
    void *longer = os_map(bytes, file);
    if (longer == MAP_FAILED) return longer;
    if (file < 0) memcpy(longer, start, bytes_before);
    munmap(start, bytes_before);
    return longer;
}

/* Only what was written has its space on the disk. */
int os_allocate(int file, size_t bytes)
{
    static const char zeros[1 << 16];
    struct stat found;
    if (fstat(file, &found) != 0) return errno;
    for (off_t at = found.st_size; at < (off_t)bytes;) {
        size_t rest = bytes - (size_t)at;
        ssize_t written = pwrite(file, zeros, rest < sizeof zeros ? rest : sizeof zeros, at);
        if (written < 0 && errno != EINTR) return errno;
        if (written > 0) at += written;
    }
    return 0;
}

/* -- clocks -- */

int (*os_clock_reader(void))(clockid_t, struct timespec *)
{
    return clock_gettime;
}

int os_cpu_has(const char *feature)
{
    (void)feature;
    return 0;
}

/* -- the state of a thread, which no other system than Linux reports -- */

int os_state_open(long native_id)
{
    (void)native_id;
    return -1;
}

ThreadState os_state_read(int file)
{
    (void)file;
    return STATE_UNKNOWN;
}

void os_state_close(int file)
{
    (void)file;
}
