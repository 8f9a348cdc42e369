"""`kinetoscope run`: several training runs of one process, of one command, or on threads."""

import polars as pl
import pytest

import kinetoscope
from kinetoscope.core.paths.later_run import find_latest_rerun
from kinetoscope.core.paths.run_folder import RunFolder
from kinetoscope.server.run_lists import RunLists
from support.autoinstrumented_runs import (
    UNINSTRUMENTED,
    environment_of,
    frame_of,
    lines_added,
    lines_of_training,
    run_recorded,
    run_script,
    start_recorded,
)
from support.fork_server import run_command

pytest.importorskip("torch")


@pytest.mark.parametrize(("kind", "num_steps"), [("sweep", [30] * 5), ("two stages", [40] * 2)])
def test_each_training_of_a_process_is_a_run_and_the_first_three_have_windows(kind, num_steps, tmp_path):
    plain = run_script(UNINSTRUMENTED, kind, folder=tmp_path)
    options = ("--after", "3", "--num-steps", "4", "-o", "run")
    profiled = run_recorded(*options, command=[UNINSTRUMENTED, kind], folder=tmp_path)
    assert (profiled.returncode, lines_of_training(profiled)) == (plain.returncode, lines_of_training(plain)), (
        profiled.stderr
    )
    folders = [tmp_path / "run", *(tmp_path / "run" / str(number) for number in range(2, len(num_steps) + 1))]
    assert [len(frame_of(folder)) for folder in folders] == num_steps
    assert not (tmp_path / "run" / str(len(num_steps) + 1)).exists()
    for folder in folders[:3]:
        assert kinetoscope.analyze(folder).run["num_steps"] == 4
    for folder in folders[3:]:
        assert "window of each of its first 3 training runs" in run_command("summary", folder).stderr
    (note,) = [note for note in kinetoscope.analyze(folders[0]).run["notes"] if "This process trained" in note]
    assert f"This process trained {len(num_steps)} times" in note
    of_all_runs = run_command("summary", tmp_path).stderr
    assert f"{tmp_path / 'run'}: {note} Runs are in it: name one of" in of_all_runs
    if kind == "sweep":
        assert "1: SGD with lr 0.1, 90 parameters, 30 steps" in note
        assert "5: SGD with lr 0.1, 1,410 parameters, 30 steps" in note
        listed = {run.title: run.notes[0] for run in RunLists(RunFolder(tmp_path), "").all().runs}
        assert listed["run"].startswith("Training run 1 of its process: SGD with lr 0.1, 90 parameters, 30 steps")
        assert listed["run/5"].startswith("Training run 5 of its process: SGD with lr 0.1, 1,410 parameters, 30 steps")
        later = frame_of(folders[1]).filter(pl.col("step") < 15)
        assert later["forward_ns"].null_count() == 15, "of steps before it was known, the phases are unknown"
        assert later["duration_ns"].min() >= 0 < later["duration_ns"].median()
    assert len(lines_added(profiled, plain)) == 2, "one window is announced, and how to look at it"


def test_later_runs_are_in_the_folder_of_the_first_one_if_it_is_named_by_its_start(tmp_path):
    """`kinetoscope run` names the folder; with ``import kinetoscope.auto`` each run would be named by its own start."""
    (tmp_path / "many.py").write_text(MANY_RUNS.replace("import torch", "import kinetoscope.auto, torch"))
    run_script("many.py", folder=tmp_path)
    (folder,) = (tmp_path / "runs").iterdir()
    assert {file.name for file in folder.iterdir()} >= {"2", "3", "4"}


MANY_RUNS = """
import torch
import kinetoscope.autoinstrument.instrumentation

kinetoscope.autoinstrument.instrumentation.MAX_RUNS = 4  # 200 of them take 20 s
for _ in range(7):
    weight = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(20):
        weight.sum().backward()
        optimizer.step()
"""


def test_training_runs_above_the_limit_get_no_folder_and_one_line(tmp_path):
    (tmp_path / "many.py").write_text(MANY_RUNS)
    done = run_recorded("-o", "run", command=["many.py"], folder=tmp_path)
    folders = [tmp_path / "run", *(tmp_path / "run" / str(number) for number in range(2, 5))]
    assert [len(frame_of(folder)) for folder in folders] == [20] * 4
    assert not (tmp_path / "run" / "5").exists()
    (line,) = [line for line in done.stderr.splitlines() if "trained 4 times" in line]
    assert line.startswith("kinetoscope run: nothing more is recorded: ")


def test_training_jobs_of_one_command_are_separate_runs_in_parallel_and_in_turn(tmp_path):
    environment = environment_of("-o", "sweep", folder=tmp_path)
    for num_at_once in (2, 1):
        started = [start_recorded(environment, [UNINSTRUMENTED, "no loader"], tmp_path) for _ in range(num_at_once)]
        assert {training.wait().returncode for training in started} == {3}
    runs = [kinetoscope.analyze(tmp_path / folder).run for folder in ("sweep", "sweep-2", "sweep-3")]
    assert [run["all_steps"]["num_steps"] for run in runs] == [36, 36, 36]
    assert not list(tmp_path.glob("sweep*/**/attempt*"))
    assert find_latest_rerun(tmp_path / "sweep") == tmp_path / "sweep-3"
    message = "3 processes of this command trained, each in a folder of its own: sweep to sweep-3."
    for folder in ("sweep", "sweep-2", "sweep-3"):
        for command in ("summary", "status"):
            shown = run_command(command, tmp_path / folder)
            assert message in " ".join((shown.stdout + shown.stderr).split())
            assert "A later run" not in shown.stderr
    start_recorded(environment_of("-o", "sweep", folder=tmp_path), [UNINSTRUMENTED, "no loader"], tmp_path).wait()
    assert "A later run of this name is in" in run_command("status", tmp_path / "sweep").stderr
    assert "processes" not in run_command("status", tmp_path / "sweep-4").stdout


def test_a_launch_with_the_name_of_one_that_is_over_is_another_run(tmp_path):
    """As torchrun's is, which has the same port each time."""
    launch = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    environment = {**environment_of("-o", "run", folder=tmp_path), **launch}
    for folder in (tmp_path / "run", tmp_path / "run-2"):
        start_recorded(environment, [UNINSTRUMENTED, "no loader"], tmp_path).wait()
        assert kinetoscope.analyze(folder).run["all_steps"]["num_steps"] == 36


THREAD = """
import runpy, sys, threading
sys.argv = [sys.argv[1], "no loader"]
def train():
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit:
        pass
thread = threading.Thread(target=train)
thread.start()
thread.join()
"""


def test_training_on_another_thread_is_recorded_too(tmp_path):
    script = tmp_path / "threaded.py"
    script.write_text(THREAD)
    done = run_recorded("-o", "run", command=[script, UNINSTRUMENTED], folder=tmp_path)
    assert "window recorded in 36 batches" in done.stderr
    assert done.stderr.count("registerClient") <= 1, "Kineto reports once that another thread has imported torch"


TWO_THREADS = """
import sys, threading, torch

at_once = sys.argv[1] == "at once"
both_step = threading.Barrier(2 if at_once else 1)

def train(is_first):
    if not is_first and not at_once:
        threads[0].join()
    weight = torch.ones(4, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for (batch,) in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(32, 4)), batch_size=2):
        (weight * batch).sum().backward()
        both_step.wait()
        optimizer.step()
        both_step.wait()
    both_step.wait()  # neither ends before the other's last step

threads = [threading.Thread(target=train, args=[is_first]) for is_first in (True, False)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.parametrize(("how", "folders"), [("at once", ["run"]), ("one after the other", ["run", "run/2"])])
def test_one_of_two_concurrent_training_threads_is_recorded_and_both_in_turn(tmp_path, how, folders):
    script = tmp_path / "threads.py"
    script.write_text(TWO_THREADS)
    options = ("-o", "run", "--after", "2", "--num-steps", "5")
    done = run_recorded(*options, command=[script, how], folder=tmp_path)
    assert "Watching the training failed" not in done.stderr
    assert "window recorded in 16 batches" in done.stderr
    assert (tmp_path / "run" / "2").exists() == ("run/2" in folders)
    assert [len(frame_of(tmp_path / folder)) for folder in folders] == [16] * len(folders)
    steps = frame_of(tmp_path / "run").filter(pl.col("step") >= 2)
    assert len(steps.filter(pl.col("backward_ns") > 0, pl.col("optimizer_ns") > 0)) == 14
