"""Windows that no schedule plans: one step warms up, the last one saves, and windows of the schedule come first."""

from hypothesis import given
from hypothesis import strategies as st

from kinetoscope import ProfilerAction
from kinetoscope.recording.window.triggered_window import Progress, TriggeredWindow

SKIP, WARMUP, ACTIVE = ProfilerAction.SKIP, ProfilerAction.WARMUP, ProfilerAction.ACTIVE
SAVE = ProfilerAction.ACTIVE_AND_SAVE


def test_one_step_warms_up_and_the_last_one_saves():
    window = TriggeredWindow(3, lambda: 3)
    assert [window.action(step, SKIP) for step in range(8)] == [SKIP, SKIP, WARMUP, ACTIVE, ACTIVE, SAVE, SKIP, SKIP]
    assert (window.first_step, window.num_steps, window.has_recorded) == (3, 3, True)


def test_the_number_of_steps_is_chosen_once_when_the_window_starts():
    chosen = []
    window = TriggeredWindow(3, lambda: chosen.append(1) or 2)
    window.action(1, SKIP)
    assert chosen == []
    assert [window.action(2, SKIP) for _ in range(3)] == [WARMUP] * 3
    assert chosen == [1]


def test_a_window_that_never_got_a_chance_to_start_is_given_up():
    seen = []
    window = TriggeredWindow(3, lambda: 2, lambda window: seen.append(window.progress))
    assert [window.action(step, SKIP) for step in (0, 4, 5)] == [SKIP] * 3
    assert (window.is_given_up, seen) == (True, [Progress.LATE])


def test_a_window_that_a_schedule_leaves_no_gap_for_is_given_up():
    window = TriggeredWindow(3, lambda: 2)
    assert {window.action(step, ACTIVE) for step in range(1200)} == {ACTIVE}
    assert window.progress is Progress.BLOCKED


@given(st.integers(1, 20), st.integers(1, 6), st.lists(st.booleans(), min_size=60, max_size=60))
def test_planned_windows_stay_as_planned_and_the_triggered_one_is_whole(first_step, num_steps, is_planned):
    window = TriggeredWindow(first_step, lambda: num_steps)
    found = [window.action(step, ACTIVE if is_planned[step] else SKIP) for step in range(60)]
    if WARMUP not in found:
        assert found == [ACTIVE if each else SKIP for each in is_planned]
        return
    start = found.index(WARMUP)
    assert start >= first_step - 1
    assert not is_planned[start]
    assert found[start + 1 : start + 1 + num_steps] == [ACTIVE] * (num_steps - 1) + [SAVE]
    others = [*range(start), *range(start + 1 + num_steps, 60)]
    assert [found[step] for step in others] == [ACTIVE if is_planned[step] else SKIP for step in others]
