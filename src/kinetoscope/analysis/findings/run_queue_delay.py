"""Run-queue delay of the loop's thread, which lengthens all CPU work of a step."""

from collections.abc import Sequence
from functools import cached_property
from statistics import fmean

from kinetoscope.analysis.steps import StepRow

_HIGH_SHARE = 0.3
"""From this share of the ready time on, a delay on the CPU may be noise."""

_LENGTHENED = (
    "input_bound",
    "host_bound",
    "python_overhead",
    "small_kernels",
    "synchronisation",
    "garbage_collection",
)
"""Kinds of CPU faults whose time contains run-queue delay."""

_WITHOUT_DELAY = ("python_overhead", "blocked", "hot_line")
"""Kinds whose time already excludes it, spread evenly over the ready time of a step."""

_MIN_QUIET_SHARE = 0.05
"""Least share of a step that counts as its duration on an idle machine."""


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

    def lowers(self, kind: str) -> bool:
        """Return whether no finding of a kind is of high confidence."""
        return self.is_high and kind in _LENGTHENED

    def share_of_step(self, kind: str, time_ns: float) -> float:
        """Return the share of a step that a fault takes; of CPU faults, as on an idle machine."""
        if not self._applies_to(kind):
            return time_ns / self._step_ns
        return time_ns * (1 if kind in _WITHOUT_DELAY else 1 - self.share) / self._quiet_ns

    def certain_share_of_step(self, kind: str, time_ns: float) -> float:
        """Return the share of a step that a fault takes even if all run-queue delay was part of it.

        The delay is known by step, but not the moments of the step in which the thread had no CPU.
        """
        if not self._applies_to(kind):
            return time_ns / self._step_ns
        whole_ns = time_ns / (1 - self.share) if kind in _WITHOUT_DELAY and self.share < 1 else time_ns
        return max(0.0, whole_ns - self._delay_ns) / self._quiet_ns

    def _applies_to(self, kind: str) -> bool:
        return self.share > 0 and kind in (*_LENGTHENED, *_WITHOUT_DELAY)

    @cached_property
    def _delay_ns(self) -> float:
        return fmean(delay_ns for delay_ns, _ in self._known) if self._known else 0.0

    @property
    def _quiet_ns(self) -> float:
        """Duration of a step on an idle machine."""
        return max(self._step_ns - self._delay_ns, _MIN_QUIET_SHARE * self._step_ns)
