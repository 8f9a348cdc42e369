"""Cores of a machine: the share that a run and other processes use, and the number that is free for workers."""

import math
from typing import NamedTuple

from kinetoscope.analysis.findings.evidence.cpu import CpuEvidence

MIN_BUSY_SHARE = 0.8
"""Cores that are busier have no time for more workers, where their number was not recorded."""

_MIN_IDLE_SHARE = 0.75
"""A core counts as free if this share of it was idle: the loop itself leaves less than a whole one to a worker."""


class Cores(NamedTuple):
    """CPU use of the run and of others, as shares of all cores; ``others`` and ``num`` are None where unknown."""

    own: float
    others: float | None
    num: int | None

    @property
    def busy(self) -> float:
        """The share of all cores that is known to be in use."""
        return self.own + (self.others or 0.0)

    @property
    def num_free(self) -> float | None:
        """The number of idle cores, None where it is unknown."""
        return None if self.num is None or self.others is None else max(0.0, self.num * (1 - self.busy))

    def max_new_workers(self, loop_share: float) -> int | None:
        """Return how many workers find a core at most, None where that is unknown.

        The loop's own core counts for the share of the time that it would no longer build batches.
        """
        if self.num is not None:
            return math.floor(max(0.0, self.num * (1 - self.busy)) + loop_share + 1 - _MIN_IDLE_SHARE)
        return 0 if self.busy >= MIN_BUSY_SHARE else None


def find_cores(cpu: CpuEvidence) -> Cores | None:
    """Return the use of the cores; None where neither that of the run nor that of the machine was recorded.

    Linux counts the CPU time of the run in ns, that of all processes in ticks: in a short window, only the first is
    known. Where only the machine's percentage is known, all of it counts as the run's own.
    """
    use, machine = cpu.use, None if cpu.machine_percent is None else cpu.machine_percent / 100
    if use.own_share is None or not use.num_cores:
        return None if machine is None else Cores(machine, 0.0, None)
    others = use.others_share
    if others is None and machine is not None:
        others = max(0.0, machine - use.own_share)
    return Cores(use.own_share, others, use.num_cores)
