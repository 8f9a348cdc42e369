/* See os.h. The state of a thread comes from the system call that it is in, and the first arguments
 * of that. */

#ifndef _GNU_SOURCE
    #define _GNU_SOURCE
#endif

#include "os/os.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define MAX_TRIES 100

/* -- memory and files -- */

void *os_map(size_t bytes, int file)
{
    int flags = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | MAP_POPULATE, file, 0);
}

void *os_map_longer(void *start, size_t bytes_before, size_t bytes, int file)
{
    (void)file;
    return mremap(start, bytes_before, bytes, MREMAP_MAYMOVE);
}

/* Tries again if a signal interrupts it. On some file systems nothing is done then, so a process
 * with a fast timer gets only some tries. */
int os_allocate(int file, size_t bytes)
{
    int error = EINTR;
    for (int tries = 0; error == EINTR && tries < MAX_TRIES; tries++)
        error = posix_fallocate(file, 0, (off_t)bytes);
    return error;
}

/* -- clocks -- */

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

int (*os_clock_reader(void))(clockid_t, struct timespec *)
{
    int (*reader)(clockid_t, struct timespec *) = clock_gettime;
    void *kernel = is_librarys_own() ? dlopen("linux-vdso.so.1", RTLD_LAZY | RTLD_NOLOAD) : NULL;
    void *found = kernel != NULL ? dlsym(kernel, "__vdso_clock_gettime") : NULL;
    if (found != NULL) memcpy(&reader, &found, sizeof found);
    return reader;
}

int os_cpu_has(const char *feature)
{
    char line[8192];
    FILE *file = fopen("/proc/cpuinfo", "r");
    int found = 0;
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL)
        found = strncmp(line, "flags", 5) == 0 && strstr(line, feature) != NULL;
    if (file != NULL) fclose(file);
    return found;
}

/* -- the state of a thread -- */

/* Of calls whose state depends on what their first argument is. */
enum { OF_FUTEX = NUM_STATES, OF_FILE, OF_POLL };

typedef struct {
    short number, state;
} Call;

/* Not every machine has each of them: aarch64 has no open and no poll. */
static const Call calls[] = {
    {SYS_futex, OF_FUTEX},
#ifdef SYS_futex_waitv
    {SYS_futex_waitv, STATE_OTHER_THREAD},
#endif
    {SYS_nanosleep, STATE_SLEEP},
    {SYS_clock_nanosleep, STATE_SLEEP},
    {SYS_fsync, STATE_FSYNC},
    {SYS_fdatasync, STATE_FSYNC},
    {SYS_msync, STATE_FSYNC},
    {SYS_sync, STATE_FSYNC},
    {SYS_syncfs, STATE_FSYNC},
    {SYS_sync_file_range, STATE_FSYNC},
    {SYS_read, OF_FILE},
    {SYS_write, OF_FILE},
    {SYS_readv, OF_FILE},
    {SYS_writev, OF_FILE},
    {SYS_pread64, OF_FILE},
    {SYS_pwrite64, OF_FILE},
    {SYS_preadv, OF_FILE},
    {SYS_pwritev, OF_FILE},
    {SYS_sendfile, OF_FILE},
    {SYS_ftruncate, OF_FILE},
    {SYS_fallocate, OF_FILE},
    {SYS_close, OF_FILE},
    {SYS_flock, OF_FILE},
    {SYS_fcntl, OF_FILE},
    {SYS_ioctl, OF_FILE},
    {SYS_recvfrom, OF_FILE},
    {SYS_sendto, OF_FILE},
    {SYS_recvmsg, OF_FILE},
    {SYS_sendmsg, OF_FILE},
    {SYS_accept, OF_FILE},
    {SYS_accept4, OF_FILE},
    {SYS_connect, OF_FILE},
    {SYS_openat, STATE_FOLDER},
    {SYS_unlinkat, STATE_FOLDER},
    {SYS_renameat2, STATE_FOLDER},
    {SYS_mkdirat, STATE_FOLDER},
    {SYS_getdents64, STATE_FOLDER},
    {SYS_truncate, STATE_FOLDER},
#ifdef SYS_open
    {SYS_open, STATE_FOLDER},
    {SYS_unlink, STATE_FOLDER},
    {SYS_rename, STATE_FOLDER},
    {SYS_mkdir, STATE_FOLDER},
    {SYS_rmdir, STATE_FOLDER},
    {SYS_stat, STATE_FOLDER},
    {SYS_lstat, STATE_FOLDER},
#endif
#ifdef SYS_renameat
    {SYS_renameat, STATE_FOLDER},
#endif
#ifdef SYS_newfstatat
    {SYS_newfstatat, STATE_FOLDER},
#endif
#ifdef SYS_poll
    {SYS_poll, OF_POLL},
    {SYS_select, STATE_EVENTS},
    {SYS_epoll_wait, STATE_EVENTS},
#endif
    {SYS_ppoll, OF_POLL},
    {SYS_pselect6, STATE_EVENTS},
    {SYS_epoll_pwait, STATE_EVENTS},
    {SYS_wait4, STATE_CHILD},
    {SYS_waitid, STATE_CHILD},
};

/* Where the interpreter keeps its GIL: `_PyRuntime` from the first address to before the second.
 * Both are 0 if unknown. */
static uintptr_t runtime_begin, runtime_end;

static void find_runtime(void)
{
    static int is_sought;
    if (is_sought) return;
    is_sought = 1;
#if defined(__GLIBC__)
    void *runtime = dlsym(RTLD_DEFAULT, "_PyRuntime");
    Dl_info info;
    ElfW(Sym) *symbol = NULL;
    if (runtime == NULL || !dladdr1(runtime, &info, (void **)&symbol, RTLD_DL_SYMENT)) return;
    if (symbol == NULL || info.dli_saddr != runtime) return;
    runtime_begin = (uintptr_t)runtime;
    runtime_end = runtime_begin + symbol->st_size;
#endif
}

static ThreadState state_of_socket(int descriptor)
{
    int domain = 0;
    socklen_t length = sizeof domain;
    int is_known = getsockopt(descriptor, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0;
    return is_known && domain == AF_UNIX ? STATE_PIPE : STATE_NETWORK;
}

/* What a call waits for by what it reads or writes. */
static ThreadState state_of_file(int descriptor, ThreadState otherwise)
{
    struct stat found;
    if (fstat(descriptor, &found) != 0) return otherwise;
    if (S_ISSOCK(found.st_mode)) return state_of_socket(descriptor);
    if (S_ISREG(found.st_mode) || S_ISBLK(found.st_mode)) return STATE_FILE;
    if (S_ISDIR(found.st_mode)) return STATE_FOLDER;
    if (S_ISFIFO(found.st_mode)) return STATE_PIPE;
    return S_ISCHR(found.st_mode) ? STATE_DEVICE : otherwise;
}

/* The first file that poll() waits for. The thread may go on meanwhile and take its array away, so
 * the kernel reads it. */
static ThreadState state_of_poll(uintptr_t array)
{
    struct pollfd first;
    struct iovec here = {&first, sizeof first}, there = {(void *)array, sizeof first};
    if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) != (ssize_t)sizeof first)
        return STATE_EVENTS;
    return state_of_file(first.fd, STATE_EVENTS);
}

static ThreadState state_of_call(long number, uintptr_t argument)
{
    size_t place = 0;
    while (place < sizeof calls / sizeof *calls && calls[place].number != number) place++;
    if (place == sizeof calls / sizeof *calls) return STATE_SYSTEM_CALL;
    switch (calls[place].state) {
        case OF_FUTEX:
            return argument >= runtime_begin && argument < runtime_end ? STATE_GIL
                                                                       : STATE_OTHER_THREAD;
        case OF_FILE: return state_of_file((int)argument, STATE_SYSTEM_CALL);
        case OF_POLL: return state_of_poll(argument);
        default: return (ThreadState)calls[place].state;
    }
}

int os_state_open(long native_id)
{
    char path[64];
    if (native_id <= 0) return -1;
    find_runtime();
    snprintf(path, sizeof path, "/proc/self/task/%ld/syscall", native_id);
    return open(path, O_RDONLY | O_CLOEXEC);
}

ThreadState os_state_read(int file)
{
    char text[256];
    ssize_t length = file < 0 ? -1 : pread(file, text, sizeof text - 1, 0);
    if (length <= 0) return STATE_UNKNOWN;
    text[length] = '\0';
    if (strncmp(text, "running", 7) == 0) return STATE_RUNNING;
    char *rest;
    long number = strtol(text, &rest, 10);
    if (rest == text) return STATE_UNKNOWN;
    return number < 0 ? STATE_PAGE_FAULT : state_of_call(number, strtoull(rest, NULL, 16));
}

void os_state_close(int file)
{
    if (file >= 0) close(file);
}
