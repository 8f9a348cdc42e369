"""The bytes of a pulse; docs/pulse.md tells of them. `src/native/pulse/layout.h` has the same for the writer in C.

All numbers are little-endian, all times monotonic nanoseconds of the machine. Steps go round in a ring; what they push
out is summed up in fine blocks, and what those push out in coarse ones, each two of which become one when there is no
more room.
"""

import struct
from enum import IntEnum


class Phase(IntEnum):
    """What the training thread does, as far as it is watched. Where there is a device, it is the host's time."""

    DATA_WAIT = 0
    FORWARD = 1
    BACKWARD = 2
    OPTIMIZER = 3
    EVALUATION = 4
    CHECKPOINT = 5
    OTHER = 6
    """What is in none of the others, or in one that is not watched."""


MAGIC = b"KSPULSE\0"
VERSION = 1
NUM_EXACT = 4096
"""The last steps, which are kept one by one; and how many a coarse block holds at first."""

PER_FINE = 64
NUM_FINE, FINE_PLACES = 64, 128
"""How many complete fine blocks are kept, and the places they go round in."""

COARSE_PLACES, PLACES_AHEAD = 7340, 256
"""How many coarse blocks there may be, and how many have room on the disk before they are needed."""


BEGIN = struct.Struct("<8sII")
"""The magic, the version, the bytes before the steps."""

NOW = struct.Struct("<QqqqqqqqIIq")
"""At `NOW_AT`: a number that is odd while a step is written; num_steps; first_fine, num_fine and num_coarse, which
count blocks, the last two only complete ones; steps_per_coarse; the heartbeat; the phase's begin; the phase; the phases
that are known, as bits; the begin of the step."""

NOW_AT = BEGIN.size
SEEN = struct.Struct("<qqqdddqqq")
"""At `SEEN_AT`, looked at once a second: when; bytes of memory, resident and on the device, -1 if not known; the loss,
samples and tokens a second, NaN if not known; the same moment by the monotonic clock and in unix time; 1 once the run
has ended."""

SEEN_AT = 128
ABOUT_AT = 512
"""How many bytes of JSON follow, as 32 bits, and these: which process it is."""

HEADER_BYTES = 4096
STEP = struct.Struct(f"<qqq{len(Phase)}qII")
"""The step's number, begin and duration, its time by phase, the epoch, and the phases that are known, as bits."""

STEPS_AT = HEADER_BYTES
BLOCK = struct.Struct("<qqqIIII" + "qdff" * (1 + len(Phase)))
"""Number and begin of its first step; the number of the slowest; how many; epoch; known phases; nothing. Then sum,
squares, least and most of the steps' durations, and of their times in each phase."""

FINE_AT = STEPS_AT + NUM_EXACT * STEP.size
COARSE_AT = FINE_AT + FINE_PLACES * BLOCK.size
FILE_BYTES = COARSE_AT + COARSE_PLACES * BLOCK.size
FOLDER, SUFFIX = "pulse", ".pulse"
