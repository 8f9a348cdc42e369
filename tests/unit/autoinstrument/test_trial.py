"""One start of `kinetoscope try`: the number of measured steps, and the result of a rank, which ends its process."""

import os
import signal
import sys
from types import SimpleNamespace

import pytest

from kinetoscope.autoinstrument.trial import Trial
from kinetoscope.autoinstrument.trial_files import (
    MIN_STEPS,
    NUM_STEPS_FILE,
    RELEASED_FILE,
    WARMUP_STEPS,
    RankResult,
    TrialSettings,
    is_abandoned,
    open_guard_pipe,
    read_results,
    write_result,
)

torch = pytest.importorskip("torch")


@pytest.fixture
def try_steps(tmp_path, monkeypatch):
    """A function that takes steps of so many seconds until the process would end, and returns the rank's result."""
    (tmp_path / RELEASED_FILE).touch()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    monkeypatch.setattr(os, "_exit", sys.exit)

    def run(step_s=1.0, max_steps=100, rank=0, optimizer=None, **settings):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", str(rank + 1))
        for other in range(rank):  # has ended before
            write_result(tmp_path, RankResult(rank=other, world_size=2, local_world_size=2, pid=1, step_times_ns=[]))
        trial = Trial(TrialSettings(folder=str(tmp_path), **settings))
        driver = SimpleNamespace(
            first_step=5, step_times_ns=lambda first, end: [round(step_s * 1e9) + step for step in range(first, end)]
        )
        with pytest.raises(SystemExit):
            for _ in range(max_steps):
                trial.handle_step(driver, optimizer)
                for parameter in [] if optimizer is None else optimizer.param_groups[0]["params"]:
                    parameter += 1
            trial.handle_run_end(driver, optimizer)
            for _ in range(100):  # of the next training run
                trial.handle_step(driver, optimizer)
        return read_results(tmp_path)[rank]

    yield run
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(("step_s", "num_steps"), [(0.0, 60), (0.1, 60), (0.99, 30), (1.4, 21), (10.0, MIN_STEPS)])
def test_a_trial_takes_as_many_steps_as_fit_into_its_time(try_steps, tmp_path, step_s, num_steps):
    result = try_steps(step_s, observes=True)
    first_ns = round(step_s * 1e9) + 5 + WARMUP_STEPS
    assert result.step_times_ns == [first_ns + index for index in range(num_steps)]
    assert (tmp_path / NUM_STEPS_FILE).read_text() == str(num_steps)
    assert result.facts.num_threads == torch.get_num_threads()
    assert result.parameters is None


@pytest.mark.parametrize(("choice", "num_steps"), [("25", 25), ("damaged", 60), (None, 60)])
def test_other_ranks_take_as_many_steps_as_rank_0_chose(try_steps, tmp_path, choice, num_steps):
    if choice is not None:
        (tmp_path / NUM_STEPS_FILE).write_text(choice)
    result = try_steps(rank=1, observes=True)
    assert (result.rank, len(result.step_times_ns)) == (1, num_steps)


def test_without_observing_all_steps_are_taken_and_no_facts_collected(try_steps, tmp_path):
    result = try_steps(10.0, num_steps=40)
    assert len(result.step_times_ns) == 40
    assert result.facts is None
    assert not (tmp_path / NUM_STEPS_FILE).exists()


@pytest.mark.parametrize(("num_in_first", "num_steps"), [(30, MIN_STEPS), (35, 25), (29, 60)])
def test_a_training_run_that_ends_early_is_measured_if_it_took_enough_steps(try_steps, num_in_first, num_steps):
    assert len(try_steps(max_steps=num_in_first).step_times_ns) == num_steps


def test_parameters_are_sampled_evenly_after_the_first_and_the_last_step(try_steps):
    large, small = torch.arange(5000.0), torch.tensor([0.5, float("inf")])
    optimizer = SimpleNamespace(param_groups=[{"params": [large.clone(), small.clone()]}])
    found = try_steps(optimizer=optimizer, num_steps=30, compares_results=True).parameters
    num_between = WARMUP_STEPS + 30 - 1
    assert found.first == [large[::5].tolist(), [0.5, None]]
    assert found.last == [(large[::5] + num_between).tolist(), [0.5 + num_between, None]]


def test_a_start_is_abandoned_once_no_process_has_the_pipe_open(tmp_path):
    start = tmp_path / "starts" / "001"
    assert not is_abandoned(start)  # no pipe: the file system may have none
    pipes = [open_guard_pipe(start.parent) for _ in range(2)]
    for pipe in pipes:
        assert not is_abandoned(start)
        os.close(pipe)
    assert is_abandoned(start)


def test_a_folder_that_cannot_have_a_pipe_has_none(tmp_path):
    (tmp_path / "starts").write_text("")
    assert open_guard_pipe(tmp_path / "starts") is None
    assert not is_abandoned(tmp_path / "starts" / "001")
