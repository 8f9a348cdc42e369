"""analysis/findings/straggler_causes.py: late ranks whose spans prove the cause."""

import pytest

from trainsim import Fault, Settings
from trainsim.analyses import analyze_cached

MS = 1_000_000


def findings_of(faults, num_ranks=4, **settings):
    run, report = analyze_cached(
        Settings(num_ranks=num_ranks, num_steps=12, step_ns=8 * MS, faults=tuple(faults), **settings)
    )
    return run, [finding for finding in report.findings if finding.confidence != "low"]


def check_saving(run, finding):
    gain_ns = run.saving_ns_per_step(run.without())
    assert finding.saving_ns_per_step == pytest.approx(gain_ns, abs=0.02 * run.time_ns / run.num_steps)


@pytest.mark.parametrize("num_ranks", [2, 4])
@pytest.mark.parametrize(("kind", "finding"), [("gc", "garbage_collection"), ("recompilation", "recompilation")])
def test_pauses_in_turns_are_one_finding_with_the_saving_of_all_ranks(kind, finding, num_ranks):
    faults = [
        Fault(kind=kind, cost_ns=24 * MS, ranks=(rank,), every=num_ranks, first=rank) for rank in range(num_ranks)
    ]
    run, found = findings_of(faults, num_ranks)
    assert [one.kind for one in found] == [finding]
    assert found[0].where.ranks == ()
    check_saving(run, found[0])


@pytest.mark.parametrize("num_ranks", [2, 4, 8])
def test_a_checkpoint_of_one_rank_is_a_blocking_call_of_that_rank(num_ranks):
    fault = Fault(kind="blocked", cost_ns=32 * MS, ranks=(1,), every=4, at="end")
    run, found = findings_of([fault], num_ranks, has_states=True)
    assert [one.kind for one in found] == ["blocked"]
    assert found[0].where.ranks == (1,)
    check_saving(run, found[0])


def test_a_rank_late_for_another_reason_is_still_a_straggler():
    faults = [
        Fault(kind="late_host", cost_ns=12 * MS, ranks=(2,)),
        Fault(kind="gc", cost_ns=40 * MS, ranks=(0,), every=4),
    ]
    _, found = findings_of(faults)
    assert {(one.kind, one.where.ranks) for one in found} == {("straggler", (2,)), ("garbage_collection", (0,))}


def test_late_rank_with_short_pauses_is_a_straggler():
    faults = [Fault(kind="late_host", cost_ns=12 * MS, ranks=(2,)), Fault(kind="gc", cost_ns=MS, every=2)]
    _, found = findings_of(faults)
    assert [(one.kind, one.where.ranks) for one in found] == [("straggler", (2,))]


@pytest.mark.parametrize("num_ranks", [2, 4])
@pytest.mark.parametrize("seed", [1, 2])
def test_slow_loaders_of_all_ranks_are_input_bound_whoever_waits_longest(num_ranks, seed):
    fault = Fault(kind="slow_loader", cost_ns=16 * MS)
    planted = {"num_workers": 2, "loader_noise": 0.6, "num_warmup_steps": 6, "num_steps": 32, "seed": seed}
    _, report = analyze_cached(Settings(num_ranks=num_ranks, step_ns=8 * MS, faults=(fault,), **planted))
    assert report.findings[0].kind == "input_bound"
    assert "high" not in [finding.confidence for finding in report.findings if finding.kind == "straggler"]


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_a_slow_loader_of_one_rank_is_a_straggler(num_ranks):
    fault = Fault(kind="slow_loader", cost_ns=24 * MS, ranks=(1,))
    _, found = findings_of([fault], num_ranks)
    assert [(one.kind, one.where.ranks) for one in found] == [("straggler", (1,))]
