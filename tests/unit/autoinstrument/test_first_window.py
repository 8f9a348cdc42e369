"""The window that `kinetoscope run` opens by itself; with `--diagnose`, short steps are recorded for a second."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetoscope import ProfilerAction, Timestamp, cyclic_schedule
from kinetoscope.autoinstrument.first_window import MIN_WINDOW_NS, FirstWindow, choose_num_steps
from kinetoscope.autoinstrument.instrumentation import ProcessRuns
from kinetoscope.autoinstrument.settings import AutoSettings

MS = 1_000_000
PLAN = cyclic_schedule(skip_first=10, warmup=1, active=10, per="run")


def actions(step_ns, num_batches, first_batch=0, is_timed=True):
    """Return the action of each batch of a run that takes so long for each."""
    driver = SimpleNamespace(first_step=first_batch, step_times_ns=lambda first, end: [step_ns] * (end - first))
    schedule = FirstWindow(PLAN.plan, PLAN.per, is_timed=is_timed)
    profiler = SimpleNamespace(driver=driver, run=SimpleNamespace(first_batch=first_batch))
    batches = range(first_batch, first_batch + num_batches)
    states = [
        SimpleNamespace(timestamp=Timestamp(batch=batch), dataloader_len=None, profiler=profiler) for batch in batches
    ]
    return [schedule(state) for state in states], [schedule.num_skipped(state) for state in states]


@pytest.mark.parametrize("first_batch", [0, 5000])
def test_short_steps_are_recorded_for_at_least_a_second_and_long_ones_as_planned(first_batch):
    of_short, num_skipped = actions(2 * MS, 1000, first_batch)
    assert of_short[:10] == [ProfilerAction.SKIP] * 10
    assert of_short[10] is ProfilerAction.WARMUP
    assert of_short.count(ProfilerAction.ACTIVE) + 1 == 640
    assert of_short[650] is ProfilerAction.ACTIVE_AND_SAVE
    assert num_skipped[650] == 0
    assert set(of_short[651:]) == {ProfilerAction.SKIP}
    assert num_skipped[651] > 1_000_000
    of_long, _ = actions(5 * MS, 30, first_batch)
    assert of_long[20] is ProfilerAction.ACTIVE_AND_SAVE


@given(st.floats(0.01, 4.99))
def test_short_steps_of_any_length_are_recorded_for_a_second_and_not_for_much_more(step_ms):
    step_ns = round(step_ms * MS)
    num_steps = choose_num_steps([step_ns] * 9, 10)
    assert MIN_WINDOW_NS <= num_steps * step_ns <= 4.01 * MIN_WINDOW_NS


def test_without_diagnose_the_window_is_what_the_cyclic_schedule_records():
    found, num_skipped = actions(2 * MS, 60, is_timed=False)
    assert found == [PLAN.plan.action(index) for index in range(60)]
    assert num_skipped == [PLAN.plan.num_skipped(index) for index in range(60)]
    states = [SimpleNamespace(timestamp=Timestamp(batch=batch), dataloader_len=None) for batch in range(60)]
    schedule = FirstWindow(PLAN.plan, PLAN.per, is_timed=True)
    assert [schedule(state) for state in states] == found, "nor are steps timed without a profiler"


def test_unknown_times_change_nothing():
    assert choose_num_steps([], 10) == 10


@pytest.mark.parametrize(
    ("settings", "is_timed"),
    [
        (AutoSettings(diagnose=True), True),
        (AutoSettings(), False),
        (AutoSettings(diagnose=True, num_steps=10), False),
    ],
)
def test_only_diagnose_without_a_number_of_steps_records_more(settings, is_timed, tmp_path):
    asked = AutoSettings(out=str(tmp_path), diagnose=settings.diagnose, num_steps=settings.num_steps)
    profiler = ProcessRuns(asked).make()
    assert profiler.lifecycle.settings.schedule.is_timed == is_timed
