#ifndef KINETOSCOPE_PULSE_BLOCKS_H
#define KINETOSCOPE_PULSE_BLOCKS_H

#include "pulse/layout.h"

/* Takes up a step whose place another one needs. There is room for `num_places` coarse blocks. */
void fold_step(PulseFile *pulse, PulseHeader *header, int64_t num_places, const PulseStep *step);

#endif
