"""kinetoscope.load on a run that is still recording, in a process of its own."""

import subprocess
import sys
from concurrent.futures import Executor, Future
from pathlib import Path

import polars as pl
import pytest

import kinetoscope
from kinetoscope import JSONTraceHandler, Profiler

TRAINING = """
import sys, time
from kinetoscope import Profiler, ProfilerAction
from kinetoscope.testing import MemoryTraceHandler
profiler = Profiler(lambda state: ProfilerAction.ACTIVE, MemoryTraceHandler(), spool_folder=sys.argv[1]).start()
step, loss = profiler.marker("step", categories=("training",)), profiler.marker("loss")
for number in range(100):
    with step:
        loss.counter({"train": number / 4})
profiler.marker("done").instant()
with profiler.marker("waiting"):
    print("ready", flush=True)
    sys.stdin.readline()
profiler.close()
"""


@pytest.fixture
def run(tmp_path):
    """The folder of a run that is inside a span, until the test ends."""
    command = [sys.executable, "-c", TRAINING, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield tmp_path
        process.communicate("go on\n", timeout=30)


def test_a_run_that_still_records_can_be_loaded(run: Path):
    before = sorted(run.rglob("*"))
    (trace,) = kinetoscope.load(run)
    spans = trace.spans.filter(~pl.col("name").str.starts_with("event/")).collect()
    assert spans.group_by("name").len().sort("name").rows() == [("step", 100), ("waiting", 1)]
    assert spans.filter(pl.col("name") == "step")["category"].unique().to_list() == ["training"]
    assert b"still open" in spans.filter(pl.col("name") == "waiting")["args"][0]
    assert trace.counters.collect()["value"].sum() == sum(range(100)) / 4
    assert trace.instants.collect()["name"].to_list() == ["done"]
    assert trace.rank == 0
    assert trace.tracks.collect()["thread"].to_list() == ["MainThread"]
    after = set(run.rglob("*"))
    assert set(before) <= after
    assert not any("cache" in path.name for path in after)  # the run itself may have made a file meanwhile


def test_a_run_that_still_records_has_a_report_that_is_not_kept(run: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(run.parent / "cache"))
    report = kinetoscope.analyze(run, step="step")
    assert report.run["num_steps"] == 100
    assert 0 < len(kinetoscope.analyze(run, step="step", last_s=30).steps) <= 100
    assert not list((run.parent / "cache").glob("**/*.report.json"))


def test_rank_is_reported_once_between_two_windows(tmp_path):
    """Its spool folder is there, with nothing in it that was not saved."""
    schedule = kinetoscope.cyclic_schedule(skip_first=1, warmup=0, active=3, per="run")
    with Profiler(schedule, JSONTraceHandler(str(tmp_path / "traces")), quiet=True) as profiler:
        for _ in range(6):
            profiler.step()
        assert profiler.lifecycle.drain(60)
        report = kinetoscope.analyze(tmp_path, cache=False)
        assert report.run["state"] == "recording"
        assert len(list(kinetoscope.load(tmp_path))) == 2
    assert [(row.rank, row.num_steps) for row in report.ranks] == [(0, 3)]
    assert sum("neither operators" in note for note in report.run["notes"]) == 1


# A worker records one item per batch; the window of the first two is saved.
WITH_WORKER = """
import os, sys
from kinetoscope import Profiler, ProfilerAction
from kinetoscope.testing import MemoryTraceHandler
requests, replies = os.pipe(), os.pipe()
def schedule(state):
    return ProfilerAction.ACTIVE_AND_SAVE if state.timestamp.batch == 1 else ProfilerAction.ACTIVE
profiler = Profiler(schedule, MemoryTraceHandler(), spool_folder=sys.argv[1]).start()
if os.fork() == 0:
    while os.read(requests[0], 1) == b"+":
        with profiler.marker("item"):
            pass
        os.write(replies[1], b"+")
    os._exit(0)
for batch in profiler.batches(range(3)):
    os.write(requests[1], b"+")
    os.read(replies[0], 1)
    if batch == 2:
        profiler.lifecycle.drain(30)
        print("ready", flush=True)
        sys.stdin.readline()
os.write(requests[1], b"-")
profiler.close()
"""


def test_records_of_a_worker_in_a_saved_window_are_not_shown_as_unsaved(tmp_path):
    command = [sys.executable, "-c", WITH_WORKER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        (trace,) = kinetoscope.load(tmp_path)
        assert trace.spans.filter(pl.col("name") == "item").collect()["batch"].to_list() == [2]
        process.communicate("go on\n", timeout=30)


def test_a_damaged_live_folder_is_shown_with_a_note(run: Path):
    (folder,) = (run / "live").iterdir()
    (folder / "77-1.chunk").write_bytes(b"garbage")
    trace = kinetoscope.load(folder)
    assert any("77-1.chunk" in note for note in trace.repairs)
    assert trace.instants.collect()["name"].to_list() == ["done"]


def test_a_live_folder_itself_is_one_trace(run: Path):
    (folder,) = (run / "live").iterdir()
    trace = kinetoscope.load(folder)
    now = trace.spans.select((pl.col("ts") + pl.col("dur")).max()).collect().item()
    assert trace.has_clock
    assert abs(now - (run / "live").stat().st_mtime_ns) < 60e9


# One window is saved, and another is open until the test ends it.
WITH_TRACES = """
import sys
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
def schedule(state):
    return ProfilerAction.ACTIVE if state.timestamp.batch % 10 != 9 else ProfilerAction.ACTIVE_AND_SAVE
with Profiler(schedule, JSONTraceHandler(sys.argv[1] + "/traces", merged_trace_filename=None)) as profiler:
    for batch in profiler.batches(range(15)):
        pass
    profiler.lifecycle.drain(60)
    print("ready", flush=True)
    sys.stdin.readline()
"""


class LateExecutor(Executor):
    """Ends a process before it does its first work."""

    def __init__(self, process: subprocess.Popen) -> None:
        self._process = process

    def submit(self, work, /, *values, **settings):
        if self._process.poll() is None:
            self._process.communicate("go on\n", timeout=60)
        future = Future()
        future.set_result(work(*values, **settings))
        return future


@pytest.mark.parametrize("read", [kinetoscope.analyze, kinetoscope.load])
def test_a_run_that_ends_while_it_is_read_is_read_without_what_it_had_not_saved(tmp_path, read):
    command = [sys.executable, "-c", WITH_TRACES, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        found = read(tmp_path, executor=LateExecutor(process), cache=False)
    if read is kinetoscope.analyze:
        assert found.run["num_steps"] == 10
        assert any("went away while it was read" in note for note in found.run["notes"])
    else:
        assert len(found[0].spans.filter(pl.col("name") == "event/batch").collect()) == 10
        assert [len(trace.spans.collect()) for trace in found[1:]] == [0]
    assert kinetoscope.analyze(tmp_path, cache=False).run["num_steps"] == 15
