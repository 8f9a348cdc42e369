"""Once Kineto has recorded, a process and its forked children still end, with the exit status of their own."""

import platform

import pytest

from support.autoinstrumented_runs import run_recorded
from support.fork_server import run_with_torch
from support.trace_files import trace_json

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs on_exit of glibc")

FORK = """
import atexit, ctypes, os, signal, sys, torch
from kinetoscope.torch import profile

WHEN, ENDING = sys.argv[1:]

def fork():
    signal.alarm(60)
    if os.fork():
        return print("status", os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
    atexit.register(print, "Python's exit handler")
    ctypes.CDLL(None).printf(b"buffered by C\\n")
    print("buffered by Python")
    return exec(ENDING)

with profile() as profiler:
    torch.ones(3) + 1
    if WHEN == "inside":
        fork()
if WHEN == "after":
    fork()
if WHEN == "grandchild":
    if os.fork():
        sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
    fork()
"""
STATUS = {"sys.exit(3)": 3, "raise ValueError": 1, "sys.exit()": 0}


@pytest.mark.parametrize("ending", STATUS)
@pytest.mark.parametrize("when", ["inside", "after", "grandchild"])
def test_a_forked_child_ends_with_its_status_and_its_output(when, ending):
    done = run_with_torch(FORK, when, ending, finalizes=True)
    assert done.returncode == 0, done.stderr
    assert f"status {STATUS[ending]}" in done.stdout
    for text in ("buffered by C", "buffered by Python", "Python's exit handler"):
        assert done.stdout.count(text) == 1


THREAD = """
import sys, threading, time, torch

def train():
    net = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    for step in range(NUM_STEPS):
        net(torch.randn(4, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 15 and KIND != "daemon":
            is_recording.set()
        if step > 15:
            time.sleep(0.05)
    if KIND == "daemon":  # Plain torch aborts, too, if Python ends a daemon thread inside an operator: wait outside.
        is_recording.set()
        threading.Event().wait()

KIND, NUM_STEPS = sys.argv[1], 18
is_recording = threading.Event()
thread = threading.Thread(target=train, daemon=KIND == "daemon")
thread.start()
is_recording.wait()
if KIND == "joined":
    thread.join()
print("done", flush=True)
sys.exit(5)
"""


@pytest.mark.parametrize("kind", ["joined", "not joined", "daemon"])
def test_training_on_another_thread_with_a_window_open_at_exit_keeps_its_status(tmp_path, kind):
    (tmp_path / "train.py").write_text(THREAD)
    done = run_recorded("-o", "out", command=["train.py", kind], folder=tmp_path, finalizes=True)
    assert (done.returncode, done.stdout) == (5, "done\n"), done.stderr
    assert "Traceback" not in done.stderr
    if kind == "daemon":  # Kineto stops on this thread only, which never ends
        return
    (trace,) = (tmp_path / "out" / "traces").glob("ep*.json.gz")
    names = [event["name"] for event in trace_json(trace)["traceEvents"]]
    # 18 steps less 1 that is skipped, 1 that warms up, and those before the first is counted.
    assert sum(name.startswith("ProfilerStep#") for name in names) >= 5
    assert "aten::addmm" in names
