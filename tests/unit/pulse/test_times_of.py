"""A handler reads the durations of steps from the pulse of its process."""

import pytest

from kinetoscope.core.job.ranks import detect_attempt, detect_ranks
from kinetoscope.core.job.timestamp import Timestamp
from kinetoscope.pulse.layout import NUM_EXACT, Phase
from kinetoscope.pulse.pulse_recorder import PulseRecorder
from kinetoscope.testing import FakeClock


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def pulse(clock):
    pulse = PulseRecorder(clock)
    ranks = detect_ranks({})
    pulse.open(None, ranks, detect_attempt(ranks, {}))
    yield pulse
    pulse.close()


def take_steps(pulse, clock, first, num_steps):
    """Step n takes 1,000 and n nanoseconds, 300 of them a wait for data."""
    for step in range(first, first + num_steps):
        pulse.enter(Phase.DATA_WAIT)
        clock.advance(300)
        pulse.enter(Phase.OTHER)
        clock.advance(700 + step)
        pulse.end_step(Timestamp(batch=step + 1))


def test_requested_steps_are_reported_with_their_known_phases(pulse, clock):
    pulse.begin_step()
    take_steps(pulse, clock, 0, 10)
    times = pulse.read_step_times(3, 6)
    assert [duration for duration, _ in times] == [1003, 1004, 1005]
    assert all(by_phase[Phase.DATA_WAIT] == 300 and by_phase[Phase.FORWARD] is None for _, by_phase in times)
    assert pulse.read_step_times(10, 20) == []


def test_steps_have_the_numbers_of_a_resumed_run(pulse, clock):
    pulse.begin_step()
    take_steps(pulse, clock, 1000, 5)
    assert [duration for duration, _ in pulse.read_step_times(1003, 1005)] == [2003, 2004]


def test_last_of_many_steps_are_listed(pulse, clock):
    pulse.begin_step()
    take_steps(pulse, clock, 0, NUM_EXACT + 10)
    assert len(pulse.read_step_times(0, NUM_EXACT + 10)) == NUM_EXACT


def test_nothing_is_reported_before_open_and_after_close(clock):
    pulse = PulseRecorder(clock)
    assert pulse.read_step_times(0, 10) == []
    ranks = detect_ranks({})
    pulse.open(None, ranks, detect_attempt(ranks, {}))
    pulse.close()
    assert pulse.read_step_times(0, 10) == []
