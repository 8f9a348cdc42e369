"""Windows that follow each other without a skip: the spans of threads and DataLoader workers are each found once."""

import json
from collections import Counter

import pytest

from support.fork_server import run_with_torch

NUM_WINDOWS = 100

THREAD = """
import sys, threading, kinetoscope
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction

def record():
    number = 0
    while not is_over.is_set():
        number += 1
        with kinetoscope.marker(f"span {number}"):
            sum(range(1000))

is_over = threading.Event()
sys.setswitchinterval(1e-4)
with Profiler(lambda state: ProfilerAction.ACTIVE_AND_SAVE, JSONTraceHandler(sys.argv[1] + "/traces")) as profiler:
    for _ in profiler.batches(range(NUM_WINDOWS)):
        if profiler.state.timestamp.batch == 1:
            thread = threading.Thread(target=record)
            thread.start()
        if profiler.state.timestamp.batch == NUM_WINDOWS - 1:
            is_over.set()
            thread.join()
"""

WORKER = """
import itertools, sys, kinetoscope
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
from torch.utils.data import DataLoader, IterableDataset

class Items(IterableDataset):
    def __iter__(self):
        for number in itertools.count():
            with kinetoscope.marker(f"span {number}"):
                sum(range(2000))
            if number % 20 == 19:
                yield number

with Profiler(lambda state: ProfilerAction.ACTIVE_AND_SAVE, JSONTraceHandler(sys.argv[1] + "/traces")) as profiler:
    loader = DataLoader(Items(), batch_size=None, num_workers=1, multiprocessing_context="fork")
    loader = iter(profiler.batches(loader))
    for _ in range(NUM_WINDOWS):
        next(loader)
"""


@pytest.mark.parametrize(
    "program",
    [THREAD, WORKER],
    ids=["thread", "worker"],
)
def test_each_span_of_another_thread_or_process_is_in_one_window(tmp_path, program):
    pytest.importorskip("torch")
    run_with_torch(f"NUM_WINDOWS = {NUM_WINDOWS}\n{program}", tmp_path)
    found = Counter()
    for trace in (tmp_path / "traces").glob("ep*.json"):
        events = json.loads(trace.read_text())["traceEvents"]
        names = [event["name"] for event in events if event["ph"] == "X"]
        found.update(int(name.split()[1]) for name in names if name.startswith("span "))
    assert len(found) > NUM_WINDOWS
    numbers = range(min(found), max(found) + 1)
    assert {number: found[number] for number in numbers if found[number] != 1} == {}


AFTER_THE_LOOP = """
import sys, threading
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction

class Slow(JSONTraceHandler):
    def process_cycle(self, cycle):
        if cycle.number == 0:
            is_loop_over.wait(30)
        else:
            is_first_saved.set()
        super().process_cycle(cycle)

is_loop_over, is_first_saved = threading.Event(), threading.Event()
with Profiler(lambda state: ProfilerAction.ACTIVE_AND_SAVE, Slow(sys.argv[1] + "/traces")) as profiler:
    for _ in profiler.batches(range(2)):
        with profiler.marker("work"):
            pass
    is_loop_over.set()
    is_first_saved.wait(30)
"""


def test_a_window_without_a_step_is_not_saved_because_the_one_before_was_being_saved(tmp_path):
    pytest.importorskip("torch")
    run_with_torch(AFTER_THE_LOOP, tmp_path)
    assert sorted(path.name for path in (tmp_path / "traces").glob("ep*.json")) == [
        "ep0-ba1-rank0.json",
        "ep0-ba2-rank0.json",
    ]
