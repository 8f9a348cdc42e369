"""The command `kinetoscope try`, with real training programs."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kinetoscope.formats.experiments import read_experiments
from support.fork_server import run_command
from support.try_programs import find_left_running, write_programs

pytest.importorskip("torch")

BIN = Path(sys.executable).parent
VARIABLES = {"PATH": f"{BIN}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}


@pytest.fixture
def folder(tmp_path):
    write_programs(tmp_path)
    return tmp_path


def try_command(folder, *words, timeout_s=550):
    return run_command("try", *words, folder=folder, environment={**os.environ, **VARIABLES}, timeout_s=timeout_s)


@pytest.mark.timeout(600)
def test_each_variant_has_a_row_with_verdict_and_reason(folder):
    options = ["--yes", "--json", "-o", "out", "--rounds", "2", "--num-steps", "20", "--max-minutes", "9"]
    fixes = ["--variants", "mine.py", "--fix", "slow", "--fix", "crash", "--fix", "idle", "--fix", "bucket_cap_mb"]
    done = try_command(folder, *options, *fixes, "--", "python", "train.py")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    rows = {row["variants"][0]["name"]: row for row in found["rows"]}
    assert {name: row["verdict"] for name, row in rows.items() if name != "slow"} == {
        "crash": "failed",
        "idle": "not_applied",
        "bucket_cap_mb": "not_applied",
    }
    assert rows["crash"]["reason"] == "ValueError: this variant crashes"
    slow = rows["slow"]
    assert slow["step_after_ns"] - slow["step_before_ns"] > 40e6
    assert slow["interval"][0] < slow["change"] < slow["interval"][1]
    (kept,) = read_experiments(folder / "out")
    assert [row.verdict for row in kept.rows] == [row["verdict"] for row in found["rows"]]
    assert not (folder / "finally").exists()


def test_a_command_that_cannot_be_measured_is_an_error_with_its_last_lines(folder):
    done = try_command(folder, "--yes", "--fix", "fused", "--", "python", "-c", "print('no training here')")
    assert done.returncode == 1
    assert "error: The command could not be measured. The command ended before 30 training steps." in done.stderr
    assert done.stderr.rstrip().endswith("no training here")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--yes"], "Missing command. Try: kinetoscope try python train.py"),
        (["--yes", "--", "no-such-command"], "Command not found: no-such-command."),
        (["--", "python", "train.py"], "Pass --yes to start it without a question."),
        (["--yes", "--", "torchrun", "--nnodes", "2", "train.py"], "has ranks on other machines"),
        (["--yes", "--fix", "num_worker", "--", "python", "train.py"], "Did you mean num_workers?"),
        (["--yes", "--fix", "1", "--", "python", "train.py"], "need --run RUN"),
        (["--yes", "--run", "nowhere", "--", "python", "train.py"], "nowhere"),
        (["--yes", "-o", "precious/out", "--", "python", "train.py"], "Cannot write to the folder"),
        (["--yes", "-o", "/proc/out", "--", "python", "train.py"], "Cannot write to the folder"),
    ],
)
def test_a_mistake_is_one_line_and_starts_nothing(words, error, folder):
    done = try_command(folder, *words)
    assert done.returncode in (1, 2)
    assert error in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (folder / "finally").exists()


def test_a_dry_run_lists_the_variants_and_starts_nothing(folder):
    done = try_command(folder, "--dry-run", "--", "python", "train.py")
    assert done.returncode == 0
    assert "num_workers" in done.stdout
    assert not (folder / "runs").exists()


@pytest.mark.skipif("KINETOSCOPE_ALL_TRAININGS" not in os.environ, reason="in make test-long: some 20 starts")
@pytest.mark.timeout(300)
def test_variants_that_gain_are_tried_in_pairs_and_compared(folder):
    options = ["--yes", "--json", "-o", "out", "--rounds", "2", "--num-steps", "20", "--max-minutes", "4"]
    fixes = ["--fix", "num_workers=2", "--fix", "validate_args"]
    done = try_command(folder, *options, *fixes, "--", "python", "two_faults.py")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    rows = {" + ".join(sorted(one["name"] for one in row["variants"])): row for row in found["rows"]}
    assert {row["verdict"] for row in rows.values()} == {"faster"}
    pair = rows.pop("num_workers + validate_args")
    assert pair["change"] < min(row["change"] for row in rows.values())
    assert set(pair["code"].splitlines()) == {
        "DataLoader(..., num_workers=2)",
        "torch.distributions.Distribution.set_default_validate_args(False)",
    }
    assert {row["results"] for row in (pair, *rows.values())} == {"equal"}


@pytest.fixture
def start_try(folder):
    """Return a function that starts `kinetoscope try` as a shell does; it returns the process."""
    started = []

    def start(*words, **streams):
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
        words = [BIN / "kinetoscope", "try", *words]
        environment = {**os.environ, **VARIABLES}
        running = subprocess.Popen(words, cwd=folder, env=environment, text=True, process_group=0, **streams)
        started.append(running)
        return running

    yield start
    for running in started:
        running.kill()
        running.communicate()


@pytest.mark.timeout(300)
def test_ctrl_c_at_any_moment_ends_the_command_and_prints_what_is_known(folder, start_try):
    num_ended, after_s = random.choice((0, 0, 1, 2, 3)), random.uniform(0, 3)
    words = ["--yes", "--variants", "mine.py", "--fix", "half_rate", "--num-steps", "20", "-o", "out"]
    running = start_try(*words, "--", "bash", "train.sh")
    lines = [running.stderr.readline() for _ in range(2 + num_ended)]  # two before the first start
    time.sleep(after_s)
    os.killpg(running.pid, signal.SIGINT)
    printed, errors = running.communicate(timeout=60)
    moment = f"{after_s:.2f} s after {lines[-1]}"
    assert running.returncode == 130, (moment, errors)
    assert "Interrupted." in printed, moment
    assert not find_left_running(folder), moment
    assert (folder / "precious").exists(), moment
    assert read_experiments(folder / "out")[0].is_complete is False, moment


@pytest.mark.parametrize(("answer", "code"), [("n\n", 1), ("\n", 1), ("\x03", 130)])
def test_without_agreement_nothing_is_started_or_left(answer, code, folder, start_try):
    keyboard, terminal = os.openpty()
    try:
        running = start_try("--fix", "fused", "--", "python", "train.py", stdin=terminal)
        assert running.stderr.readline().startswith("The command will be started ")
        assert running.stderr.readline().startswith("Each start writes, deletes, ")
        assert running.stderr.read(13) == "Start? [y/N] "
        if answer == "\x03":
            os.killpg(running.pid, signal.SIGINT)  # the terminal is not the one that controls it
        else:
            os.write(keyboard, answer.encode())
        errors = running.communicate(timeout=60)[1]
    finally:
        os.close(keyboard)
        os.close(terminal)
    assert running.returncode == code, errors
    assert not (folder / "runs").exists()


def test_a_command_that_does_not_reach_its_last_step_is_an_error(folder):
    program = "import subprocess, time; subprocess.Popen(['sleep', '600']); time.sleep(600)"
    done = try_command(folder, "--yes", "--fix", "fused", "--max-minutes", "0.05", "--", "python", "-c", program)
    assert done.returncode == 1
    assert "It did not reach its last step within the time limit." in done.stderr
    assert not find_left_running(folder)


def test_a_command_that_works_only_once_has_a_result_that_says_so(folder):
    (folder / "once.sh").write_text("mkdir used || exit 3\npython train.py\n")
    done = try_command(folder, "--yes", "--json", "--fix", "fused", "-o", "out", "--", "bash", "once.sh")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert not found["is_complete"]
    note = "A later start of the unmodified command failed: the command ended with exit code 3 before 30 steps."
    assert note in found["notes"]
    assert [row["verdict"] for row in found["rows"]] in (["unsure"], ["failed"])
