"""Real runs whose numbers are the same everywhere: one that was killed, and ones without torch's profiler."""

import signal

import kinetoscope
from support.fork_server import run_command, run_program
from support.report_consistency import assert_consistent_report, screen

TRAIN = """
import os, sys, time
import kinetoscope
schedule = kinetoscope.cyclic_schedule(skip_first=1, wait=0, warmup=1, active=4, repeat=3)
with kinetoscope.profile(sys.argv[1], schedule=schedule, torch=False, quiet=True) as profiler:
    for batch in profiler.batches(range(100)):
        with profiler.marker("forward"):
            time.sleep(0.002)
        with profiler.marker("backward"):
            time.sleep(0.003)
        if sys.argv[2] == str(batch):
            profiler.lifecycle.drain(30)
            os.kill(os.getpid(), 9)
"""


def test_a_run_of_three_windows_without_torch_has_the_same_numbers_everywhere(tmp_path):
    done = run_program(TRAIN, tmp_path / "run", "never")
    assert done.returncode == 0, done.stderr
    report = kinetoscope.analyze(tmp_path / "run", cache=False)
    assert report.run["num_steps"] == 12
    assert_consistent_report(report)


def test_a_killed_run_says_so_everywhere_and_has_the_same_numbers(tmp_path):
    done = run_program(TRAIN, tmp_path / "run", "9")
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert run_command("recover", tmp_path / "run").returncode == 0
    report = kinetoscope.analyze(tmp_path / "run", cache=False)
    assert report.run["state"] == "killed"
    (warning,) = (line for line in screen(report) if line.startswith("! This run was killed"))
    assert warning.endswith(" The last saved step is 8.")
    assert_consistent_report(report)
