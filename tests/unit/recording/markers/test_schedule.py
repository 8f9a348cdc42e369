import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetoscope import ProfilerAction, State, Timestamp, cyclic_schedule
from kinetoscope.errors import ScheduleError
from kinetoscope.recording.markers.schedule import CyclePlan
from kinetoscope.recording.profiler import Profiler
from kinetoscope.testing import MemoryTraceHandler

S, W, A, AS = ProfilerAction.SKIP, ProfilerAction.WARMUP, ProfilerAction.ACTIVE, ProfilerAction.ACTIVE_AND_SAVE


def test_an_action_equals_its_name_and_its_value_in_any_case():
    action = ProfilerAction.ACTIVE_AND_SAVE
    for text in ("active_and_save", "ACTIVE_AND_SAVE", "Active_And_Save"):
        assert action == text
        assert text == action
        assert not action != text  # noqa: SIM202 - each operator is tested
        assert ProfilerAction(text) is action
    assert ProfilerAction.ACTIVE != "active_and_save"
    assert ProfilerAction.ACTIVE != "something else"
    assert ProfilerAction.ACTIVE != 2


def test_an_action_prints_as_the_member_that_it_is():
    assert f"{ProfilerAction.SKIP}" == str(ProfilerAction.SKIP) == "ProfilerAction.SKIP"
    assert repr(ProfilerAction.SKIP) == "<ProfilerAction.SKIP: 'skip'>"


def test_an_action_is_a_key_under_its_value():
    assert {ProfilerAction.SKIP: 1}["skip"] == 1
    assert json.dumps(ProfilerAction.SKIP) == '"skip"'


def actions(schedule, num_batches, *, epoch=0, profiler=None, length=None):
    """Return the action of ``schedule`` for each batch of one epoch."""
    return [
        schedule(State(timestamp=Timestamp(epoch=epoch, batch_in_epoch=n), dataloader_len=length, profiler=profiler))
        for n in range(num_batches)
    ]


class Resumed:
    resumption_batch_idx = 3
    run = SimpleNamespace(resumption_epoch=2)


def test_a_cycle_waits_warms_up_and_records_and_its_last_batch_saves():
    assert actions(cyclic_schedule(wait=1, warmup=2, active=3), 8) == [S, W, W, A, A, AS, S, S]


def test_skip_first_comes_before_the_first_cycle_only():
    assert actions(cyclic_schedule(skip_first=2, warmup=1, active=1, repeat=2), 7) == [S, S, W, AS, W, AS, S]


def test_repeat_zero_cycles_until_the_epoch_ends():
    assert actions(cyclic_schedule(warmup=1, active=1, repeat=0), 7) == [W, AS] * 3 + [W]


def test_last_batch_of_an_epoch_saves_if_it_is_active():
    assert actions(cyclic_schedule(warmup=1, active=4), 4, length=4) == [W, A, A, AS]


def test_the_last_batch_of_an_epoch_does_not_save_while_waiting_or_warming_up():
    assert actions(cyclic_schedule(wait=2, warmup=2, active=4), 3, length=3) == [S, S, W]


def test_an_epoch_has_no_batch_after_its_last():
    assert actions(cyclic_schedule(warmup=0, active=1, repeat=0), 4, length=2)[2:] == [S, S]


def test_every_epoch_restarts_the_schedule():
    schedule = cyclic_schedule(skip_first=1, warmup=1, active=1)
    assert actions(schedule, 4, epoch=0) == actions(schedule, 4, epoch=7)


def test_skip_first_counts_from_the_batch_at_which_the_run_was_resumed():
    schedule = cyclic_schedule(skip_first=1, warmup=1, active=1)
    assert actions(schedule, 7, epoch=2, profiler=Resumed)[3:] == [S, W, AS, S]


def test_schedule_per_run_counts_across_epochs_without_saving_or_restarting():
    handler = MemoryTraceHandler()
    schedule = cyclic_schedule(skip_first=3, warmup=1, active=4, repeat=0, per="run")
    with Profiler(schedule, handler) as profiler:
        for _ in range(5):
            for _ in profiler.batches(range(3)):
                pass
    assert [int(cycle.timestamp.batch) for cycle in handler.cycles] == [8, 13, 15]
    assert [int(cycle.begin_timestamp.batch) for cycle in handler.cycles] == [3, 8, 13]


def test_a_schedule_per_run_counts_from_where_the_run_was_resumed():
    handler = MemoryTraceHandler()
    state = State(timestamp=Timestamp(epoch=4, batch=1000, batch_in_epoch=10))
    schedule = cyclic_schedule(skip_first=1, warmup=0, active=2, per="run")
    with Profiler(schedule, handler, state=state) as profiler:
        for _ in profiler.batches(range(8)):
            pass
    assert [int(cycle.timestamp.batch) for cycle in handler.cycles] == [1003]


def test_batches_can_be_counted_in_the_epoch_or_the_run_only():
    with pytest.raises(ScheduleError, match='"epoch" or "run"'):
        cyclic_schedule(per="step")


def test_a_resumption_shifts_no_later_epoch():
    schedule = cyclic_schedule(skip_first=1, warmup=1, active=1)
    assert actions(schedule, 7, epoch=3, profiler=Resumed) == actions(schedule, 7)


@pytest.mark.parametrize("wrong", [{"active": 0}, {"wait": -1}, {"skip_first": -1}, {"repeat": -2}, {"warmup": 1.5}])
def test_invalid_schedule_is_refused_at_once_by_the_name_of_its_argument(wrong):
    with pytest.raises(ScheduleError, match=next(iter(wrong))) as caught:
        cyclic_schedule(**wrong)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, AssertionError)


small = st.integers(0, 5)


@given(small, small, small, st.integers(1, 5), small, st.integers(0, 80))
def test_save_always_ends_a_period_of_active_batches(skip_first, wait, warmup, active, repeat, index):
    plan = CyclePlan(skip_first=skip_first, wait=wait, warmup=warmup, active=active, repeat=repeat)
    if plan.action(index) is AS:
        stretch = [plan.action(index - back) for back in range(1, active)]
        assert stretch == [A] * (active - 1)
        assert index >= skip_first + wait + warmup + active - 1


@given(small, small, small, st.integers(1, 5), st.integers(1, 5))
def test_a_plan_saves_as_often_as_it_repeats(skip_first, wait, warmup, active, repeat):
    plan = CyclePlan(skip_first=skip_first, wait=wait, warmup=warmup, active=active, repeat=repeat)
    saves = [plan.action(index) for index in range(200)].count(AS)
    assert saves == repeat


@given(small, small, small, st.integers(1, 5), small, st.integers(0, 1), st.integers(0, 80))
def test_only_certainly_skipped_batches_are_skipped(skip_first, wait, warmup, active, repeat, drops_wait, index):
    plan = CyclePlan(
        skip_first=skip_first, wait=wait, warmup=warmup, active=active, repeat=repeat, skip_first_wait=drops_wait
    )
    count = plan.num_skipped(index)
    assert all(plan.action(index + ahead) is S for ahead in range(min(count, 200)))
    assert count > 10**9 or plan.action(index + count) is not S or index + count == plan.first_recorded


@pytest.mark.parametrize("per", ["epoch", "run"])
def test_a_loop_records_the_batches_that_its_schedule_selects(per):
    """Though it is not called for batches that are always skipped."""
    schedule, memory = (
        cyclic_schedule(skip_first=2, wait=3, warmup=1, active=2, repeat=0, per=per),
        MemoryTraceHandler(),
    )
    actions = []
    with Profiler(lambda state: actions.append(schedule(state)) or actions[-1], MemoryTraceHandler()) as profiler:
        every = train(profiler)
    with Profiler(schedule, memory) as profiler:
        assert train(profiler) == every
    assert [a for a in every if a is not S]


def train(profiler):
    """Return a profiler's actions in each batch of two epochs."""
    actions = []
    for _ in range(2):
        for _ in profiler.batches(range(13)):
            actions.append(profiler.get_action())
    return actions
