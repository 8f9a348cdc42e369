"""The command `kinetoscope try`, with real training programs."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kinetoscope.formats.experiments import read_experiments
from support.fork_server import run_command
from support.try_programs import write_programs

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


@pytest.mark.timeout(300)
def test_ctrl_c_ends_the_command_and_prints_what_is_known(folder):
    words = [BIN / "kinetoscope", "try", "--yes", "--fix", "fused", "-o", "out", "--", "bash", "train.sh"]
    running = subprocess.Popen(
        words, cwd=folder, env={**os.environ, **VARIABLES}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        log = folder / "out" / "experiments"
        end = time.monotonic() + 120
        while not any("training starts" in path.read_text() for path in log.glob("*/starts/*/log")):
            assert time.monotonic() < end
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        printed, errors = running.communicate(timeout=60)
    finally:
        running.kill()
    assert running.returncode == 130, errors
    assert "Interrupted." in printed
    assert (folder / "precious").exists()
    assert read_experiments(folder / "out")[0].is_complete is False
