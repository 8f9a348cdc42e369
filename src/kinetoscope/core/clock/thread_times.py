"""File of Linux with the CPU times of a thread."""

SCHEDSTAT = "/proc/self/task/{}/schedstat"
"""Its path, for the native id of a thread of this process: nanoseconds on a CPU, and of run-queue delay."""
