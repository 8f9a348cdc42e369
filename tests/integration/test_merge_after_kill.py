"""Commands wait for the process that merges a run, and make a merged trace that it has left undone."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kinetoscope.cli import main
from kinetoscope.core.job.ranks import Attempt, Ranks
from kinetoscope.formats.manifest import ConcurrentRanks, RankClosed, RankStarted, TraceFinished, append_entry
from kinetoscope.handlers.merge_process import MergeProcess
from kinetoscope.merge.merge_mark import is_being_merged

EVENT = {"ph": "X", "name": "x", "cat": "marker", "pid": 0, "tid": 9, "ts": 1, "dur": 1, "args": {"n": 1}}
NUM_RANKS = 2


def save(folder: Path, rank: int) -> None:
    """Write a rank's trace and manifest, as its handler does."""
    ranks = Ranks(rank, rank, NUM_RANKS, NUM_RANKS)
    append_entry(folder, rank, RankStarted(ranks, Attempt("a", 0, os.getpid(), f"now{rank}", os.uname().nodename)))
    append_entry(folder, rank, ConcurrentRanks([f"now{other}" for other in range(rank)], f"now{rank}"))
    header = {"baseTimeNanoseconds": 10**18, "kinetoscope": {"rank": rank, "cycle": 0}}
    path = folder / f"rank{rank}.json"
    path.write_text(json.dumps(header | {"traceEvents": [EVENT | {"name": f"rank {rank}"}]}))
    append_entry(folder, rank, TraceFinished(0, path.name, path.stat().st_size, {}, 0))
    append_entry(folder, rank, RankClosed(0))


@pytest.fixture
def merging(tmp_path):
    """The folder of a run with one rank of two, and the process that merges and waits for the other."""
    traces = tmp_path / "run" / "traces"
    traces.mkdir(parents=True)
    save(traces, 0)
    merge = MergeProcess(traces, traces / "merged_trace.json", node_rank=0, start="now0", run_folder=tmp_path / "run")
    merge._start(wait_s=150)
    deadline = time.monotonic() + 150
    while not is_being_merged(traces):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    yield tmp_path / "run", merge._process.pid
    merge._process.kill_and_wait()


def names_in(trace):
    return {event["name"] for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"}


@pytest.mark.parametrize("named", [".", "traces/merged_trace.json"])
def test_a_command_waits_for_the_process_that_merges(named, merging):
    run, _ = merging
    command = [sys.executable, "-m", "kinetoscope", "info", str(run / named)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as info:
        assert info.stderr is not None
        line = info.stderr.readline()
        assert line == f"Waiting for the process that merges the traces in {run / 'traces'}.\n"
        save(run / "traces", 1)  # the process that merges waits for it
        assert info.wait(150) == 0
    assert names_in(run / "traces" / "merged_trace.json") == {"rank 0", "rank 1"}
    assert [path.name for path in (run / "traces" / ".manifest").iterdir() if path.is_dir()] == []


def test_merged_trace_missing_after_a_kill_is_written_at_its_named_path(merging, capsys):
    run, pid = merging
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    save(run / "traces", 1)
    merged = run / "traces" / "merged_trace.json"
    assert main(["info", str(run)]) == 0  # the traces of all ranks are there: nothing is merged
    assert not merged.exists()
    assert main(["check", str(merged)]) == 0
    assert "Merging the traces" in capsys.readouterr().err
    assert names_in(merged) == {"rank 0", "rank 1"}


def test_no_other_missing_file_is_made(merging, capsys):
    run, pid = merging
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    for name in ("traces/other.json", "merged_trace.json"):
        assert main(["info", str(run / name)]) == 2
        assert "No such file or folder" in capsys.readouterr().err
        assert not (run / name).exists()


@pytest.mark.parametrize(
    ("name", "status"), [("x" * 5_000, 1), (f"{'x' * 5_000}/merged_trace.json", 1), ("\0/merged_trace.json", 2)]
)
def test_a_name_that_no_file_can_have_is_an_error_of_one_line(name, status, capsys):
    assert main(["info", name]) == status
    assert capsys.readouterr().err.startswith("error: ")
