"""Schedules, which give each step its action, and the table of calls for each change of action."""

import operator
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import SupportsIndex

from torch.profiler import ProfilerAction

from kinetoscope.errors import ScheduleError
from kinetoscope.recording.markers.schedule import CyclePlan
from kinetoscope.recording.markers.schedule import ProfilerAction as Action

Schedule = Callable[[int], ProfilerAction]

NONE = ProfilerAction.NONE
WARMUP = ProfilerAction.WARMUP
RECORD = ProfilerAction.RECORD
RECORD_AND_SAVE = ProfilerAction.RECORD_AND_SAVE
# Set only by the profiler itself; torch has it since about 2.9.
DEVICE_STOPPED: ProfilerAction | None = getattr(ProfilerAction, "DEVICE_STOPPED", None)

_TORCH_ACTIONS = {
    Action.SKIP: NONE,
    Action.WARMUP: WARMUP,
    Action.ACTIVE: RECORD,
    Action.ACTIVE_AND_SAVE: RECORD_AND_SAVE,
}


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Schedule:
    """Return a schedule that skips ``skip_first`` steps and then repeats: wait, warm up, record.

    All arguments count steps. The last of the ``active`` steps of a cycle is RECORD_AND_SAVE. ``repeat=0`` repeats for
    ever; a non-zero ``skip_first_wait`` drops the wait of the first cycle. ``warmup=0`` warns: the first recorded step
    then shows the profiler's own start as well.

    >>> actions = schedule(wait=1, warmup=1, active=2, repeat=1)
    >>> [actions(step).name for step in range(5)]
    ['NONE', 'WARMUP', 'RECORD', 'RECORD_AND_SAVE', 'NONE']

    Raises:
        ScheduleError: An argument is negative or not whole, or ``active < 1``; when called, the step is negative.
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

    action_of.plan = plan  # pyright: ignore[reportFunctionMemberAccess] - for `is_exhausted`
    return action_of


def is_exhausted(schedule: Schedule, step: int) -> bool:
    """Return whether a `schedule` records nothing from ``step`` on, because its ``repeat`` cycles are over."""
    plan = getattr(schedule, "plan", None)
    return isinstance(plan, CyclePlan) and plan.is_exhausted(step)


def _count(name: str, value: SupportsIndex | float) -> int:
    """Return ``value``, a whole float or anything with ``__index__``, such as numpy's integers, as an int."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    try:
        return operator.index(value)  # pyright: ignore[reportArgumentType] - a float raises
    except TypeError:
        raise ScheduleError(f"{name} counts steps, so it must be a whole number, not {value!r}.") from None


def record_everything(step: int) -> ProfilerAction:
    """Return RECORD for every step: the default schedule has one window, from start to stop."""
    return ProfilerAction.RECORD


def check_action(action: object, step: int) -> ProfilerAction:
    """Return ``action``, which a schedule returned for ``step``.

    Raises:
        ScheduleError: A schedule must not return it.
    """
    if not isinstance(action, ProfilerAction):
        raise ScheduleError(f"The schedule returned {action!r} for step {step}, which is not a ProfilerAction.")
    if action is DEVICE_STOPPED:
        raise ScheduleError(
            f"The schedule returned DEVICE_STOPPED for step {step}. Only the profiler may set it, when a device stops "
            "collecting. Return NONE for a step that is not to be recorded."
        )
    return action


class KinetoCall(StrEnum):
    """One call of a transition; its value is the name of the method of `profile` that makes it."""

    PREPARE = "prepare_trace"
    START = "start_trace"
    STOP = "stop_trace"
    DISCARD = "_discard_preparation"
    DELIVER = "_trace_ready"


@dataclass(frozen=True, slots=True)
class Transition:
    """Effect of a change of action.

    Attributes:
        calls: Calls to make, in order.
        warning: Warning about an incorrect schedule.
        error: Message of the error if the change must not happen.
    """

    calls: tuple[KinetoCall, ...] = ()
    warning: str | None = None
    error: str | None = None


Key = tuple[ProfilerAction, ProfilerAction | None]

_PREPARE, _START, _STOP = KinetoCall.PREPARE, KinetoCall.START, KinetoCall.STOP
_DISCARD, _DELIVER = KinetoCall.DISCARD, KinetoCall.DELIVER


def _incorrect(before: str, after: str, *calls: KinetoCall) -> Transition:
    return Transition(calls, f"Incorrect schedule: {before} followed by {after}, so this window is not delivered.")


def _scheduled_transitions() -> dict[Key, Transition]:
    return {
        (NONE, NONE): Transition(),
        (NONE, WARMUP): Transition((_PREPARE,)),
        (NONE, RECORD): Transition((_PREPARE, _START)),
        (NONE, RECORD_AND_SAVE): Transition((_PREPARE, _START)),
        (WARMUP, NONE): _incorrect("WARMUP", "NONE", _DISCARD),
        (WARMUP, WARMUP): Transition(),
        (WARMUP, RECORD): Transition((_START,)),
        (WARMUP, RECORD_AND_SAVE): Transition((_START,)),
        (RECORD, NONE): _incorrect("RECORD", "NONE", _STOP),
        (RECORD, WARMUP): _incorrect("RECORD", "WARMUP", _STOP, _PREPARE),
        (RECORD, RECORD): Transition(),
        (RECORD, RECORD_AND_SAVE): Transition(),
        (RECORD_AND_SAVE, NONE): Transition((_STOP, _DELIVER)),
        (RECORD_AND_SAVE, WARMUP): Transition((_STOP, _DELIVER, _PREPARE)),
        (RECORD_AND_SAVE, RECORD): Transition((_STOP, _DELIVER, _PREPARE, _START)),
        (RECORD_AND_SAVE, RECORD_AND_SAVE): Transition((_STOP, _DELIVER, _PREPARE, _START)),
    }


def _exit_transitions() -> dict[Key, Transition]:
    """Return the transitions when the profiler is left."""
    return {
        (NONE, None): Transition(),
        (WARMUP, None): Transition((_DISCARD,)),
        (RECORD, None): Transition((_STOP, _DELIVER)),
        (RECORD_AND_SAVE, None): Transition((_STOP, _DELIVER)),
    }


def _device_stopped_transitions(stopped: ProfilerAction) -> dict[Key, Transition]:
    """Return the transitions of a device that stops collecting: the window ends, the cycle's rest is skipped."""
    return {
        (WARMUP, stopped): Transition((_START, _STOP, _DELIVER)),
        (RECORD, stopped): Transition((_STOP, _DELIVER)),
        (stopped, stopped): Transition(),
        (stopped, NONE): Transition(),
        (stopped, WARMUP): Transition((_PREPARE,)),
        (stopped, RECORD): Transition((_PREPARE, _START)),
        (stopped, RECORD_AND_SAVE): Transition((_PREPARE, _START)),
        (stopped, None): Transition(),
        (NONE, stopped): _unreachable("NONE", "DEVICE_STOPPED"),
        (RECORD_AND_SAVE, stopped): _unreachable("RECORD_AND_SAVE", "DEVICE_STOPPED"),
    }


def _unreachable(before: str, after: str) -> Transition:
    return Transition(error=f"Profiler internal error: {before} -> {after} should be unreachable")


def _build_transitions() -> dict[Key, Transition]:
    table = _scheduled_transitions() | _exit_transitions()
    return table | _device_stopped_transitions(DEVICE_STOPPED) if DEVICE_STOPPED is not None else table


TRANSITIONS: Mapping[Key, Transition] = _build_transitions()
"""Transition table: the calls for each action and the next one; ``None`` is the end of the profiler."""
