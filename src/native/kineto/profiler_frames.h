/* The profiler's own Python frames in Kineto's text, and the frames above them.
 * Does not use Python.
 *
 * `kinetoscope/torch/python_frames.py` does the same for whole traces, and has the prefixes of our
 * frames' names. */

#ifndef KINETOSCOPE_OWN_FRAMES_H
#define KINETOSCOPE_OWN_FRAMES_H

#include "text/bytes.h"

enum { NO_FRAME = 0 }; /* Kineto counts frames from 1 */

/* A frame of ours, and the nearest frame above it that is not ours. */
typedef struct {
    int64_t number, above;
} OwnFrame;

typedef struct {
    Text *prefixes; /* beginnings of our frames' names as JSON, with the opening quote */
    size_t num_prefixes;
    OwnFrame *frames; /* by number */
    size_t num_frames, capacity;
} OwnFrames;

enum FrameFate { FRAME_STAYS, FRAME_GOES, FRAME_FAILED };

/* Decide whether a frame stays, by its name and the JSON text of its args, which ends at
 * `*args_end`. If it stays and its parent is ours, the text gets the nearest parent that is not
 * ours: up to 20 bytes more. Parents come before their children. */
enum FrameFate profiler_frames_judge(OwnFrames *own, const char *name, size_t length, char *args,
                                     char **args_end);

#endif
