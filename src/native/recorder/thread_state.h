/* The states of a thread of this process, as Linux reports them in /proc/self/task/TID/syscall; see
 * os/os.h. */

#ifndef KINETOSCOPE_THREAD_STATE_H
#define KINETOSCOPE_THREAD_STATE_H

typedef enum {
    STATE_UNKNOWN, /* the system does not report it, or the thread has ended */
    STATE_RUNNING, /* it runs, or waits for a CPU */
    STATE_GIL,
    STATE_OTHER_THREAD, /* a lock, a queue, an event, a thread that is joined */
    STATE_SLEEP,
    STATE_FSYNC,
    STATE_FILE,
    STATE_FOLDER, /* opening, deleting and renaming files */
    STATE_NETWORK,
    STATE_PIPE, /* also sockets between processes of one machine */
    STATE_EVENTS,
    STATE_CHILD,
    STATE_DEVICE,
    STATE_PAGE_FAULT,
    STATE_SYSTEM_CALL, /* any other one */
    NUM_STATES,
} ThreadState;

/* The name of each in Python; NULL for the first two, which are no reasons to wait. */
extern const char *const state_names[NUM_STATES];

#endif
