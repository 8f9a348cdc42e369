"""The end of a run that takes long: it is the phase ``saving``, never a hang, and one line says so."""

import os
import subprocess
import sys

import kinetoscope
from kinetoscope.status.judging import RunState, look_at_run
from waiting import wait_for

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
    return [rank.phase for rank in look_at_run(run).ranks]


def test_a_close_that_takes_long_is_saving_and_never_a_hang(tmp_path):
    run, ready, errors = tmp_path / "run", tmp_path / "ready", tmp_path / "stderr"
    environment = os.environ | {"KINETOSCOPE_HANG_S": "0.5"}
    with errors.open("wb") as stderr:
        process = subprocess.Popen([sys.executable, "-c", PROGRAM, run, ready], env=environment, stderr=stderr)
    try:
        wait_for(lambda: phase_of(run) == ["saving"])
        wait_for(lambda: "saving" in errors.read_text())
        (rank,) = look_at_run(run).ranks
        assert (rank.state, rank.hang) == (RunState.RECORDING, None)
        assert rank.phase_ns is not None
    finally:
        ready.touch()
        assert process.wait() == 0
    said = errors.read_text()
    assert said.count("Kinetoscope: saving ") == 1
    assert "hangs" not in said
    assert look_at_run(run).state is RunState.FINISHED
    assert not [finding for finding in kinetoscope.analyze(run, cache=False).findings if finding.kind == "hang"]
