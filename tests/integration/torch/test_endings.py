"""However a run ends, the window so far is on disk; and programs that crash torch's profiler do not crash ours."""

import functools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kinetoscope.torch import profile
from support.fork_server import run_with_torch as run_and_end_soon
from support.torch_versions import VERSION

run_with_torch = functools.partial(run_and_end_soon, finalizes=True)
NUM_SCHEDULES = os.environ.get("KINETOSCOPE_SCHEDULES", "100")
PROGRAM = """
import os, signal, sys, time
from {module} import profile, schedule, tensorboard_trace_handler
import torch
handler = tensorboard_trace_handler(sys.argv[1])
with profile(schedule=schedule(wait=0, warmup=1, active=100), on_trace_ready=handler) as p:
    for step in range(4):
        torch.ones(3) + 1
        p.step()
    {ending}
    time.sleep(30)
"""
ENDINGS = {
    "SIGTERM": ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
    "SystemExit": ("sys.exit(3)", 3),
    "an exception": ("raise KeyError('training')", 1),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_run_that_is_ended_saves_its_window(ending, tmp_path):
    statement, code = ENDINGS[ending]
    done = run_with_torch(PROGRAM.format(module="kinetoscope.torch", ending=statement), str(tmp_path))
    assert done.returncode == code, done.stderr
    [path] = tmp_path.iterdir()
    names = {event["name"] for event in json.loads(path.read_text())["traceEvents"]}
    assert {"ProfilerStep#1", "ProfilerStep#2", "ProfilerStep#3", "aten::add"} <= names


def test_stock_saves_nothing_on_sigterm(tmp_path):
    done = run_with_torch(PROGRAM.format(module="torch.profiler", ending=ENDINGS["SIGTERM"][0]), str(tmp_path))
    assert done.returncode == -signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


def test_signal_during_an_export_waits_until_the_trace_is_written(tmp_path):
    program = """
import os, signal, sys, torch
from kinetoscope.torch import profile, schedule
def handler(p):
    os.kill(os.getpid(), signal.SIGTERM)
    p.export_chrome_trace(sys.argv[1] + "/trace.json")
with profile(schedule=schedule(wait=0, warmup=1, active=1), on_trace_ready=handler) as p:
    for step in range(9):
        torch.ones(3) + 1
        p.step()
print("not reached")
"""
    done = run_with_torch(program, str(tmp_path))
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "")
    json.loads((tmp_path / "trace.json").read_text())


def test_a_handler_of_the_users_stays_in_place():
    before = signal.getsignal(signal.SIGTERM)
    mine = lambda number, frame: None  # noqa: E731
    signal.signal(signal.SIGTERM, mine)
    try:
        with profile():
            assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)


def test_process_with_a_global_profiler_exits_without_a_message():
    program = "import torch\nfrom kinetoscope.torch import profile\np = profile()\np.start()\ntorch.ones(2)\np.stop()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


# Each of these ends a process with torch's profiler by a segmentation fault.
CRASHES = {
    "a handler that raises": """
def handler(p): raise KeyError("handler")
p = profile(schedule=schedule(wait=0, warmup=1, active=1), on_trace_ready=handler)
p.__enter__()
for _ in range(6):
    try: p.step()
    except KeyError: pass
try: p.__exit__(None, None, None)
except KeyError: pass
""",
    "recording that turns into warm up": """
actions = [ProfilerAction.RECORD, ProfilerAction.WARMUP, ProfilerAction.RECORD, ProfilerAction.NONE]
with profile(schedule=lambda step: actions[min(step, 3)]) as p:
    for _ in range(4):
        torch.ones(3) + 1
        p.step()
""",
    "stopping twice and exporting": """
p = profile()
p.start(); torch.ones(3); p.stop()
try: p.stop()
except Exception: pass
p.export_chrome_trace("/dev/shm/kinetoscope-test.json" if os.path.isdir("/dev/shm") else os.devnull)
""",
}


@pytest.mark.parametrize("what", CRASHES)
def test_programs_that_crash_torchs_profiler_do_not_crash_kinetoscope(what, tmp_path):
    again = "with profile() as p:\n    torch.ones(3) + 1\nassert p.key_averages()\n"
    head = "import os, torch\nfrom {} import *\n"
    program = CRASHES[what].replace("/dev/shm", str(tmp_path)) + again
    done = run_with_torch(head.format("kinetoscope.torch") + program)
    assert done.returncode == 0, done.stderr
    if VERSION == (2, 13):  # other versions survive some of these
        assert run_with_torch(head.format("torch.profiler") + program).returncode != 0


def test_three_hundred_profiles_leave_no_thread_and_no_file_open():
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0

    for number in range(300):
        with profile() as profiler:
            torch.ones(3)
        if number == 20:
            before = open_files()
    del profiler
    assert open_files() <= before


def test_hundreds_of_schedules_legal_or_not_leave_a_process_that_can_be_profiled():
    program = Path(__file__).with_name("any_schedule.py").read_text()
    done = run_with_torch(program, NUM_SCHEDULES, timeout_s=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) >= int(NUM_SCHEDULES)


# No `with` and no `stop`: made in a function, the profiler is dropped before the process ends; at module level it is
# not.
FORGOTTEN = """
import os, sys, threading, torch
from kinetoscope.torch import profile, tensorboard_trace_handler
def export(p):
    print("ready", flush=True)
    p.export_chrome_trace(sys.argv[1] + "/trace.json")
handler = {handler}
"""
IN_THE_SCRIPT = """
p = profile(on_trace_ready=handler)
p.start()
torch.ones(3) + 1
{ending}
"""
IN_A_FUNCTION = """
def train():
    p = profile(on_trace_ready=handler)
    p.start()
    torch.ones(3) + 1
    {ending}
train()
"""
FORGOTTEN_ENDINGS = {
    "its last line": ("pass", 0),
    "SystemExit": ("sys.exit(3)", 3),
    "an exception": ("raise KeyError('training')", 1),
    "Ctrl-C": ("raise KeyboardInterrupt", -signal.SIGINT),
}


@pytest.mark.parametrize("ending", FORGOTTEN_ENDINGS)
@pytest.mark.parametrize(
    ("handler", "place"),
    [("export", IN_A_FUNCTION), ("tensorboard_trace_handler(sys.argv[1])", IN_THE_SCRIPT)],
    ids=["in a function", "in the script"],
)
def test_never_stopped_profiler_delivers_its_window_at_process_exit(handler, place, ending, tmp_path):
    statement, code = FORGOTTEN_ENDINGS[ending]
    program = FORGOTTEN.format(handler=handler) + place.format(ending=statement)
    done = run_with_torch(program, str(tmp_path))
    assert done.returncode == code, done.stderr
    assert done.stdout == ("ready\n" if handler == "export" else "")
    [path] = tmp_path.iterdir()
    assert "aten::add" in {event["name"] for event in json.loads(path.read_text())["traceEvents"]}


def test_an_exception_that_leaves_the_with_block_hands_the_window_over_once(tmp_path):
    program = FORGOTTEN.format(handler="export") + "with profile(on_trace_ready=export):\n    torch.ones(3) + {}\n"
    done = run_with_torch(program, str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "ready\n"), done.stderr
    json.loads((tmp_path / "trace.json").read_text())


def test_a_handler_that_fails_at_the_end_of_the_process_is_only_reported(tmp_path):
    program = FORGOTTEN.format(handler="lambda p: 1 / 0") + IN_THE_SCRIPT.format(ending="sys.exit(3)")
    done = run_with_torch(program, str(tmp_path))
    assert done.returncode == 3
    assert "The torch profiler could not save its window at the end: division by zero" in done.stderr


IN_A_FORKED_CHILD = """
import atexit
for way in "dropped", "at exit":
    child = os.fork()
    if child == 0:
        if way == "dropped":
            del p
        atexit._run_exitfuncs()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


def test_a_forked_child_hands_nothing_over_however_it_ends(tmp_path):
    program = FORGOTTEN.format(handler="export") + IN_THE_SCRIPT.format(ending=IN_A_FORKED_CHILD)
    done = run_with_torch(program, str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "ready\n"), done.stderr
    json.loads((tmp_path / "trace.json").read_text())


ON_ANOTHER_THREAD = """
kept, started = [], threading.Event()
def record():
    kept.append(profile(on_trace_ready=handler))
    kept[0].start()
    started.set()
    threading.Event().wait()
threading.Thread(target=record, daemon=True).start()
started.wait()
"""


def test_profiler_of_another_thread_cannot_be_stopped_at_exit_and_is_logged(tmp_path):
    done = run_with_torch(FORGOTTEN.format(handler="export") + ON_ANOTHER_THREAD, str(tmp_path))
    assert done.stdout == ""
    assert "could not save its window at the end: The profiler was started on another thread" in done.stderr
