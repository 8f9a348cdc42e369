"""The SystemProfiler's counters of this machine, as Perfetto shows them."""

import time

from kinetoscope import JSONTraceHandler, ProfilerAction, SystemProfiler
from kinetoscope.merge.merge_traces import merge_traces
from kinetoscope.recording.profiler import Profiler
from support.trace_processor.trace_processor import load


def test_machine_counters_are_grouped_by_subject_with_unchanged_ones_together(tmp_path):
    handler = JSONTraceHandler(folder=str(tmp_path))
    source = SystemProfiler(
        profile_memory=True, profile_disk=True, profile_net=True, stats_thread_interval_seconds=0.01
    )
    every_other = [ProfilerAction.ACTIVE, ProfilerAction.ACTIVE_AND_SAVE]
    with Profiler(lambda state: every_other[state.timestamp.batch % 2], handler, sources=[source], strict=True) as run:
        for _ in run.batches(range(6)):
            time.sleep(0.02)
    output = merge_traces(tmp_path / "out.pftrace", *tmp_path.glob("ep*-rank0.json")).output
    with load(output) as trace:
        assert trace.errors() == {}
        found = trace.counters(0)
    assert {"cpu", "process", "memory"} <= {path.split()[0] for path in found}
    assert {path for path in found if path.startswith("memory")} == {
        path for path in found if path.startswith("memory | ")
    }
    for path, values in found.items():
        assert (" | unchanged | " in path) == (len(set(values)) == 1), path
