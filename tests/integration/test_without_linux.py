"""Recording on macOS: in processes that find Linux as macOS would be. Nothing here ran on a Mac."""

import json
import sys

import pytest

from support.emulated_systems import MACOS, EmulatedSystem
from support.trace_files import trace_json

pytest.importorskip("torch")

TRAINING = """
import logging, sys, time, torch
import kinetoscope
logging.basicConfig(format="%(levelname)s %(message)s")
for folder in sys.argv[1:]:
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sources = [kinetoscope.StackSampler(interval_ms=1)]
    settings = {"sources": sources, "diagnose": True, "hangs": True, "slow_steps": True, "quiet": True, "report": True}
    with kinetoscope.profile(folder, **settings) as profiler:
        for batch in profiler.batches([torch.ones(32, 64)] * 30):
            with profiler.marker("forward"):
                time.sleep(0.02)  # the samples' thread has to come to its turn
                loss = model(batch).sum()
            loss.backward()
            optimizer.step()
print("trained", sys.platform)
"""
UNMODIFIED = (
    TRAINING.partition("for folder")[0].replace("import kinetoscope\n", "")
    + """
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(30):
    model(torch.ones(32, 64)).sum().backward()
    optimizer.step()
print("trained", sys.platform)
"""
)


@pytest.fixture
def macos(tmp_path):
    return EmulatedSystem(MACOS, tmp_path, KINETO_LOG_LEVEL="99", TORCH_CPP_LOG_LEVEL="ERROR")


def test_nothing_of_linux_is_there(macos):
    done = macos.program("import os, time\nprint(hasattr(time, 'CLOCK_BOOTTIME'))\nopen('/proc/self/stat')", new=True)
    assert (done.stdout, done.returncode) == ("False\n", 1)
    assert "FileNotFoundError" in done.stderr


def test_a_process_records_two_runs_with_all_sources_and_each_command_reads_them(macos, tmp_path):
    done = macos.program(TRAINING, "run", "run2", new=True)
    assert (done.returncode, done.stdout) == (0, "trained darwin\n"), done.stderr
    assert done.stderr == ""
    for name in ("run", "run2"):
        names = {path.name for path in (tmp_path / name).iterdir()}
        assert {"pulse", "traces", "report.html"} <= names
        assert "live" not in names
    events = trace_json(tmp_path / "run" / "traces" / "merged_trace.json.gz")["traceEvents"]
    categories = {category for event in events for category in event.get("cat", "").split(",")}
    assert {"batch", "marker", "cpu_op", "stack_sample"} <= categories
    for arguments in (
        ("check", "run/traces"),
        ("info", "run/traces"),
        ("summary", "run"),
        ("report", "run2"),
        ("diff", "run", "run"),
        ("convert", "run/traces/merged_trace.json.gz", "-o", "trace.pftrace"),
        ("merge", "-o", "merged.json", "run/traces"),
        ("upload", "run"),
    ):
        done = macos.command(*arguments)
        assert (done.returncode, done.stderr) == (0, ""), arguments
    status = json.loads(macos.command("status", "run", "--json").stdout)
    assert status["state"] == "finished"
    assert status["ranks"][0]["resident_bytes"] > 10**6


def test_uninstrumented_training_is_recorded(macos, tmp_path):
    (tmp_path / "train.py").write_text(UNMODIFIED)
    done = macos.command("run", "-o", "run", sys.executable, "train.py")
    assert (done.returncode, done.stdout) == (0, "trained darwin\n"), done.stderr
    assert (tmp_path / "run" / "traces" / "merged_trace.json.gz").exists()
