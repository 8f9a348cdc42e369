/* Stores records: chunks and tracks, as mapped files in a live folder, or in memory if there is
 * none. */

#ifndef KINETOSCOPE_STORE_H
#define KINETOSCOPE_STORE_H

#include <stddef.h>
#include <sys/types.h>

#include "recorder/record.h"

/* Shared by a recorder and all its chunks. All fields are read and written under the GIL. */
typedef struct {
    int refs;
    char *folder; /* NULL: in memory */
    pid_t pid;    /* the process that owns the files; a forked child must not touch its parent's */
    uint32_t rank;
    int64_t limit_bytes;
    int64_t used_bytes; /* of all chunks that exist */
    uint32_t num_files;
    int leaves_files; /* files are not deleted with their objects: `recover` needs them */
    int is_child;     /* the parent reads and deletes the files */
    /* in a child: bytes of the files that it has filled in this window and released */
    int64_t spent_bytes;
    uint32_t spent_window;
    int error;      /* the errno for which the folder is not used now, or 0 */
    int last_error; /* the last such errno */
} Store;

Store *store_new(const char *folder, uint32_t rank, int64_t limit_bytes);
Store *store_keep(Store *store);
void store_drop(Store *store);
/* Return whether it uses files, and could make all of them so far. */
int store_has_files(const Store *store);

/* Keep everything in memory from now on. */
void store_give_up(Store *store, int error);
/* Return whether an errno may be resolved by deleting files. */
int is_lack_of_space(int error);
/* Use files again, if only space was lacking. */
void store_try_again(Store *store);

/* A piece of memory, mapped to a file or not. */
typedef struct {
    void *start; /* NULL: not mapped */
    size_t bytes;
    uint32_t file; /* the number in the file's name; 0: no file */
} Region;

/* Allocates and maps `bytes` zeros, in a file if `region->file` is not 0. Returns 0, or an errno
 * and leaves no file behind. Touches no field of the store that changes, so it may run without the
 * GIL. */
int region_create(const Store *store, Region *region, size_t bytes, const char *suffix);
/* Makes a region in a new file. Returns 0 if that fails: then the folder is no longer used. */
int region_create_file(Store *store, Region *region, size_t bytes, const char *suffix);
/* Writes to each page of a new region. os_map only reads the pages of a file; most file
 * systems also have work at the first write to each, which takes some microseconds a page. */
void region_touch(Region *region);
/* Maps the file of a region that was unmapped, for reading. Returns 0 or an errno. */
int region_map_again(const Store *store, Region *region, const char *suffix);
/* Makes a region larger and keeps its content. Returns 0, or an errno and leaves the region as it
 * was. */
int region_grow(const Store *store, Region *region, size_t bytes, const char *suffix);
/* Maps the first `bytes` of a file, for reading. Returns 0 or an errno. EINVAL: the file is
 * shorter, or no regular file; reading a mapping beyond the end of a file is a SIGBUS. */
int region_open(Region *region, const char *path, size_t bytes);
void region_unmap(Region *region);
/* Frees the space after the first `bytes`, on disk or in memory. */
void region_trim(const Store *store, Region *region, size_t bytes, const char *suffix);
void region_unlink(const Store *store, Region *region, const char *suffix);
/* Deletes the file, unless the store leaves its files. */
void region_unlink_unless_left(const Store *store, Region *region, const char *suffix);

#endif
