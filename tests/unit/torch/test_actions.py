"""What each change of action does: the table itself."""

import itertools

import pytest

from kinetoscope.errors import ScheduleError
from kinetoscope.torch import ProfilerAction
from kinetoscope.torch.actions import DEVICE_STOPPED, TRANSITIONS, Deed, check_action

SCHEDULED = (ProfilerAction.NONE, ProfilerAction.WARMUP, ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
RECORDING = SCHEDULED[2:]


# What Kineto must be in before a deed, and is in after it; any other order would end the process.
KINETO = {
    Deed.PREPARE: ("idle", "prepared"),
    Deed.START: ("prepared", "recording"),
    Deed.STOP: ("recording", "idle"),
    Deed.DISCARD: ("prepared", "idle"),
    Deed.DELIVER: ("idle", "idle"),
}


def state_after(deeds: tuple[Deed, ...], state: str) -> str:
    for deed in deeds:
        needed, following = KINETO[deed]
        assert state == needed, f"{deed} while {state}"
        state = following
    return state


def state_in(action: ProfilerAction | None) -> str:
    if action in RECORDING:
        return "recording"
    return "prepared" if action is ProfilerAction.WARMUP else "idle"


@pytest.mark.parametrize(("before", "after"), list(itertools.product(SCHEDULED, (*SCHEDULED, None))))
def test_every_transition_takes_kineto_from_where_one_action_has_it_to_where_the_next_needs_it(before, after):
    assert state_after(TRANSITIONS[before, after].deeds, state_in(before)) == state_in(after)


@pytest.mark.parametrize("after", [*SCHEDULED, None])
def test_leaving_record_and_save_hands_the_window_over_right_after_stopping(after):
    assert TRANSITIONS[ProfilerAction.RECORD_AND_SAVE, after].deeds[:2] == (Deed.STOP, Deed.DELIVER)


def test_only_transitions_that_lose_a_window_or_a_warm_up_are_called_mistakes():
    mistakes = {key for key, transition in TRANSITIONS.items() if transition.warning}
    names = {(before.name, after.name if after else None) for before, after in mistakes}
    assert names == {("WARMUP", "NONE"), ("RECORD", "NONE"), ("RECORD", "WARMUP")}


@pytest.mark.parametrize("answer", [None, 3, "RECORD", True])
def test_a_schedule_that_answers_something_else_is_told_the_step_and_the_answer(answer):
    with pytest.raises(ScheduleError, match="step 7") as raised:
        check_action(answer, 7)
    assert repr(answer) in str(raised.value)


@pytest.mark.skipif(DEVICE_STOPPED is None, reason="this version of torch has no DEVICE_STOPPED")
def test_device_stopped_is_not_for_schedules():
    with pytest.raises(ValueError, match="DEVICE_STOPPED"):
        check_action(DEVICE_STOPPED, 0)
