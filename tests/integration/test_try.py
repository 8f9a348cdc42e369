"""The command `kinetoscope try`, with real training programs."""

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import kinetoscope
from kinetoscope.core.text.wording import format_file_size
from kinetoscope.formats.experiments import read_experiments
from support.fork_server import run_command
from support.try_programs import GUARD_JOB, find_left_running, write_programs

pytest.importorskip("torch")

BIN = Path(sys.executable).parent
VARIABLES = {"PATH": f"{BIN}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1", "TERM": "xterm"}


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
    done = try_command(folder, *options, *fixes, "--", "python", "train.py", "1000", "0.02")
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
    error = "error: The command could not be measured: it ended before the first step of a torch optimizer.\n"
    (log,) = folder.glob("runs/*/experiments/*/starts/001/log")
    tail = f"{error}The last lines of its output, {log}:\nno training here\n"
    assert done.stderr.endswith(tail)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--yes"], "Missing command. Try: kinetoscope try python train.py"),
        (["--yes", "--", "no-such-command"], "Command not found: no-such-command."),
        (["--yes", "--", "./train.sh"], "Cannot execute ./train.sh. Try: kinetoscope try bash ./train.sh"),
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


@pytest.mark.skipif("KINETOSCOPE_LONG_TESTS" not in os.environ, reason="in make test-long: some 20 starts")
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


@pytest.mark.skipif("KINETOSCOPE_ALL_TRAININGS" not in os.environ, reason="in make test-long: it takes a minute")
@pytest.mark.timeout(300)
def test_without_a_run_the_first_start_is_recorded_and_its_findings_are_tried(folder):
    options = ["--yes", "--json", "--rounds", "2", "--num-steps", "20", "--max-minutes", "0.7"]
    done = try_command(folder, *options, "--", "python", "two_faults.py")
    assert done.returncode == 0, done.stderr
    tried = {row["variants"][0]["name"]: row["findings"] for row in json.loads(done.stdout)["rows"]}
    (run,) = folder.glob("runs/*")
    (finding,) = (one for one in kinetoscope.analyze(run).findings if one.kind == "input_bound")
    assert tried["num_workers"] == [finding.id]


COMMANDS = {"script": ("bash", "train.sh"), "torchrun": ("torchrun", "--standalone", "train.py")}


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
    assert not list(folder.glob("out/experiments/*/starts")), moment


@pytest.mark.timeout(300)
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_kill_9_at_any_moment_ends_the_command(command, folder, start_try):
    after_s = random.uniform(0, 6)
    running = start_try("--yes", "--fix", "fused", "-o", "out", "--", *command)
    [running.stderr.readline() for _ in range(2)]
    time.sleep(after_s)
    running.kill()
    running.wait()
    end = time.monotonic() + 30
    while left := find_left_running(folder):
        assert time.monotonic() < end, (after_s, left)
        time.sleep(0.1)
    assert (folder / "precious").exists(), after_s


@pytest.mark.timeout(300)
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_without_try_and_its_guard_the_command_ends_at_its_last_measured_step(command, folder, start_try):
    running = start_try("--yes", "--fix", "fused", "-o", "out", "--", *command)
    while not (trained := list(folder.glob("out/experiments/*/starts/001/recording"))):
        time.sleep(0.1)
    (guard,) = (process for process in find_left_running(folder) if GUARD_JOB in process.cmdline())
    guard.kill()
    running.kill()
    running.wait()
    end = time.monotonic() + 100
    while left := find_left_running(folder):
        assert time.monotonic() < end, left
        time.sleep(0.1)
    assert list(trained[0].parent.glob("rank*.json"))
    assert (folder / "precious").exists()


@pytest.mark.skipif("KINETOSCOPE_ALL_TRAININGS" not in os.environ, reason="in make test-long: it waits for 30 s")
@pytest.mark.timeout(300)
def test_the_next_line_of_a_script_does_not_run_while_try_is_suspended(folder, start_try):
    running = start_try("--yes", "--fix", "idle", "--variants", "mine.py", "-o", "out", "--", "bash", "train.sh")
    while not list(folder.glob("out/experiments/*/starts/001/log")):
        time.sleep(0.1)
    running.send_signal(signal.SIGSTOP)
    time.sleep(40)
    assert (folder / "precious").exists()
    running.send_signal(signal.SIGCONT)
    assert running.wait(timeout=200) == 0
    assert (folder / "precious").exists()


def test_a_terminal_shows_the_time_of_the_current_start(folder, start_try):
    other, terminal = os.openpty()
    words = ["--yes", "--fix", "fused", "--max-minutes", "0.05", "--", "python", "-c", "import time; time.sleep(600)"]
    running = start_try(*words, stderr=terminal)
    os.close(terminal)
    shown = b""
    with contextlib.suppress(OSError):  # at the end of the terminal
        while read := os.read(other, 4096):
            shown += read
    os.close(other)
    assert running.wait() == 1
    times = re.findall(r"(\d) s of at most 3 s: start 1: unmodified, not counted", shown.decode())
    assert len({*times}) >= 2
    last = shown.decode().rpartition("of at most")[2]
    assert "error: The command could not be measured: it did not reach its last step within" in last


@pytest.mark.parametrize(("answer", "code"), [("n\n", 1), ("\n", 1), ("\x03", 130)])
def test_without_agreement_nothing_is_started_or_left(answer, code, folder, start_try):
    keyboard, terminal = os.openpty()
    try:
        running = start_try("--copy", "--fix", "fused", "--", "python", "train.py", stdin=terminal)
        assert running.stderr.readline().startswith("The command will be started ")
        assert running.stderr.readline().startswith("Each start writes, deletes, ")
        size = format_file_size(sum(path.stat().st_size for path in folder.iterdir() if path.is_file()))
        assert running.stderr.readline() == f"Each start gets a copy of {folder}: {size}.\n"
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
    assert (errors == "Nothing was started.\n") == (code == 1)
    assert not (folder / "runs").exists()


def test_a_command_that_does_not_reach_its_last_step_is_an_error(folder):
    program = "import subprocess, time; subprocess.Popen(['sleep', '600']); time.sleep(600)"
    done = try_command(folder, "--yes", "--fix", "fused", "--max-minutes", "0.05", "--", "python", "-c", program)
    assert done.returncode == 1
    assert "it did not reach its last step within its time limit of 3 s." in done.stderr
    assert "s of at most" not in done.stderr  # that is for terminals
    assert not find_left_running(folder)


def test_a_command_that_fails_without_output_leaves_no_folder(folder):
    done = try_command(folder, "--yes", "--fix", "fused", "--", "sh", "-c", "exit 3")
    assert done.returncode == 1
    assert "it ended with exit code 3 before the first step of a torch optimizer." in done.stderr
    assert not (folder / "runs").exists()


def test_a_command_that_works_only_once_has_a_result_that_says_so(folder):
    (folder / "once.sh").write_text("mkdir used || exit 3\npython train.py\n")  # mkdir prints the error
    done = try_command(folder, "--yes", "--json", "--fix", "fused", "-o", "out", "--", "bash", "once.sh")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert not found["is_complete"]
    (note,) = (note for note in found["notes"] if note.startswith("A later start of the unmodified command failed"))
    assert "exit code 3 before the first step of a torch optimizer: mkdir: " in note
    assert note.endswith("pass --copy.")
    assert not any("--max-minutes" in note for note in found["notes"])
    assert [row["verdict"] for row in found["rows"]] in (["unsure"], ["failed"])
