/* Our own Python frames in what Kineto saves: which they are, and what is above them. Knows nothing
 * of Python.
 *
 * `kinetoscope/torch/python_frames.py` is the same for whole traces, and says what the names of our
 * frames begin with. */

#ifndef KINETOSCOPE_OWN_FRAMES_H
#define KINETOSCOPE_OWN_FRAMES_H

#include "text/bytes.h"

enum { NO_FRAME = 0 }; /* Kineto counts frames from 1 */

/* A frame that is ours, and the nearest one above it that is not. */
typedef struct {
    int64_t number, above;
} OwnFrame;

typedef struct {
    Text *prefixes; /* of names as JSON has them, with the quote that opens them */
    size_t num_prefixes;
    OwnFrame *frames; /* by number */
    size_t num_frames, capacity;
} OwnFrames;

enum FrameFate { FRAME_STAYS, FRAME_GOES, FRAME_FAILED };

/* Judges a frame by its name and the JSON text of its args, which ends at `*args_end`. If it stays
 * and its parent is ours, the text gets the parent's own parent instead: up to 20 bytes more.
 * Parents come before their children. */
enum FrameFate own_frames_judge(OwnFrames *own, const char *name, size_t length, char *args,
                                char **args_end);

#endif
