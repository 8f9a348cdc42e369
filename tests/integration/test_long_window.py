"""A window that stays open for a whole run is saved like any other.

``KINETOSCOPE_LONG_WINDOW=200000`` is the long form (`make test-long`).
"""

import os
import re

import pytest

from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction

NUM_BATCHES = int(os.environ.get("KINETOSCOPE_LONG_WINDOW", "50000"))


def record(tmp_path, num_batches, sources, step):
    handler = JSONTraceHandler(str(tmp_path / "traces"))
    with Profiler(lambda state: ProfilerAction.ACTIVE, handler, sources=sources, strict=True) as profiler:
        marker = profiler.marker("mine")
        for _ in profiler.batches(range(num_batches)):
            with marker:
                step()
    [path] = (tmp_path / "traces").glob("ep*.json")
    return path.read_bytes(), (tmp_path / "traces" / "merged_trace.json").read_bytes()


def test_a_window_open_for_many_thousand_batches_is_saved_and_merged_with_every_span(tmp_path, caplog):
    for trace in record(tmp_path, NUM_BATCHES, [], lambda: None):
        assert trace.count(b'"name":"mine"') == trace.count(b'"name":"event/batch"') == NUM_BATCHES
        assert b'"dropped":0' in trace.replace(b" ", b"")
    assert not caplog.records


def test_torchs_operators_of_a_long_window_are_all_in_its_trace(tmp_path, caplog):
    torch = pytest.importorskip("torch")
    from kinetoscope import TorchProfiler

    numbers = torch.ones(3)
    source = TorchProfiler(str(tmp_path / "torch_traces"), profile_memory=False)
    for trace in record(tmp_path, 5000, [source], lambda: numbers.add_(1)):
        assert trace.count(b'"mine"') == trace.count(b'"aten::add_"') == 5000
        assert {b"%d" % number for number in range(5000)} <= set(re.findall(rb'"ProfilerStep#(\d+)"', trace))
    assert not caplog.records
