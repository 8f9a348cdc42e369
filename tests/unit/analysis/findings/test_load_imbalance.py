"""analysis/findings/load_imbalance.py: ranks that have the most to compute in turns."""

import json

import polars as pl
import pytest

import kinetoscope
from kinetoscope.analysis.replay.load_balancing import balance_loads
from trainsim import Fault, Settings
from trainsim.analyses import analyze_cached, write_changed

MS = 1_000_000
BATCHES = {"layout": "data"}
EXPERTS = {"layout": "experts", "expert_share": 0.5, "num_layers": 3, "transfer_share": 0.002}


def uneven(num_ranks, kind, **settings):
    fault = Fault(kind=kind, cost_ns=4 * MS)
    return Settings(num_ranks=num_ranks, num_steps=14, step_ns=8 * MS, faults=(fault,), **settings)


@pytest.mark.parametrize("num_ranks", [2, 4, 8])
@pytest.mark.parametrize(("kind", "settings"), [("unequal_batches", BATCHES), ("unbalanced_experts", EXPERTS)])
def test_uneven_loads_are_one_finding_with_the_saving_of_even_loads(kind, settings, num_ranks):
    run, report = analyze_cached(uneven(num_ranks, kind, **settings))
    found = [finding for finding in report.findings if finding.confidence != "low"]
    assert [(one.kind, one.where.ranks) for one in found] == [("straggler", tuple(range(num_ranks)))]
    assert {row.cause for row in report.stragglers} == {"device"}
    gain_ns = run.saving_ns_per_step(run.without())
    assert found[0].saving_ns_per_step == pytest.approx(gain_ns, abs=0.02 * run.time_ns / run.num_steps)
    assert report.saving_of_fix(1) == pytest.approx(found[0].saving_ns_per_step, abs=1)


def test_even_loads_do_not_remove_the_noise_of_other_kernels():
    run, report = analyze_cached(uneven(4, "unbalanced_experts", noise=0.1, **EXPERTS))
    gain_ns = run.saving_ns_per_step(run.without())
    assert report.findings[0].where.ranks == (0, 1, 2, 3)
    assert report.findings[0].saving_ns_per_step == pytest.approx(gain_ns, abs=0.02 * run.time_ns / run.num_steps)


def test_even_loads_change_no_kernel_that_takes_all_ranks_the_same():
    batches, optimizer = [(100, 500), (400, 80), (150, 350)], 60
    rows = [
        {"rank": rank, "step": step, "piece": 0, "name": name, "time": index, "takes_ns": takes}
        for step, of_ranks in enumerate(batches)
        for rank, batch in enumerate(of_ranks)
        for index, (name, takes) in enumerate([("matmul", batch), ("adam", optimizer + rank)])
    ]
    frame = pl.DataFrame(rows).with_row_index("edge")
    changed = balance_loads(frame, frame["takes_ns"])
    found = frame.with_columns(takes_ns=changed)
    assert found.filter(name="adam")["takes_ns"].to_list() == frame.filter(name="adam")["takes_ns"].to_list()
    assert found.filter(name="matmul")["takes_ns"].to_list() == [300, 300, 240, 240, 250, 250]


def test_even_loads_are_scaled_where_ranks_run_different_kernels():
    rows = [(0, "long", 200), (0, "long", 200), (1, "short", 100)]
    frame = pl.DataFrame(
        [
            {"rank": rank, "step": 0, "piece": 0, "name": name, "time": index, "takes_ns": takes}
            for index, (rank, name, takes) in enumerate(rows)
        ]
    ).with_row_index("edge")
    assert balance_loads(frame, frame["takes_ns"]).to_list() == [125, 125, 250]


@pytest.mark.parametrize("settings", [BATCHES, EXPERTS])
def test_even_loads_are_no_finding(settings):
    report = analyze_cached(Settings(num_ranks=4, num_steps=14, step_ns=8 * MS, noise=0.05, **settings))[1]
    assert [finding.kind for finding in report.findings if finding.confidence != "low"] == []


def test_two_of_four_ranks_that_are_slow_in_turns_are_named_alone():
    faults = tuple(Fault(kind="late_device", cost_ns=4 * MS, ranks=(rank,), every=2, first=rank) for rank in (0, 1))
    report = analyze_cached(Settings(num_ranks=4, num_steps=14, step_ns=8 * MS, faults=faults))[1]
    assert [(one.kind, one.where.ranks) for one in report.findings] == [("straggler", (0, 1))]


def test_straggler_is_named_next_to_uneven_loads():
    faults = (Fault(kind="unequal_batches", cost_ns=4 * MS), Fault(kind="late_host", cost_ns=16 * MS, ranks=(2,)))
    report = analyze_cached(Settings(num_ranks=4, num_steps=14, step_ns=8 * MS, faults=faults))[1]
    assert (report.findings[0].kind, report.findings[0].where.ranks) == ("straggler", (2,))


def test_an_all_to_all_of_unequal_sizes_is_one_call(tmp_path):
    def with_sizes_by_rank(trace):
        rank = trace["distributedInfo"]["rank"]
        for event in trace["traceEvents"]:
            if event.get("args", {}).get("Collective name") == "all_to_allv":
                event["args"]["In msg nelems"] += 1000 * rank
                event["args"]["Out msg nelems"] += 1000 * rank

    settings = uneven(4, "unbalanced_experts", **EXPERTS)
    report = kinetoscope.analyze(write_changed(with_sizes_by_rank, settings, tmp_path), cache=False)
    assert {row.num_ranks for row in report.collectives if row.name == "all_to_all"} == {4}
    assert report.findings[0].where.ranks == (0, 1, 2, 3)


def test_all_to_all_with_different_ends_shows_no_straggler(tmp_path):
    def with_early_ends(trace):
        rank = trace["distributedInfo"]["rank"]
        for event in trace["traceEvents"]:
            is_kernel = event.get("cat") == "kernel"
            if is_kernel and event["args"].get("Collective name") == "all_to_allv":
                event["dur"] *= 1 - 0.1 * rank

    settings = uneven(4, "unbalanced_experts", **EXPERTS)
    report = kinetoscope.analyze(write_changed(with_early_ends, settings, tmp_path), cache=False)
    rows = [row for row in report.collectives if row.name == "all_to_all"]
    apart = [
        row for row in rows if max(row.ends_ns) - min(row.ends_ns) > 0.05 * (max(row.ends_ns) - min(row.starts_ns))
    ]
    assert apart
    assert {row.waits_ns for row in apart} == {None}


@pytest.mark.parametrize("has_lengths", [False, True])
def test_unequal_lengths_are_named_where_shapes_were_recorded(tmp_path, has_lengths):
    def with_lengths(trace):
        rank = trace["distributedInfo"]["rank"]
        calls = [event for event in trace["traceEvents"] if event.get("name") == "aten::addmm"]
        for index, event in enumerate(sorted(calls, key=lambda event: event["ts"]) if has_lengths else ()):
            shapes = event["args"]["Input Dims"]
            shapes[0][:1] = [100 + 10 * (index // 6 * 7 % 13) + rank]
            event["args"]["Input Dims"] = shapes

    settings = uneven(4, "unequal_batches", has_shapes=True)
    report = kinetoscope.analyze(write_changed(with_lengths, settings, tmp_path), cache=False)
    evidence = dict(report.findings[0].evidence)
    assert (evidence.get("shortest_input"), evidence.get("longest_input")) == (
        (100, 223) if has_lengths else (None,) * 2
    )
    assert ("from 100 to 223" in report.findings[0].advice) is has_lengths
    assert json.loads(report.to_json())["findings"][0]["kind"] == "straggler"
