"""TorchProfiler in our Profiler: the trace and the memory page of a window are on disk when the run has ended."""

import json

import pytest
import torch

from kinetoscope import Profiler, cyclic_schedule
from kinetoscope.errors import SettingsError
from kinetoscope.sources.torch_profiler import TorchProfiler
from kinetoscope.testing import MemoryTraceHandler
from kinetoscope.torch import ProfilerActivity, _ExperimentalConfig
from support.torch_versions import since_2_13


def test_memory_page_is_next_to_the_trace(tmp_path):
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


@since_2_13
def test_activities_and_the_experimental_configuration_are_those_of_torchs_profiler(tmp_path):
    asked = [{ProfilerActivity.CPU: ["USER_ANNOTATION"]}]
    source = TorchProfiler(
        str(tmp_path),
        "rank{rank}.json",
        activities=iter(asked),
        experimental_config=_ExperimentalConfig(trace_only=True),
    )
    schedule = cyclic_schedule(skip_first=0, wait=0, warmup=0, active=2, repeat=1)
    with Profiler(schedule, MemoryTraceHandler(), sources=[source], strict=True) as profiler:
        for _ in profiler.batches(range(3)):
            assert source.profiler.activity_filters == {ProfilerActivity.CPU: {"USER_ANNOTATION"}}
            assert source.profiler.experimental_config.trace_only
            torch.ones(3) + 1
    names = {event["name"] for event in json.loads((tmp_path / "rank0.json").read_text())["traceEvents"]}
    assert "aten::add" not in names


def test_activities_that_cannot_be_recorded_are_refused_at_once():
    with pytest.raises(SettingsError, match="activities"):
        TorchProfiler(activities=["CPU"])
