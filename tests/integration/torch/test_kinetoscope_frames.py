"""With stacks, a trace shows the user's Python frames and none of ours: not those of our threads, nor our wrappers."""

import json
import re
import subprocess
import sys
import time

import pytest

import kinetoscope
from kinetoscope import JSONTraceHandler, Profiler, SystemProfiler, TorchProfiler, cyclic_schedule
from support.fork_server import run_with_torch
from support.torch_versions import needs_frames_among_events

torch = pytest.importorskip("torch")
profile = pytest.importorskip("kinetoscope.torch").profile


def traces_of_a_run(folder, *, num_windows):
    """Return the events of each window of a run whose batches are all alike."""
    net = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    handler = JSONTraceHandler(folder=str(folder / "traces"))
    sources = [
        TorchProfiler(str(folder / "torch"), with_stack=True),
        SystemProfiler(stats_thread_interval_seconds=0.01),
    ]
    schedule = cyclic_schedule(wait=0, warmup=1, active=4, repeat=0)
    with Profiler(schedule, handler, sources=sources, strict=True) as profiler:
        for batch in profiler.batches([torch.ones(8, 16)] * (5 * num_windows)):
            net(batch).sum().backward()
            time.sleep(0.005)
    files = [folder / "torch" / f"rank0.{5 * window}.pt.trace.json" for window in range(1, num_windows + 1)]
    return [json.loads(file.read_text())["traceEvents"] for file in files]


def frames(events):
    return [event for event in events if event.get("cat") == "python_function"]


def test_equal_windows_have_equally_many_events_while_earlier_ones_are_saved(tmp_path):
    first, *others = map(len, traces_of_a_run(tmp_path, num_windows=4))
    assert max(others) - min(others) < 0.05 * min(others)
    assert first < 1.2 * min(others)  # the first window has imports and caches


def called_by_us(events):
    """Return the name of each frame's parent, by the frame's own name without its line."""
    name = {event["args"]["Python id"]: function(event["name"]) for event in frames(events)}
    return {function(event["name"]): name.get(event["args"].get("Python parent id")) for event in frames(events)}


def function(name):
    return name.rpartition(" ")[2]


def record(folder=None):
    """Return a window in which the user's functions call each other through our wrappers, and its events if
    ``folder``."""
    marker = kinetoscope.marker("square")

    @marker
    def square(x):
        return multiply(x)

    @marker
    def multiply(x):
        with marker:
            return helper(x)

    def helper(x):
        return x * x

    def train():
        return square(torch.ones(4))

    with profile(with_stack=True) as profiler:
        train()
    if folder is not None:
        profiler.export_chrome_trace(folder / "trace.json")
        return json.loads((folder / "trace.json").read_text())["traceEvents"]
    return profiler


def test_a_function_that_our_wrapper_calls_is_the_child_of_the_users_function_above(tmp_path):
    parents = called_by_us(record(tmp_path))
    assert parents["helper"] == "multiply"
    assert parents["multiply"] == "square"
    assert parents["square"] == "train"
    assert parents["train"] == "record"


def test_neither_our_frames_nor_what_they_call_of_python_itself_are_in_the_trace(tmp_path):
    events = frames(record(tmp_path))
    assert [event["name"] for event in events if "kinetoscope" in event["name"] and "test" not in event["name"]] == []
    of_markers = re.compile(r".* of Marker object.*|<built-in function __exit__>")
    assert [event["name"] for event in events if of_markers.fullmatch(event["name"])] == []
    numbers = {event["args"]["Python id"] for event in events}
    assert {event["args"].get("Python parent id") for event in events} <= numbers | {None}


@needs_frames_among_events
def test_neither_events_nor_tables_nor_stacks_show_our_frames(tmp_path):
    profiler = record()
    profiler.export_stacks(tmp_path / "stacks")
    shown = [event.name for event in profiler.events()]
    shown += [row.key for row in profiler.key_averages()]
    shown += [part for line in (tmp_path / "stacks").read_text().splitlines() for part in line.split(";")]
    assert any(name.endswith("helper") for name in shown)
    assert [name for name in shown if "kinetoscope/" in name and "tests/" not in name] == []
    assert "kinetoscope/" not in profiler.key_averages().table(row_limit=-1)


@needs_frames_among_events
def test_an_events_parent_is_the_users_function_above_our_wrapper():
    by_name = {function(event.name): event for event in record().events() if event.is_python_function}
    assert by_name["helper"].python_parent_id == by_name["multiply"].python_id
    assert by_name["square"].python_parent_id == by_name["train"].python_id
    assert by_name["helper"].cpu_parent is by_name["multiply"]


PROFILE_HOOK = """
import sys, threading, torch
from kinetoscope.torch import profile

def hook(frame, event, argument):
    if event == "call" and frame.f_code is called.__code__:
        calls.append(1)

def called():
    pass

calls = []
sys.setprofile(hook)
called()
for _ in range(2):
    with profile(with_stack=True):
        called()
    assert sys.getprofile() is hook
    called()
with profile():
    called()
sys.setprofile(None)
with profile(with_stack=True):
    pass
assert sys.getprofile() is None
print(len(calls))
"""


def test_another_tracers_hook_is_given_back_after_a_window_with_stacks():
    done = run_with_torch(PROFILE_HOOK)
    assert (done.returncode, done.stdout) == (0, "4\n"), done.stderr


FIRST_OPTIMIZER = """
import sys, torch
from kinetoscope.torch import profile
net = torch.nn.Linear(8, 4)
with profile(with_stack=True) as profiler:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net(torch.ones(2, 8)).sum().backward()
    optimizer.step()
assert "torch._dynamo" in sys.modules
profiler.export_chrome_trace(sys.argv[1])
"""


def test_the_first_use_of_the_compiler_is_not_recorded_with_all_its_imports(tmp_path):
    done = subprocess.run([sys.executable, "-c", FIRST_OPTIMIZER, str(tmp_path / "t.json")], capture_output=True)
    assert done.returncode == 0, done.stderr
    names = [event.get("name", "") for event in json.loads((tmp_path / "t.json").read_text())["traceEvents"]]
    assert len(names) < 100_000
    assert not any("torch/_dynamo/__init__.py" in name and "<module>" in name for name in names)


CPROFILE = """
import cProfile, pstats, torch
from kinetoscope.torch import profile

def before(): pass
def after(): pass
def count(name):
    return sum(row[0] for key, row in pstats.Stats(other).stats.items() if key[2] == name)

other = cProfile.Profile()
other.enable()
before()
for _ in range(2):
    with profile(with_stack=True):
        pass
    after()
with profile():
    after()
other.disable()
print(count("before"), count("after"))
"""


def test_cprofile_continues_after_a_window_with_stacks():
    done = run_with_torch(CPROFILE)
    assert (done.returncode, done.stdout) == (0, "1 3\n"), done.stderr
