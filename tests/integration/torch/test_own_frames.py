"""With stacks, a trace shows the user's Python frames and none of ours: not those of our threads, nor our wrappers."""

import json
import time

import pytest

from kinetoscope import JSONTraceHandler, Profiler, SystemProfiler, TorchProfiler, cyclic_schedule

torch = pytest.importorskip("torch")


def traces_of_a_run(folder, *, num_windows):
    """The events of each window of a run whose batches are all alike."""
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


def test_equal_windows_have_as_many_events_though_the_one_before_is_saved_meanwhile(tmp_path):
    first, *others = map(len, traces_of_a_run(tmp_path, num_windows=4))
    assert max(others) - min(others) < 0.05 * min(others)
    assert first < 1.2 * min(others)  # what happens once only: imports, caches
