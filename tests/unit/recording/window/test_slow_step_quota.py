"""Which slow steps are kept: 20 an hour, regular ones once, and of those in a row the first three."""

import pytest

from kinetoscope.recording.window.slow_step_quota import MAX_PER_HOUR, SlowStepQuota

HOUR_NS = 3_600 * 10**9
FORWARD, CHECKPOINT = 1, 5


def kept(steps, phase=FORWARD, quota=None, at_ns=0):
    quota = quota or SlowStepQuota()
    return [step for step in steps if quota.admit(step, phase, at_ns + step)[0]]


def irregular(count, begin=100):
    """Steps whose distances are all different."""
    return [begin + number * 10 + number * number for number in range(count)]


def test_at_most_20_irregular_slow_steps_per_hour_are_kept():
    quota = SlowStepQuota()
    steps = irregular(50)
    assert kept(steps, quota=quota) == steps[:MAX_PER_HOUR]
    later = irregular(50, begin=10_000)
    assert kept(later, quota=quota, at_ns=HOUR_NS - 20_000) == []
    assert kept(later, quota=quota, at_ns=2 * HOUR_NS) == later[:MAX_PER_HOUR]


@pytest.mark.parametrize("every", [5, 50, 500])
def test_periodic_slow_step_is_recognized_the_fourth_time_and_uses_one_slot(every):
    quota = SlowStepQuota()
    regular = [7 + every * number for number in range(30)]
    periods = [quota.admit(step, CHECKPOINT, step) for step in regular]
    assert periods[:3] == [(True, None)] * 3
    assert periods[3] == (True, every)
    assert periods[4:] == [(False, every)] * 26
    others = irregular(50, begin=20_000)
    assert kept(others, quota=quota) == others[: MAX_PER_HOUR - 1]


def test_periodic_slow_step_is_kept_again_in_the_next_hour():
    quota = SlowStepQuota()
    for number in range(10):
        quota.admit(50 * number, CHECKPOINT, 0)
    assert quota.admit(500, CHECKPOINT, HOUR_NS) == (True, 50)
    assert quota.admit(550, CHECKPOINT, HOUR_NS) == (False, 50)


def test_two_simultaneous_periodic_kinds_are_distinguished_by_their_phase():
    quota = SlowStepQuota()
    periods = {}
    for step in range(1000):
        if step % 50 == 9:
            periods[step] = quota.admit(step, CHECKPOINT, step)[1]
        if step % 70 == 9:
            periods[step] = quota.admit(step, FORWARD, step)[1]
    assert {every for step, every in periods.items() if step > 500} == {50, 70}


def test_now_and_then_another_slow_step_of_the_phase_hides_no_period():
    quota = SlowStepQuota()
    every = [quota.admit(step, FORWARD, step)[1] for step in (100, 200, 231, 300, 377, 400)]
    assert every == [None, None, None, None, None, 100]


def test_known_period_survives_missed_occurrences():
    quota = SlowStepQuota()
    periods = [quota.admit(step, CHECKPOINT, step)[1] for step in (50, 100, 150, 200, 250, 350, 500, 525, 900)]
    assert periods == [None, None, None, 50, 50, 50, 50, None, 50]


def test_first_three_consecutive_slow_steps_are_kept():
    assert kept(range(100, 200)) == [100, 101, 102]
    assert kept([*range(100, 110), *range(300, 310)]) == [100, 101, 102, 300, 301, 302]


def test_slot_is_free_again_an_hour_after_its_use():
    quota = SlowStepQuota()
    steps = irregular(MAX_PER_HOUR)
    assert kept(steps, quota=quota) == steps
    assert not quota.admit(9_000, CHECKPOINT, HOUR_NS)[0]
    assert quota.admit(9_011, CHECKPOINT, HOUR_NS + steps[0])[0]
    assert not quota.admit(9_033, CHECKPOINT, HOUR_NS + steps[0])[0]
