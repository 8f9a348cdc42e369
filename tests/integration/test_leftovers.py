"""Files that a kill leaves beside the traces and among the temporary files are removed later. Real kills."""

import json
import os
from pathlib import Path

import pytest

import kinetoscope
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
from kinetoscope.spool.folders import warn_of_unsaved_data
from kinetoscope.torch.kineto_stream import can_save_without_gil
from support.fork_server import run_command, run_program, run_with_torch, start_with_torch


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The folder for temporary files of this process's children."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def start(tmp_path, program, *arguments):
    return start_with_torch(program, *arguments, folder=tmp_path)


def kill_once(process, condition):
    try:
        while not condition():
            assert not process.has_ended(), "the program ended by itself"
    finally:
        process.kill()
        process.wait()


def recover(folder):
    done = run_command("recover", folder)
    assert done.returncode == 0, done.stderr


def hidden_files(folder):
    return [path for path in folder.rglob(".*") if path.name != ".manifest"]


def pipes(folder):
    return [Path(place) / name for place, _, names in os.walk(folder) for name in names if name == "trace.json.tmp"]


def names_in(path):
    return {event["name"] for event in json.loads(path.read_text())["traceEvents"]}


SAVES_TORCH_TRACES = """
import sys, torch
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction, TorchProfiler
def schedule(state):
    return ProfilerAction.ACTIVE if (state.timestamp.batch + 1) % 50 else ProfilerAction.ACTIVE_AND_SAVE
torch_profiler = TorchProfiler("run/torch_traces", {filename}, profile_memory=False)
with Profiler(schedule, JSONTraceHandler("run/traces"), sources=[torch_profiler]) as profiler:
    for batch in profiler.batches(range(10**9)):
        for _ in range(20):
            torch.ones(3) + 1
        if batch % 50 == 49:
            profiler.lifecycle.drain(60)
"""


def saving_torch_traces(filename):
    return SAVES_TORCH_TRACES.replace("{filename}", filename)


@pytest.mark.parametrize("filename", ["'rank{rank}.{batch}.pt.trace.json'", "None"])
def test_a_kill_while_a_torch_trace_is_saved_leaves_files_in_the_live_folder_alone(tmp_path, temporary, filename):
    if not saves_without_gil_here():
        pytest.skip("this torch saves with the lock, by way of a file")
    kill_once(start(tmp_path, saving_torch_traces(filename)), lambda: pipes(tmp_path))
    [live] = (tmp_path / "run" / "live").iterdir()
    assert pipes(tmp_path) == pipes(live)
    assert os.listdir(temporary) == []
    recover(tmp_path / "run")
    assert not live.exists()
    assert hidden_files(tmp_path / "run") == []


def saves_without_gil_here():
    from kinetoscope.torch import profile

    with profile() as profiler:
        pass
    return can_save_without_gil(profiler.pop_results().windows[-1].kineto_results)


SAVES_ALONE = """
import sys, torch
from kinetoscope.torch import profile
for number in range(int(sys.argv[1])):
    with profile() as profiler:
        for _ in range(1000):
            torch.ones(3) + 1
    profiler.export_chrome_trace(f"trace{number % 2}.json")
"""


def test_temporary_files_of_a_killed_torch_profiler_are_removed_at_the_next_export(tmp_path, temporary):
    if not saves_without_gil_here():
        pytest.skip("this torch saves with the lock, by way of a file")
    kill_once(start(tmp_path, SAVES_ALONE, 10**9), lambda: pipes(tmp_path))
    [left] = temporary.iterdir()
    assert left.stat().st_mode & 0o777 == 0o700
    assert run_with_torch(SAVES_ALONE, 1, folder=tmp_path).returncode == 0
    assert os.listdir(temporary) == []


CONTRIBUTES = """
import os, sys, threading
from pathlib import Path
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
file, ending = Path(sys.argv[1]), sys.argv[2]
with Profiler(lambda state: ProfilerAction.ACTIVE, JSONTraceHandler("run/traces")) as profiler:
    for batch in profiler.batches(range(10)):
        with profiler.marker("work"):
            pass
        if batch == 3:
            profiler.record_chrome_json_trace_file(file)
            file.unlink()
            assert profiler.lifecycle.drain(60)
        if batch == 4 and ending == "kill":
            os.kill(os.getpid(), 9)
"""


def contribute(tmp_path, folder, ending):
    file = folder / f"kinetoscope-test-{os.getpid()}.json"
    event = {"ph": "X", "name": "contributed", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
    file.write_text(json.dumps({"traceEvents": [event]}))
    try:
        return run_program(CONTRIBUTES, file, ending, folder=tmp_path)
    finally:
        file.unlink(missing_ok=True)
        assert [path for path in folder.iterdir() if file.name in path.name] == []


def other_file_system(tmp_path):
    folder = Path("/dev/shm")
    if not os.access(folder, os.W_OK) or folder.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system here")
    return folder


@pytest.mark.parametrize("place", [lambda tmp_path: tmp_path, other_file_system], ids=["beside", "elsewhere"])
def test_a_contributed_file_is_kept_until_it_is_saved_and_not_longer(tmp_path, temporary, place):
    done = contribute(tmp_path, place(tmp_path), "end")
    assert done.returncode == 0, done.stderr
    assert "contributed" in names_in(tmp_path / "run" / "traces" / "merged_trace.json")
    assert hidden_files(tmp_path / "run") == []
    assert os.listdir(temporary) == []


@pytest.mark.parametrize("place", [lambda tmp_path: tmp_path, other_file_system], ids=["beside", "elsewhere"])
def test_file_contributed_to_an_unsaved_window_is_in_the_recovered_trace(tmp_path, temporary, place):
    assert contribute(tmp_path, place(tmp_path), "kill").returncode == -9
    assert os.listdir(temporary) == []
    recover(tmp_path / "run")
    assert {"contributed", "work"} <= names_in(tmp_path / "run" / "traces" / "merged_trace.json")
    assert hidden_files(tmp_path / "run") == []
    assert not (tmp_path / "run" / "live").exists() or os.listdir(tmp_path / "run" / "live") == []


KILLED_IN_MID_FILE = """
import os
from pathlib import Path
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
from kinetoscope.core.paths.atomic_file import atomic_file
with Profiler(lambda state: ProfilerAction.ACTIVE, JSONTraceHandler("run/traces")) as profiler:
    with atomic_file(Path("run/traces/ep0-ba9-rank0.json")) as stream:
        stream.write(b"half of a trace")
        os.kill(os.getpid(), 9)
"""


def half_written(tmp_path):
    return list((tmp_path / "run" / "traces").glob(".*.partial"))


def test_partial_trace_of_a_killed_process_is_deleted_by_recovery(tmp_path):
    assert run_program(KILLED_IN_MID_FILE, folder=tmp_path).returncode == -9
    assert len(half_written(tmp_path)) == 1
    recover(tmp_path / "run")
    assert half_written(tmp_path) == []


def test_partial_trace_of_a_killed_process_is_deleted_by_a_restart(tmp_path):
    assert run_program(KILLED_IN_MID_FILE, folder=tmp_path).returncode == -9
    again = """
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
with Profiler(lambda state: ProfilerAction.SKIP, JSONTraceHandler("run/traces", overwrite=True)):
    pass
"""
    assert run_program(again, folder=tmp_path).returncode == 0
    assert half_written(tmp_path) == []


@pytest.mark.parametrize("by", ["recover", "summary", "info", "the next start"])
def test_only_an_empty_folder_of_a_dead_process_is_deleted_and_not_by_readers(tmp_path, by):
    traces = JSONTraceHandler(str(tmp_path / "run" / "traces"), overwrite=True)
    with Profiler(lambda state: ProfilerAction.ACTIVE, traces) as profiler:
        profiler.step()
    names = ("20261128T071948-4426-76d613b1", "20261128T071949-4426-76d613b1", "mine")
    old, new, mine = (tmp_path / "run" / "live" / name for name in names)
    for folder in (old, new, mine):
        folder.mkdir(parents=True)
    for folder in (old, mine):
        os.utime(folder, (1, 1))
    kinetoscope.load(tmp_path / "run")
    run_command("status", tmp_path / "run")
    assert old.exists()
    if by == "the next start":
        warn_of_unsaved_data(tmp_path / "run")
    else:
        run_command(by, tmp_path / "run")
    assert [folder.exists() for folder in (old, new, mine)] == [False, True, True]


def test_recover_removes_nothing_through_a_link(tmp_path):
    assert run_program(KILLED_IN_MID_FILE, folder=tmp_path).returncode == -9
    (tmp_path / "run" / "traces").rename(tmp_path / "elsewhere")
    (tmp_path / "run" / "traces").symlink_to(tmp_path / "elsewhere")
    run_command("recover", tmp_path / "run")
    assert len(list((tmp_path / "elsewhere").glob(".*.partial"))) == 1
