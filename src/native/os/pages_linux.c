/* See pages.h. */

#define _GNU_SOURCE
#include "os/pages.h"

#include <sys/mman.h>

#define HEADER_BYTES 64 /* holds the size; what follows is aligned as Arrow wants it */

void *pages_new(size_t bytes)
{
    bytes += HEADER_BYTES;
    size_t *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) return NULL;
    *start = bytes;
    return (char *)start + HEADER_BYTES;
}

void *pages_new_large(size_t bytes)
{
    char *pages = pages_new(bytes);
    if (pages != NULL) madvise(pages - HEADER_BYTES, bytes + HEADER_BYTES, MADV_HUGEPAGE);
    return pages;
}

void *pages_resize(void *pages, size_t bytes)
{
    size_t *start = (size_t *)((char *)pages - HEADER_BYTES);
    bytes += HEADER_BYTES;
    start = mremap(start, *start, bytes, MREMAP_MAYMOVE);
    if (start == MAP_FAILED) return NULL;
    *start = bytes;
    return (char *)start + HEADER_BYTES;
}

void pages_free(void *pages)
{
    if (pages == NULL) return;
    size_t *start = (size_t *)((char *)pages - HEADER_BYTES);
    munmap(start, *start);
}
