"""Slow steps, found by the steps before them, with one length of step or two."""

import random

import pytest

from kinetoscope.native import native
from kinetoscope.pulse.layout import BLOCK, COARSE_AT, Phase
from reference.pulse import find_slow_steps

MS = 1_000_000


class Training:
    """Steps of known durations, and those that were found slow."""

    def __init__(self, schedstat=""):
        self.now_ns = 10**12
        self.slow = native.SlowSteps(schedstat)
        self.writer = native.PulseWriter(bytearray(COARSE_AT + 4 * BLOCK.size), lambda: self.now_ns)
        self.writer.watch_slow_steps(self.slow)
        self.slow.set_enabled(True)
        self.found, self.num_steps = [], 0
        self.step(1 * MS)  # its first step is not judged

    def step(self, *phases):
        """A step of durations, each of the forward pass or of the phase that it comes with."""
        for each in phases:
            phase, duration_ns = each if isinstance(each, tuple) else (Phase.FORWARD, each)
            self.writer.enter(phase)
            self.now_ns += round(duration_ns)
        self.writer.end_step(self.num_steps, 0)
        self.num_steps += 1
        while (found := self.slow.take()) is not None:
            self.found.append(found)

    @property
    def numbers(self):
        return [found[0] for found in self.found]


def healthy(seed, *lengths_ms, spread=0.05, shares=None):
    """Durations without end, log-normal about one of the lengths at random."""
    chance = random.Random(seed)
    while True:
        (length,) = chance.choices(lengths_ms, shares)
        yield length * MS * chance.lognormvariate(0, spread)


@pytest.fixture
def training():
    return Training()


SERIES = {
    "one length": {"lengths": (3,)},
    "one length, restless": {"lengths": (3,), "spread": 0.2},
    "one length, very steady": {"lengths": (300,), "spread": 0.005},
    "two lengths": {"lengths": (3, 6)},
    "two lengths, one of them seldom": {"lengths": (3, 6), "shares": (9, 1)},
    "two lengths, restless": {"lengths": (3, 6), "spread": 0.1, "shares": (7, 3)},
    "four lengths": {"lengths": (10, 14, 20, 40), "shares": (5, 3, 1, 1)},
}


@pytest.mark.parametrize("series", SERIES.values(), ids=SERIES.keys())
@pytest.mark.parametrize("seed", range(3))
def test_at_most_1_in_200_of_5_000_healthy_steps_is_slow(series, seed):
    training, lengths = Training(), dict(series)
    durations = healthy(seed, *lengths.pop("lengths"), **lengths)
    for _ in range(5000):
        training.step(next(durations))
    assert len(training.numbers) <= 25


def test_two_lengths_by_strict_turns_are_not_slow(training):
    for number in range(600):
        training.step((3 + 3 * (number % 2)) * MS + number % 7)
    assert training.numbers == []


def test_a_slow_step_is_found_with_what_is_usual_and_its_phases(training):
    for _ in range(100):
        training.step((Phase.DATA_WAIT, 1 * MS), (Phase.FORWARD, 4 * MS), (Phase.BACKWARD, 5 * MS))
    training.step((Phase.DATA_WAIT, 1 * MS), (Phase.FORWARD, 34 * MS), (Phase.BACKWARD, 5 * MS))
    training.step((Phase.DATA_WAIT, 1 * MS), (Phase.FORWARD, 4 * MS), (Phase.BACKWARD, 5 * MS))
    ((number, epoch, begin_ns, times, usual, limit_ns, intervals, marks, num_left_out),) = training.found
    assert (number, epoch, marks, num_left_out) == (101, 0, [], 0)
    assert times == (40 * MS, (1 * MS, 34 * MS, 5 * MS, 0, 0, 0, 0), None)
    assert usual == (10 * MS, (1 * MS, 4 * MS, 5 * MS, 0, 0, 0, 0), None)
    assert limit_ns == 12 * MS
    assert [(phase, (end - begin) / MS) for phase, begin, end in intervals] == [(0, 1), (1, 34), (2, 5)]
    assert intervals[0][1] == begin_ns
    assert intervals[-1][2] == begin_ns + times[0]


def test_nothing_is_slow_before_64_steps(training):
    for number in range(60):
        training.step((300 if number == 30 else 3) * MS)
    assert training.numbers == []
    for _ in range(10):
        training.step(3 * MS)
    training.step(300 * MS)
    assert training.numbers == [71]


def test_steps_that_are_not_judged_are_not_slow_nor_usual(training):
    for _ in range(100):
        training.step(3 * MS)
    training.slow.set_enabled(False)
    for _ in range(300):
        training.step(30 * MS)
    training.slow.set_enabled(True)
    training.step(500 * MS)  # begun before: perhaps something was saved in it
    training.step(30 * MS)
    assert training.numbers == [401 + 1]


def test_lasting_slowdown_soon_becomes_the_usual_step_time(training):
    for length in (3, 5):
        for _ in range(400):
            training.step(length * MS)
    assert len(training.numbers) <= 12


def test_unread_slow_steps_are_dropped_and_counted(training):
    for _ in range(250):
        training.step(3 * MS)
    take, training.slow = training.slow.take, type("Ignored", (), {"take": lambda self: None})()
    for _ in range(11):
        training.step(50 * MS)
    found = list(iter(take, None))
    assert [each[0] for each in found] == list(range(251, 259))


def test_a_step_with_very_many_phases_says_how_many_are_left_out(training):
    for _ in range(100):
        training.step(3 * MS)
    training.step(*((number % 2, 1 * MS) for number in range(1000)))
    (found,) = training.found
    assert len(found[6]) == 256
    assert found[8] == 744


def test_any_slow_steps_are_found_as_documented(tmp_path):
    schedstat = tmp_path / "schedstat"
    schedstat.write_text("1 0 3\n")
    training, chance, delay_ns = Training(str(schedstat)), random.Random(1), 0
    steps, before_ns = [], 0
    for number in range(3000):
        mode = chance.choices((3, 5, 30), (80, 15, 1))[0]
        phases = [(chance.randrange(7), chance.random() * mode * MS) for _ in range(chance.randrange(1, 6))]
        delay_ns += chance.randrange(10**5)
        is_readable = number % 500 != 499
        schedstat.write_text(f"1 {delay_ns} 3\n" if is_readable else "unreadable")
        training.step(*phases)
        by_phase = [0] * len(Phase)
        for phase, duration_ns in phases:
            by_phase[phase] += round(duration_ns)
        is_known = is_readable and before_ns is not None
        steps.append((sum(by_phase), tuple(by_phase), delay_ns - before_ns if is_known else None))
        before_ns = delay_ns if is_readable else None
    expected = find_slow_steps(steps)
    assert len(expected) > 5
    assert [(found[0] - 1, *found[3:6]) for found in training.found] == expected


def test_waiting_ends_when_a_slow_step_is_there_and_when_it_is_stopped(training):
    assert not training.slow.wait()
    for _ in range(100):
        training.step(3 * MS)
    take, training.slow = training.slow, type("Ignored", (), {"take": lambda self: None})()
    training.step(50 * MS)
    assert take.wait()
    take.take()
    take.set_enabled(False)  # its clock stands still in the past, so the next step is late already
    take.stop()
    assert not take.wait()
