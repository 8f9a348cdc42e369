"""Two ranks with DataLoader workers are killed at any moment; an independent witness has counted their spans.

Each process reports the unique name of every span that it has finished to the witness, recorded or not. Windows follow
each other without a skip. The traces saved before the kill and those of `kinetoscope recover` together contain exactly
these spans, each once.
"""

import fcntl
import json
import os
import random
import signal
import time
from collections import Counter

import pytest

from support.fork_server import run_command, start_with_torch

pytest.importorskip("torch")

NUM_KILLS = int(os.environ.get("KINETOSCOPE_KILLS", "2"))
NUM_RANKS, NUM_WORKERS = 2, 2

# The lock prevents a kill between the end of a span and the message to the witness.
TRAIN = """
import fcntl, os, sys, time
os.setsid()
folder, rank = sys.argv[1], int(sys.argv[2])
os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "29876"}
alive = open(folder + "/alive", "w")  # workers hold it too
import kinetoscope
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
from torch.utils.data import DataLoader

class Witness:
    def __init__(self):
        self.pid = 0

    def record(self, marker, name):
        if self.pid != os.getpid():
            self.begin(marker)
        self.number += 1
        name = f"{name} {rank}-{self.pid}-{self.number}"
        span = marker(name)
        token = span.begin()
        for _ in range(500):
            pass
        fcntl.flock(self.lock, fcntl.LOCK_SH)
        span.end(token)
        os.write(self.file, f"{name}\\n".encode())
        fcntl.flock(self.lock, fcntl.LOCK_UN)

    def begin(self, marker):
        self.pid, self.number = os.getpid(), 0
        self.file = os.open(folder + "/witness", os.O_WRONLY | os.O_APPEND)
        self.lock = os.open(folder + "/lock", os.O_RDONLY)
        first = marker("first")  # makes this process's files
        while (token := first.begin()) is None:
            time.sleep(0.001)
        first.end(token)

witness = Witness()

class Items:
    def __len__(self):
        return 40

    def __getitem__(self, index):
        for _ in range(3):
            witness.record(kinetoscope.marker, "item")
        return index

def schedule(state):
    return ProfilerAction.ACTIVE if (state.timestamp.batch + 1) % 4 else ProfilerAction.ACTIVE_AND_SAVE

with Profiler(schedule, JSONTraceHandler(folder + "/run/traces"), strict=True) as profiler:
    loader = DataLoader(Items(), batch_size=4, num_workers=2, multiprocessing_context="fork")
    for _ in range(1000):
        for _ in profiler.batches(loader):
            for _ in range(5):
                witness.record(profiler.marker, "work")
"""


def wait_until_witnessed(folder, ranks, num_spans):
    """Wait until each rank has reported so many spans, and has saved some."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        lines = (folder / "witness").read_text().rpartition("\n")[0].splitlines()  # the last may not be whole yet
        num_reported = Counter(line.split()[1].split("-")[0] for line in lines)
        saved = [list((folder / "run" / "traces").glob(f"*rank{rank}.json")) for rank in range(NUM_RANKS)]
        if all(saved) and all(num_reported[str(rank)] >= num_spans for rank in range(NUM_RANKS)):
            return
        assert not any(rank.has_ended() for rank in ranks), [rank.wait() for rank in ranks if rank.has_ended()]
        time.sleep(0.01)
    raise AssertionError(f"the ranks recorded too little: {num_reported}")


def kill(folder, ranks):
    """Kill all processes of all ranks, none between the end of a span and its message to the witness."""
    with open(folder / "lock", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for rank in ranks:
            os.killpg(rank.pid, signal.SIGKILL)
        for rank in ranks:
            rank.wait()


def wait_for_end(alive):
    """Wait until no process has the file open any more."""
    os.set_blocking(alive.fileno(), True)
    assert alive.read() == b""


def spans_in(path):
    """Return the name of each span of a trace that the witness may know, and whether it is cut."""
    events = json.loads(path.read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X" and event["name"].startswith(("item ", "work "))]
    return [(event["name"], "cut" in event["args"]) for event in spans]


@pytest.mark.parametrize("trial", range(NUM_KILLS))
def test_saved_and_recovered_traces_together_have_the_spans_that_a_witness_counted(tmp_path, trial):
    (tmp_path / "witness").touch()
    (tmp_path / "lock").touch()
    os.mkfifo(tmp_path / "alive")
    with open(os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK), "rb") as alive:
        ranks = [start_with_torch(TRAIN, tmp_path, rank) for rank in range(NUM_RANKS)]
        try:
            wait_until_witnessed(tmp_path, ranks, random.Random(trial).randrange(50, 1500))
        finally:
            kill(tmp_path, ranks)
        wait_for_end(alive)
    traces = tmp_path / "run" / "traces"
    done = run_command("recover", tmp_path / "run", timeout_s=300)
    assert done.returncode == 0, done.stderr
    witnessed = Counter((tmp_path / "witness").read_text().splitlines())
    found = [span for path in traces.glob("ep*.json") for span in spans_in(path)]
    was_open = [(name, is_cut) for name, is_cut in found if name not in witnessed]
    assert Counter(name for name, _ in found if name in witnessed) == witnessed
    # The witness does not know the span that each process was about to end.
    assert all(is_cut for _, is_cut in was_open)
    assert max(Counter(name.split("-")[1] for name, _ in was_open).values(), default=0) <= 1
    assert not (tmp_path / "run" / "live").exists()
