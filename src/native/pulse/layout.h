/* The bytes of a pulse: the phase of a rank and all its steps. docs/formats.md describes them,
 * `kinetoscope.pulse.layout` has them for readers. All numbers are little-endian, and times
 * monotonic nanoseconds. */

#ifndef KINETOSCOPE_PULSE_LAYOUT_H
#define KINETOSCOPE_PULSE_LAYOUT_H

#include <stdint.h>

#define PULSE_NUM_PHASES 7
#define PULSE_DATA_WAIT 0
#define PULSE_FORWARD 1
#define PULSE_BACKWARD 2
#define PULSE_OPTIMIZER 3
#define PULSE_EVALUATION 4
#define PULSE_CHECKPOINT 5
#define PULSE_OTHER 6 /* the time in no other phase */

#define PULSE_NUM_EXACT 4096 /* steps, and the steps of a coarse block at first */
#define PULSE_PER_FINE 64
#define PULSE_NUM_FINE 64 /* complete fine blocks */
#define PULSE_FINE_PLACES 128

/* The first page. The description of the process, which Python writes once, follows it. */
typedef struct {
    char magic[8];
    uint32_t version;
    uint32_t header_bytes;
    uint64_t sequence; /* odd while a step is written */
    int64_t num_steps;
    int64_t first_fine; /* blocks are numbered from the first one on */
    int64_t num_fine;   /* complete ones */
    int64_t num_coarse; /* complete ones */
    int64_t steps_per_coarse;
    int64_t heartbeat;
    int64_t phase_since;
    uint32_t phase;
    uint32_t known; /* the observed phases, as bits */
    int64_t step_began;
} PulseHeader;

/* Result of the check of a phase that lasts too long; `docs/hangs.md`. */
#define PULSE_NOT_STUCK 0
#define PULSE_SUSPECTED 1 /* not probed yet */
#define PULSE_HELD 4      /* cannot be probed: the GIL is held */

typedef struct {
    uint32_t stuck, phase;
    int64_t since, reported; /* when the phase began; when the stall was found */
    uint64_t thread;         /* Python's number of the training thread */
} PulseWatched;

#define PULSE_WATCHED_AT 200

typedef struct {
    int64_t step, begin, duration;
    int64_t by_phase[PULSE_NUM_PHASES];
    uint32_t epoch, known;
} PulseStep;

/* One of the durations of the steps of a block: of whole steps, then of each phase. */
typedef struct {
    int64_t sum;
    double squares;
    float least, most;
} PulseSum;

typedef struct {
    int64_t step, begin; /* of the first step */
    int64_t slowest;     /* its number */
    uint32_t count, epoch, known, unused;
    PulseSum sums[1 + PULSE_NUM_PHASES];
} PulseBlock;

typedef struct {
    PulseHeader header;
    char seen[PULSE_WATCHED_AT - sizeof(PulseHeader)];
    PulseWatched watched;
    char more[4096 - PULSE_WATCHED_AT - sizeof(PulseWatched)];
    PulseStep steps[PULSE_NUM_EXACT];
    PulseBlock fine[PULSE_FINE_PLACES];
    PulseBlock coarse[]; /* an even number of them */
} PulseFile;

_Static_assert(sizeof(PulseHeader) == 96, "Readers know these bytes.");
_Static_assert(sizeof(PulseWatched) == 32, "Readers know these bytes.");
_Static_assert(sizeof(PulseStep) == 88, "Readers know these bytes.");
_Static_assert(sizeof(PulseBlock) == 232, "Readers know these bytes.");

#endif
