/* Allocates, maps and deletes the files of a live folder. Nothing here uses Python. */

#define _GNU_SOURCE
#include "recorder/store.h"

#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_PATH 4096 /* the longest that system calls accept */
#define MAX_NAME "/-2147483648-4294967295.chunk"

Store *store_new(const char *folder, uint32_t rank, int64_t limit_bytes)
{
    Store *store = calloc(1, sizeof *store);
    if (store == NULL) return NULL;
    store->refs = 1;
    store->pid = getpid();
    store->rank = rank;
    store->limit_bytes = limit_bytes;
    if (folder != NULL && (store->folder = strdup(folder)) == NULL) {
        free(store);
        return NULL;
    }
    /* If a path of any file could be too long, refuse now: such a file might come late in the
     * run. */
    if (folder != NULL && strlen(folder) + sizeof MAX_NAME > MAX_PATH)
        store_give_up(store, ENAMETOOLONG);
    return store;
}

Store *store_keep(Store *store)
{
    store->refs++;
    return store;
}

void store_drop(Store *store)
{
    if (store != NULL && --store->refs == 0) {
        free(store->folder);
        free(store);
    }
}

int store_has_files(const Store *store)
{
    return store->folder != NULL && store->error == 0;
}

void store_give_up(Store *store, int error)
{
    store->error = store->last_error = error;
}

int is_lack_of_space(int error)
{
    return error == ENOSPC || error == EDQUOT;
}

void store_try_again(Store *store)
{
    if (is_lack_of_space(store->error)) store->error = 0;
}

static void write_path(char *path, const Store *store, const Region *region, const char *suffix)
{
    snprintf(path, MAX_PATH, "%s/%d-%u.%s", store->folder, (int)store->pid, region->file, suffix);
}

/* Stores the mapping in the region. Returns 0 or an errno. */
static int set_mapped(Region *region, void *start, size_t bytes)
{
    if (start == MAP_FAILED) return errno;
    region->start = start;
    region->bytes = bytes;
    return 0;
}

void region_touch(Region *region)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t offset = 0; offset < region->bytes; offset += page)
        ((char *)region->start)[offset] = 0;
}

int region_create(const Store *store, Region *region, size_t bytes, const char *suffix)
{
    char path[MAX_PATH];
    if (region->file == 0) return set_mapped(region, os_map(bytes, -1), bytes);
    write_path(path, store, region, suffix);
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0) return errno;
    int error = os_allocate(file, bytes);
    if (error == 0) error = set_mapped(region, os_map(bytes, file), bytes);
    close(file);
    if (error != 0) unlink(path);
    return error;
}

int region_create_file(Store *store, Region *region, size_t bytes, const char *suffix)
{
    if (!store_has_files(store)) return 0;
    *region = (Region){.file = ++store->num_files};
    int error = region_create(store, region, bytes, suffix);
    if (error != 0) store_give_up(store, error);
    return error == 0;
}

static int map_for_reading(int file, Region *region, size_t bytes)
{
    struct stat status;
    if (fstat(file, &status) != 0) return errno;
    if (!S_ISREG(status.st_mode) || status.st_size < (off_t)bytes) return EINVAL;
    return set_mapped(region, mmap(NULL, bytes, PROT_READ, MAP_SHARED, file, 0), bytes);
}

int region_open(Region *region, const char *path, size_t bytes)
{
    /* O_NONBLOCK: do not wait at a pipe without a writer */
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0) return errno;
    int error = map_for_reading(file, region, bytes);
    close(file);
    return error;
}

int region_map_again(const Store *store, Region *region, const char *suffix)
{
    char path[MAX_PATH];
    write_path(path, store, region, suffix);
    return region_open(region, path, region->bytes);
}

int region_grow(const Store *store, Region *region, size_t bytes, const char *suffix)
{
    char path[MAX_PATH];
    int file = -1, error = 0;
    if (region->file != 0) {
        write_path(path, store, region, suffix);
        file = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (file < 0) return errno;
        error = os_allocate(file, bytes);
    }
    if (error == 0)
        error = set_mapped(region, os_map_longer(region->start, region->bytes, bytes, file), bytes);
    if (file >= 0) close(file);
    return error;
}

void region_unmap(Region *region)
{
    if (region->start != NULL) munmap(region->start, region->bytes);
    region->start = NULL;
}

void region_trim(const Store *store, Region *region, size_t bytes, const char *suffix)
{
    char path[MAX_PATH];
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    bytes = (bytes + page - 1) / page * page;
    if (bytes >= region->bytes) return;
    if (region->file != 0) {
        write_path(path, store, region, suffix);
        if (truncate(path, (off_t)bytes) != 0) return;
    }
    if (region->start != NULL) munmap((char *)region->start + bytes, region->bytes - bytes);
    region->bytes = bytes;
}

void region_unlink(const Store *store, Region *region, const char *suffix)
{
    char path[MAX_PATH];
    if (region->file != 0 && store->pid == getpid() && !store->is_child) {
        write_path(path, store, region, suffix);
        unlink(path);
    }
}

void region_unlink_unless_left(const Store *store, Region *region, const char *suffix)
{
    if (!store->leaves_files) region_unlink(store, region, suffix);
}
