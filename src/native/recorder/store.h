/* Where records are kept: chunks and tracks, as mapped files in a live folder, or in memory where
 * there is none. */

#ifndef KINETOSCOPE_STORE_H
#define KINETOSCOPE_STORE_H

#include <stddef.h>
#include <sys/types.h>

#include "recorder/record.h"

/* Shared by a recorder and every chunk it has handed out. All fields are read and written under the
 * GIL. */
typedef struct {
    int refs;
    char *folder; /* NULL: in memory */
    pid_t pid;    /* whose files these are: a forked child must not touch its parent's */
    uint32_t rank;
    int64_t limit_bytes;
    int64_t used_bytes; /* of all chunks that exist */
    uint32_t num_files;
    int is_left;  /* files stay when what they belong to goes: `recover` needs them */
    int is_child; /* files are left to the parent, which reads and deletes them */
    /* by a child, in files it has filled in this window and does not see any more */
    int64_t spent_bytes;
    uint32_t spent_window;
    int error; /* why the folder was given up: an errno, or 0 */
} Store;

Store *store_new(const char *folder, uint32_t rank, int64_t limit_bytes);
Store *store_keep(Store *store);
void store_drop(Store *store);
/* Whether it keeps files, and they could be made so far. */
int store_has_files(const Store *store);

/* A stretch of memory that is mapped to a file, or not. */
typedef struct {
    void *start; /* NULL: not mapped */
    size_t bytes;
    uint32_t file; /* the number in the file's name; 0: in memory only */
} Region;

/* Allocates and maps `bytes` zeros, in a file where `region->file` names one. Returns 0 or an
 * errno, and then leaves no file behind. Touches nothing of the store that changes, so it may run
 * without the GIL. */
int region_create(const Store *store, Region *region, size_t bytes, const char *suffix);
/* A region in a new file, or 0: then the folder is given up. */
int region_create_file(Store *store, Region *region, size_t bytes, const char *suffix);
/* Writes to each page of a new region. MAP_POPULATE only reads those of a file, and most file
 * systems want to hear of the first write to each: that costs some microseconds a page. */
void region_touch(Region *region);
/* Maps the file of a region that was unmapped, for reading. Returns 0 or an errno. */
int region_map_again(const Store *store, Region *region, const char *suffix);
/* Makes a region larger; what it holds stays. Returns 0 or an errno; then the region is what it
 * was. */
int region_grow(const Store *store, Region *region, size_t bytes, const char *suffix);
/* Maps the first `bytes` of a file, for reading. Returns 0 or an errno: EINVAL for one that is
 * shorter, or no plain file, since reading what is mapped behind a file's end is a SIGBUS. */
int region_open(Region *region, const char *path, size_t bytes);
void region_unmap(Region *region);
/* Gives back the space after `bytes` on disk or in memory. */
void region_trim(const Store *store, Region *region, size_t bytes, const char *suffix);
void region_unlink(const Store *store, Region *region, const char *suffix);
/* The same, unless the store's files are left. */
void region_unlink_unless_left(const Store *store, Region *region, const char *suffix);

#endif
