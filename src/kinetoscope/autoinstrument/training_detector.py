"""Detection of training in a process before its profiler starts, by optimizer steps, fetches and backward passes."""

import gc
import sys
import time
from typing import Any

from kinetoscope.autoinstrument.step_rule import MIN_STEPS_OF_TRAINING
from kinetoscope.core.text.wording import format_count

MAX_MICRO_BATCHES = 1024
"""Maximum number of accumulated batches before the first step of an existing optimizer."""

_CRITERION = (
    "nothing was recorded: a step ends with a step of a torch optimizer, or, where none steps, with a fetch from a "
    "DataLoader after a backward pass"
)
_ADVICE = "Record the loop with kinetoscope.profile, and call profiler.step() at the end of each step."


def _describe(num_steps: int, num_fetches: int, num_backward: int) -> str:
    steps, fetches = format_count(num_steps, "optimizer step"), format_count(num_fetches, "fetch")
    return f"{_CRITERION}. This process had {steps}, {fetches} and {format_count(num_backward, 'backward pass')}"


NO_ACTIVITY = f"{_describe(0, 0, 0)}. {_ADVICE}"
"""Report of a process without any sign of training."""

WITHOUT_TORCH = (
    "nothing was recorded: this process did not import torch, and no other process of the command has recorded a step. "
    f"{_ADVICE}"
)


class TrainingDetector:
    """Count optimizer steps, fetches and backward passes in a process whose profiler has not started.

    In a process in which no torch optimizer has stepped, a fetch after a backward pass ends a step. Sixteen of them are
    a training run, unless an optimizer exists: they may be micro-batches.

    Attributes:
        step_ends_ns: Monotonic times at which these steps ended.
    """

    def __init__(self) -> None:
        self.num_fetches = self.num_backward = self.num_optimizer_steps = 0
        self.step_ends_ns: list[int] = []
        self._has_backward = False
        self._min_steps = MIN_STEPS_OF_TRAINING

    def on_backward(self) -> None:
        """Handle a backward pass."""
        self.num_backward += 1
        self._has_backward = True

    def on_optimizer_step(self) -> None:
        """Handle a step of an optimizer: the steps before it were micro-batches."""
        self.num_optimizer_steps += 1
        self.step_ends_ns = []
        self._min_steps = sys.maxsize

    def on_fetch(self) -> bool:
        """Handle a fetch from a DataLoader; return whether the steps so far are a training run."""
        has_backward, self._has_backward = self._has_backward and self.num_fetches > 0, False
        self.num_fetches += 1
        if not has_backward or self.num_optimizer_steps:
            return False
        self.step_ends_ns.append(time.monotonic_ns())
        if len(self.step_ends_ns) < self._min_steps:
            return False
        if self._min_steps == MIN_STEPS_OF_TRAINING and _has_optimizer():
            self._min_steps = MAX_MICRO_BATCHES
            return False
        return True

    def describe(self) -> str:
        """Return the criterion for training, the counts in this process, and advice."""
        counts = _describe(self.num_optimizer_steps, self.num_fetches, self.num_backward)
        few = f" Without an optimizer, {self._min_steps:,} such steps are needed." if self.step_ends_ns else ""
        return f"{counts}.{few} {_ADVICE}"


def _has_optimizer() -> bool:
    """Return whether the process has a torch optimizer; all objects are searched, once per process."""
    kind: Any = sys.modules["torch"].optim.Optimizer
    return any(kind in type(one).__mro__ for one in gc.get_objects())
