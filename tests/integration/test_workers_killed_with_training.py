"""A signal to a process group ends DataLoader workers, too: torch's handler of SIGCHLD raises while the run is saved.

The race is drawn: a worker is killed at a chosen step of the close, which continues when torch's handler is due.
"""

import json
import signal

import pytest

from support.fork_server import run_with_torch

pytest.importorskip("torch")

TRAIN = """
import multiprocessing, os, signal, sys, time, torch
from torch.utils.data import DataLoader
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
from kinetoscope.core.job.event import Callback

folder, way = sys.argv[1:]

def kill_worker():
    worker = multiprocessing.active_children()[0]
    os.kill(worker.pid, signal.SIGKILL)
    while os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT) is None:
        pass

class Source(Callback):
    def close(self, state, logger):
        if way == "source":
            kill_worker()

class Handler(JSONTraceHandler):
    def process_cycle(self, cycle):  # on the writer thread, while the main thread waits
        if way == "save":
            kill_worker()
            time.sleep(0.2)
        super().process_cycle(cycle)

    def close(self, state, logger):
        if way == "handler":
            kill_worker()
        super().close(state, logger)

class Items:
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        return torch.zeros(4)

profiler = Profiler(lambda state: ProfilerAction.ACTIVE, Handler(folder), sources=[Source()])
with profiler:
    loader = DataLoader(Items(), batch_size=4, num_workers=2, multiprocessing_context="fork")
    for number, batch in enumerate(profiler.batches(loader)):
        with profiler.marker("step"):
            pass
        if number == 5:
            os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.mark.parametrize("way", ["source", "save", "handler"])
def test_worker_death_during_a_save_changes_neither_trace_nor_exit_code(way, tmp_path):
    done = run_with_torch(TRAIN, tmp_path / "traces", way, finalizes=True)
    assert done.returncode == -signal.SIGTERM
    assert "Traceback" not in done.stderr, done.stderr
    assert "failed" not in done.stderr, done.stderr
    (trace,) = (tmp_path / "traces").glob("ep*.json")
    names = [event["name"] for event in json.loads(trace.read_text())["traceEvents"]]
    assert names.count("step") == 6
    assert not (tmp_path / "live").exists()
