"""Cores of a machine: the share that a run and other processes use, and the number that is free for workers."""

import math
from typing import NamedTuple

from kinetoscope.analysis.findings.evidence.cpu import CpuEvidence

MIN_BUSY_SHARE = 0.8
"""Cores that are busier have no time for more workers, where their number was not recorded."""

_MIN_IDLE_SHARE = 0.75
"""A core counts as free if this share of it was idle: the loop itself leaves less than a whole one to a worker."""


class Cores(NamedTuple):
    """CPU use of the run and of others, as shares of all cores; ``num`` is None where it is unknown."""

    own: float
    others: float
    num: int | None

    @property
    def num_free(self) -> float | None:
        """The number of idle cores, None where the number of cores is unknown."""
        return None if self.num is None else max(0.0, self.num * (1 - self.own - self.others))

    def max_new_workers(self, loop_share: float) -> int | None:
        """Return how many workers find a core, None where that is unknown.

        The loop's own core counts for the share of the time that it would no longer build batches.
        """
        if self.num_free is not None:
            return math.floor(self.num_free + loop_share + 1 - _MIN_IDLE_SHARE)
        return 0 if self.own + self.others >= MIN_BUSY_SHARE else None


def find_cores(cpu: CpuEvidence) -> Cores | None:
    """Return the use of the cores; None where it was not recorded for long enough.

    Where only the machine's percentage is known, all of it counts as the run's own.
    """
    use = cpu.use
    if use.own_share is not None and use.others_share is not None and use.num_cores:
        return Cores(use.own_share, use.others_share, use.num_cores)
    return None if cpu.machine_percent is None else Cores(cpu.machine_percent / 100, 0.0, None)
