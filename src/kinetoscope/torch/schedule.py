"""torch: torch.profiler's schedule. The number of a step flows in, torch's action for it flows out."""

import operator
import warnings
from collections.abc import Callable
from typing import SupportsIndex

from torch.profiler import ProfilerAction

from kinetoscope.errors import ScheduleError
from kinetoscope.recording.action import ProfilerAction as Action
from kinetoscope.recording.schedule import CyclePlan

Schedule = Callable[[int], ProfilerAction]

_TORCH_ACTIONS = {
    Action.SKIP: ProfilerAction.NONE,
    Action.WARMUP: ProfilerAction.WARMUP,
    Action.ACTIVE: ProfilerAction.RECORD,
    Action.ACTIVE_AND_SAVE: ProfilerAction.RECORD_AND_SAVE,
}


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Schedule:
    """A schedule that skips ``skip_first`` steps and then repeats: wait, warm up, record.

    All arguments count steps. The last of the ``active`` steps of a cycle is RECORD_AND_SAVE. ``repeat=0``
    repeats for ever; a non-zero ``skip_first_wait`` drops the wait of the first cycle. ``warmup=0`` warns:
    the first recorded step then shows the profiler's own start as well.

    >>> actions = schedule(wait=1, warmup=1, active=2, repeat=1)
    >>> [actions(step).name for step in range(5)]
    ['NONE', 'WARMUP', 'RECORD', 'RECORD_AND_SAVE', 'NONE']

    Raises `ScheduleError` for arguments that are negative or not whole, for ``active < 1``, and, when called,
    for a negative step.
    """
    plan = CyclePlan(
        wait=_count("wait", wait),
        warmup=_count("warmup", warmup),
        active=_count("active", active),
        repeat=_count("repeat", repeat),
        skip_first=_count("skip_first", skip_first),
        skip_first_wait=_count("skip_first_wait", skip_first_wait),
    )
    if warmup == 0:
        warnings.warn("Without warmup, the start of the profiler may skew the first recorded step.", stacklevel=2)

    def action_of(step: int) -> ProfilerAction:
        if step < 0:
            raise ScheduleError(f"Steps are counted from 0, so there is no step {step}.")
        return _TORCH_ACTIONS[plan.action(step)]

    return action_of


def _count(name: str, value: SupportsIndex | float) -> int:
    """The whole number that ``value`` is: of any kind that Python takes for an index, or a float."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    try:
        return operator.index(value)  # pyright: ignore[reportArgumentType] - what is none raises
    except TypeError:
        raise ScheduleError(f"{name} counts steps and must be a whole number, not {value!r}.") from None


def record_everything(step: int) -> ProfilerAction:
    """The schedule of a profiler that was given none: one window, from start to stop."""
    return ProfilerAction.RECORD
