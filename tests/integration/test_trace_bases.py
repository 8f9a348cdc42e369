"""All traces of a run have the same base, so that tools which ignore the base can combine them."""

import json

import pytest

from kinetoscope import JSONTraceHandler, Profiler, TorchProfiler, cyclic_schedule
from kinetoscope.core.clock.clock import process_base_ns
from kinetoscope.merge.merge_traces import merge_traces

torch = pytest.importorskip("torch")
kinetoscope_torch = pytest.importorskip("kinetoscope.torch")


def test_cycles_torchs_traces_and_the_merged_one_count_from_the_same_moment(tmp_path):
    sources = [TorchProfiler(str(tmp_path / "torch"))]
    schedule = cyclic_schedule(warmup=1, active=1, repeat=2)
    with Profiler(schedule, JSONTraceHandler(str(tmp_path / "traces")), sources=sources, strict=True) as profiler:
        for _ in profiler.batches(range(4)):
            torch.ones(3) + 1
    with kinetoscope_torch.profile() as alone, kinetoscope_torch.record_function('say "hi"'):
        torch.ones(3) + 1
    alone.export_chrome_trace(tmp_path / "alone.json")
    files = [*tmp_path.glob("*/*.json"), tmp_path / "alone.json"]
    files.append(merge_traces(tmp_path / "again.json", *files).output)
    assert len(files) == 7
    assert {json.loads(file.read_text())["baseTimeNanoseconds"] for file in files} == {process_base_ns()}
