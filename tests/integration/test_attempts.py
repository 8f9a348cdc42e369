"""Starts of one run after another, and side by side, in one folder: nobody takes another one's data."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from kinetoscope.recording.recorder_choice import IS_PURE

needs_files = pytest.mark.skipif(IS_PURE, reason="the recorder in Python keeps everything in memory")

# Trains in a folder, and kills itself or ends in a batch; before that it waits for a file, if one is named.
TRAIN = """
import os, sys, time
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
folder, name, how = sys.argv[1:4]
handler = JSONTraceHandler(folder + "/traces", "ep{epoch}-ba{batch}-" + name + "-rank{rank}.json")
with Profiler(lambda state: ProfilerAction.ACTIVE, handler, strict=True) as profiler:
    for batch in profiler.batches(range(3)):
        with profiler.marker(name):
            pass
    print(os.getpid(), flush=True)
    if how == "wait":
        sys.stdin.readline()
    if how == "kill":
        os.kill(os.getpid(), 9)
"""


def own_pid_namespace() -> list[str]:
    """What makes a command run where it has the same pid each time, as in containers; skips where it cannot be had."""
    for options in ([], ["--user", "--map-root-user"]):
        command = ["unshare", *options, "--pid", "--fork"]
        try:
            if subprocess.run([*command, "true"], capture_output=True, timeout=60).returncode == 0:
                return command
        except FileNotFoundError:
            break
    pytest.skip("needs a pid namespace of its own: unshare --pid")


def start_in_container(tmp_path: Path, name: str, how: str) -> subprocess.Popen:
    """A process that is number 2 in a pid namespace of its own, below a shell that is number 1."""
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(TRAIN))
    command = [sys.executable, str(script), str(tmp_path / "run"), name, how]
    return subprocess.Popen(
        [*own_pid_namespace(), "sh", "-c", '"$@"; exit $?', "sh", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def kinetoscope(*arguments: object, within: tuple[str, ...] | list[str] = ()) -> subprocess.CompletedProcess:
    command = [*within, sys.executable, "-m", "kinetoscope", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)


def span_names(trace: Path) -> set[str]:
    return {event["name"] for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"}


@needs_files
def test_a_second_start_with_the_same_pid_keeps_what_the_killed_first_one_left(tmp_path):
    first = start_in_container(tmp_path, "first", "kill")
    pid, _ = first.communicate(timeout=120)
    second = start_in_container(tmp_path, "second", "end")
    same_pid, log = second.communicate(timeout=120)
    assert (pid, first.returncode, second.returncode) == (same_pid, 128 + signal.SIGKILL, 0), log
    assert f"kinetoscope recover {tmp_path / 'run'}" in log
    done = kinetoscope("recover", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    (recovered,) = (tmp_path / "run" / "traces").glob("*first*")
    assert "first" in span_names(recovered)
    (saved,) = (tmp_path / "run" / "traces").glob("*second*")
    assert "second" in span_names(saved)


@needs_files
def test_a_process_that_lives_in_another_container_is_not_recovered(tmp_path):
    running = start_in_container(tmp_path, "alive", "wait")
    assert running.stdout is not None
    running.stdout.readline()
    try:
        done = kinetoscope("recover", tmp_path / "run", "--other-hosts", within=own_pid_namespace())
        assert "still run" in done.stdout, done.stderr
        assert len(list((tmp_path / "run" / "live").iterdir())) == 1
    finally:
        _, log = running.communicate("\n", timeout=120)
    assert running.returncode == 0, log
    assert not (tmp_path / "run" / "live").exists()


WITH_WORKERS = """
import multiprocessing, os, sys
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
folder = sys.argv[1]
with Profiler(lambda state: ProfilerAction.ACTIVE, JSONTraceHandler(folder + "/traces"), strict=True) as profiler:
    for batch in profiler.batches(range(2)):
        worker = multiprocessing.get_context("fork").Process(target=os.getpid)
        worker.start()
        worker.join()
    print("worked", flush=True)
    sys.stdin.readline()
"""


@needs_files
def test_a_forked_worker_that_ends_does_not_make_its_parent_look_dead(tmp_path):
    running = subprocess.Popen(
        [sys.executable, "-c", WITH_WORKERS, str(tmp_path / "run")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    running.stdout.readline()
    try:
        assert "still run" in kinetoscope("recover", tmp_path / "run").stdout
    finally:
        running.communicate("\n", timeout=120)
    assert running.returncode == 0


@needs_files
def test_a_live_folder_of_the_same_name_is_not_deleted(tmp_path, monkeypatch, caplog):
    from kinetoscope import Profiler, ProfilerAction
    from kinetoscope.testing import MemoryTraceHandler
    from kinetoscope.training import attempt

    monkeypatch.setattr(attempt, "_new_start", lambda: "twice")
    (tmp_path / "live" / "twice").mkdir(parents=True)
    (tmp_path / "live" / "twice" / "somebody").write_text("else's")
    with Profiler(lambda state: ProfilerAction.ACTIVE, MemoryTraceHandler(), live_folder=tmp_path):
        pass
    assert (tmp_path / "live" / "twice" / "somebody").read_text() == "else's"
    assert "cannot be used" in caplog.text
    assert os.listdir(tmp_path / "live") == ["twice"]
