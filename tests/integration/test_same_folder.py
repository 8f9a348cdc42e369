"""Two processes with the same run folder: the second one records into another folder, and no trace is lost."""

import pytest

import kinetoscope
from kinetoscope.errors import FolderNotEmptyError
from support.fork_server import KINETOSCOPE_MODULES, start_forked
from support.polling import wait_for
from support.trace_files import trace_json

RECORDS = """
import sys, time
import kinetoscope
from pathlib import Path
with kinetoscope.profile(sys.argv[1], torch=False, system=False) as profiler:
    Path(sys.argv[2]).touch()
    while not Path(sys.argv[3]).exists():
        time.sleep(0.01)
    for _ in profiler.batches(range(30)):
        pass
"""


def profile(folder, **settings):
    return kinetoscope.profile(folder, torch=False, system=False, **settings)


def until_begun(begun, other):
    """Wait until the other process records."""
    wait_for(lambda: begun.exists() or other.has_ended())
    assert begun.exists(), other.wait()


def test_second_process_records_next_to_the_first_and_replaces_nothing(tmp_path):
    run, begun, go_on = tmp_path / "run", tmp_path / "begun", tmp_path / "go on"
    other = start_forked(KINETOSCOPE_MODULES, RECORDS, run, begun, go_on)
    try:
        until_begun(begun, other)
        handler = kinetoscope.JSONTraceHandler(str(run / "traces"))
        with pytest.raises(FolderNotEmptyError, match=rf"^Process {other.pid} records rank 0 into the trace folder"):
            profile(tmp_path, handlers=[handler]).start()
        with profile(run) as profiler:
            list(profiler.batches(range(30)))
    finally:
        go_on.touch()
        done = other.wait()
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "run-2" / "traces").glob("ep*.json.gz"))
    (trace,) = (run / "traces").glob("ep*.json.gz")
    assert trace_json(trace)["traceEvents"]


def test_run_after_a_kill_writes_next_to_recoverable_data(tmp_path):
    run, begun = tmp_path / "run", tmp_path / "begun"
    other = start_forked(KINETOSCOPE_MODULES, RECORDS, run, begun, tmp_path / "never")
    try:
        until_begun(begun, other)
    finally:
        other.kill()
        other.wait()
    with profile(run) as profiler:
        for _ in profiler.batches(range(30)):
            pass
    assert list((tmp_path / "run-2" / "traces").glob("ep*.json.gz"))
    assert list((run / "live").iterdir())
