"""Costs and savings agree: no fault costs more than is waited for, and no finding is surer than its recording."""

import json
import os
from dataclasses import replace

import pytest

import kinetoscope
from kinetoscope.analysis.replay.replay import Change
from kinetoscope.analysis.what_if import what_if
from trainsim import Fault, Settings, random_settings, simulate
from trainsim.analyses import analyze_cached

NUM_RUNS = int(os.environ.get("KINETOSCOPE_RANDOM_RUNS", "0"))
SEEDS = sorted({*range(NUM_RUNS), 4, 21, 29, 32, 33, 45, 59})
"""Runs in which costs were above the step, or below the saving; in the long tests any."""

OF_DEVICES = ("exposed_communication", "idle_gaps", "exposed_copy", "float32_matmul", "float64", "small_kernels")


def most_waiting_ns(report):
    """Return the device's waits in a step, for its CPU, for other ranks, or for any reason; without a device, the whole
    step."""
    waits = [
        (row.idle_ns + row.exposed_communication_ns) / row.num_steps
        for row in report.ranks
        if row.window_ns is not None and row.num_steps
    ]
    return max(waits, default=report.run["step_ns"])


@pytest.mark.parametrize("seed", SEEDS)
def test_no_fault_costs_more_than_its_wait_and_each_fix_saves_the_prediction(seed):
    _, report = analyze_cached(random_settings(seed))
    step_ns, waiting_ns = report.run["step_ns"], most_waiting_ns(report)
    for number, found in enumerate(report.findings, start=1):
        cost_ns, saving_ns = found.cost_ns_per_step, found.saving_ns_per_step
        if cost_ns is not None:
            assert (saving_ns or 0) <= cost_ns <= step_ns, found.kind
        if cost_ns is not None and found.kind not in OF_DEVICES:
            assert cost_ns <= max(waiting_ns, saving_ns or 0) + 1, found.kind
        again_ns = report.saving_of_fix(number)
        assert (again_ns if again_ns is None else round(again_ns)) == saving_ns, found.kind


def the(report, kind):
    return next(found for found in report.findings if found.kind == kind)


def test_small_kernels_cost_at_most_device_wait_and_empty_kernel_time():
    settings = Settings(num_ranks=1, step_ns=30_000_000, faults=(Fault(kind="small_kernels", count=500),))
    _, report = analyze_cached(settings)
    found = the(report, "small_kernels")
    assert dict(found.evidence)["cpu_ns"] > 5 * found.cost_ns_per_step
    empty_ns = sum(row.total_ns for row in report.kernels if row.total_ns < 5_000 * row.num_calls)
    assert found.cost_ns_per_step <= most_waiting_ns(report) + empty_ns / report.run["num_steps"]


def without(trace, is_lost):
    trace["traceEvents"] = [event for event in trace["traceEvents"] if not is_lost(event)]


def report_after(change, settings, folder):
    for path in simulate(settings).write(folder):
        trace = json.loads(path.read_text(encoding="utf-8"))
        change(trace)
        path.write_text(json.dumps(trace), encoding="utf-8")
    return kinetoscope.analyze(folder, cache=False)


def test_device_waiting_for_slow_operators_costs_more_than_the_launch_calls(tmp_path):
    """Write operators of 40 us with launches of 4 us, before kernels of 4 us; an event without a reason makes the
    replay untrusted, so that the cost decides."""
    events = []
    for step in range(8):
        begin = 4000.0 * step
        events.append(span("user_annotation", f"ProfilerStep#{step}", begin, 3990, 1))
        for place in range(90):
            at, number = begin + 44 * place, 1 + 90 * step + place
            events.append(span("cpu_op", "aten::add", at, 40, 1))
            events.append(span("cuda_runtime", "cudaLaunchKernel", at + 30, 4, 1, correlation=number))
            events.append(span("kernel", "add_kernel", at + 36, 6, 7, correlation=number, stream=7, device=0))
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    report = kinetoscope.analyze(path, cache=False)
    kinds = {found.kind: found.cost_ns_per_step / report.run["step_ns"] for found in report.findings}
    assert max(kinds.get("host_bound", 0), kinds.get("small_kernels", 0)) > 0.6
    assert sum(row.idle_host_wait_ns for row in report.ranks) > 0.7 * sum(row.window_ns for row in report.ranks)


def span(category, name, ts, dur, track, **args):
    pid = 0 if category == "kernel" else 1
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": track, "ts": ts, "dur": dur, "args": args}


SLOW_LAST_STEP = Settings(
    num_ranks=1, has_device=False, faults=(Fault(kind="slow_python", cost_ns=4_000_000, every=50, first=5),)
)
"""The third recorded step has much Python. Where it is the last one, it is not in the time of a step."""


@pytest.mark.parametrize("num_steps", [3, 4, 8])
@pytest.mark.parametrize("cause", ["python", "data"])
def test_no_step_saves_more_than_its_time_even_if_the_last_took_longer(num_steps, cause):
    _, report = analyze_cached(replace(SLOW_LAST_STEP, num_steps=num_steps))
    after = what_if(report, Change(frozenset([cause])))
    assert after.step_ns == report.run["step_ns"]
    assert 0 < after.step_after_ns <= after.step_ns
    assert after.step_after_ns == after.step_ns - after.saving_ns_per_step
    for found in report.findings:
        assert (found.saving_ns_per_step or 0) <= found.cost_ns_per_step <= report.run["step_ns"]


def test_loop_that_waits_for_data_costs_its_part_of_the_time_breakdown():
    settings = Settings(num_ranks=1, num_steps=9, faults=(Fault(kind="slow_loader", cost_ns=9_000_000),))
    _, report = analyze_cached(settings)
    found, waited_ns = the(report, "input_bound"), report.run["parts"]["host"]["data_wait_ns"]
    assert dict(found.evidence)["data_wait_ns"] == waited_ns
    assert found.cost_ns_per_step <= max(waited_ns, found.saving_ns_per_step)


def test_finding_without_straggler_numbers_shows_the_number_of_excluded_ranks():
    late, slow = Fault(kind="late_host", ranks=(1,), cost_ns=4_000_000), Fault(kind="items", count=60)
    _, report = analyze_cached(Settings(num_ranks=4, num_steps=9, faults=(late, slow)))
    assert dict(the(report, "synchronisation").evidence)["num_excluded_stragglers"] == 1
    _, report = analyze_cached(Settings(num_ranks=4, num_steps=9, faults=(slow,)))
    assert "num_excluded_stragglers" not in dict(the(report, "synchronisation").evidence)


# -- how sure a finding can be


FAULTS = (Fault(kind="items", count=60),)


def confidences(report):
    assert report.findings
    return {found.confidence for found in report.findings}


@pytest.mark.parametrize("num_steps", [1, 2, 3, 8])
def test_nothing_is_sure_of_so_few_steps_that_their_time_is_not_known_well(num_steps):
    _, report = analyze_cached(Settings(num_ranks=1, num_steps=num_steps, faults=FAULTS))
    is_known = not any("the step time is uncertain" in note for note in report.run["notes"])
    assert ("high" in confidences(report)) == is_known == (num_steps >= 3)


def test_nothing_is_sure_of_a_trace_that_was_thinned_out(tmp_path):
    def thin(trace):
        lost = {event["args"]["correlation"] for event in kernels(trace)[::4]}
        without(trace, lambda event: event.get("cat") == "kernel" and event["args"]["correlation"] in lost)

    settings = Settings(num_ranks=1, num_steps=8, faults=(Fault(kind="gc", cost_ns=9_000_000),))
    assert "high" in confidences(analyze_cached(settings)[1])
    assert "high" not in confidences(report_after(thin, settings, tmp_path))


def kernels(trace):
    return [event for event in trace["traceEvents"] if event.get("cat") == "kernel"]


def test_nothing_is_sure_where_no_replay_is_trusted():
    faults = (Fault(kind="idle_gaps", cost_ns=400_000), Fault(kind="float64", cost_ns=400_000))
    report = analyze_cached(Settings(num_ranks=1, num_steps=8, faults=faults))[1]
    assert report.graph.why_untrusted
    assert "high" not in confidences(report)


# -- gaps


@pytest.mark.parametrize("has_graph", [True, False])
def test_gaps_inside_of_a_cuda_graph_are_not_blamed_on_other_processes(has_graph):
    faults = (Fault(kind="idle_gaps", cost_ns=400_000),)
    _, report = analyze_cached(Settings(num_ranks=1, num_steps=8, has_cuda_graph=has_graph, faults=faults))
    found = the(report, "idle_gaps")
    assert ("CUDA graph" in found.title) == has_graph
    assert ("nvidia-smi" in found.advice) != has_graph
    assert found.cost_ns_per_step <= report.run["parts"]["device"]["idle_ns"]


def test_idle_gaps_cost_no_more_than_a_step():
    fault = Fault(kind="idle_gaps", cost_ns=2_000_000)
    for num_steps in (1, 2, 8):
        settings = replace(Settings(num_ranks=1, faults=(fault,)), num_steps=num_steps)
        _, report = analyze_cached(settings)
        assert the(report, "idle_gaps").cost_ns_per_step <= report.run["step_ns"]
