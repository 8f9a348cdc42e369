"""Kineto's lines at the start and stop of a recording are not on a user's stderr, which is never redirected."""

import os
import re
import subprocess
import sys

import pytest

from support.autoinstrumented_runs import run_recorded
from support.fork_server import run_with_torch
from support.trace_files import trace_json

pytest.importorskip("torch")

NOISE = re.compile(r"USDT|Toggling")
LOOP = """
import os, sys, torch
kept = os.dup2
os.dup2 = lambda *arguments: sys.exit("descriptor redirected")
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
def step():
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
"""
PROFILE = """
import kinetoscope
schedule = kinetoscope.cyclic_schedule(warmup=0, active=4, repeat=2, per="run")
with kinetoscope.profile(sys.argv[1], schedule=schedule, torch={source}) as profiler:
    for epoch in range(4):
        for batch in profiler.batches(range(2)):
            step()
        with profiler.eval():
            step()
"""
PROGRAMS = {
    "profile": PROFILE.format(source="True"),
    "a TorchProfiler": PROFILE.format(source="kinetoscope.TorchProfiler(profile_memory=False)"),
    "kinetoscope.torch": """
from kinetoscope.torch import profile
for _ in range(2):
    with profile():
        step()
""",
}
THEN_STOCK = """
sys.stderr.write("then stock\\n")
sys.stderr.flush()
with torch.profiler.profile():
    step()
"""


@pytest.mark.parametrize("way", PROGRAMS)
def test_recordings_leave_kinetos_lines_out_and_those_of_torchs_profiler_in(way, tmp_path):
    done = run_with_torch(LOOP + PROGRAMS[way] + THEN_STOCK, tmp_path / "run", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    with_profiler, stock = done.stderr.split("then stock")
    assert not NOISE.search(with_profiler), with_profiler
    assert (way == "kinetoscope.torch") or "Kinetoscope: " in with_profiler
    assert stock.count("USDT") == 2
    for trace in (tmp_path / "run" / "traces").glob("ep*.json.gz"):
        names = [event["name"] for event in trace_json(trace)["traceEvents"]]
        assert names.count("aten::addmm") == 4  # without the step of the evaluation, in which collection is paused


def test_a_log_level_that_the_user_has_set_is_kept(tmp_path):
    command = [sys.executable, "-c", LOOP + PROGRAMS["kinetoscope.torch"]]  # Kineto reads it when torch is imported
    environment = os.environ | {"KINETO_LOG_LEVEL": "0"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "USDT" in done.stderr


def test_kinetoscope_run_leaves_them_out_without_redirecting_stderr(tmp_path):
    (tmp_path / "train.py").write_text(LOOP + "for _ in range(30): step()\n")
    done = run_recorded("-o", "run", command=["train.py"], folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "window recorded" in done.stderr
    assert not NOISE.search(done.stderr), done.stderr
