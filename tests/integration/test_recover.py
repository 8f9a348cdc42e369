"""After a kill -9: `kinetoscope recover` writes the traces that a clean end would have written."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.fork_server import run_command, run_program
from support.trace_processor.trace_processor import load

TRAIN = """
import os, sys, threading, time
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction, State
folder, rank, world_size, kill_at = sys.argv[1], *map(int, sys.argv[2:])
os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
os.environ |= {"WORLD_SIZE": str(world_size), "LOCAL_WORLD_SIZE": str(world_size)}
plan = [ProfilerAction.SKIP, ProfilerAction.ACTIVE, ProfilerAction.ACTIVE_AND_SAVE] + [ProfilerAction.ACTIVE] * 1000
profiler = Profiler(lambda state: plan[state.timestamp.batch], JSONTraceHandler(folder + "/traces"), strict=True)
with profiler:
    while len(os.listdir(folder + "/traces/.manifest")) < world_size:
        time.sleep(0.01)
    work = profiler.marker("work", categories=("mine",))
    for batch in profiler.batches(range(100)):
        with profiler.marker("outer"):
            for _ in range(1000):
                with work:
                    pass
            profiler.marker("loss").counter({"loss": 0.5})
            if batch == kill_at:
                time.sleep(0.3)
                os.kill(os.getpid(), 9)
"""


def train(tmp_path, *, kill_at=6):
    return run_program(TRAIN, tmp_path / "run", 0, 1, kill_at)


def recover(tmp_path, *options):
    return run_command("recover", tmp_path / "run", *options)


def spans(path, name):
    events = json.loads(path.read_text())["traceEvents"]
    return [event for event in events if event["ph"] == "X" and event["name"] == name]


OVER_EPOCHS = """
import os, sys
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
with Profiler(lambda state: ProfilerAction.ACTIVE, JSONTraceHandler(sys.argv[1] + "/traces"), strict=True) as profiler:
    for epoch in range(3):
        for batch in profiler.batches(range(2)):
            with profiler.marker("work"):
                pass
    profiler.lifecycle.drain(30)
    os.kill(os.getpid(), 9)
"""


def test_recovered_spans_have_the_epoch_in_which_they_began(tmp_path):
    done = run_program(OVER_EPOCHS, tmp_path / "run")
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert recover(tmp_path).returncode == 0
    (trace,) = (tmp_path / "run" / "traces").glob("ep*.json")
    found = [(span["args"]["epoch"], span["args"]["batch"]) for span in spans(trace, "work")]
    assert found == [(0, 0), (0, 1), (1, 2), (1, 3), (2, 4), (2, 5)]


# In every batch a worker records a span of its own, and the process waits for it. Two windows are saved and three are
# not, because the writer thread is busy from batch 5 on.
WORKER = """
import os, sys, threading
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
requests, replies = os.pipe(), os.pipe()
def schedule(state):
    return ProfilerAction.ACTIVE if state.timestamp.batch % 3 else ProfilerAction.ACTIVE_AND_SAVE
with Profiler(schedule, JSONTraceHandler(sys.argv[1] + "/traces"), strict=True) as profiler:
    if os.fork() == 0:
        while (number := os.read(requests[0], 1)[0]) < 255:
            with profiler.marker(f"item {number}"):
                pass
            profiler.marker("queue", categories=("worker",)).counter({"waiting": number, "done": 100 + number})
            os.write(replies[1], b"x")
        os._exit(0)
    for batch in profiler.batches(range(100)):
        os.write(requests[1], bytes([batch]))
        os.read(replies[0], 1)
        if batch == 5:
            profiler.lifecycle.drain(30)
            profiler.lifecycle.services.delivery.writer.submit("Being slow", threading.Event().wait)
        if batch == 11:
            os.write(requests[1], bytes([255]))
            os.wait()
            os.kill(os.getpid(), 9)
"""


def test_each_worker_span_is_in_one_trace_even_if_saved_before_the_kill(tmp_path):
    done = run_program(WORKER, tmp_path / "run")
    assert done.returncode == -signal.SIGKILL, done.stderr
    saved = list((tmp_path / "run" / "traces").glob("ep*.json"))
    assert len(saved) == 2
    done = recover(tmp_path)
    assert done.returncode == 0, done.stderr
    traces = sorted((tmp_path / "run" / "traces").glob("ep*.json"), key=lambda path: path.stat().st_mtime_ns)
    found = [
        (path.name, f"item {number}") for path in traces for number in range(12) for _ in spans(path, f"item {number}")
    ]
    assert [name for _, name in found] == [f"item {number}" for number in range(12)]
    assert len({path for path, _ in found}) == 5
    events = [event for path in traces for event in json.loads(path.read_text())["traceEvents"]]
    counted = [event["args"] for event in events if event["ph"] == "C" and event["name"] == "queue"]
    assert counted == [{"waiting": number, "done": 100 + number} for number in range(12)]


# Killed right after its first trace has got its name, before or after it is in the manifest.
SAVING = """
import os, sys
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
from kinetoscope.recording.window.trace_folder import TraceFolder
class Killed(JSONTraceHandler):
    def process_cycle(self, cycle):
        if sys.argv[2] == "before":
            TraceFolder.add = lambda *arguments: os.kill(os.getpid(), 9)
        super().process_cycle(cycle)
        os.kill(os.getpid(), 9)
def schedule(state):
    return ProfilerAction.ACTIVE if state.timestamp.batch % 3 else ProfilerAction.ACTIVE_AND_SAVE
with Profiler(schedule, Killed(sys.argv[1] + "/traces"), strict=True) as profiler:
    for batch in profiler.batches(range(1)):
        with profiler.marker("work"):
            pass
    profiler.lifecycle.drain(30)
"""


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("keep", [[], ["--keep"]])
def test_a_window_that_was_saved_right_before_the_kill_is_not_written_again(tmp_path, moment, keep):
    done = run_program(SAVING, tmp_path / "run", moment)
    assert done.returncode == -signal.SIGKILL, done.stderr
    for options in [keep, []] if keep else [[]]:
        assert recover(tmp_path, *options).returncode == 0
    assert sum(len(spans(path, "work")) for path in (tmp_path / "run" / "traces").glob("ep*.json")) == 1
    assert len(spans(tmp_path / "run" / "traces" / "merged_trace.json", "work")) == 1


def test_equally_named_trace_of_another_process_is_no_unsaved_window(killed):
    folder = killed / "run" / "traces"
    other = json.loads((folder / "ep0-ba3-rank0.json").read_text())
    (folder / "ep0-ba6-rank0.json").write_text(json.dumps(other))
    assert recover(killed).returncode == 0
    assert len(spans(folder / "ep0-ba6-rank0.2.json", "work")) == 4 * 1000


@pytest.mark.parametrize("name", [b"caf\xe9", "café".encode(), b"two\nlines", b"a\\012b (deleted)"])
def test_a_run_is_recovered_from_a_folder_with_any_bytes_in_its_name(tmp_path, name):
    run = os.fsencode(tmp_path) + b"/" + name
    done = subprocess.run([sys.executable, "-c", WORKER, run], capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    strict = os.environ | {"PYTHONIOENCODING": "utf-8:strict"}  # as in most terminals
    done = subprocess.run([sys.executable, "-m", "kinetoscope", "recover", run], capture_output=True, env=strict)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(run) > 3  # it prints the names of its files as the file system has them
    traces = list(Path(os.fsdecode(run), "traces").glob("ep*.json"))
    assert sum(len(spans(path, f"item {number}")) for path in traces for number in range(12)) == 12


def test_traces_in_a_folder_with_an_undecodable_name_are_saved_recovered_and_merged(tmp_path):
    script = WORKER.replace('"/traces"', 'os.fsdecode(b"/tr\\xe9ces")')
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "run")], capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    done = subprocess.run([sys.executable, "-m", "kinetoscope", "recover", tmp_path / "run"], capture_output=True)
    assert done.returncode == 0
    merged = Path(os.fsdecode(os.fsencode(tmp_path / "run") + b"/tr\xe9ces/merged_trace.json"))
    assert sum(len(spans(merged, f"item {number}")) for number in range(12)) == 12


@pytest.fixture(scope="module")
def once_killed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed")
    assert train(folder).returncode == -signal.SIGKILL
    return folder / "run"


@pytest.fixture
def killed(once_killed, tmp_path):
    """The parent folder of a killed run's folder, which a test then recovers."""
    shutil.copytree(once_killed, tmp_path / "run")
    return tmp_path


def test_all_finished_spans_of_the_open_window_are_recovered_and_open_ones_truncated(killed):
    done = recover(killed)
    assert done.returncode == 0, done.stderr
    path = killed / "run" / "traces" / "ep0-ba6-rank0.json"  # batch 6 was in progress: six were complete
    assert len(spans(path, "work")) == 4 * 1000
    outer = spans(path, "outer")
    assert [("cut" in event["args"]) for event in outer] == [False, False, False, True]
    assert {event["cat"] for event in spans(path, "work")} == {"mine"}
    with load(path) as trace:
        assert trace.errors() == {}


def test_traces_saved_before_the_kill_stay_and_are_merged_with_the_recovered_ones(killed):
    recover(killed)
    traces = sorted(path.name for path in (killed / "run" / "traces").glob("*.json"))
    assert traces == ["ep0-ba3-rank0.json", "ep0-ba6-rank0.json", "merged_trace.json"]
    merged = killed / "run" / "traces" / "merged_trace.json"
    assert {event["args"]["batch"] for event in spans(merged, "event/batch")} == {1, 2, 3, 4, 5, 6}


def test_recovery_says_per_rank_and_thread_what_it_found_and_leaves_no_live_folder(killed):
    done = recover(killed)
    assert "Rank 0" in done.stdout
    assert "MainThread: 4," in done.stdout
    assert not list((killed / "run" / "live").glob("*"))
    assert "Nothing to recover" in recover(killed).stderr


def test_with_keep_the_live_folder_stays(killed):
    recover(killed, "--keep")
    assert list((killed / "run" / "live").glob("*"))


def test_a_new_run_in_the_same_folder_starts_and_names_the_command(killed):
    for path in (killed / "run" / "traces").glob("*.json"):
        path.unlink()
    again = train(killed, kill_at=1000)
    assert again.returncode == 0, again.stderr
    assert f"kinetoscope recover {killed / 'run'}" in again.stderr


def test_all_ranks_are_recovered_into_one_merged_trace(tmp_path):
    command = [sys.executable, "-c", TRAIN, str(tmp_path / "run")]
    ranks = [subprocess.Popen([*command, str(rank), "2", "6"]) for rank in (0, 1)]
    assert [rank.wait(60) for rank in ranks] == [-signal.SIGKILL] * 2
    done = recover(tmp_path)
    assert done.returncode == 0, done.stderr
    merged = tmp_path / "run" / "traces" / "merged_trace.json"
    assert {event["pid"] for event in spans(merged, "work")} == {0, 1}
    with load(merged) as trace:
        assert trace.errors() == {}


def test_a_process_that_still_runs_is_left_alone_also_where_there_are_no_locks(killed):
    (folder,) = (killed / "run" / "live").iterdir()
    (folder / "owner.lock").unlink()
    run = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(run | {"attempt": run["attempt"] | {"pid": os.getpid()}}))
    assert "still run" in recover(killed).stdout
    assert folder.exists()


def test_leftovers_of_another_machine_are_used_only_when_asked_for(killed):
    (folder,) = (killed / "run" / "live").iterdir()
    (folder / "owner.lock").write_text("the boot id of another machine\n")
    run = json.loads((folder / "run.json").read_text())
    run["attempt"]["host"] = "another machine"
    (folder / "run.json").write_text(json.dumps(run))
    assert "--other-hosts" in recover(killed).stdout
    assert folder.exists()
    assert recover(killed, "--other-hosts").returncode == 0
    assert not folder.exists()
    assert spans(killed / "run" / "traces" / "ep0-ba6-rank0.json", "work")


def test_run_without_a_writing_handler_is_recovered(killed):
    (folder,) = (killed / "run" / "live").iterdir()
    run = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(run | {"recipes": []}))
    assert recover(killed).returncode == 0
    assert spans(killed / "run" / "traces" / "ep0-ba6-rank0.json", "work")


def test_a_live_folder_that_cannot_be_read_does_not_keep_a_new_run_from_starting(killed):
    (folder,) = (killed / "run" / "live").iterdir()
    (folder / "run.json").write_text('{"run_na')
    for path in (killed / "run" / "traces").glob("*.json"):
        path.unlink()
    again = train(killed, kill_at=1000)
    assert again.returncode == 0, again.stderr
    assert "is unreadable" in again.stderr


def test_a_folder_with_nothing_to_recover_is_a_clear_error(tmp_path):
    (tmp_path / "run").mkdir()
    done = recover(tmp_path)
    assert done.returncode == 1
    assert "no spool folder" in done.stderr
