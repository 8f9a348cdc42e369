"""A merged trace says the same about a run as the traces that were merged."""

import json

import pytest

import kinetoscope
from kinetoscope.analysis.analyze import RunReport
from trainsim import Settings, simulate

RUNS = {
    "one cycle": Settings(num_ranks=2, num_steps=4),
    "several cycles": Settings(num_ranks=2, num_steps=4, num_cycles=2, step_spans="both"),
    "several groups": Settings(num_ranks=4, num_steps=3, layout="tensor", has_sequence=False),
    "no device": Settings(num_ranks=2, num_steps=4, num_cycles=2, has_device=False, step_spans="event/batch"),
}


def comparable(report: RunReport) -> dict:
    """Return the report without the notes, which are also on the merge, and without the title, which is the file's."""
    found = report.to_dict()
    return found | {"run": found["run"] | {"notes": None, "title": None}}


@pytest.fixture
def traces(request, tmp_path):
    return simulate(RUNS[request.param]).write(tmp_path / "parts")


@pytest.mark.parametrize("traces", RUNS, indirect=True)
def test_a_merged_trace_says_the_same_as_its_parts(traces, tmp_path):
    merged = tmp_path / "merged.json"
    kinetoscope.merge_traces(merged, *traces)
    assert comparable(kinetoscope.analyze(merged, cache=False)) == comparable(kinetoscope.analyze(traces, cache=False))


@pytest.mark.parametrize("traces", ["several cycles"], indirect=True)
def test_a_merged_trace_of_merged_traces_says_the_same_as_its_parts(traces, tmp_path):
    by_rank = [[path for path in traces if f"rank{rank}" in path.name] for rank in (0, 1)]
    for rank, paths in enumerate(by_rank):
        kinetoscope.merge_traces(tmp_path / f"node{rank}.json", *paths)
    merged = tmp_path / "merged.json"
    kinetoscope.merge_traces(merged, *(tmp_path / f"node{rank}.json" for rank in (0, 1)))
    assert comparable(kinetoscope.analyze(merged, cache=False)) == comparable(kinetoscope.analyze(traces, cache=False))


def test_time_between_cycles_of_a_file_is_not_attributed(tmp_path):
    """`torch.profiler` with ``acc_events`` writes all cycles into one file, each with a span of Kineto's recording."""
    span = {"ph": "X", "pid": 1, "tid": 1, "cat": "user_annotation", "dur": 90}
    recording = {"ph": "X", "pid": "Spans", "tid": "PyTorch Profiler", "cat": "Trace", "name": "PyTorch Profiler (0)"}
    events = []
    for begin, first_step in ((1_000, 2), (50_000, 12)):
        events.append(recording | {"ts": begin, "dur": 210})
        events += [span | {"name": f"ProfilerStep#{first_step + n}", "ts": begin + 5 + 100 * n} for n in (0, 1)]
    path = tmp_path / "two_cycles.json"
    path.write_text(json.dumps({"traceEvents": events, "baseTimeNanoseconds": 0}))
    found = kinetoscope.analyze(path, cache=False)
    assert [(row.step, row.between_ns) for row in found.steps] == [(2, 10_000), (3, None), (12, 10_000), (13, None)]
