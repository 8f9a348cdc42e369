"""`kinetoscope recover` takes each spool folder by itself: none is lost for the sake of another, or taken for it."""

import json
import os
import signal
import subprocess
from collections import Counter

import pytest

from support.fork_server import run_command, run_program

# Killed in batch 2, in the first window or before it.
TRAIN = """
import os, sys
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
folder, name, action = sys.argv[1:]
handler = JSONTraceHandler(folder + "/traces", overwrite=True)
with Profiler(lambda state: ProfilerAction[action], handler, strict=True) as profiler:
    for batch in profiler.batches(range(3)):
        with profiler.marker(name):
            pass
        if batch == 2:
            os.kill(os.getpid(), 9)
"""


def train_and_kill(tmp_path, name, action="ACTIVE"):
    done = run_program(TRAIN, tmp_path / "run", name, action)
    assert done.returncode == -signal.SIGKILL, done.stderr


def recover(tmp_path, *options):
    return run_command("recover", tmp_path / "run", *options)


def find_spool_folders(tmp_path):
    return sorted((tmp_path / "run" / "live").glob("*"))


def span_names(tmp_path):
    """Return how often each name is in the traces of the run."""
    traces = [json.loads(path.read_text()) for path in (tmp_path / "run" / "traces").glob("ep*.json")]
    return Counter(event["name"] for trace in traces for event in trace["traceEvents"] if event["ph"] == "X")


def test_process_killed_before_its_first_window_keeps_no_spans_of_another(tmp_path):
    train_and_kill(tmp_path, "skipped", "SKIP")
    train_and_kill(tmp_path, "recorded")
    done = recover(tmp_path)
    assert done.returncode == 0, done.stderr
    assert span_names(tmp_path)["recorded"] == 3
    assert not find_spool_folders(tmp_path)


def test_a_log_that_a_power_cut_left_empty_does_not_keep_another_ones_spans(tmp_path):
    train_and_kill(tmp_path, "skipped", "SKIP")
    train_and_kill(tmp_path, "recorded")
    for folder in find_spool_folders(tmp_path):
        (folder / "windows.jsonl").write_bytes(b"")
    done = recover(tmp_path)
    assert done.returncode == 0, done.stderr
    assert span_names(tmp_path)["recorded"] == 3


def test_unrecoverable_folder_is_reported_last_and_the_others_are_recovered(tmp_path):
    for name in ("before", "damaged", "after"):
        train_and_kill(tmp_path, name)
    damaged = find_spool_folders(tmp_path)[1]
    (damaged / "run.json").write_text('{"run_na')
    done = recover(tmp_path)
    assert done.returncode == 1
    assert f"{damaged} stays as it is" in done.stderr
    assert (span_names(tmp_path)["before"], span_names(tmp_path)["after"]) == (3, 3)
    assert find_spool_folders(tmp_path) == [damaged]


def mount(folder, *options):
    if os.geteuid() != 0 or subprocess.run(["mount", *options, str(folder)], capture_output=True).returncode:
        pytest.skip("this machine does not let us mount")


def test_window_without_disk_space_is_kept_and_written_later(tmp_path):
    train_and_kill(tmp_path, "work")
    traces = tmp_path / "run" / "traces"
    mount(traces, "-t", "tmpfs", "-o", "size=4k", "tmpfs")
    try:
        done = recover(tmp_path)
        assert done.returncode == 1
        assert "Window 1 is not in a trace" in done.stderr
        assert "No space left on device." in done.stderr
        assert "Errno" not in done.stderr
        assert f"kinetoscope recover {tmp_path / 'run'}" in done.stderr
        assert recover(tmp_path, "--discard").returncode == 1  # it could be read: nothing requires its deletion
        assert len(find_spool_folders(tmp_path)) == 1
        mount(traces, "-o", "remount,size=16m")
        assert recover(tmp_path).returncode == 0
        assert span_names(tmp_path)["work"] == 3
        assert not find_spool_folders(tmp_path)
    finally:
        subprocess.run(["umount", str(traces)], check=True)


@pytest.fixture
def same_pid(tmp_path):
    """Two attempts with the same pid were killed at the same batch: what a container's restarts leave."""
    for name in ("first", "second"):
        train_and_kill(tmp_path, name)
    first, second = find_spool_folders(tmp_path)
    pids = [json.loads((folder / "run.json").read_text())["attempt"]["pid"] for folder in (first, second)]
    run = json.loads((second / "run.json").read_text())
    (second / "run.json").write_text(json.dumps(run | {"attempt": run["attempt"] | {"pid": pids[0]}}))
    for path in list(second.iterdir()):
        if path.name.startswith(str(pids[1])):
            path.rename(second / path.name.replace(str(pids[1]), str(pids[0]), 1))
    return tmp_path


def test_data_readable_only_at_the_second_try_is_in_the_traces_once(tmp_path):
    """Without its records, the batch at which a process was killed is unknown: the trace gets another name."""
    train_and_kill(tmp_path, "recorded")
    chunks = list((tmp_path / "run" / "live").glob("*/*.chunk"))
    kept = [chunk.read_bytes() for chunk in chunks]
    for chunk, content in zip(chunks, kept, strict=True):
        chunk.write_bytes(content[:4] + b"\xff" + content[5:])
    assert recover(tmp_path).returncode == 1
    for chunk, content in zip(chunks, kept, strict=True):
        chunk.write_bytes(content)
    done = recover(tmp_path)
    assert done.returncode == 0, done.stderr
    assert span_names(tmp_path)["recorded"] == 3
    assert span_names(tmp_path)["event/batch"] == 3
    assert not find_spool_folders(tmp_path)


def test_two_attempts_with_equal_pid_killed_at_one_batch_are_not_confused(same_pid):
    done = recover(same_pid)
    assert done.returncode == 0, done.stderr
    assert (span_names(same_pid)["first"], span_names(same_pid)["second"]) == (3, 3)
    written = [line for line in done.stdout.splitlines() if "Written to" in line]
    assert len(set(written)) == 2
    assert not find_spool_folders(same_pid)


# A worker records in the second window, without records of its parent or an entry in the log
# yet: the writer thread has begun to save the first window before the second one opened.
WORKER = """
import os, sys, threading
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
requests, replies = os.pipe(), os.pipe()
saving = threading.Event()

class Killed(JSONTraceHandler):
    def process_cycle(self, cycle):
        saving.set()
        threading.Event().wait()

    def window_opened(self, state):
        if state.timestamp.batch == 1:
            os.write(requests[1], b"x")
            os.read(replies[0], 1)
            os.kill(os.getpid(), 9)

def open_window_late():
    if profiler.state.timestamp.batch == 1:
        saving.wait(20)
    open_window()

with Profiler(lambda state: ProfilerAction.ACTIVE_AND_SAVE, Killed(sys.argv[1] + "/traces"), strict=True) as profiler:
    open_window = profiler.lifecycle.windows.apply_action
    profiler.lifecycle.windows.apply_action = open_window_late
    if os.fork() == 0:
        os.read(requests[0], 1)
        for _ in range(5):
            with profiler.marker("item"):
                pass
        os.write(replies[1], b"x")
        os._exit(0)
    for batch in profiler.batches(range(2)):
        with profiler.marker("work"):
            pass
"""


def test_worker_records_are_recovered_from_a_window_without_parent_records(tmp_path):
    done = run_program(WORKER, tmp_path / "run")
    assert done.returncode == -signal.SIGKILL, done.stderr
    done = recover(tmp_path)
    assert done.returncode == 0, done.stderr
    assert (span_names(tmp_path)["work"], span_names(tmp_path)["item"]) == (1, 5)
    assert not find_spool_folders(tmp_path)
    assert os.path.exists(tmp_path / "run" / "traces" / "merged_trace.json")
