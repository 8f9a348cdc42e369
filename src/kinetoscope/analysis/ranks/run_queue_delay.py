"""Run-queue delay: the time in which loops were ready and waited for a CPU. It is the only measure of a lack of CPU."""

from collections.abc import Iterable, Sequence
from enum import Enum
from functools import cached_property
from statistics import fmean
from typing import NamedTuple

from kinetoscope.analysis.steps.steps import StepRow

_HIGH_SHARE = 0.3
"""If the delay exceeds this share of the ready time, a fault on the CPU may be noise."""

_MIN_QUIET_SHARE = 0.05
"""Minimum share of a step that is its duration on an idle machine."""

_BUSY_PERCENT = 90
"""On machines with cores that are busier, loops may wait for one."""


class DelaySource(Enum):
    """Source of the delay of a run."""

    THREAD_CLOCKS = "thread clocks"
    """The clocks of the loops' threads, at the end of each step."""
    CORE_LOAD = "core load"
    """The use of the machine's cores, and of one by the process. It is an upper bound: the loop may have been idle."""


class DelayEffect(Enum):
    """Effect of run-queue delay on the time of a fault."""

    NONE = "none"
    CONTAINED = "contained"
    """The time contains delay, as that of all CPU work does."""
    EXCLUDED = "excluded"
    """The time excludes delay, but grows with it: the delay is spread evenly over the ready time of a step."""
    APART = "apart"
    """The time excludes delay: it is not measured by the clock."""


class CoreLoad(NamedTuple):
    """Use of all cores of a machine, and of one core by a process of the run, in percent."""

    machine_percent: float
    process_percent: float

    @property
    def max_delay_share(self) -> float:
        """The largest possible delay, as a share of the time in which the loop was ready."""
        is_busy = self.machine_percent > _BUSY_PERCENT
        return max(0.0, (100 - self.process_percent) / 100) if is_busy else 0.0


class RunQueueDelay:
    """Run-queue delay in steps of ``step_ns``, with its source.

    Args:
        loads: those of all windows; they count where the system does not report the delay.
    """

    def __init__(self, steps: Sequence[StepRow], step_ns: float, loads: Iterable[CoreLoad] = ()) -> None:
        known = [row for row in steps if row.starved_ns is not None]
        self._known = [(row.starved_ns or 0, row.running_ns or 0) for row in known]
        self._blocked_ns = sum(row.blocked_ns or 0 for row in known)
        self._step_ns = step_ns
        self._load = None if known else max(loads, key=lambda load: load.max_delay_share, default=None)

    @property
    def source(self) -> DelaySource | None:
        """The source; None where the delay is unknown."""
        if self._known:
            return DelaySource.THREAD_CLOCKS
        return None if self._load is None else DelaySource.CORE_LOAD

    @property
    def is_recorded(self) -> bool:
        """True if it was recorded when loops ran, and when they waited."""
        return self.source is DelaySource.THREAD_CLOCKS

    @cached_property
    def share(self) -> float:
        """Its recorded share of the time in which loops were ready to run; 0 where it was not recorded."""
        ready_ns = sum(delay_ns + running_ns for delay_ns, running_ns in self._known)
        return sum(delay_ns for delay_ns, _ in self._known) / ready_ns if ready_ns else 0.0

    @property
    def ns_per_step(self) -> float | None:
        """The recorded delay per step; None where it was not recorded."""
        return fmean(delay_ns for delay_ns, _ in self._known) if self._known else None

    @property
    def slowdown(self) -> float | None:
        """The wall time of the loops, divided by that without the delay; None where it was not recorded."""
        undelayed_ns = self._blocked_ns + sum(running_ns for _, running_ns in self._known)
        return round(1 + sum(delay_ns for delay_ns, _ in self._known) / undelayed_ns, 3) if undelayed_ns else None

    @property
    def is_high(self) -> bool:
        """True if a fault on the CPU may be delay."""
        return (self.share if self._load is None else self._load.max_delay_share) > _HIGH_SHARE

    @property
    def estimate_advice(self) -> str:
        """Sentences on loops that may have waited for a core; "" where the delay was recorded, is low, or unknown."""
        if self._load is None or not self.is_high:
            return ""
        machine, process = self._load
        return (
            f" The machine's cores were {machine:.0f} % busy, and this process used {process:.0f} % of one: its loop "
            "may have waited for a core. This system does not report run-queue delay."
        )

    def lowers_confidence(self, effect: DelayEffect) -> bool:
        """Return whether recorded delay lowers the confidence in faults with this effect."""
        return self.is_recorded and self.is_high and effect in (DelayEffect.CONTAINED, DelayEffect.EXCLUDED)

    def share_of_step(self, effect: DelayEffect, time_ns: float) -> float:
        """Return the share of a step that a fault takes; on the CPU, as on an idle machine."""
        if effect is DelayEffect.NONE or not self.share:
            return time_ns / self._step_ns
        return time_ns * (1 - self.share if effect is DelayEffect.CONTAINED else 1) / self._quiet_ns

    def certain_share_of_step(self, effect: DelayEffect, time_ns: float) -> float:
        """Return the share of a step that a fault takes even if all run-queue delay was part of it.

        The delay is known by step, but not the moments of the step in which the thread had no CPU.
        """
        if effect is DelayEffect.NONE or not self.share:
            return time_ns / self._step_ns
        is_excluded = effect is not DelayEffect.CONTAINED and self.share < 1
        whole_ns = time_ns / (1 - self.share) if is_excluded else time_ns
        return max(0.0, whole_ns - (self.ns_per_step or 0.0)) / self._quiet_ns

    @property
    def _quiet_ns(self) -> float:
        """Duration of a step on an idle machine."""
        return max(self._step_ns - (self.ns_per_step or 0.0), _MIN_QUIET_SHARE * self._step_ns)
