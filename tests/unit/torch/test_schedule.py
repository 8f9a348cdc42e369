"""torch.profiler's schedule: the action of each step, and what each change of action does."""

import itertools
import warnings

import pytest
import torch.profiler
from hypothesis import given
from hypothesis import strategies as st

from kinetoscope.errors import ScheduleError
from kinetoscope.torch import ProfilerAction, schedule
from kinetoscope.torch.schedule import DEVICE_STOPPED, TRANSITIONS, KinetoCall, check_action

LETTERS = {
    ProfilerAction.NONE: ".",
    ProfilerAction.WARMUP: "w",
    ProfilerAction.RECORD: "r",
    ProfilerAction.RECORD_AND_SAVE: "S",
}


def drawn(num_steps: int, **arguments: int) -> str:
    actions = schedule(**arguments)
    return "".join(LETTERS[actions(step)] for step in range(num_steps))


def test_a_cycle_waits_warms_up_and_records_and_saves_at_its_last_step():
    assert drawn(6, wait=1, warmup=2, active=3) == ".wwrrS"


def test_without_repeat_cycles_go_on_forever():
    assert drawn(12, wait=1, warmup=1, active=2) == ".wrS.wrS.wrS"


def test_repeat_counts_the_cycles():
    assert drawn(10, wait=1, warmup=1, active=1, repeat=2) == ".wS.wS...."


def test_skip_first_comes_once_before_the_first_wait():
    assert drawn(9, wait=1, warmup=1, active=1, skip_first=3) == "....wS.wS"


def test_skip_first_wait_drops_the_wait_of_the_first_cycle_only():
    assert drawn(8, wait=2, warmup=1, active=1, skip_first=1, skip_first_wait=1) == ".wS..wS."


class Index:
    """A placeholder for an integer of numpy or torch."""

    def __index__(self) -> int:
        return 2


@pytest.mark.parametrize("two", [Index(), 2.0], ids=["index", "float"])
def test_any_integer_of_python_may_be_a_number_of_steps(two):
    everywhere = {"wait": two, "warmup": two, "active": two, "repeat": two, "skip_first": two}
    assert drawn(16, **everywhere) == drawn(16, **dict.fromkeys(everywhere, 2))
    assert drawn(9, wait=2, warmup=1, active=1, skip_first_wait=two) == drawn(
        9, wait=2, warmup=1, active=1, skip_first_wait=1
    )


@pytest.mark.parametrize("no_count", [float("inf"), float("nan"), None])
def test_a_value_that_is_no_count_is_refused(no_count):
    with pytest.raises(ScheduleError, match="active"):
        schedule(wait=0, warmup=1, active=no_count)


def test_no_warmup_warns_that_the_first_step_may_be_skewed():
    with pytest.warns(UserWarning, match="warmup"):
        schedule(wait=1, warmup=0, active=1)


def test_a_negative_step_raises_an_assertion_error_as_in_torch():
    with pytest.raises(AssertionError, match="-1"):
        schedule(wait=1, warmup=1, active=1)(-1)


@pytest.mark.parametrize(
    "wrong",
    [{"active": 0}, {"wait": -1}, {"repeat": -1}, {"warmup": 1.5}, {"skip_first": "2"}, {"skip_first_wait": 0.5}],
    ids=str,
)
def test_arguments_that_make_no_sense_are_named(wrong):
    with pytest.raises(ScheduleError, match=next(iter(wrong))) as raised:
        schedule(**{"wait": 1, "warmup": 1, "active": 1} | wrong)
    assert isinstance(raised.value, AssertionError)


few = st.integers(0, 4)


@given(wait=few, warmup=few, active=st.integers(1, 4), repeat=few, skip_first=few, skip_first_wait=st.integers(0, 1))
def test_every_step_has_the_action_that_torchs_own_schedule_gives_it(**arguments):
    with warnings.catch_warnings(action="ignore"):
        actual, stock = schedule(**arguments), torch.profiler.schedule(**arguments)
    assert [actual(step) for step in range(40)] == [stock(step) for step in range(40)]


SCHEDULED = (ProfilerAction.NONE, ProfilerAction.WARMUP, ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
RECORDING = SCHEDULED[2:]


# Kineto's state before and after each call; any other order would crash the process.
KINETO = {
    KinetoCall.PREPARE: ("idle", "prepared"),
    KinetoCall.START: ("prepared", "recording"),
    KinetoCall.STOP: ("recording", "idle"),
    KinetoCall.DISCARD: ("prepared", "idle"),
    KinetoCall.DELIVER: ("idle", "idle"),
}


def state_after(calls: tuple[KinetoCall, ...], state: str) -> str:
    for call in calls:
        needed, following = KINETO[call]
        assert state == needed, f"{call} while {state}"
        state = following
    return state


def state_in(action: ProfilerAction | None) -> str:
    if action in RECORDING:
        return "recording"
    return "prepared" if action is ProfilerAction.WARMUP else "idle"


@pytest.mark.parametrize(("before", "after"), list(itertools.product(SCHEDULED, (*SCHEDULED, None))))
def test_each_transition_moves_kineto_to_the_state_of_the_next_action(before, after):
    assert state_after(TRANSITIONS[before, after].calls, state_in(before)) == state_in(after)


@pytest.mark.parametrize("after", [*SCHEDULED, None])
def test_leaving_record_and_save_hands_the_window_over_right_after_stopping(after):
    assert TRANSITIONS[ProfilerAction.RECORD_AND_SAVE, after].calls[:2] == (KinetoCall.STOP, KinetoCall.DELIVER)


def test_only_transitions_that_lose_a_window_or_a_warm_up_are_called_mistakes():
    mistakes = {key for key, transition in TRANSITIONS.items() if transition.warning}
    names = {(before.name, after.name if after else None) for before, after in mistakes}
    assert names == {("WARMUP", "NONE"), ("RECORD", "NONE"), ("RECORD", "WARMUP")}


@pytest.mark.parametrize("answer", [None, 3, "RECORD", True])
def test_schedule_without_a_valid_action_raises_an_error_with_step_and_value(answer):
    with pytest.raises(ScheduleError, match="step 7") as raised:
        check_action(answer, 7)
    assert repr(answer) in str(raised.value)


@pytest.mark.skipif(DEVICE_STOPPED is None, reason="this version of torch has no DEVICE_STOPPED")
def test_device_stopped_is_not_for_schedules():
    with pytest.raises(ValueError, match="DEVICE_STOPPED"):
        check_action(DEVICE_STOPPED, 0)
