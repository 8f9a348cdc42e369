"""State of a run (finished, killed or recording) in its report, with real processes."""

import shutil
import signal
import subprocess
import sys

import pytest

import kinetoscope
from support.fork_server import run_command

TRAIN = """
import sys, time
from kinetoscope import JSONTraceHandler, Profiler, cyclic_schedule
schedule = cyclic_schedule(skip_first=0, wait=0, warmup=1, active=3, repeat=0)
handler = JSONTraceHandler(sys.argv[1] + "/traces", overwrite=True)
with Profiler(schedule, handler, spool_folder=sys.argv[1]) as profiler:
    for batch in profiler.batches(range(8 if sys.argv[2] == "end" else 10**6)):
        with profiler.marker("work"):
            time.sleep(0.001)
        if batch == 6 and sys.argv[2] != "end":
            profiler.lifecycle.drain(30)
            print("ready", flush=True)
            sys.stdin.readline()
"""


@pytest.fixture
def start(tmp_path):
    """Start a training run that records into a folder. It stops in its second window, or runs to its end."""
    processes = []

    def begin(how="stop"):
        command = [sys.executable, "-c", TRAIN, str(tmp_path / "run"), how]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        if how == "end":
            assert process.wait(60) == 0
        else:
            assert process.stdout.readline() == "ready\n"
        return process

    yield begin
    for process in processes:
        process.kill()
        process.communicate()


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.wait(30)


def state(path):
    return kinetoscope.analyze(path).run["state"]  # also from the cache


def test_run_that_has_ended_is_finished(start, tmp_path):
    start("end")
    assert state(tmp_path / "run") == state(tmp_path / "run") == "finished"


def test_run_still_records_until_it_is_killed(start, tmp_path):
    process = start()
    assert state(tmp_path / "run") == state(tmp_path / "run" / "traces") == "recording"
    kill(process)
    assert state(tmp_path / "run") == state(tmp_path / "run" / "traces") == "killed"


def test_recovered_run_still_counts_as_killed(start, tmp_path):
    kill(start())
    assert run_command("recover", tmp_path / "run").returncode == 0
    assert state(tmp_path / "run") == "killed"
    for trace in (tmp_path / "run" / "traces").glob("ep*.json"):
        assert state(trace) == "killed"


def test_run_after_a_killed_one_in_the_same_folder_is_its_own(start, tmp_path):
    kill(start())
    start("end")
    shutil.rmtree(tmp_path / "run" / "live")
    assert state(tmp_path / "run") == "finished"


def test_trace_outside_of_its_run_does_not_tell(start, tmp_path):
    start("end")
    (first, *_) = sorted((tmp_path / "run" / "traces").glob("ep*.json"))
    assert state(shutil.copy(first, tmp_path / "copied.json")) is None


def test_warmup_and_unfinished_batches_are_no_recorded_steps_in_any_source(start, tmp_path):
    process, traces = start(), tmp_path / "run" / "traces"
    assert [row.step for row in kinetoscope.analyze(traces).steps] == [1, 2, 3]
    (live,) = (tmp_path / "run" / "live").iterdir()
    assert [row.step for row in kinetoscope.analyze(live).steps] == [5]
    kill(process)
    assert run_command("recover", tmp_path / "run").returncode == 0
    report = kinetoscope.analyze(tmp_path / "run")
    assert [row.step for row in report.steps] == [1, 2, 3, 5]
    assert report.run["num_steps"] == 4
