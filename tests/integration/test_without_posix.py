"""Commands and recording on a machine without POSIX: in processes that find Linux as Windows would be."""

import json
import os
import sys
from pathlib import Path

import pytest

from support.emulated_systems import WINDOWS, EmulatedSystem

WITHOUT_FOLDERS = (
    "this system cannot lock files or open them relative to a folder (fcntl, dir_fd), which keeps the files of a run's "
    "processes apart. Use Linux or macOS."
)


@pytest.fixture
def windows(tmp_path):
    return EmulatedSystem(WINDOWS, tmp_path, PATHEXT=".exe")


def write_trace(path: Path, rank: int = 0, num_spans: int = 20) -> Path:
    spans = [{"ph": "X", "name": f"op {n}", "pid": 1, "tid": 1, "ts": 10 * n, "dur": 5} for n in range(num_spans)]
    header = {"baseTimeNanoseconds": 1_790_857_026_000_000_000, "distributedInfo": {"rank": rank}}
    path.write_text(json.dumps(header | {"traceEvents": spans}))
    return path


def write_run(folder: Path) -> Path:
    """Return a run's folder with traces of two ranks, and with a pulse, which is never looked at here."""
    for name in ("traces", "pulse"):
        (folder / name).mkdir(parents=True)
    for rank in range(2):
        write_trace(folder / "traces" / f"ep0-ba9-rank{rank}.json", rank)
    return folder


def test_nothing_of_posix_is_there(windows):
    text = "import os, signal; print(hasattr(os, 'fork'), hasattr(signal, 'sigwait')); import fcntl"
    done = windows.program(text, new=True)
    assert (done.stdout, done.returncode) == ("False False\n", 1)


def test_a_trace_is_checked_and_described(windows, tmp_path):
    trace = write_trace(tmp_path / "rank0.json")
    checked = windows.command("check", trace, new=True)
    assert (checked.stdout, checked.stderr) == (f"{trace}: no faults (20 events).\n", "")
    described = windows.command("info", trace)
    assert (described.returncode, described.stderr) == (0, "")
    assert "20" in described.stdout


@pytest.mark.parametrize("name", ["packed.json.gz", "trace.pftrace", "trace.parquet"])
def test_a_trace_is_converted(windows, tmp_path, name):
    done = windows.command("convert", write_trace(tmp_path / "rank0.json"), "-o", tmp_path / name)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / name).stat().st_size > 0
    assert not list(tmp_path.glob(".*.partial"))


def test_traces_are_merged(windows, tmp_path):
    traces = [write_trace(tmp_path / f"rank{rank}.json", rank) for rank in range(2)]
    done = windows.command("merge", "--nice", "-o", tmp_path / "merged.json", *traces)
    assert (done.returncode, done.stderr) == (0, "")
    merged = json.loads((tmp_path / "merged.json").read_bytes())["traceEvents"]
    assert sum(event["ph"] == "X" for event in merged) == 40


def test_a_trace_is_loaded_again_and_again(windows, tmp_path):
    write_trace(tmp_path / "rank0.json")
    script = "import kinetoscope\nfor _ in range(2): print(kinetoscope.load('rank0.json').spans.collect().height)"
    done = windows.program(script)
    assert (done.stdout, done.stderr) == ("20\n20\n", "")


@pytest.mark.parametrize("verb", ["summary", "diff", "whatif", "report"])
def test_a_runs_traces_are_analysed(windows, tmp_path, verb):
    run = write_run(tmp_path / "run")
    runs = [run, run] if verb == "diff" else [run]
    done = windows.command(verb, *runs)
    assert (done.returncode, done.stderr) == (0, "")
    if verb == "report":
        assert (run / "report.html").stat().st_size > 100_000
    else:
        assert "step" in done.stdout


@pytest.mark.parametrize("verb", ["status", "record", "view", "recover", "upload"])
def test_commands_that_need_posix_say_so_in_one_sentence(windows, tmp_path, verb):
    run = write_run(tmp_path / "run")
    done = windows.command(verb, run)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"error: Cannot use {run} as the folder of a run: {WITHOUT_FOLDERS}\n"


# -- recording --

TRAINING = """
import sys, kinetoscope
with kinetoscope.profile("run", strict="strict" in sys.argv) as profiler:
    for _ in profiler.batches(range(4)):
        with profiler.marker("forward"):
            pass
print("trained")
"""
TORCH_TRAINING = """
import sys, torch
import kinetoscope.auto
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
print("trained", sys.argv[1:])
sys.exit(7)
"""


def test_training_continues_with_one_message_that_nothing_is_recorded(windows, tmp_path):
    done = windows.program(TRAINING, new=True)
    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert done.stderr.count("Nothing is recorded; training continues.") == 1
    assert WITHOUT_FOLDERS in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_strict_training_fails_before_its_start(windows, tmp_path):
    done = windows.program(TRAINING, "strict")
    assert (done.returncode, done.stdout) == (1, "")
    last = done.stderr.splitlines()[-1]
    assert last.startswith("kinetoscope.errors.UnsupportedSystemError: Cannot use run as the folder of a run: ")
    assert not (tmp_path / "run").exists()


def test_uninstrumented_training_does_so_too(windows, tmp_path):
    done = windows.program_with_torch(TORCH_TRAINING)
    assert (done.returncode, done.stdout) == (7, "trained []\n")
    assert WITHOUT_FOLDERS in done.stderr
    assert "Traceback" not in done.stderr
    assert not [*tmp_path.iterdir()]


def test_the_command_that_records_any_training_runs_it_and_keeps_its_exit_code(windows, tmp_path):
    (tmp_path / "train.py").write_text("import sys\nprint(sys.argv[1:])\nsys.exit(7)\n")
    python = tmp_path / "python.exe"  # Windows finds a program by the end of its name
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    done = windows.command("run", "-o", "run", python, "train.py", "--lr", "0.1")
    assert (done.returncode, done.stdout) == (7, "['--lr', '0.1']\n")
    assert done.stderr == f"warning: nothing is recorded: {WITHOUT_FOLDERS}\n"
    assert not (tmp_path / "run").exists()


def test_torchs_names_can_be_imported(windows):
    done = windows.program_with_torch("import kinetoscope, kinetoscope.torch\nprint(kinetoscope.TorchProfiler)")
    assert (done.returncode, done.stderr) == (0, "")


def test_without_torch_its_names_say_what_to_install(windows):
    for text in ("import kinetoscope; kinetoscope.TorchProfiler", "import kinetoscope.torch"):
        done = windows.program(text)
        assert done.stderr.splitlines()[-1] == (
            "kinetoscope.errors.MissingExtraError: TorchProfiler and kinetoscope.torch need torch, which is not "
            "installed. Install it as pytorch.org says for this machine: in most cases, pip install torch"
        )


def test_a_process_is_looked_for_without_the_signal_that_is_ctrl_c_there(windows):
    done = windows.program(
        "import os, sys\n"
        "kill = os.kill\n"
        "def kill_as_there(pid, number):\n"
        "    assert sys._getframe(1).f_globals['__name__'].startswith('psutil')\n"  # on Windows, it has another way
        "    kill(pid, number)\n"
        "os.kill = kill_as_there\n"
        "from kinetoscope.core.job.ranks import is_process_alive\n"
        f"print(is_process_alive(os.getpid()), is_process_alive({os.getpid()}), is_process_alive(2**30))"
    )
    assert done.stdout == "True True False\n", done.stderr
