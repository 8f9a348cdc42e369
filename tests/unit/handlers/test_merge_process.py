"""handlers/merge_process.py: merging in the background, also if it takes longer than the run."""

import json
import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from kinetoscope.core.job.ranks import Attempt, Ranks
from kinetoscope.formats.manifest import RankClosed, RankStarted, TraceFinished, append_entry
from kinetoscope.handlers import merge_process
from kinetoscope.handlers.merge_process import MergeProcess

MAX_WAIT_S = 150
NUM_EVENTS = 200_000
"""Events of a trace that takes long enough to read to be seen, also where the merging process gets little of a CPU."""
EVENT = {"ph": "X", "name": "x", "cat": "marker", "pid": 0, "tid": 9, "ts": 1, "dur": 1, "args": {"n": 1}}


def save(folder: Path, cycle: int, num_events: int) -> Path:
    """Write rank 0's trace of a cycle, as a handler does."""
    header = {"baseTimeNanoseconds": 10**18, "kinetoscope": {"rank": 0, "cycle": cycle}}
    path = folder / f"{cycle}.json"
    path.write_text(json.dumps(header | {"traceEvents": [EVENT | {"name": f"cycle {cycle}"}] * num_events}))
    append_entry(folder, 0, TraceFinished(0, path.name, path.stat().st_size, {}, cycle))
    return path


def stop_while_it_reads(pid: int, path: Path) -> None:
    """Stop a process as soon as it has opened a file."""
    until = time.monotonic() + MAX_WAIT_S
    while time.monotonic() < until:
        if any(file.path == str(path) for file in psutil.Process(pid).open_files()):
            os.kill(pid, signal.SIGSTOP)
            return
        time.sleep(0.001)
    pytest.fail("The merging process never read the trace.")


def test_a_merge_that_outlasts_the_run_also_merges_cycles_saved_meanwhile(tmp_path, monkeypatch):
    monkeypatch.setattr(merge_process, "_MIN_SECONDS_BETWEEN", 0.0)
    started = RankStarted(Ranks(), Attempt("a", 0, os.getpid(), "now", os.uname().nodename))
    append_entry(tmp_path, 0, started)
    large, output = save(tmp_path, 0, NUM_EVENTS), tmp_path / "merged.json"
    save(tmp_path, 1, 1)  # one trace alone is linked, not read
    merge = MergeProcess(tmp_path, output, node_rank=0, start="now", run_folder=tmp_path)
    merge.start_if_due()
    pid = merge._process.pid
    stop_while_it_reads(pid, large)
    save(tmp_path, 2, 1)
    append_entry(tmp_path, 0, RankClosed(0))
    try:
        assert not merge.finish(timeout_s=0.1)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert merge._process.wait(time.monotonic() + MAX_WAIT_S)
    names = [event["name"] for event in json.loads(output.read_text())["traceEvents"] if event["ph"] == "X"]
    assert names.count("cycle 1") == names.count("cycle 2") == 1
    assert names.count("cycle 0") == NUM_EVENTS
