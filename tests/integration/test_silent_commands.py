"""`kinetoscope run` of a command that steps no torch optimizer: it is recorded, or one line says why not."""

import sys

import polars as pl
import pytest

import kinetoscope
from support.autoinstrumented_runs import (
    KINETOSCOPE,
    UNINSTRUMENTED,
    frame_of,
    lines_added,
    lines_of_training,
    num_printed_steps,
    run,
    run_recorded,
    run_script,
)
from support.fork_server import run_command

pytest.importorskip("torch")


@pytest.mark.parametrize("options", [(), ("--count-by", "fetch")])
def test_without_a_torch_optimizer_a_fetch_after_a_backward_pass_is_a_step(options, tmp_path):
    plain = run_script(UNINSTRUMENTED, "own optimizer", folder=tmp_path)
    recorded = run_recorded(
        "--num-steps", "4", "-o", "run", *options, command=[UNINSTRUMENTED, "own optimizer"], folder=tmp_path
    )
    assert (recorded.returncode, lines_of_training(recorded)) == (plain.returncode, lines_of_training(plain)), (
        recorded.stderr
    )
    report = kinetoscope.analyze(tmp_path / "run")
    assert (report.run["all_steps"]["num_steps"], report.run["num_steps"]) == (num_printed_steps(plain), 4)
    steps = frame_of(tmp_path / "run").filter(pl.col("step") > 17)
    assert steps.filter((pl.col("forward_ns") == 0) | (pl.col("backward_ns") == 0)).is_empty()


@pytest.mark.parametrize(
    ("kind", "seen"),
    [
        ("by hand", "0 optimizer steps, 1 fetch and 36 backward passes"),
        ("own optimizer, briefly", "0 optimizer steps, 7 fetches and 6 backward passes"),
    ],
)
def test_training_without_steps_reports_once_the_expected_and_seen_events(kind, seen, tmp_path):
    plain = run_script(UNINSTRUMENTED, kind, folder=tmp_path)
    recorded = run_recorded("-o", "run", command=[UNINSTRUMENTED, kind], folder=tmp_path)
    assert (recorded.returncode, lines_of_training(recorded)) == (plain.returncode, lines_of_training(plain))
    (line,) = lines_added(recorded, plain)
    assert line.startswith("kinetoscope run: nothing was recorded: a step ends with a step of a torch optimizer")
    assert seen in line
    assert "profiler.step()" in line
    for command in ("summary", "status"):
        printed = run_command(command, tmp_path / "run")
        assert seen in " ".join((printed.stdout + printed.stderr).split())


def test_command_process_reports_a_missing_start_and_a_launcher_does_not(tmp_path):
    (tmp_path / "idle.py").write_text("import torch\n")
    command = [KINETOSCOPE, "run", "-o", "run", sys.executable, "idle.py"]
    assert "0 optimizer steps, 0 fetches and 0 backward passes" in run(*command, folder=tmp_path).stderr
    (tmp_path / "launch.py").write_text(
        "import subprocess, sys, torch\n"
        f"sys.exit(subprocess.call([sys.executable, {str(UNINSTRUMENTED)!r}, 'no loader']))\n"
    )
    for _ in range(2):  # the second one goes beside the first
        done = run(KINETOSCOPE, "run", "-o", "launched", sys.executable, "launch.py", folder=tmp_path)
        assert "optimizer steps" not in done.stderr
    command = [KINETOSCOPE, "run", "-o", "launched", sys.executable, "idle.py"]
    assert "0 optimizer steps" in run(*command, folder=tmp_path).stderr, "an earlier run is in this folder"


def test_a_command_without_torch_says_so_unless_a_process_below_it_trains(tmp_path):
    (tmp_path / "launch.py").write_text("import subprocess, sys\nsys.exit(subprocess.call(sys.argv[1:]))\n")
    start = [KINETOSCOPE, "run", "-o", "run", sys.executable, "launch.py", sys.executable]
    done = run(*start, "-c", "exit(7)", folder=tmp_path)
    assert (done.returncode, done.stderr.count("this process did not import torch")) == (7, 1)
    for command in ("summary", "status"):
        printed = run_command(command, tmp_path / "run")
        assert "this process did not import torch" in " ".join((printed.stdout + printed.stderr).split())
    done = run(*start, UNINSTRUMENTED, "no loader", folder=tmp_path)
    assert (done.returncode, len(frame_of(tmp_path / "run"))) == (3, 36)
    assert "nothing was recorded" not in done.stderr


def test_isolated_python_and_one_without_training_report_why_nothing_is_recorded(tmp_path):
    done = run(KINETOSCOPE, "run", "-o", "run", sys.executable, "-I", UNINSTRUMENTED, "no loader", folder=tmp_path)
    assert (done.returncode, done.stderr) == (3, "")
    for command in ("summary", "info"):
        shown = run_command(command, tmp_path / "run")
        assert shown.returncode == 1
        assert "no process below it has reached a step of a torch optimizer" in shown.stderr
        assert "-I" in shown.stderr
        assert "A program that only evaluates has no such steps: record it with kinetoscope.profile" in shown.stderr
