"""Run-queue delay of the loop's thread, which lengthens all CPU work of a step."""

from collections.abc import Sequence
from enum import Enum
from functools import cached_property
from statistics import fmean

from kinetoscope.analysis.steps.steps import StepRow

_HIGH_SHARE = 0.3
"""From this share of the ready time on, a delay on the CPU may be noise."""

_MIN_QUIET_SHARE = 0.05
"""Least share of a step that counts as its duration on an idle machine."""


class DelayEffect(Enum):
    """Effect of run-queue delay on the time of a fault."""

    NONE = "none"
    CONTAINED = "contained"
    """The time contains delay, as that of all CPU work does."""
    EXCLUDED = "excluded"
    """The time excludes delay, but grows with it: the delay is spread evenly over the ready time of a step."""
    APART = "apart"
    """The time excludes delay, and is measured in another way than by the clock."""


class RunQueueDelay:
    """Run-queue delay in steps of ``step_ns``, as far as it was recorded."""

    def __init__(self, steps: Sequence[StepRow], step_ns: float) -> None:
        self._known = [(row.starved_ns, row.running_ns or 0) for row in steps if row.starved_ns is not None]
        self._step_ns = step_ns

    @property
    def is_known(self) -> bool:
        """True if it was recorded when loops ran, and when they waited."""
        return bool(self._known)

    @cached_property
    def share(self) -> float:
        """Its share of the time in which loops were ready to run; 0 where it is unknown."""
        ready_ns = sum(delay_ns + running_ns for delay_ns, running_ns in self._known)
        return sum(delay_ns for delay_ns, _ in self._known) / ready_ns if ready_ns else 0.0

    @property
    def is_high(self) -> bool:
        """True if a delay on the CPU may be noise."""
        return self.share > _HIGH_SHARE

    def lowers(self, effect: DelayEffect) -> bool:
        """Return whether faults with this effect are not of high confidence."""
        return self.is_high and effect in (DelayEffect.CONTAINED, DelayEffect.EXCLUDED)

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
        return max(0.0, whole_ns - self._delay_ns) / self._quiet_ns

    @cached_property
    def _delay_ns(self) -> float:
        return fmean(delay_ns for delay_ns, _ in self._known) if self._known else 0.0

    @property
    def _quiet_ns(self) -> float:
        """Duration of a step on an idle machine."""
        return max(self._step_ns - self._delay_ns, _MIN_QUIET_SHARE * self._step_ns)
