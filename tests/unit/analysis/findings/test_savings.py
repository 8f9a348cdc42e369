"""Savings predicted by a replay equal the savings of the simulated run without the cause."""

import json
import os
from dataclasses import replace

import polars as pl
import pytest

import kinetoscope
from kinetoscope.analysis.analyze import analyze_sources
from kinetoscope.analysis.findings.ranking import is_minor
from kinetoscope.analysis.replay.replay import CAUSES, EDGES, Change, ReplayGraph
from kinetoscope.analysis.steps.step_time import MIN_TIMED_STEPS, ratio_to_recorded_mean
from kinetoscope.analysis.summaries import Selection
from trainsim import Fault, Settings, random_settings, simulate
from trainsim.analyses import analyze_cached, first_wait_ns, write_changed

FETCH = "event/dataloader"
NUM_RUNS = int(os.environ.get("KINETOSCOPE_RANDOM_RUNS", "0"))

SEEDS = sorted({*range(NUM_RUNS), 3, 27, 59, 81, 199})
"""Pipelines, tensor parallel ranks, slow launches, ranks on the CPU, and a call that never needs to wait; in the long
tests any."""

TOO_LITTLE = (92,)
"""Where a call never waited, for one of two events that were both over by then: then the replay takes the later one,
and does not promise too much."""

RUNS = {
    "calls of .item()": Settings(num_steps=6, faults=(Fault(kind="items", count=60),)),
    "sharded weights": Settings(num_steps=6, layout="sharded", faults=(Fault(kind="slow_network", cost_ns=600_000),)),
    "ranks on the CPU": Settings(num_steps=6, has_device=False, faults=(Fault(kind="slow_network", cost_ns=900_000),)),
    "a slow loader": Settings(num_ranks=1, num_steps=8, faults=(Fault(kind="slow_loader", cost_ns=9_000_000),)),
    "garbage collections": Settings(
        num_steps=6, reads_loss="each step", faults=(Fault(kind="gc", cost_ns=900_000, every=2),)
    ),
}

NEEDED = {
    "host": ("garbage collections", "gc"),
    "thread": ("garbage collections", "gc"),
    "launch": ("calls of .item()", "sync"),
    "sync": ("calls of .item()", "sync"),
    "device": ("calls of .item()", "sync"),
    "stream": ("sharded weights", "transfer"),
    "other_stream": ("sharded weights", "transfer"),
    "collective": ("ranks on the CPU", "transfer"),
    "loader": ("a slow loader", "data"),
}
"""Runs and causes, one for each kind of edge, whose saving depends on it."""


def near(run, better):
    """Check a run's saving, within 2 % and a little of its step."""
    return pytest.approx(run.saving_ns_per_step(better), rel=0.02, abs=0.01 * run.time_ns / run.num_steps)


def test_each_kind_of_edge_is_needed_by_a_run():
    assert NEEDED.keys() == set(EDGES)


@pytest.mark.parametrize("kind", EDGES)
def test_a_saving_is_right_but_would_be_wrong_without_a_kind_of_edge(kind):
    name, cause = NEEDED[kind]
    run, report = analyze_cached(RUNS[name])
    graph = report.graph
    truth, change = near(run, run.with_ideal(cause)), Change(frozenset([cause]))
    assert graph.saving_ns(change) / run.num_steps == truth
    poorer: ReplayGraph = replace(graph, edges=graph.edges.filter(pl.col("kind") != kind))
    assert poorer.saving_ns(change) / run.num_steps != truth


@pytest.mark.parametrize("seed", SEEDS)
def test_savings_are_those_of_the_run_without_the_cause_or_unknown(seed):
    run, report = analyze_cached(random_settings(seed))
    of_mean = min(1.0, ratio_to_recorded_mean(report.steps, report.run["step_ns"]))
    if report.graph.why_untrusted is None:
        for cause in CAUSES:
            change, truth = Change(frozenset([cause])), near(run, run.with_ideal(cause))
            found_ns = report.saving_ns_per_step(change) / of_mean
            if report.run["num_steps"] < MIN_TIMED_STEPS:  # a step is not the mean of so few, and savings are of a step
                found_ns = report.graph.saving_ns(change) / run.num_steps
            if cause == "data" and truth.expected:  # what is before the first step is not saved in a step
                found_ns += first_wait_ns(run, report) / run.num_steps
            assert found_ns == truth or (seed in TOO_LITTLE and found_ns < truth.expected), cause


def test_a_collective_on_the_cpu_that_waits_in_a_queue_was_launched_by_its_own_call():
    """It begins after calls of the host that came later."""
    faults = (Fault(kind="slow_loader", cost_ns=19_277_238), Fault(kind="slow_network", cost_ns=1_831_616))
    settings = Settings(
        seed=116, num_ranks=8, num_steps=11, step_ns=10_000_000, has_device=False, noise=0, faults=faults
    )
    run, report = analyze_cached(settings)
    assert report.saving_ns_per_step(Change(frozenset(["data"]))) == near(run, run.with_ideal("data"))


def test_a_first_wait_that_no_steps_time_has_is_not_saved(tmp_path):
    """A loop waits for its first batch before its first step: often for its workers, too."""
    fault = Fault(kind="slow_loader", cost_ns=9_000_000)
    settings = Settings(num_ranks=1, num_steps=8, has_device=False, step_spans="event/batch", noise=0, faults=(fault,))

    def wait_longer(trace):
        first = min((event for event in trace["traceEvents"] if event["name"] == FETCH), key=lambda event: event["ts"])
        first |= {"ts": first["ts"] - 60_000, "dur": first["dur"] + 60_000}

    report = kinetoscope.analyze(write_changed(wait_longer, settings, tmp_path), cache=False)
    (finding,), wait_ns = report.findings, report.run["parts"]["host"]["data_wait_ns"]
    assert finding.kind == "input_bound"
    assert (finding.cost_ns_per_step, finding.saving_ns_per_step) == pytest.approx((wait_ns, wait_ns), rel=0.01)
    assert wait_ns < 0.6 * report.run["step_ns"]


@pytest.mark.parametrize(("outer", "inner"), [(2.0, 8.0), (8.0, 2.0), (2.0, 0.5)])
def test_operators_inside_of_one_another_are_each_as_much_faster_as_given(outer, inner, tmp_path):
    faster = {"aten::relu": outer, "aten::clamp_min": inner}
    run = simulate(Settings(num_ranks=1, num_steps=6, has_device=False, noise=0))
    run.write(tmp_path)
    report = analyze_sources([tmp_path], Selection(operators=frozenset(faster)), cache=False)
    better = simulate(replace(run.settings, faster=tuple(faster.items())))
    assert report.saving_ns_per_step(Change(faster=faster)) == pytest.approx(run.saving_ns_per_step(better), rel=0.02)


@pytest.mark.parametrize("cause", ["sync", "python", "launch"])
def test_input_bound_loop_saves_nothing_by_being_faster(cause):
    faults = (Fault(kind="slow_loader", cost_ns=9_000_000), Fault(kind="slow_python", cost_ns=60_000))
    settings = Settings(num_ranks=1, num_steps=8, reads_loss="each step", faults=faults)
    run, report = analyze_cached(settings)
    assert report.saving_ns_per_step(Change(frozenset([cause]))) < 0.01 * run.time_ns / run.num_steps


@pytest.mark.parametrize(("num_workers", "every"), [(4, 5), (4, 9), (2, 9)])
def test_a_batch_that_is_slow_now_and_then_comes_no_earlier_than_it_was_asked_for(num_workers, every, tmp_path):
    slow = Fault(kind="slow_loader", cost_ns=5 * num_workers * 3_000_000, every=every)
    settings = Settings(num_ranks=1, num_steps=12, num_workers=num_workers, reads_loss="each step")
    run = simulate(replace(settings, faults=(slow, Fault(kind="slow_python", cost_ns=240_000))))
    for path in run.write(tmp_path):
        show_workers(path, num_workers)
    report = kinetoscope.analyze(tmp_path, cache=False)
    for cause in ("python", "sync"):
        assert report.saving_ns_per_step(Change(frozenset([cause]))) == near(run, run.with_ideal(cause)), cause


def mark_steps(path, first, last, *, with_fetch=True):
    """Add a span ``part`` for each of some of torch's steps, or for what is after the fetch with which it begins."""
    trace = json.loads(path.read_text(encoding="utf-8"))
    names = {f"ProfilerStep#{number}" for number in range(first, last + 1)}
    steps = [event for event in trace["traceEvents"] if event["name"] in names and event["cat"] == "user_annotation"]
    fetches = [event for event in trace["traceEvents"] if event["name"].startswith("enumerate(DataLoader)#")]
    assert len(steps) == len(names)
    for number, step in enumerate(steps):
        begin, end = step["ts"], step["ts"] + step["dur"]
        (fetch,) = (event for event in fetches if begin <= event["ts"] < end)
        begin = begin if with_fetch else fetch["ts"] + fetch["dur"] + 0.01
        trace["traceEvents"].append(step | {"name": f"part {number}", "ts": begin, "dur": end - begin})
    path.write_text(json.dumps(trace), encoding="utf-8")


FAULTS = {
    "sync": Fault(kind="items", count=60),
    "data": Fault(kind="slow_loader", cost_ns=9_000_000),
    "transfer": Fault(kind="slow_network", cost_ns=600_000),
    "late": Fault(kind="late_host", ranks=(1,), cost_ns=2_000_000),
}


@pytest.mark.parametrize(("fault", "with_fetch"), [*((name, True) for name in FAULTS), ("data", False)])
def test_part_of_the_steps_gets_the_same_statements_as_all(fault, with_fetch, tmp_path):
    run = simulate(Settings(num_steps=24, reads_loss="each step", faults=(FAULTS[fault],)))
    for path in run.write(tmp_path):
        mark_steps(path, 9, 20, with_fetch=with_fetch)
    of_all, of_part = (kinetoscope.analyze(tmp_path, step=name, cache=False) for name in (None, "part"))
    assert (of_all.run["num_steps"], of_part.run["num_steps"]) == (24, 12)
    assert of_all.findings
    assert [one.id for one in of_part.findings] == [one.id for one in of_all.findings]
    little = {"rel": 0.05, "abs": 0.02 * of_all.run["step_ns"]}
    for one, other in zip(of_part.findings, of_all.findings, strict=True):
        assert one.cost_ns_per_step == pytest.approx(other.cost_ns_per_step, **little), one.kind
    for cause in CAUSES:
        of_step, of_one = (report.saving_ns_per_step(Change(frozenset([cause]))) for report in (of_all, of_part))
        assert of_one == pytest.approx(of_step, **little), cause


def show_workers(path, num_workers):
    """Add a span in each worker of the loader to a trace, as markers in a dataset do."""
    trace = json.loads(path.read_text(encoding="utf-8"))
    begin = min(event["ts"] for event in trace["traceEvents"])
    for pid in range(9000, 9000 + num_workers):
        name = {"name": f"DataLoader worker {pid - 9000}"}
        trace["traceEvents"] += [
            {"ph": "M", "name": "process_name", "pid": pid, "tid": pid, "args": name},
            {"ph": "X", "name": "decode", "cat": "user", "pid": pid, "tid": pid, "ts": begin, "dur": 1.0},
        ]
    path.write_text(json.dumps(trace), encoding="utf-8")


def test_no_saving_is_known_where_the_trace_of_a_rank_is_missing():
    late = Fault(kind="late_host", ranks=(1,), cost_ns=3_000_000)
    _, report = analyze_cached(Settings(num_ranks=2, missing_ranks=(1,), faults=(late,)))
    assert report.saving_ns_per_step(Change(frozenset(["transfer"]))) is None
    assert "ranks whose traces are missing" in report.graph.why_untrusted


def test_no_saving_is_known_where_a_rank_has_not_recorded_all_steps():
    _, report = analyze_cached(Settings(num_ranks=2, num_steps=6, late_ranks=(1,)))
    assert report.saving_ns_per_step(Change(frozenset(["python"]))) is None
    assert report.graph.why_untrusted == (
        "17 % of the steps were not recorded on all ranks; above 5 %, a replay is not trusted."
    )


def test_kernels_of_the_loop_wait_for_communication_requested_by_autograds_thread():
    """Late devices hide behind slow launches; without these, the next step waits for the later one in each step."""
    turns = (Fault(kind="late_device", ranks=(rank,), cost_ns=1_500_000, every=2, first=rank) for rank in (0, 1))
    settings = Settings(num_steps=12, reads_loss="never", faults=(*turns, Fault(kind="slow_launches", cost_ns=150_000)))
    run, report = analyze_cached(settings)
    assert report.saving_ns_per_step(Change(frozenset(["launch"]))) == near(run, run.with_ideal("launch"))


def test_calls_in_flight_when_a_recording_began_do_not_look_like_missing_ranks():
    """Late ranks begin to record after the others, which wait for them at that time."""
    late = tuple(Fault(kind="slow_loader", ranks=(rank,), cost_ns=17_288_467, every=2) for rank in (0, 1))
    settings = Settings(num_ranks=4, num_steps=9, step_ns=10_000_000, layout="sharded", step_spans="both", faults=late)
    run, report = analyze_cached(settings)
    assert report.graph.why_untrusted is None
    assert report.findings[0].saving_ns_per_step == near(run, run.without())


def test_device_waits_for_work_from_before_the_recording_are_explained():
    faults = (Fault(kind="float32", cost_ns=170_682), Fault(kind="slow_network", cost_ns=804_383))
    settings = Settings(
        seed=1022, num_ranks=4, num_steps=9, layout="sharded", reads_loss="never", jitter_ns=2_000, faults=faults
    )
    _, report = analyze_cached(settings)
    assert report.graph.unexplained_share < 0.01


def test_waiting_of_a_device_is_explained_but_for_gaps_that_have_no_reason():
    _, report = analyze_cached(Settings(num_ranks=1, num_steps=4))
    assert report.graph.unexplained_share < 0.01
    gaps = Fault(kind="idle_gaps", cost_ns=300_000)
    _, report = analyze_cached(Settings(num_ranks=1, num_steps=4, faults=(gaps,)))
    assert report.graph.unexplained_share > 0.5
    assert report.saving_ns_per_step(Change(frozenset(["python"]))) is None


# -- what a recording cannot tell


def the(report, kind):
    return next(found for found in report.findings if found.kind == kind)


@pytest.mark.parametrize("cost_ns", [90_000, 220_000])
def test_saving_of_python_on_the_cpu_is_an_interval(cost_ns):
    settings = Settings(
        num_ranks=2, num_steps=12, has_device=False, faults=(Fault(kind="slow_python", cost_ns=cost_ns),)
    )
    run, report = analyze_cached(settings)
    found = the(report, "python_overhead")
    least_ns, most_ns = found.saving_ns_per_step, dict(found.evidence)["max_saving_ns"]
    assert least_ns < run.saving_ns_per_step(run.without()) < most_ns < 0.6 * report.run["step_ns"]
    assert f"at most {100 * most_ns / report.run['step_ns']:.0f} % of a step" in found.advice


def test_a_call_that_never_waited_makes_an_interval_of_a_saving():
    """Launches are slow, and the loss is read a step late: without them the call might wait for this step's end."""
    faults = (Fault(kind="slow_launches", cost_ns=60_057), Fault(kind="slow_python", cost_ns=122_706))
    settings = Settings(num_steps=12, layout="sharded", faults=faults)
    run, report = analyze_cached(settings)
    found, truth = the(report, "host_bound"), run.saving_ns_per_step(run.without(0))
    little = 0.02 * run.time_ns / run.num_steps
    assert found.saving_ns_per_step < truth - little
    assert truth - little < dict(found.evidence)["max_saving_ns"] < truth + 2 * little


READS = Settings(num_ranks=1, num_steps=12, num_microbatches=3, reads_loss="never")


def test_device_wait_saves_more_while_pauses_that_idle_the_device_remain():
    pauses = Fault(kind="recompilation", cost_ns=3_700_000, every=2)
    run, report = analyze_cached(replace(READS, faults=(Fault(kind="items", count=16), pauses)))
    found, truth_ns, step_ns = (
        the(report, "synchronisation"),
        run.saving_ns_per_step(run.without(0)),
        report.run["step_ns"],
    )
    most_ns = dict(found.evidence)["max_saving_ns"]
    assert found.saving_ns_per_step < truth_ns - 0.02 * step_ns
    assert most_ns == pytest.approx(truth_ns, abs=0.02 * step_ns)
    assert f"up to {100 * most_ns / step_ns:.0f} % of a step while pauses of the loop" in found.advice


def test_values_that_are_not_read_save_what_the_loop_takes_to_have_them_copied():
    run, report = analyze_cached(
        replace(READS, faults=(Fault(kind="items", count=30), Fault(kind="small_kernels", count=600)))
    )
    truth_ns = pytest.approx(run.saving_ns_per_step(run.without(0)), abs=0.02 * report.run["step_ns"])
    assert the(report, "synchronisation").saving_ns_per_step == truth_ns


def test_a_saving_that_is_known_is_no_interval():
    for name in ("calls of .item()", "a slow loader", "garbage collections"):
        _, report = analyze_cached(RUNS[name])
        assert all("max_saving_ns" not in dict(found.evidence) for found in report.findings), name


def test_transfers_behind_which_kernels_are_late_without_a_reason_have_no_saving():
    """Without the transfers, the device would be idle in the same gaps, partly hidden by the transfers."""
    slow, gaps = Fault(kind="slow_network", cost_ns=534_491), Fault(kind="idle_gaps", cost_ns=84_379)
    settings = Settings(num_steps=12, layout="sharded", reads_loss="never", faults=(slow, gaps))
    found = the(analyze_cached(settings)[1], "exposed_communication")
    assert (found.confidence, found.saving_ns_per_step) == ("medium", None)
    found = the(analyze_cached(replace(settings, faults=(slow,)))[1], "exposed_communication")
    assert found.confidence == "high"
    assert found.saving_ns_per_step


# -- a loader behind another fault


HIDDEN = Fault(kind="slow_loader", cost_ns=4_000_000)


@pytest.mark.parametrize("fault", [Fault(kind="slow_launches", cost_ns=150_000), Fault(kind="gc", cost_ns=4_000_000)])
def test_a_loop_without_its_fault_is_no_faster_than_workers_that_were_sampled(fault):
    """The loader builds a batch in less time than a step takes, so there is no wait; without the fault there
    would be."""
    settings = Settings(num_ranks=2, num_steps=14, num_warmup_steps=40, faults=(fault, HIDDEN), workers_do="compute")
    run, report = analyze_cached(settings)
    found, step_ns, num_gaps = the(report, fault.finding), report.run["step_ns"], run.num_steps - 1
    workers_ns = (1.5e6 * settings.num_workers + HIDDEN.cost_ns) / settings.num_workers
    lasting_ns = num_gaps / run.num_steps * (step_ns - workers_ns)
    assert found.saving_ns_per_step == pytest.approx(lasting_ns, abs=0.02 * step_ns)
    most_ns = dict(found.evidence)["max_saving_ns"]
    assert found.saving_ns_per_step < run.saving_ns_per_step(run.without(0)) < most_ns + 0.005 * step_ns
    assert most_ns == pytest.approx(run.saving_ns_per_step(run.without()), abs=0.02 * step_ns)
    assert found.confidence in ("high", "medium")
    assert "After that the DataLoader limits the loop" in found.advice
    assert not any("keeps up" in note for note in report.run["notes"])


def test_loop_with_fast_workers_gains_the_full_cost_of_its_fault():
    settings = Settings(num_ranks=2, num_steps=14, faults=(Fault(kind="gc", cost_ns=4_000_000),), workers_do="compute")
    run, report = analyze_cached(settings)
    found, step_ns = the(report, "garbage_collection"), run.time_ns / run.num_steps
    assert found.saving_ns_per_step == pytest.approx(run.saving_ns_per_step(run.without()), abs=0.02 * step_ns)
    assert "max_saving_ns" not in dict(found.evidence)
    assert "DataLoader" not in found.advice


def test_saving_lost_to_a_busy_loader_is_reported_even_if_nothing_remains():
    faults = (Fault(kind="gc", cost_ns=4_000_000), Fault(kind="slow_loader", cost_ns=5_600_000))
    settings = Settings(num_ranks=1, num_steps=14, num_warmup_steps=40, faults=faults, workers_do="compute")
    _, report = analyze_cached(settings)
    found = the(report, "garbage_collection")
    assert (found.confidence, found.saving_ns_per_step < 0.05 * report.run["step_ns"]) == ("low", True)
    assert dict(found.evidence)["max_saving_ns"] > 0.3 * report.run["step_ns"]
    assert not is_minor(found, report.run["step_ns"])  # its advice says what holds it back
    assert report.saving_of_fix(report.findings.index(found) + 1) == pytest.approx(found.saving_ns_per_step, abs=1)


def test_savings_depend_on_a_loader_without_sampled_workers():
    _, report = analyze_cached(Settings(num_steps=14, faults=(Fault(kind="slow_launches", cost_ns=150_000), HIDDEN)))
    assert any("Savings hold only if the DataLoader keeps up" in note for note in report.run["notes"])
    _, report = analyze_cached(RUNS["a slow loader"])
    assert not any("keeps up" in note for note in report.run["notes"])
