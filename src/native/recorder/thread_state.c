/* The names of the states of threads. */

#include "recorder/thread_state.h"

const char *const state_names[NUM_STATES] = {
    [STATE_GIL] = "GIL",
    [STATE_OTHER_THREAD] = "another thread",
    [STATE_SLEEP] = "sleep",
    [STATE_FSYNC] = "fsync",
    [STATE_FILE] = "file",
    [STATE_FOLDER] = "folder",
    [STATE_NETWORK] = "network",
    [STATE_PIPE] = "pipe",
    [STATE_EVENTS] = "events",
    [STATE_CHILD] = "child process",
    [STATE_DEVICE] = "device",
    [STATE_PAGE_FAULT] = "page fault",
    [STATE_SYSTEM_CALL] = "system call",
};
