"""A schedule that records short steps for at least a second, so that samples of stacks are enough to name a line."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING

from kinetoscope.recording.schedule import CyclePlan, CyclicSchedule, ProfilerAction, ScheduleState
from kinetoscope.training.timestamp import plain_value

if TYPE_CHECKING:
    from kinetoscope.recording.driver import Driver

MAX_SHORT_STEP_NS = 5_000_000
MIN_WINDOW_NS = 1_000_000_000
_STEPS_RATIO = 4
"""Ranks measure slightly different step times. The number of steps is one of few, so that they choose the same."""


@dataclass(frozen=True, slots=True)
class TimedSchedule(CyclicSchedule):
    """Records the steps of ``plan``, and more of them if the steps before took less than 5 ms."""

    _chosen: list[CyclePlan] = field(default_factory=list, compare=False)

    def __call__(self, state: ScheduleState) -> ProfilerAction:
        """Return the action for the current batch of ``state``."""
        driver: Driver | None = getattr(getattr(state, "profiler", None), "driver", None)
        first = 0 if driver is None else driver.first_step
        index = plain_value(state.timestamp.batch) - first
        if index < self.plan.first_recorded:
            return self.plan.action(index)
        if not self._chosen:
            times_ns = [] if driver is None else driver.step_times_ns(first, first + index)
            num_steps = choose_num_steps(times_ns, self.plan.active)
            self._chosen.append(replace(self.plan, active=num_steps))
        return self._chosen[0].action(index)

    def num_skipped(self, state: ScheduleState) -> int:
        """Return for how many batches, from the current one on, the action is surely SKIP."""
        plan = self._chosen[0] if self._chosen else self.plan
        return CyclicSchedule(plan, self.per).num_skipped(state)


def choose_num_steps(times_ns: Sequence[int], num_steps: int) -> int:
    """Return how many steps take a second, of steps that take ``times_ns``; ``num_steps`` if they are not short."""
    step_ns = median(times_ns) if times_ns else 0
    if not 0 < step_ns < MAX_SHORT_STEP_NS:
        return num_steps
    ratio = MIN_WINDOW_NS / step_ns / num_steps
    return num_steps * _STEPS_RATIO ** max(0, math.ceil(math.log(ratio, _STEPS_RATIO)))
