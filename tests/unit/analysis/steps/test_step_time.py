"""Step time of a run and its two time breakdowns, on simulated runs of known step time, and on hand-written rows."""

import json
import os
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

import kinetoscope
from kinetoscope.analysis.compare.compare import compare_reports
from kinetoscope.analysis.cpu.loop import TrainingLoop
from kinetoscope.analysis.replay.delayed_batches import DelayedBatches
from kinetoscope.analysis.steps.step_time import saving_per_step_ns, step_sequences, step_time_ns
from kinetoscope.analysis.steps.steps import StepRow
from kinetoscope.analysis.windows.window_reader import read_windows
from trainsim import Fault, Settings, random_settings, simulate
from trainsim.analyses import analyze_cached, measured

MS = 1_000_000
SHARE = 0.03
DATA = Path(os.environ.get("KINETOSCOPE_TRACES", Path(__file__).parents[4].with_name("shared") / "data"))
"""Traces of real devices, which are no part of the project."""

HOST = Settings(step_ns=15 * MS, num_ranks=1, num_steps=10, reads_loss="never", has_memory=False)


def slow_host(cost_ms, every=1):
    return (Fault(kind="late_host", cost_ns=cost_ms * MS, every=every),)


LOOPS = {
    "no sync": HOST,
    "no sync, Python 8 ms": replace(HOST, faults=slow_host(8)),
    "no sync, Python 13 ms": replace(HOST, faults=slow_host(13)),
    "no sync, a slow host": replace(HOST, faults=slow_host(20)),
    "no sync, late in every third step": replace(HOST, faults=slow_host(30, every=3)),
    "no sync, copies beside": replace(HOST, has_copies_beside=True),
    "no sync, four ranks": replace(HOST, num_ranks=4),
    "no sync, a CUDA graph": replace(HOST, has_cuda_graph=True),
    "no sync, evaluations": replace(HOST, step_spans="event/batch", evaluates_every=3),
    "a queue of 30 launches": replace(HOST, max_launches=30),
    "a queue of 60 launches": replace(HOST, max_launches=60),
    "a queue of 100 launches": replace(HOST, max_launches=100),
    "a sync in each step": replace(HOST, reads_loss="each step"),
    "a sync in each fifth step": replace(HOST, reads_loss="each step", reads_loss_every=5),
    "a sync in each tenth step": replace(HOST, reads_loss="each step", reads_loss_every=10),
    "a sync a step late": replace(HOST, reads_loss="a step late"),
    "a slow host with a sync": replace(HOST, reads_loss="each step", faults=slow_host(20)),
    "a slow network": replace(HOST, num_ranks=4, faults=(Fault(kind="slow_network", cost_ns=4 * MS),)),
    "no device": replace(HOST, has_device=False, num_ranks=2),
}
EVALUATING = replace(HOST, step_spans="event/batch", evaluates_every=2, evaluates_on_device=True)
EVALUATIONS = {
    "between steps, no sync": EVALUATING,
    "within a step, no sync": replace(EVALUATING, evaluates="within a step"),
    "between steps, a sync": replace(EVALUATING, reads_loss="each step"),
    "within a step, a sync": replace(EVALUATING, reads_loss="each step", evaluates="within a step"),
    "between steps, a queue": replace(EVALUATING, max_launches=60),
    "within a step, a CUDA graph": replace(EVALUATING, evaluates="within a step", has_cuda_graph=True),
}
"""Loops with an evaluation on the device in each second step."""

MORE_LOOPS = {
    "symmetric memory, no sync": replace(HOST, num_ranks=2, communicates_by="symmetric memory"),
    "symmetric memory, a sync": replace(HOST, num_ranks=2, communicates_by="symmetric memory", reads_loss="each step"),
    "a CUDA graph, a sync": replace(HOST, has_cuda_graph=True, reads_loss="each step"),
    "a CUDA graph, copies beside": replace(HOST, has_cuda_graph=True, has_copies_beside=True),
    "a closure, no sync": replace(HOST, num_closure_calls=2),
    "a closure, a sync, copies beside": replace(
        HOST, num_closure_calls=1, has_copies_beside=True, reads_loss="each step"
    ),
}
HEALTHY = [name for name in LOOPS if name.startswith(("no sync", "a queue"))]
SHORT = (2, 4, 10)


@cache
def pace_ns(settings):
    """Return the device's pace over 30 steps."""
    return simulate(replace(settings, num_steps=30)).pace_ns


def report_on(name, num_steps):
    """Return the report on a loop; that with findings where another test needs these."""
    has_findings = name in HEALTHY and num_steps in SHORT
    return (analyze_cached if has_findings else measured)(replace(LOOPS[name], num_steps=num_steps))[1]


@pytest.mark.parametrize("num_steps", [2, 3, 4, 10, 30])
@pytest.mark.parametrize("name", LOOPS)
def test_step_takes_as_long_as_the_run_takes_for_one(name, num_steps):
    report = report_on(name, num_steps)
    assert report.run["step_ns"] == pytest.approx(pace_ns(LOOPS[name]), rel=SHARE)


@pytest.mark.parametrize("num_steps", [3, 5, 11, 31])
@pytest.mark.parametrize("name", EVALUATIONS)
def test_step_has_its_share_of_evaluations_on_the_device(name, num_steps):
    settings = EVALUATIONS[name]
    run = measured(replace(settings, num_steps=num_steps))[1].run
    assert run["step_ns"] == pytest.approx(pace_ns(settings), rel=SHARE)
    assert run["parts"]["host"]["evaluation_ns"] > 0
    assert_adds_up(run)


def test_evaluations_on_the_device_take_its_time():
    assert pace_ns(EVALUATING) > 1.05 * pace_ns(HOST)


@pytest.mark.parametrize("num_steps", [2, 4, 10])
@pytest.mark.parametrize("name", MORE_LOOPS)
def test_step_of_graphs_closures_and_symmetric_memory_takes_the_runs_time(name, num_steps):
    run = measured(replace(MORE_LOOPS[name], num_steps=num_steps))[1].run
    assert run["step_ns"] == pytest.approx(pace_ns(MORE_LOOPS[name]), rel=SHARE)
    assert_adds_up(run)


@pytest.mark.parametrize("name", ["no sync", "a queue of 60 launches", "a sync in each step", "no sync, a CUDA graph"])
def test_one_step_alone_takes_as_long_as_its_kernels_or_its_host(name):
    report = report_on(name, 1)
    assert report.run["step_ns"] == pytest.approx(pace_ns(LOOPS[name]), rel=SHARE)


@pytest.mark.parametrize("num_warmup_steps", [0, 1])
@pytest.mark.parametrize("num_steps", [2, 3, 4])
def test_device_that_starts_with_the_recording_has_its_step_time(num_steps, num_warmup_steps):
    settings = replace(HOST, num_steps=num_steps, num_warmup_steps=num_warmup_steps)
    assert measured(settings)[1].run["step_ns"] == pytest.approx(pace_ns(HOST), rel=SHARE)


def test_sync_only_in_the_last_step_keeps_the_step_time():
    settings = replace(HOST, reads_loss="each step", reads_loss_every=3, num_warmup_steps=0, num_steps=4)
    assert measured(settings)[1].run["step_ns"] == pytest.approx(pace_ns(settings), rel=SHARE)


def assert_adds_up(run):
    assert sum(value for value in run["parts"]["host"].values() if value is not None) == run["step_ns"]
    if run["parts"]["device"] is not None:
        assert sum(run["parts"]["device"].values()) == run["step_ns"]
        assert min(run["parts"]["device"].values()) >= 0
    assert min(value for name, value in run["parts"]["host"].items() if value is not None and name != "ahead_ns") >= 0


@pytest.mark.parametrize("num_steps", [1, 2, 3, 10])
@pytest.mark.parametrize("name", LOOPS)
def test_both_time_breakdowns_add_up_to_the_step_exactly(name, num_steps):
    assert_adds_up(report_on(name, num_steps).run)


@pytest.mark.parametrize("seed", range(12))
def test_time_breakdowns_of_any_run_add_up_exactly(seed):
    assert_adds_up(measured(random_settings(seed))[1].run)


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_loop_without_a_sync_has_no_fault_for_sure(name):
    if LOOPS[name].faults and name != "no sync, Python 8 ms":
        pytest.skip("a fault is planted in it")
    for num_steps in SHORT:
        report = report_on(name, num_steps)
        assert [finding.kind for finding in report.findings if finding.confidence == "high"] == []


@pytest.mark.parametrize(
    ("name", "bound_by"),
    [("no sync", "compute"), ("a queue of 60 launches", "compute"), ("no sync, Python 8 ms", "compute")],
)
def test_device_that_is_always_busy_is_what_bounds_the_run(name, bound_by):
    assert measured(LOOPS[name])[1].run["bound_by"] == bound_by


def test_device_that_is_often_idle_does_not_bound_the_run():
    assert measured(LOOPS["no sync, a slow host"])[1].run["bound_by"] not in ("compute", "communication")


def test_device_that_mostly_communicates_is_bound_by_that():
    faults = (Fault(kind="slow_network", cost_ns=12 * MS),)
    assert measured(replace(HOST, num_ranks=4, faults=faults))[1].run["bound_by"] == "communication"


@pytest.mark.parametrize(
    ("settings", "bound_by"),
    [
        (LOOPS["a sync in each step"], "compute"),
        (replace(HOST, reads_loss="each step", faults=(Fault(kind="slow_loader", cost_ns=90 * MS),)), "data"),
        (LOOPS["a slow host with a sync"], "host"),
        (LOOPS["no device"], "host"),
    ],
)
def test_bound_of_a_cpu_limited_run_is_its_largest_part(settings, bound_by):
    assert measured(settings)[1].run["bound_by"] == bound_by


def test_fetch_before_a_device_that_is_behind_is_not_late_for_its_workers():
    def late(pace):
        with tempfile.TemporaryDirectory() as folder:
            (path,) = simulate(replace(HOST, num_workers=4)).write(Path(folder))
            (window,) = read_windows(kinetoscope.load(path, cache=False))
            return len(DelayedBatches(TrainingLoop(window), pace).fetches)

    assert late(1.0) > late(1_000_000.0) == 0


def test_slower_device_is_slower_in_a_comparison_though_the_host_is_as_fast():
    settings = [replace(HOST, num_steps=12, faster=faster) for faster in ((), (("aten::mm", 0.6),))]
    step = compare_reports(*(analyze_cached(one)[1] for one in settings)).step
    assert step is not None
    assert (step.before, step.after) == pytest.approx(tuple(map(pace_ns, settings)), rel=SHARE)
    assert step.verdict == "slower"


def test_step_of_a_comparison_is_that_of_the_report():
    _, report = analyze_cached(replace(HOST, num_steps=12))
    mean = next(row for row in compare_reports(report, report).rows if row.name == "mean step")
    assert mean.before == pytest.approx(report.run["step_ns"], abs=1)


@pytest.mark.parametrize(
    ("name", "step_ms"), [("v100_one_rank_five_steps.json.gz", 95.7), ("v100_resnet50_old_schema.json.gz", 176.0)]
)
def test_real_trace_has_the_pace_of_its_device(name, step_ms):
    path = DATA / name
    if not path.is_file():
        pytest.skip("the traces of other people are not here")
    run = kinetoscope.analyze(path, cache=False).run
    assert run["step_ns"] == pytest.approx(step_ms * MS, rel=0.005)
    assert_adds_up(run)


def test_run_with_cpu_run_ahead_shows_its_length():
    _, report = measured(HOST)
    assert report.run["parts"]["host"]["ahead_ns"] > 5 * MS


# -- rows by hand


def rows(*, rank=0, first=0, begin_ns=0, num=4, cpu_ns=10 * MS, device_ns=10 * MS, late_ns=0):
    """Steps one after the other; the device ends the first one's work ``late_ns`` after its host, and takes
    ``device_ns`` for each."""
    return [
        StepRow(
            rank=rank,
            step=first + place,
            begin_ns=begin_ns + place * cpu_ns,
            duration_ns=cpu_ns,
            between_ns=0 if place + 1 < num else None,
            device_end_after_ns=late_ns + place * (device_ns - cpu_ns),
            device_compute_ns=device_ns,
        )
        for place in range(num)
    ]


def test_gap_between_two_cycles_is_no_step():
    cycles = [*rows(), *rows(first=4, begin_ns=1_000 * MS)]
    assert step_time_ns(cycles) == 10 * MS
    assert [len(sequence.rows) for sequence in step_sequences(cycles)] == [4, 4]


def test_device_that_is_slower_than_its_host_gives_the_pace():
    assert step_time_ns(rows(cpu_ns=2 * MS, device_ns=15 * MS, late_ns=13 * MS)) == 15 * MS


def test_host_gives_the_pace_where_the_device_ends_with_it():
    assert step_time_ns(rows(late_ns=MS // 4)) == 10 * MS


def test_step_alone_counts_only_where_no_other_was_recorded():
    alone = rows(first=9, begin_ns=5_000 * MS, num=1, cpu_ns=80 * MS)
    assert step_time_ns([*rows(), *alone]) == 10 * MS
    assert step_time_ns(alone) == 80 * MS


def test_without_a_step_its_time_is_not_known():
    assert step_time_ns([]) is None


def test_ranks_on_their_own_paces_are_averaged():
    """The second rank has three steps between ends on the device."""
    both = [*rows(), *rows(rank=1, cpu_ns=2 * MS, device_ns=20 * MS, late_ns=18 * MS)]
    assert step_time_ns(both) == round((4 * 10 * MS + 3 * 20 * MS) / 7)


@pytest.mark.parametrize(("gap_us", "step_ms"), [(40, 21.42), (2000, 20.8)])
def test_the_last_step_counts_where_its_end_is_known(tmp_path, gap_us, step_ms):
    """Spans of torch's ProfilerStep adjoin."""
    begins, lengths_us = [1000, 1000 + 18_800 + gap_us], [18_800, 24_000]
    steps = [
        {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 1, "tid": 1, "ts": ts, "dur": dur}
        for step, ts, dur in zip((3, 4), begins, lengths_us, strict=True)
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": steps}))
    report = kinetoscope.analyze(path, cache=False)
    assert report.run["step_ns"] == pytest.approx(step_ms * MS, rel=1e-6)
    assert sum(value or 0 for value in report.run["parts"]["host"].values()) == report.run["step_ns"]


@pytest.mark.parametrize("num_steps", [1, 2, 3, 10])
def test_fewer_than_three_recorded_steps_are_reported_as_too_few(num_steps):
    _, report = measured(replace(HOST, num_steps=num_steps))
    warnings = [note for note in report.run["notes"] if "the step time is uncertain" in note]
    assert len(warnings) == (num_steps < 3)
    counted = "one step was" if num_steps == 1 else f"{num_steps} steps were"
    assert all(note.startswith(f"Only {counted} recorded") for note in warnings)


def test_a_step_alone_in_its_window_has_what_it_launched_and_the_rest_is_idle(tmp_path):
    def span(name, category, begin_us, dur_us, tid=1, **args):
        times = {"ts": begin_us, "dur": dur_us}
        return {"ph": "X", "cat": category, "name": name, "pid": tid // 7, "tid": tid, "args": args, **times}

    on_device = {"device": 0, "stream": 7}
    events = [
        span("ProfilerStep#0", "user_annotation", 0, 100),
        span("aten::mm", "cpu_op", 5, 30),
        span("cudaLaunchKernel", "cuda_runtime", 10, 2, correlation=1),
        span("cudaMemcpyAsync", "cuda_runtime", 20, 2, correlation=2),
        span("gemm", "kernel", 20, 20, tid=7, correlation=1, **on_device),
        span("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", 50, 10, tid=7, correlation=2, **on_device),
    ]
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"traceEvents": events}))
    parts = kinetoscope.analyze(path, cache=False).run["parts"]["device"]
    known = {name: value for name, value in parts.items() if value}
    assert known == {"compute_ns": 20_000, "exposed_copy_ns": 10_000, "idle_ns": 70_000}


@pytest.mark.parametrize("last_ns", [10, 37, 41, 70])
def test_step_gains_grow_with_savings_up_to_the_share_of_all_recorded_time(last_ns):
    share = 10 / ((20 + last_ns) / 3)
    gains = [saving_per_step_ns(saved_ns, 3, 10.0, share) for saved_ns in range(last_ns)]
    assert gains == sorted(gains)
    assert gains[-1] / 10 <= last_ns / (20 + last_ns)


def test_steps_inside_of_others_of_the_same_name_are_a_part_of_these(tmp_path):
    """A function that calls itself, or a wrapper that has the name of what it wraps."""

    def span(begin_us, duration_us):
        return {
            "ph": "X",
            "cat": "user_annotation",
            "name": "it",
            "pid": 1,
            "tid": 1,
            "ts": begin_us,
            "dur": duration_us,
        }

    inner = [span(1_000 * step + 100, 400) for step in range(4)]
    outer = [span(1_000 * step, 900) for step in range(4)]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": [*inner, *outer]}))
    report = kinetoscope.analyze(tmp_path / "trace.json", step="it", cache=False)
    assert [(row.duration_ns, row.between_ns) for row in report.steps] == [(900_000, 100_000)] * 3 + [(900_000, None)]
    assert report.run["step_ns"] == 1_000_000
