/* See pages.h. */

#include "os/pages.h"

#include <stdlib.h>

void *pages_new(size_t bytes)
{
    return calloc(1, bytes);
}

void *pages_new_large(size_t bytes)
{
    return calloc(1, bytes);
}

void *pages_resize(void *pages, size_t bytes)
{
    return realloc(pages, bytes > 0 ? bytes : 1); /* of 0 bytes it would free them */
}

void pages_free(void *pages)
{
    free(pages);
}
