"""TorchProfiler in our Profiler: the trace and the memory page of a window are on disk when the run has ended."""

import json

import torch

from kinetoscope import Profiler, cyclic_schedule
from kinetoscope.sources.torch_profiler import TorchProfiler
from kinetoscope.testing import MemoryTraceHandler


def test_the_memory_page_is_beside_the_trace(tmp_path):
    source = TorchProfiler(
        folder=str(tmp_path),
        filename="rank{rank}.{batch}.json",
        memory_filename="rank{rank}.{batch}.memory.html",
        record_shapes=True,
        with_stack=True,
    )
    schedule = cyclic_schedule(skip_first=0, wait=0, warmup=1, active=2, repeat=1)
    with Profiler(schedule, MemoryTraceHandler(), sources=[source], strict=True) as profiler:
        for _ in profiler.batches(range(5)):
            torch.nn.Linear(4, 4)(torch.ones(2, 4)).sum().backward()
    [trace] = tmp_path.glob("*.json")
    [page] = tmp_path.glob("*.memory.html")
    assert json.loads(trace.read_text())["traceEvents"]
    assert "gradient" in page.read_text()
