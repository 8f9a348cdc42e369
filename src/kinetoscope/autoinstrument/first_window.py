"""First window of a run: a number of steps, or as many short ones as take a second, enough for stack samples."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from kinetoscope.core.job.timestamp import plain_value
from kinetoscope.recording.markers.schedule import CyclicSchedule, ProfilerAction, ScheduleState
from kinetoscope.recording.window.triggered_window import TriggeredWindow

if TYPE_CHECKING:
    from kinetoscope.recording.driver import Driver

MAX_SHORT_STEP_NS = 5_000_000
MIN_WINDOW_NS = 1_000_000_000
_STEPS_RATIO = 4
"""Ranks measure slightly different step times; few possible numbers of steps make them choose the same."""


@dataclass(frozen=True, slots=True)
class FirstWindow(CyclicSchedule):
    """Schedule that records the steps of ``plan``; with ``is_timed``, more if the steps before took less than 5 ms."""

    is_timed: bool = False
    _windows: list[TriggeredWindow] = field(default_factory=list, init=False, compare=False)

    def __call__(self, state: ScheduleState) -> ProfilerAction:
        """Return the action for the current batch of ``state``."""
        if not self._windows:
            first_step = self.plan.first_recorded + self.plan.warmup
            self._windows.append(TriggeredWindow(first_step, partial(self._choose_num_steps, state)))
        index = plain_value(state.timestamp.batch) - _find_first_step(_find_driver(state))
        return self._windows[0].action(index, ProfilerAction.SKIP)

    def num_skipped(self, state: ScheduleState) -> int:
        """Return the number of batches, from the current one on, whose action is certainly SKIP."""
        num_steps = self._windows[0].num_steps if self._windows else 0
        plan = replace(self.plan, active=num_steps or self.plan.active)
        return CyclicSchedule(plan, self.per).num_skipped(state)

    def _choose_num_steps(self, state: ScheduleState) -> int:
        driver = _find_driver(state)
        if driver is None or not self.is_timed:
            return self.plan.active
        first = driver.first_step
        return choose_num_steps(driver.step_times_ns(first, first + self.plan.first_recorded), self.plan.active)


def _find_driver(state: ScheduleState) -> "Driver | None":
    """Return the driver of the profiler in ``state``, or None."""
    return getattr(getattr(state, "profiler", None), "driver", None)


def _find_first_step(driver: "Driver | None") -> int:
    return 0 if driver is None else driver.first_step


def choose_num_steps(times_ns: Sequence[int], num_steps: int) -> int:
    """Return the number of steps that take a second; ``num_steps`` unless the steps are short.

    Args:
        times_ns: Durations of earlier steps.
        num_steps: Number of steps without this rule; the result is this, times a power of `_STEPS_RATIO`.
    """
    step_ns = median(times_ns) if times_ns else 0
    if not 0 < step_ns < MAX_SHORT_STEP_NS:
        return num_steps
    ratio = MIN_WINDOW_NS / step_ns / num_steps
    return num_steps * _STEPS_RATIO ** max(0, math.ceil(math.log(ratio, _STEPS_RATIO)))
