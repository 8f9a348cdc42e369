"""Bytes of a pulse, as docs/formats.md and `src/native/pulse/layout.h`, for the writer in C, describe them.

All numbers are little-endian, all times monotonic nanoseconds of the machine. Steps are in a ring; older ones are
summed up in fine blocks, and older fine blocks in coarse ones. Pairs of coarse blocks become one when there is no
more space.
"""

import struct
from enum import IntEnum
from mmap import mmap
from typing import NamedTuple


class Phase(IntEnum):
    """The watched phases of the training thread; with a device, it is the CPU's time."""

    DATA_WAIT = 0
    FORWARD = 1
    BACKWARD = 2
    OPTIMIZER = 3
    EVALUATION = 4
    CHECKPOINT = 5
    OTHER = 6
    """Time in none of the others, or in one that is not watched."""


class StallState(IntEnum):
    """The state of a phase that lasts longer than usual."""

    NONE = 0
    SUSPECTED = 1
    """It lasts too long, and was not probed yet, which takes the GIL."""
    LONG = 2
    """It was seen too seldom for a usual time, or it compiles, or the loop is over."""
    HUNG = 3
    GIL_HELD = 4
    """It was suspected for ten seconds in which our threads could run, but for the GIL."""


class Stage(IntEnum):
    """The stage of a run."""

    RUNNING = 0
    ENDED = 1
    SAVING = 2
    """The run is being closed: the loop is over, and what was recorded is saved."""
    FAILED = 3
    """It has ended because of an exception."""


SAVING = "saving"
"""The name of that stage where other ranks have the name of their phase."""


class WakeReason(IntEnum):
    """The reason for waking the background thread."""

    STOPPED = 0
    DUE = 1
    STALLED = 2
    REQUESTED = 3


POLL_S, FROZEN_S = 0.25, 1.0
"""The interval of checks for stalls. Where two checks are further apart than `FROZEN_S`, the process was suspended or
waited for a CPU, which is not a stall of training. `src/native/pulse/watch.c` has the same."""


class RequestState(IntEnum):
    """The state of a request to record."""

    NONE = 0
    WAITS = 1
    RECORDS = 2
    SAVED = 3
    LATE = 4
    """Its steps were over when it was seen."""
    REFUSED = 5
    """Another recording was in progress, or there were too many requests."""


MAGIC = b"KSPULSE\0"
VERSION = 1
NUM_EXACT = 4096
"""The last steps, which are kept one by one; and how many a coarse block holds at first."""

STEPS_PER_FINE = 64
NUM_FINE, FINE_SLOTS = 64, 128
"""The number of complete fine blocks that are kept, and the slots of their ring."""

COARSE_SLOTS, SLOTS_AHEAD = 7340, 256
"""The maximal number of coarse blocks, and the number with space on disk before they are needed."""

MAX_NS = 1 << 62
"""No time in a pulse is as late as this, or as long."""

_MAX_STEPS = 1 << 48


BEGIN = struct.Struct("<8sII")
"""The magic, the version, the bytes before the steps."""

NOW = struct.Struct("<QqqqqqqqIIq")
"""At `NOW_AT`: a number that is odd while a step is written; num_steps; first_fine, num_fine and num_coarse, which
count blocks, the last two only complete ones; steps_per_coarse; the heartbeat; the start of the phase; the phase; the
phases that are known, as bits; the start of the step."""

NOW_AT = BEGIN.size


class PulseNow(NamedTuple):
    """The fields of `NOW`."""

    sequence: int
    num_steps: int
    first_fine: int
    num_fine: int
    num_coarse: int
    steps_per_coarse: int
    heartbeat: int
    phase_since: int
    phase: int
    known: int
    step_began: int

    @classmethod
    def of(cls, content: bytes | mmap) -> "PulseNow":
        """Read the fields of a header."""
        return cls._make(NOW.unpack_from(content, NOW_AT))

    @property
    def is_possible(self) -> bool:
        """Return whether a writer can have written this; damaged and torn pages are impossible."""
        return (
            0 <= self.num_steps <= _MAX_STEPS
            and 0 <= self.first_fine <= self.num_fine <= self.first_fine + NUM_FINE
            and 0 <= self.num_coarse < COARSE_SLOTS
            and self.phase < len(Phase)
            and all(0 <= moment < MAX_NS for moment in (self.heartbeat, self.phase_since, self.step_began))
        )


GAUGES = struct.Struct("<qqqdddqqq")
"""At `GAUGES_AT`, looked at once a second: when; bytes of memory, resident and on the device, -1 if unknown; the loss,
samples and tokens a second, NaN if unknown; the same moment by the monotonic clock and in unix time; the `Stage`."""

GAUGES_AT = 128
WATCHED = struct.Struct("<IIqqQ")
"""At `WATCHED_AT`, of a phase that lasts too long, as long as the phase began then: `StallState`; the phase; its start;
when that was found; Python's number of the training thread."""

WATCHED_AT = 200
REQUEST = struct.Struct("<IIq")
"""At `REQUEST_AT`, of the last request to record: its number, `RequestState`, and its first step."""

REQUEST_AT = WATCHED_AT + WATCHED.size
LOCATION_AT, LOCATION_BYTES = 256, 256
"""Where the training thread is that is stuck, as text."""

ABOUT_AT = 512
"""The number of bytes of JSON that follow, as 32 bits, and these: the identity of the process."""

HEADER_BYTES = 4096
STEP = struct.Struct(f"<qqq{len(Phase)}qII")
"""The step's number, begin and duration, its time by phase, the epoch, and the phases that are known, as bits."""

STEPS_AT = HEADER_BYTES
BLOCK = struct.Struct("<qqqIIII" + "qdff" * (1 + len(Phase)))
"""Number and begin of its first step; the number of the slowest; how many; epoch; known phases; nothing. Then sum,
squares, least and most of the steps' durations, and of their times in each phase."""

FINE_AT = STEPS_AT + NUM_EXACT * STEP.size
COARSE_AT = FINE_AT + FINE_SLOTS * BLOCK.size
FILE_BYTES = COARSE_AT + COARSE_SLOTS * BLOCK.size
FOLDER, SUFFIX = "pulse", ".pulse"
