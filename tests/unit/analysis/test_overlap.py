"""analysis/replay: kernels of one stream that overlap, as programmatic dependent launches let them."""

import json
import random
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import kinetoscope
from kinetoscope.analysis.analyze import analyze_sources
from kinetoscope.analysis.replay.replay import CAUSES, Change
from kinetoscope.analysis.summaries import Selection
from trainsim import Fault, Settings, simulate

MAX_OVERLAP_NS = 3_000
SHIFTS_NS = (1, 1_500, MAX_OVERLAP_NS, -1, -1_000)
IS_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")

RUNS = {
    "healthy": Settings(seed=1, num_steps=5),
    "one rank that waits for its device": Settings(seed=2, num_ranks=1, num_steps=5, reads_loss="each step"),
    "calls of .item()": Settings(seed=3, num_ranks=1, num_steps=5, faults=(Fault(kind="items", count=40),)),
    "copies that block": Settings(
        seed=4, num_ranks=1, num_steps=5, faults=(Fault(kind="pageable_copies", cost_ns=900_000),)
    ),
    "sharded weights": Settings(seed=5, num_steps=5, layout="sharded"),
    "tensor parallel ranks": Settings(seed=6, num_steps=5, layout="tensor"),
    "experts": Settings(seed=7, num_steps=5, layout="experts"),
    "a pipeline": Settings(seed=8, num_ranks=4, num_steps=5, layout="pipeline"),
    "a late rank": Settings(
        seed=9, num_ranks=4, num_steps=5, faults=(Fault(kind="late_host", cost_ns=2_000_000, ranks=(2,)),)
    ),
    "a slow network": Settings(seed=10, num_steps=5, faults=(Fault(kind="slow_network", cost_ns=600_000),)),
}


def on_device(trace):
    return [event for event in trace["traceEvents"] if event.get("cat") in IS_ON_DEVICE]


def lengthen(event, by_ns):
    event["dur"] = max(0, round(event["dur"] + by_ns / 1000, 3))


def savings(report):
    """Return what each cause, and each finding, saves in the whole run, and how long the run takes."""
    graph = report.graph
    found = {cause: graph.saving_ns(Change(frozenset([cause]))) for cause in CAUSES}
    found |= {f"{one.kind}, {one.confidence}": (one.saving_ns_per_step or 0) * 5 for one in report.findings}
    return found | {"run": graph.time_ns(graph.nodes["time"])}


@pytest.mark.parametrize("name", RUNS)
def test_a_shifted_end_changes_no_saving_by_more_than_the_shift(name, tmp_path):
    draw = random.Random(name)
    paths = simulate(RUNS[name]).write(tmp_path)
    before = savings(kinetoscope.analyze(tmp_path, cache=False))
    for shift_ns in SHIFTS_NS:
        path = draw.choice(paths)
        text = path.read_text(encoding="utf-8")
        trace = json.loads(text)
        event = draw.choice(on_device(trace))
        lengthen(event, shift_ns)
        path.write_text(json.dumps(trace), encoding="utf-8")
        after = savings(kinetoscope.analyze(tmp_path, cache=False))
        path.write_text(text, encoding="utf-8")
        assert after == pytest.approx(before, rel=0, abs=abs(shift_ns) + 5), (path.name, event, shift_ns)


def analysed_overlapping(settings, share, tmp_path):
    """Return a run in which this share of kernels overlaps the one before by up to 3 us, and its report."""
    run = simulate(replace(settings, overlap_ns=MAX_OVERLAP_NS, overlap_share=share))
    run.write(tmp_path)
    return run, kinetoscope.analyze(tmp_path, cache=False)


@pytest.mark.parametrize("share", [0.5, 1.0])
@pytest.mark.parametrize("name", RUNS)
def test_savings_are_those_of_the_run_without_the_cause_where_kernels_overlap(name, share, tmp_path):
    run, report = analysed_overlapping(RUNS[name], share, tmp_path)
    assert report.graph.why_untrusted is None
    for cause in CAUSES:
        truth = run.saving_ns_per_step(run.with_ideal(cause))
        found = report.graph.saving_ns(Change(frozenset([cause]))) / run.num_steps
        assert found == pytest.approx(truth, rel=0.02, abs=0.01 * run.time_ns / run.num_steps), cause


@pytest.mark.parametrize("times", [0.5, 2.0, 8.0])
def test_a_kernel_follows_the_one_that_it_overlaps_when_that_gets_faster_or_slower(times, tmp_path):
    run, report = analysed_overlapping(replace(RUNS["healthy"], num_ranks=1), 1.0, tmp_path)
    name = next(row.name for row in report.kernels if "gemm" in row.name)
    report = analyze_sources([tmp_path], Selection(operators=frozenset({name})), cache=False)
    saving_ns = report.graph.saving_ns(Change(faster={name: times})) / run.num_steps
    truth = run.saving_ns_per_step(run.with_faster(name, times))
    assert abs(truth) > 0.1 * run.time_ns / run.num_steps
    assert saving_ns == pytest.approx(truth, rel=0.02)


def one_stream(tmp_path, kernels):
    """Write a trace of kernels of one stream, each ``(launch, begin, end)`` in us, and return its graph."""
    events = [{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 0, "dur": 900}]
    for number, (launch, begin, end) in enumerate(kernels, 1):
        call = {
            "ph": "X",
            "cat": "cuda_runtime",
            "name": "cudaLaunchKernel",
            "pid": 1,
            "tid": 1,
            "ts": launch,
            "dur": 2,
        }
        kernel = {"ph": "X", "cat": "kernel", "name": f"kernel_{number}", "pid": 0, "tid": 7, "ts": begin}
        args = {"stream": 7, "device": 0, "correlation": number}
        events += [call | {"args": {"correlation": number}}, kernel | {"dur": end - begin, "args": args}]
    Path(tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    return kinetoscope.analyze(tmp_path, cache=False).graph


def times_with(graph, **faster):
    """Return the start and end of each kernel in us, with some so many times as fast."""
    times = graph.replay(Change(faster=faster)) - graph.nodes["time"].min()
    pairs = graph.edges.filter(pl.col("kind") == "device").sort("source").select("source", "target").iter_rows()
    return [(times[source] / 1000, times[target] / 1000) for source, target in pairs]


def test_a_kernel_begins_no_earlier_than_the_one_that_it_overlaps(tmp_path):
    graph = one_stream(tmp_path, [(1, 5, 20), (2, 21, 41), (3, 36, 51), (4, 52, 60)])
    assert times_with(graph)[1:] == [(21, 41), (36, 51), (52, 60)]
    assert times_with(graph, kernel_2=20.0)[1:] == [(21, 22), (21, 36), (37, 45)]
    assert times_with(graph, kernel_2=0.5)[1:] == [(21, 61), (56, 71), (72, 80)]


def test_kernels_that_run_side_by_side_on_one_stream_do_not_wait_for_each_other(tmp_path):
    """A CUDA graph has branches; all of its kernels are on the stream on which it was launched."""
    graph = one_stream(tmp_path, [(1, 10, 110), (2, 12, 60), (3, 61, 90), (4, 111, 120)])
    assert times_with(graph, kernel_1=10.0)[1:3] == [(12, 60), (61, 90)]
    assert times_with(graph, kernel_2=2.0)[1:3] == [(12, 36), (37, 66)]
