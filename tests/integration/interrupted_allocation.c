/* A file system on which each allocation of space is interrupted by a signal: three times, or with ALWAYS set for ever. */

#include <errno.h>
#include <stdlib.h>

int posix_fallocate64(int file, long from, long bytes);

int posix_fallocate(int file, long from, long bytes)
{
    static int calls;
    if (getenv("ALWAYS") || ++calls % 4 != 0)
        return EINTR;
    return posix_fallocate64(file, from, bytes);
}
