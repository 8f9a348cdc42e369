"""torch: what a change of action does to Kineto, as data. The actions before and after flow in, deeds flow out."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from torch.profiler import ProfilerAction

from kinetoscope.errors import ScheduleError

NONE = ProfilerAction.NONE
WARMUP = ProfilerAction.WARMUP
RECORD = ProfilerAction.RECORD
RECORD_AND_SAVE = ProfilerAction.RECORD_AND_SAVE
# Set by the profiler itself, never by a schedule; torch knows it since 2.9 or so.
DEVICE_STOPPED: ProfilerAction | None = getattr(ProfilerAction, "DEVICE_STOPPED", None)


class Deed(StrEnum):
    """One step of a transition; its value is the name of the profiler's method that does it."""

    PREPARE = "prepare_trace"
    START = "start_trace"
    STOP = "stop_trace"
    DISCARD = "_discard_preparation"
    DELIVER = "_trace_ready"


@dataclass(frozen=True, slots=True)
class Transition:
    """What happens between two actions: ``deeds`` in order, after a ``warning`` if the schedule is a mistake."""

    deeds: tuple[Deed, ...] = ()
    warning: str | None = None


Key = tuple[ProfilerAction, ProfilerAction | None]

_PREPARE, _START, _STOP, _DISCARD, _DELIVER = Deed.PREPARE, Deed.START, Deed.STOP, Deed.DISCARD, Deed.DELIVER


def _mistake(before: str, after: str, *deeds: Deed) -> Transition:
    return Transition(deeds, f"Incorrect schedule: {before} followed by {after}, so this window is not handed over.")


def _between_scheduled_actions() -> dict[Key, Transition]:
    return {
        (NONE, NONE): Transition(),
        (NONE, WARMUP): Transition((_PREPARE,)),
        (NONE, RECORD): Transition((_PREPARE, _START)),
        (NONE, RECORD_AND_SAVE): Transition((_PREPARE, _START)),
        (WARMUP, NONE): _mistake("WARMUP", "NONE", _DISCARD),
        (WARMUP, WARMUP): Transition(),
        (WARMUP, RECORD): Transition((_START,)),
        (WARMUP, RECORD_AND_SAVE): Transition((_START,)),
        (RECORD, NONE): _mistake("RECORD", "NONE", _STOP),
        (RECORD, WARMUP): _mistake("RECORD", "WARMUP", _STOP, _PREPARE),
        (RECORD, RECORD): Transition(),
        (RECORD, RECORD_AND_SAVE): Transition(),
        (RECORD_AND_SAVE, NONE): Transition((_STOP, _DELIVER)),
        (RECORD_AND_SAVE, WARMUP): Transition((_STOP, _DELIVER, _PREPARE)),
        (RECORD_AND_SAVE, RECORD): Transition((_STOP, _DELIVER, _PREPARE, _START)),
        (RECORD_AND_SAVE, RECORD_AND_SAVE): Transition((_STOP, _DELIVER, _PREPARE, _START)),
    }


def _at_the_end() -> dict[Key, Transition]:
    """Leaving the profiler."""
    return {
        (NONE, None): Transition(),
        (WARMUP, None): Transition((_DISCARD,)),
        (RECORD, None): Transition((_STOP, _DELIVER)),
        (RECORD_AND_SAVE, None): Transition((_STOP, _DELIVER)),
    }


def _after_the_device_stopped(stopped: ProfilerAction) -> dict[Key, Transition]:
    """A device that stops collecting ends the window early; the rest of the cycle passes without recording."""
    return {
        (WARMUP, stopped): Transition((_START, _STOP, _DELIVER)),
        (RECORD, stopped): Transition((_STOP, _DELIVER)),
        (stopped, stopped): Transition(),
        (stopped, NONE): Transition(),
        (stopped, WARMUP): Transition((_PREPARE,)),
        (stopped, RECORD): Transition((_PREPARE, _START)),
        (stopped, RECORD_AND_SAVE): Transition((_PREPARE, _START)),
        (stopped, None): Transition(),
    }


def _all_transitions() -> dict[Key, Transition]:
    table = _between_scheduled_actions() | _at_the_end()
    return table | _after_the_device_stopped(DEVICE_STOPPED) if DEVICE_STOPPED is not None else table


TRANSITIONS: Mapping[Key, Transition] = _all_transitions()
"""Every transition there is; ``None`` as the action after is the end of the profiler."""


def check_action(action: object, step: int) -> ProfilerAction:
    """The action a schedule gave for ``step``; raises `ScheduleError` if it is not one a schedule may give."""
    if not isinstance(action, ProfilerAction):
        raise ScheduleError(f"The schedule answered step {step} with {action!r}, which is not a ProfilerAction.")
    if action is DEVICE_STOPPED:
        raise ScheduleError(
            f"The schedule answered step {step} with DEVICE_STOPPED. DEVICE_STOPPED is set internally, when a device "
            "gives up; return NONE for a step that is not to be recorded."
        )
    return action
