#ifndef KINETOSCOPE_PULSE_BLOCKS_H
#define KINETOSCOPE_PULSE_BLOCKS_H

#include "pulse/layout.h"

/* Add a step that a newer one replaces. The file has space for `max_coarse` coarse blocks. */
void fold_step(PulseFile *pulse, PulseHeader *header, int64_t max_coarse, const PulseStep *step);

#endif
