"""Pulse of a run's loop: steps, waits and evaluations, for any form of loop."""

import os

import numpy
import pytest

from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction, cyclic_schedule
from kinetoscope.core.job.event import Callback
from kinetoscope.pulse.layout import FOLDER, Phase
from kinetoscope.pulse.pulses import find_pulses
from kinetoscope.testing import FakeClock, MemoryTraceHandler

MS = 1_000_000
NEVER = lambda state: ProfilerAction.SKIP  # noqa: E731


class Loop:
    """A run that records nothing, with batches that take 2 ms to fetch and 5 ms to train on."""

    def __init__(self, folder, **options):
        self.folder, self.clock = folder, FakeClock(tick_ns=0)
        self.profiler = Profiler(
            NEVER, JSONTraceHandler(str(folder / "traces")), clock=self.clock, quiet=True, strict=True, **options
        )

    def fetched(self, count=3):
        for number in range(count):
            self.clock.advance(2 * MS)
            yield number

    def train(self):
        self.clock.advance(5 * MS)

    def rows(self):
        """Return number, milliseconds and milliseconds by phase of each step; the last is None without a watcher."""
        (pulses,) = find_pulses(self.folder).values()
        of_phases = [
            {phase.name: row.by_phase[phase] / MS for phase in Phase if row.by_phase[phase]} for row in pulses[0].rows
        ]
        return [(row.step, row.duration_ns / MS, found) for row, found in zip(pulses[0].rows, of_phases, strict=True)]


def test_batches_are_steps_with_the_wait_for_each(tmp_path):
    loop = Loop(tmp_path)
    with loop.profiler as profiler:
        loop.clock.advance(100 * MS)  # before the loop, which is in the first step
        for _ in profiler.batches(loop.fetched()):
            loop.train()
    assert loop.rows() == [
        (0, 107, {"DATA_WAIT": 2, "OTHER": 105}),
        (1, 7, {"DATA_WAIT": 2, "OTHER": 5}),
        (2, 7, {"DATA_WAIT": 2, "OTHER": 5}),
    ]


def test_a_loop_that_calls_step_counts_its_batches(tmp_path):
    loop = Loop(tmp_path)
    with loop.profiler as profiler:
        for _ in loop.fetched():
            loop.train()
            profiler.step(samples=4)
    assert loop.rows() == [(number, 7, {"OTHER": 7}) for number in range(3)]


class Slow(Callback):
    """A source that takes 200 ms to begin to record, or to end."""

    def __init__(self, clock):
        self.clock, self.action = clock, ProfilerAction.SKIP

    def batch_end(self, state, logger):
        if (action := state.profiler.get_action()) is not self.action:
            self.action = action
            self.clock.advance(200 * MS)


def test_start_and_end_cost_of_a_window_are_in_no_step(tmp_path):
    clock = FakeClock(tick_ns=0)
    schedule = cyclic_schedule(skip_first=2, warmup=1, active=2, per="run")
    handler = JSONTraceHandler(str(tmp_path / "traces"))
    with Profiler(schedule, handler, sources=[Slow(clock)], clock=clock, quiet=True, strict=True) as profiler:
        for _ in range(8):
            clock.advance(5 * MS)
            profiler.step()
    rows = find_pulses(tmp_path)[0][0].rows
    assert [row.duration_ns / MS for row in rows] == [5] * 8
    assert rows[-1].begin_ns + rows[-1].duration_ns - rows[0].begin_ns >= 600 * MS


def test_an_evaluation_has_all_its_time_and_is_in_the_next_step(tmp_path):
    loop = Loop(tmp_path)
    with loop.profiler as profiler:
        for _ in range(2):
            for _ in profiler.batches(loop.fetched(1)):
                loop.train()
            with profiler.eval():
                for _ in profiler.batches(loop.fetched(2)):
                    loop.train()
    assert loop.rows() == [
        (0, 7, {"DATA_WAIT": 2, "OTHER": 5}),
        (1, 21, {"DATA_WAIT": 2, "OTHER": 5, "EVALUATION": 14}),
    ]


def test_an_evaluation_inside_a_batch_is_in_its_step(tmp_path):
    loop = Loop(tmp_path)
    with loop.profiler as profiler:
        for _ in profiler.batches(loop.fetched(2)):
            loop.train()
            for _ in profiler.batches(loop.fetched(2)):
                loop.train()
    assert loop.rows() == [(number, 21, {"DATA_WAIT": 2, "OTHER": 5, "EVALUATION": 14}) for number in range(2)]


def test_failed_fetch_restores_the_previous_phase(tmp_path):
    loop = Loop(tmp_path)

    def failing():
        yield from loop.fetched(1)
        loop.clock.advance(3 * MS)
        raise OSError("gone")

    with loop.profiler as profiler:
        with pytest.raises(OSError, match="gone"):
            for _ in profiler.batches(failing()):
                loop.train()
        for _ in profiler.batches(loop.fetched(1)):
            loop.train()
    assert loop.rows()[1] == (1, 10, {"DATA_WAIT": 5, "OTHER": 5})


def test_resumed_run_continues_its_count(tmp_path):
    from kinetoscope import State, Timestamp

    loop = Loop(tmp_path, state=State(run_name="run", timestamp=Timestamp(batch=500, epoch=3)))
    with loop.profiler as profiler:
        for _ in profiler.batches(loop.fetched(2)):
            loop.train()
    assert [row[0] for row in loop.rows()] == [500, 501]


def test_a_forked_child_leaves_the_pulse_of_its_parent_alone(tmp_path):
    loop = Loop(tmp_path)
    with loop.profiler as profiler:
        profiler.step()
        if (child := os.fork()) == 0:
            profiler.step()
            profiler.close()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        profiler.step()
    assert [row[0] for row in loop.rows()] == [0, 1]


def test_two_runs_in_one_process_have_a_pulse_each(tmp_path):
    for name in ("first", "second"):
        loop = Loop(tmp_path / name)
        with loop.profiler as profiler:
            profiler.step()
        assert len(loop.rows()) == 1


def test_a_run_without_a_folder_has_no_pulse(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Profiler(NEVER, MemoryTraceHandler()) as profiler:
        profiler.step()
    assert not list(tmp_path.iterdir())


def test_folder_creation_failure_is_reported_once_and_training_continues(tmp_path, caplog):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / FOLDER).write_text("a file of the user's")
    loop = Loop(tmp_path / "run")
    with loop.profiler as profiler:
        for _ in profiler.batches(loop.fetched()):
            loop.train()
    assert profiler.state.timestamp.batch == 3
    (warning,) = [message for message in caplog.messages if "pulse" in message]
    assert warning.endswith(f"Cannot write the pulse (the per-step log) to {tmp_path}/run/pulse: Not a directory.")


class Tensor:
    """Cannot be read without a wait for its device."""

    def __float__(self):
        raise AssertionError("its value was read")


@pytest.mark.parametrize("counters", [{"loss": 0.25, "lr": 1e-3}, {"loss": 3}, {"loss": numpy.float64(0.5)}])
def test_loss_from_a_counter_is_known_for_unrecorded_steps_too(tmp_path, counters):
    loop = Loop(tmp_path)
    warning = loop.profiler.marker("progress")
    with loop.profiler as profiler:
        for _ in profiler.batches(loop.fetched()):
            loop.train()
            warning.counter(counters)
    ((pulse,),) = find_pulses(tmp_path).values()
    assert pulse.header.loss == counters["loss"]


@pytest.mark.parametrize("value", [Tensor(), None, "0.3", True, 10**400])
def test_non_numeric_value_is_no_loss(tmp_path, value):
    loop = Loop(tmp_path)
    with loop.profiler as profiler:
        for _ in profiler.batches(loop.fetched()):
            profiler.marker("progress").counter({"loss": value})
    ((pulse,),) = find_pulses(tmp_path).values()
    assert pulse.header.loss is None


def test_between_windows_it_looks_at_memory_each_second(tmp_path):
    """A second of the loop is looked at where nothing is recorded, whatever the schedule calls it."""
    loop = Loop(tmp_path)
    loss = loop.profiler.marker("progress")
    with loop.profiler as profiler:
        for number in profiler.batches(loop.fetched(6)):
            loop.clock.advance(1000 * MS)
            loss.counter({"loss": float(number)})
            if number == 5:
                ((pulse,),) = find_pulses(tmp_path).values()
                assert pulse.header.loss == 4.0
