"""The writer of a pulse: its phases and steps, and blocks that sum up the steps that they replace."""

import os
import random
from itertools import pairwise
from threading import get_ident

import pytest

from kinetoscope.native import native
from kinetoscope.pulse.layout import (
    BLOCK,
    COARSE_AT,
    COARSE_SLOTS,
    FINE_AT,
    FINE_SLOTS,
    NOW,
    NOW_AT,
    NUM_EXACT,
    NUM_FINE,
    STEP,
    STEPS_AT,
    STEPS_PER_FINE,
    Phase,
)
from reference.pulse import block_at, expected_blocks, last_step


class Clock:
    def __init__(self):
        self.now_ns = 10**12

    def __call__(self):
        return self.now_ns


class Training:
    """A writer with its file and clock, and the durations of its steps."""

    def __init__(self, num_coarse=COARSE_SLOTS):
        self.clock, self.durations = Clock(), []
        self.file = bytearray(COARSE_AT + num_coarse * BLOCK.size)
        self.writer = native.PulseWriter(self.file, self.clock)
        self.writer.watch_thread(get_ident())

    def step(self, *phases):
        """Return a step of phases and nanoseconds."""
        for phase, duration_ns in phases:
            if phase == Phase.BACKWARD:
                self.writer.begin_backward()
            elif phase == Phase.OPTIMIZER:
                self.writer.begin_optimizer(None, (), {})
            else:
                self.writer.enter(phase)
            self.clock.now_ns += duration_ns
            if phase == Phase.BACKWARD:
                self.writer.end_backward()
            elif phase == Phase.OPTIMIZER:
                self.writer.end_optimizer(None, (), {})
        self.durations.append(sum(duration_ns for _, duration_ns in phases))
        return self.writer.end_step(len(self.durations) - 1, len(self.durations) // 100)


def train(training, num_steps, seed=0):
    chance = random.Random(seed)
    for _ in range(num_steps):
        training.step(*((chance.choice([*Phase]), chance.randrange(10**7)) for _ in range(chance.randrange(1, 5))))


def test_time_after_the_earlier_end_of_a_step_is_in_no_step():
    training = Training()
    start_ns = training.clock.now_ns
    training.writer.begin_step()
    for phase, duration_ns in ((Phase.FORWARD, 30), (Phase.OTHER, 5), (Phase.EVALUATION, 40), (Phase.OTHER, 100)):
        training.writer.enter(phase)
        training.clock.now_ns += duration_ns
    training.writer.end_step(0, 0, start_ns + 35)
    training.step((Phase.FORWARD, 7))
    training.writer.end_step(2, 0, 0)  # a time before the step began
    found = [STEP.unpack_from(training.file, STEPS_AT + place * STEP.size) for place in range(3)]
    assert [(begin_ns - start_ns, duration_ns) for _, begin_ns, duration_ns, *_ in found] == [
        (0, 35),
        (175, 7),
        (182, 0),
    ]
    assert [sum(by_phase) for _, _, _, *by_phase, _, _ in found] == [35, 7, 0]
    assert found[0][3 + Phase.FORWARD] == 30


@pytest.mark.parametrize("num_steps", [0, 1, NUM_EXACT + 3, NUM_EXACT + (NUM_FINE + 70) * STEPS_PER_FINE + 5, 40_000])
def test_blocks_sum_up_the_steps_that_they_replace(num_steps):
    """The last of them as after 60 million steps: there were more coarse blocks than have room."""
    training, steps, num_coarse = Training(num_coarse=4), [], 4
    chance = random.Random(1)
    training.writer.begin_step()
    for _ in range(num_steps):
        training.step(*((chance.choice([*Phase]), chance.randrange(10**7)) for _ in range(chance.randrange(1, 5))))
        steps.append(last_step(training.file, len(steps) + 1))
    assert [(step[0], step[2], sum(step[3:-2])) for step in steps] == [
        (number, duration_ns, duration_ns) for number, duration_ns in enumerate(training.durations)
    ]
    now = NOW.unpack_from(training.file, NOW_AT)
    assert now[1] == num_steps
    fine, coarse, per_coarse = expected_blocks(steps, num_coarse)
    first_fine, num_fine, num_complete = now[2:5]
    assert now[5] == per_coarse
    places = [FINE_AT + number % FINE_SLOTS * BLOCK.size for number in range(first_fine, first_fine + len(fine))]
    places += [COARSE_AT + number * BLOCK.size for number in range(len(coarse))]
    assert [block_at(training.file, at) for at in places] == [pytest.approx(block) for block in fine + coarse]
    assert (num_fine - first_fine, num_complete) == tuple(
        sum(block[3] == size for block in some) for some, size in ((fine, STEPS_PER_FINE), (coarse, per_coarse))
    )


def test_phases_are_kept_as_intervals_from_the_first_request_on():
    training = Training()
    training.writer.begin_backward()
    training.clock.now_ns += 5
    training.writer.start_phase_log()
    training.clock.now_ns += 7
    training.writer.end_backward()
    train(training, 300)
    training.writer.begin_optimizer()
    training.clock.now_ns += 3
    intervals, num_left_out = training.writer.drain_phase_log()
    assert training.writer.drain_phase_log() == ([], 0)
    first, *_, last = intervals
    assert (first[0], first[2] - first[1]) == (Phase.BACKWARD, 7), "an earlier part is left out"
    assert (last[0], last[2] - last[1]) == (Phase.OPTIMIZER, 3), "an open phase is truncated"
    assert all(one[2] <= other[1] and one[1] < one[2] for one, other in pairwise(intervals))
    assert num_left_out == 0


def test_phase_across_the_end_of_a_step_is_one_interval():
    training = Training()
    training.writer.start_phase_log()
    training.writer.begin_optimizer()
    training.clock.now_ns += 3
    training.writer.end_step(0, 0)
    training.clock.now_ns += 4
    training.writer.end_optimizer()
    ((interval,), _) = training.writer.drain_phase_log()
    assert interval == (Phase.OPTIMIZER, 10**12, 10**12 + 7)


def test_activity_of_other_threads_is_not_reported():
    training = Training()
    training.writer.watch_thread(get_ident() + 1)
    before = bytes(training.file)
    training.clock.now_ns += 5
    for call in (training.writer.begin_backward, training.writer.end_backward, training.writer.begin_optimizer):
        call()
    assert (training.file, training.writer.num_backward()) == (before, 0)


def test_second_one_is_reported_once():
    training = Training()
    reported = [training.step((Phase.OTHER, 300_000_000)) for _ in range(10)]
    assert [index for index, is_reported in enumerate(reported) if is_reported] == [3, 7]


def test_a_forked_child_writes_nothing_into_its_parents_file():
    training = Training()
    train(training, 5)
    before = bytes(training.file)
    if (child := os.fork()) == 0:
        training.writer.begin_step()
        train(training, 5)
        os._exit(0 if training.file == before else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_nothing_is_written_after_the_end():
    training = Training()
    train(training, 5)
    training.writer.close()
    before = bytes(training.file)
    train(training, 5)
    training.writer.close()
    assert training.file == before
    training.file.clear()  # without references


@pytest.mark.parametrize("phase", [-1, len(Phase), 2**70])
def test_a_phase_that_there_is_not_is_refused(phase):
    with pytest.raises((ValueError, OverflowError)):
        Training().writer.enter(phase)


def test_a_file_that_is_too_short_is_refused():
    with pytest.raises(ValueError, match="too short"):
        native.PulseWriter(bytearray(COARSE_AT + 2 * BLOCK.size - 1), None)


def test_a_step_of_an_optimizer_within_one_ends_with_the_outer():
    """A subclass's step calls the one above, and torch hooks both."""
    training = Training()
    writer = training.writer
    for _ in range(2):
        writer.enter(Phase.OTHER)
        writer.begin_optimizer()
        writer.begin_optimizer()
        training.clock.now_ns += 3
        writer.end_optimizer()
        training.clock.now_ns += 2
        writer.end_optimizer()
        training.clock.now_ns += 4
    assert writer.enter(Phase.OTHER) == Phase.OTHER
    writer.end_step(0, 0)
    by_phase = STEP.unpack_from(training.file, STEPS_AT)[3:-2]
    assert (by_phase[Phase.OPTIMIZER], by_phase[Phase.OTHER]) == (10, 8)


def test_a_step_of_an_optimizer_that_raised_is_none_within_the_next():
    training = Training()
    writer = training.writer
    writer.begin_optimizer()
    writer.begin_optimizer()  # torch's hooks tell of no end where a step raises
    writer.enter(Phase.DATA_WAIT)
    writer.enter(Phase.OTHER)
    writer.begin_optimizer()
    writer.end_optimizer()
    assert writer.enter(Phase.OTHER) == Phase.OTHER


class Graph:
    """The autograd graph of a training run, which counts its nodes."""

    def __init__(self):
        self.training, self.num_nodes = Training(), 0
        self.training.writer.watch_graph(lambda: self.num_nodes)

    def run(self, *phases):
        """Run ``(phase, nanoseconds, nodes)`` each; returns the step's nanoseconds by phase, and the known phases."""
        writer, clock = self.training.writer, self.training.clock
        for phase, duration_ns, num_nodes in phases:
            if phase == Phase.DATA_WAIT:
                writer.enter(phase)
            elif phase == Phase.BACKWARD:
                writer.begin_backward()
            elif phase == Phase.OPTIMIZER:
                writer.begin_optimizer(None, (), {})
            clock.now_ns += duration_ns
            self.num_nodes += num_nodes
            if phase == Phase.DATA_WAIT:
                writer.enter(Phase.OTHER)
            elif phase == Phase.BACKWARD:
                writer.end_backward()
            elif phase == Phase.OPTIMIZER:
                writer.end_optimizer(None, (), {})
        place = len(self.training.durations)
        self.training.durations.append(0)
        writer.end_step(place, 0)
        _, _, _, *by_phase, _, known = STEP.unpack_from(self.training.file, STEPS_AT + place * STEP.size)
        return dict(zip(Phase, by_phase, strict=True)), known


def test_the_forward_pass_is_where_the_graph_is_built_also_before_the_fetch():
    graph = Graph()
    ahead = (Phase.OTHER, 700, 40), (Phase.DATA_WAIT, 5, 0), (Phase.OTHER, 3, 1), (Phase.BACKWARD, 300, 0)
    for number in range(3):
        times, _ = graph.run(*ahead, (Phase.OPTIMIZER, 20, 0))
        assert times[Phase.FORWARD] == (703 if number else 3), "the first backward pass shows the order"
    plain = (Phase.OTHER, 100, 2), (Phase.DATA_WAIT, 5, 0), (Phase.OTHER, 700, 40), (Phase.BACKWARD, 300, 0)
    for number in range(3):
        times, _ = graph.run(*plain, (Phase.OPTIMIZER, 20, 0))
        assert times[Phase.FORWARD] == (700 if number else 800), "a metric builds a graph too, a smaller one"


def test_rollout_without_autograd_is_distinguished_from_the_forward_pass():
    graph = Graph()
    writer, clock = graph.training.writer, graph.training.clock
    assert writer.has_no_graph()
    clock.now_ns += 1000
    writer.enter(Phase.OTHER)
    times, _ = graph.run((Phase.OTHER, 70, 4), (Phase.BACKWARD, 30, 0), (Phase.OPTIMIZER, 5, 0))
    assert (times[Phase.OTHER], times[Phase.FORWARD]) == (1000, 70)
    graph.num_nodes += 1
    assert not writer.has_no_graph()
    writer.begin_backward()
    assert not writer.has_no_graph(), "that is a phase"
    writer.end_backward()
    writer.watch_graph(None)
    assert not writer.has_no_graph(), "unknown"


def test_a_step_that_is_over_is_added_with_unknown_phases():
    training = Training()
    for number in range(NUM_EXACT + 5):
        training.writer.add_step(number, 10 * number, 10 * number + 7)
    step = STEP.unpack_from(training.file, STEPS_AT + 4 * STEP.size)
    assert (step[:3], step[-1]) == ((NUM_EXACT + 4, 10 * (NUM_EXACT + 4), 7), 0)
    training.step((Phase.OTHER, 9))
    assert STEP.unpack_from(training.file, STEPS_AT + 5 * STEP.size)[2] == 9
