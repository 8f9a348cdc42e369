/* Memory of columns, which may be many megabytes: pages_linux.c has it in pages of its own, which
 * are zero at first and freed at once; pages_heap.c on the heap, for other systems, Windows too,
 * and for AddressSanitizer, which sees errors there. */

#ifndef KINETOSCOPE_PAGES_H
#define KINETOSCOPE_PAGES_H

#include <stddef.h>

/* New pages, all zero; NULL without memory. */
void *pages_new(size_t bytes);
/* The same on large pages, where the system has them. For many megabytes this saves most of the
 * time. */
void *pages_new_large(size_t bytes);
/* Changes the size of `pages`, which may move. NULL without memory; then they are unchanged. */
void *pages_resize(void *pages, size_t bytes);
void pages_free(void *pages);

#endif
