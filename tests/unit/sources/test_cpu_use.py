"""The CPU time of a command with several processes."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")

MEASURE = """
import json, sys, threading, time
import psutil
from kinetoscope.sources.cpu_use import read_cpu_use, cpu_use_since

busy, command = int(sys.argv[1]), int(sys.argv[2])
thread, other = threading.get_native_id(), psutil.Process(busy)
before, first_s = read_cpu_use(thread, command), other.cpu_times().user
while other.cpu_times().user < first_s + 0.3:
    time.sleep(0.01)
print(json.dumps(cpu_use_since(before, thread, command)))
"""


@pytest.fixture
def busy():
    """A process that computes, a sibling of the one that measures."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    yield process.pid
    process.kill()
    process.wait()


def measure(busy, command):
    """Return what a child of this process measures."""
    words = [sys.executable, "-c", MEASURE, str(busy), str(command)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_other_processes_of_the_command_count_as_its_own_load(busy):
    used = measure(busy, os.getpid())
    assert used["command_ns"] >= 280_000_000
    assert used["command_ns"] >= used["own_ns"] - 20_000_000


@pytest.mark.parametrize("command", [0, None], ids=["an unknown command", "one that has not started this process"])
def test_the_load_of_a_command_is_unknown_where_it_has_not_started_the_process(command, busy):
    assert "command_ns" not in measure(busy, busy if command is None else command)
