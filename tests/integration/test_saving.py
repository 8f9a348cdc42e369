"""The end of a run that takes long: it is the phase ``saving``, never a hang, and one line says so."""

import os
import re
import subprocess
import sys

import pytest

import kinetoscope
from kinetoscope.status.health import RunState, read_run_status
from support.polling import wait_for

PROGRAM = """
import os, sys, time, kinetoscope

class Blocked(kinetoscope.TraceHandler):
    def process_cycle(self, cycle):
        while not os.path.exists(sys.argv[2]):
            time.sleep(0.05)

handlers = [kinetoscope.JSONTraceHandler(), Blocked()]
always = lambda state: kinetoscope.ProfilerAction.ACTIVE
options = {"torch": False, "system": False}
with kinetoscope.profile(sys.argv[1], schedule=always, handlers=handlers, **options) as profiler:
    for _ in range(60):
        time.sleep(0.005)
        profiler.step()
"""


def phase_of(run):
    return [rank.phase for rank in read_run_status(run).ranks]


def test_a_close_that_takes_long_is_saving_and_never_a_hang(tmp_path):
    run, ready, errors = tmp_path / "run", tmp_path / "ready", tmp_path / "stderr"
    environment = os.environ | {"KINETOSCOPE_HANG_S": "0.5"}
    with errors.open("wb") as stderr:
        process = subprocess.Popen([sys.executable, "-c", PROGRAM, run, ready], env=environment, stderr=stderr)
    try:
        wait_for(lambda: phase_of(run) == ["saving"])
        wait_for(lambda: "saving" in errors.read_text())
        (rank,) = read_run_status(run).ranks
        assert (rank.state, rank.hang) == (RunState.RECORDING, None)
        assert rank.phase_ns is not None
    finally:
        ready.touch()
        assert process.wait() == 0
    output = errors.read_text()
    assert output.count("Kinetoscope: saving ") == 1
    assert "hangs" not in output
    assert read_run_status(run).state is RunState.FINISHED
    assert not [finding for finding in kinetoscope.analyze(run, cache=False).findings if finding.kind == "hang"]


EARLIER = """
import os, sys, time, kinetoscope
import kinetoscope.recording.messages.saving_progress as saving_progress
from kinetoscope import ProfilerAction

saving_progress._FIRST_LINE_AFTER_S = 0.0
saving_progress._SAVING_S_PER_STOP_S = 1000.0
way, run, ready = sys.argv[1:]

class SlowToStop(kinetoscope.Callback):
    def batch_end(self, state, logger):
        if way != "epoch" and state.profiler.get_action() is ProfilerAction.SKIP and not os.path.exists("stopped"):
            self.stop()

    def epoch_start(self, state, logger):
        if way == "epoch" and state.timestamp.epoch:
            self.stop()

    def stop(self):
        open("stopped", "w").close()
        time.sleep(saving_progress._MIN_STOP_S + 0.1)

class Blocked(kinetoscope.TraceHandler):
    def process_cycle(self, cycle):
        while not os.path.exists(ready):
            time.sleep(0.05)

def schedule(state):
    if way == "epoch":
        return ProfilerAction.SKIP if state.timestamp.epoch else ProfilerAction.ACTIVE
    return cyclic(state)

cyclic = kinetoscope.cyclic_schedule(warmup=0, active=3 if way == "schedule" else 30, per="run")
handlers = [kinetoscope.JSONTraceHandler(), Blocked()]
profiler = kinetoscope.profile(
    run, schedule=schedule, handlers=handlers, sources=[SlowToStop()], torch=False, system=False
)
if way == "memory":
    profiler.lifecycle.windows.memory_limit.share = -1.0
with profiler:
    for _ in range(2):
        for _ in profiler.batches(range(10)):
            time.sleep(0.05)
"""


@pytest.mark.parametrize("way", ["schedule", "memory", "epoch"])
def test_a_window_that_ended_before_and_is_being_saved_still_has_an_estimate(way, tmp_path):
    run, ready, errors = tmp_path / "run", tmp_path / "ready", tmp_path / "stderr"
    with errors.open("wb") as stderr:
        process = subprocess.Popen([sys.executable, "-c", EARLIER, way, run, ready], stderr=stderr, cwd=tmp_path)
    try:
        wait_for(lambda: "saving" in errors.read_text())
    finally:
        ready.touch()
        assert process.wait() == 0
    assert (tmp_path / "stopped").exists()
    (line,) = [line for line in errors.read_text().splitlines() if "saving" in line]
    assert re.fullmatch(r"Kinetoscope: saving .*, about [0-9,]+ s left\.", line), line
