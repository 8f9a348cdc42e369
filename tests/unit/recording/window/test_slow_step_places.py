"""Which slow steps are kept: 20 an hour, regular ones once, and of those in a row the first three."""

import pytest

from kinetoscope.recording.window.slow_step_places import MOST_AN_HOUR, SlowStepPlaces

HOUR_NS = 3_600 * 10**9
FORWARD, CHECKPOINT = 1, 5


def kept(steps, phase=FORWARD, places=None, at_ns=0):
    places = places or SlowStepPlaces()
    return [step for step in steps if places.take(step, phase, at_ns + step)[0]]


def irregular(count, begin=100):
    """Steps whose distances are all different."""
    return [begin + number * 10 + number * number for number in range(count)]


def test_of_irregular_slow_steps_20_an_hour_are_kept():
    places = SlowStepPlaces()
    steps = irregular(50)
    assert kept(steps, places=places) == steps[:MOST_AN_HOUR]
    later = irregular(50, begin=10_000)
    assert kept(later, places=places, at_ns=HOUR_NS - 20_000) == []
    assert kept(later, places=places, at_ns=2 * HOUR_NS) == later[:MOST_AN_HOUR]


@pytest.mark.parametrize("every", [5, 50, 500])
def test_what_comes_regularly_is_known_the_fourth_time_and_takes_one_place(every):
    places = SlowStepPlaces()
    regular = [7 + every * number for number in range(30)]
    told = [places.take(step, CHECKPOINT, step) for step in regular]
    assert told[:3] == [(True, None)] * 3
    assert told[3] == (True, every)
    assert told[4:] == [(False, every)] * 26
    others = irregular(50, begin=20_000)
    assert kept(others, places=places) == others[: MOST_AN_HOUR - 1]


def test_what_comes_regularly_is_kept_again_in_the_next_hour():
    places = SlowStepPlaces()
    for number in range(10):
        places.take(50 * number, CHECKPOINT, 0)
    assert places.take(500, CHECKPOINT, HOUR_NS) == (True, 50)
    assert places.take(550, CHECKPOINT, HOUR_NS) == (False, 50)


def test_two_simultaneous_periodic_kinds_are_distinguished_by_their_phase():
    places = SlowStepPlaces()
    told = {}
    for step in range(1000):
        if step % 50 == 9:
            told[step] = places.take(step, CHECKPOINT, step)[1]
        if step % 70 == 9:
            told[step] = places.take(step, FORWARD, step)[1]
    assert {every for step, every in told.items() if step > 500} == {50, 70}


def test_now_and_then_another_slow_step_of_the_phase_hides_no_period():
    places = SlowStepPlaces()
    every = [places.take(step, FORWARD, step)[1] for step in (100, 200, 231, 300, 377, 400)]
    assert every == [None, None, None, None, None, 100]


def test_what_is_known_to_be_regular_stays_so_when_some_are_missed():
    places = SlowStepPlaces()
    told = [places.take(step, CHECKPOINT, step)[1] for step in (50, 100, 150, 200, 250, 350, 500, 525, 900)]
    assert told == [None, None, None, 50, 50, 50, 50, None, 50]


def test_of_slow_steps_in_a_row_the_first_three_are_kept():
    assert kept(range(100, 200)) == [100, 101, 102]
    assert kept([*range(100, 110), *range(300, 310)]) == [100, 101, 102, 300, 301, 302]


def test_a_place_is_free_again_an_hour_after_it_was_taken():
    places = SlowStepPlaces()
    steps = irregular(MOST_AN_HOUR)
    assert kept(steps, places=places) == steps
    assert not places.take(9_000, CHECKPOINT, HOUR_NS)[0]
    assert places.take(9_011, CHECKPOINT, HOUR_NS + steps[0])[0]
    assert not places.take(9_033, CHECKPOINT, HOUR_NS + steps[0])[0]
