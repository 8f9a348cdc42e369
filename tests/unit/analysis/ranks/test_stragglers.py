"""analysis/ranks/stragglers.py: which rank is late, why, and how long the others wait for it."""

import os
from dataclasses import replace

import pytest

import kinetoscope
from kinetoscope.analysis.ranks.stragglers import find_straggler_candidates
from kinetoscope.analysis.replay.replay import Change
from trainsim import Fault, Settings, planted_settings, simulate
from trainsim.analyses import analyze_cached, measured

NUM_RUNS = int(os.environ.get("KINETOSCOPE_SIMULATED_RUNS", "2"))
KINDS = ("late_host", "late_device", "slow_loader")


def test_straggler_and_cause_are_nearly_always_found_despite_clock_offsets():
    found = []
    for seed in range(NUM_RUNS):
        run, report = measured(planted_settings(seed, KINDS[seed % 3], rank=seed % 4))
        (truth,) = run.truth.stragglers
        found.append([(row.rank, row.cause) for row in report.stragglers[:1]] == [(truth["rank"], truth["cause"])])
    assert found.count(False) <= 0.02 * NUM_RUNS


@pytest.mark.parametrize("kind", KINDS[:2])
def test_a_wait_in_which_a_rank_computes_costs_nothing(kind):
    settings = replace(planted_settings(1, kind, rank=2), offset_ns=0)
    run, report = analyze_cached(settings)
    (truth,), row = run.truth.stragglers, report.stragglers[0]
    assert truth["cost_ns_per_step"] > 1.25 * truth["exposed_cost_ns_per_step"], "ranks compute while they wait"
    # The first call was launched before the recording began, so no step has it.
    num_steps = settings.num_steps
    assert row.cost_ns_per_step == pytest.approx(
        truth["exposed_cost_ns_per_step"] * (num_steps - 1) / num_steps, rel=0.1
    )
    assert row.cost_ns_per_step == pytest.approx(report.saving_ns_per_step(Change(on_time=frozenset([2]))), rel=0.2)


def test_straggler_is_found_without_a_device():
    late = Fault(kind="late_host", ranks=(1,), cost_ns=2_000_000, every=3)
    run, report = measured(Settings(num_ranks=2, num_steps=12, has_device=False, faults=(late,)))
    (truth,), (row,) = run.truth.stragglers, report.stragglers
    assert (row.rank, row.cause, row.period, row.steps) == (1, "host", 3, truth["steps"])
    assert row.cost_ns_per_step == pytest.approx(2_000_000 / 3, rel=0.2)


@pytest.mark.parametrize(("longer_ns", "cause"), [(20_000, "unknown"), (2_000_000, "data")])
def test_hardly_slower_part_of_a_straggler_is_not_its_cause(longer_ns, cause):
    late = Fault(kind="late_host", ranks=(1,), cost_ns=4_000_000, every=3)
    _, report = measured(Settings(num_ranks=2, num_steps=12, has_device=False, faults=(late,)))
    first = {row.step: row for row in report.steps if row.rank == 0}
    alike = [replace(row, rank=1, data_wait_ns=row.data_wait_ns + longer_ns) for row in first.values()]
    (row,) = find_straggler_candidates(report.collectives, [*first.values(), *alike]).rows
    assert (row.rank, row.cause) == (1, cause)


def test_rank_with_a_slow_backward_pass_on_the_cpu_is_slower_on_the_cpu():
    late = Fault(kind="late_host", ranks=(1,), cost_ns=4_000_000, every=3)
    _, report = measured(Settings(num_ranks=2, num_steps=12, has_device=False, faults=(late,)))
    first = {row.step: row for row in report.steps if row.rank == 0}
    alike = [replace(row, rank=1, backward_ns=row.backward_ns + 4_000_000) for row in first.values()]
    (row,) = find_straggler_candidates(report.collectives, [*first.values(), *alike]).rows
    assert (row.rank, row.cause) == (1, "host")


@pytest.mark.parametrize(("starved_ns", "cause"), [(1_400_000, "host"), (3_800_000, "processor")])
def test_rank_later_than_its_cpu_contention_is_not_late_because_of_it(starved_ns, cause):
    late = Fault(kind="late_host", ranks=(1,), cost_ns=4_000_000, every=3)
    _, report = measured(Settings(num_ranks=2, num_steps=12, has_device=False, faults=(late,)))
    first = [replace(row, starved_ns=0) for row in report.steps if row.rank == 0]
    alike = [replace(row, rank=1, starved_ns=starved_ns, python_ns=row.python_ns + 4_000_000) for row in first]
    (row,) = find_straggler_candidates(report.collectives, [*first, *alike]).rows
    assert (row.rank, row.cause) == (1, cause)


@pytest.mark.parametrize("num_gloo_threads", [1, 2])
def test_a_rank_that_several_calls_wait_for_at_once_costs_what_it_is_late(num_gloo_threads):
    late = Fault(kind="late_host", ranks=(1,), cost_ns=6_000_000, every=3)
    settings = Settings(num_steps=12, has_device=False, num_gloo_threads=num_gloo_threads, faults=(late,))
    _, report = analyze_cached(settings)
    (row,) = report.stragglers
    assert row.cost_ns_per_step == pytest.approx(2_000_000, rel=0.1)
    assert row.cost_ns_per_step == pytest.approx(report.saving_ns_per_step(Change(on_time=frozenset([1]))), rel=0.1)


def test_wait_in_two_simultaneous_calls_counts_for_the_first():
    late = Fault(kind="late_host", ranks=(1,), cost_ns=6_000_000, every=3)
    costs = []
    for num_gloo_threads in (1, 2):
        settings = Settings(num_steps=12, has_device=False, num_gloo_threads=num_gloo_threads, faults=(late,))
        _, report = analyze_cached(settings)
        calls = [call for call in report.collectives if call.step == 3]
        costs.append(sum(max(call.waits_ns) for call in calls))
    assert costs == pytest.approx([6_000_000] * 2, rel=0.1)


@pytest.mark.parametrize("most_ns", [5_000_000, 7_000_000])
def test_a_rank_that_is_late_in_every_step_and_later_in_some_counts_in_all_of_them(most_ns):
    late = [
        Fault(kind="late_host", ranks=(1,), cost_ns=cost_ns, every=every)
        for cost_ns, every in ((2_000_000, 1), (most_ns, 4))
    ]
    _, report = analyze_cached(Settings(num_ranks=2, num_steps=12, has_device=False, faults=tuple(late)))
    (row,) = report.stragglers
    assert (row.period, len(row.steps)) == (1, 12)
    assert row.cost_ns_per_step == pytest.approx((9 * 2_000_000 + 3 * most_ns) / 12, rel=0.1)
    assert "delays every step" in report.findings[0].title
    assert report.findings[0].cost_ns_per_step == pytest.approx(row.cost_ns_per_step, rel=0.1)


def test_no_period_is_named_where_fewer_than_eight_steps_were_recorded():
    late = Fault(kind="late_host", ranks=(1,), cost_ns=3_000_000, every=2)
    _, report = measured(Settings(num_ranks=2, num_steps=7, faults=(late,)))
    assert [(row.rank, row.period) for row in report.stragglers] == [(1, None)]


def test_a_rank_that_is_late_twice_has_no_period():
    late = Fault(kind="late_host", ranks=(1,), cost_ns=5_000_000, every=7)
    _, report = measured(Settings(num_ranks=2, num_steps=12, num_warmup_steps=4, faults=(late,)))
    assert [(row.steps, row.period) for row in report.stragglers] == [((7, 14), None)]


@pytest.mark.parametrize(("drift_ppm", "is_named"), [(500.0, True), (20_000.0, False)])
def test_a_rank_is_late_only_by_four_times_what_clocks_are_unsure(drift_ppm, is_named, tmp_path):
    """The clock of rank 1 drifts, and only collectives show its offset to rank 0's."""
    late = Fault(kind="late_host", ranks=(1,), cost_ns=600_000)
    run = simulate(Settings(num_ranks=2, num_steps=12, has_device=False, faults=(late,)))
    run = replace(run, ranks=tuple(replace(rank, drift_ppm=rank.rank * drift_ppm) for rank in run.ranks))
    run.write(tmp_path)
    report = kinetoscope.analyze(tmp_path, cache=False)
    bound_ns = max(row.clock_bound_ns or 0 for row in report.ranks)
    if not is_named:
        assert 0.3 * late.cost_ns < bound_ns < 0.9 * late.cost_ns, "it is above one bound, and below four"
    assert [row.rank for row in report.stragglers] == ([1] if is_named else [])


@pytest.mark.parametrize("every", [1, 2, 4])
@pytest.mark.parametrize("kind", ["late_host", "blocked", "slow_python"])
def test_the_cause_may_be_at_the_end_of_the_step_before(kind, every):
    """A pause after a step's last collective, such as a checkpoint, makes the rank late to the next step's first."""
    fault = Fault(kind=kind, cost_ns=20_000_000, ranks=(2,), every=every, at="end")
    _, report = analyze_cached(
        Settings(num_ranks=4, num_steps=12, step_ns=5_000_000, reads_loss="never", faults=(fault,))
    )
    assert [(row.rank, row.cause) for row in report.stragglers] == [(2, "host")]


@pytest.mark.parametrize("kind", KINDS[:2])
@pytest.mark.parametrize("every", [1, 2])
def test_the_cause_may_be_in_any_step_since_the_last_common_call(kind, every):
    """Steps that accumulate gradients have no calls: the lateness of several adds up."""
    fault = Fault(kind=kind, cost_ns=14_000_000, ranks=(1,), every=every)
    settings = Settings(
        num_ranks=4, num_steps=24, step_ns=6_000_000, optimizes_every=4, has_memory=False, faults=(fault,)
    )
    report = analyze_cached(settings)[1]
    assert [(row.rank, row.cause) for row in report.stragglers] == [(1, kind.removeprefix("late_"))]


def test_the_cause_of_a_rank_that_is_late_once_may_be_in_the_step_before():
    fault = Fault(kind="late_host", cost_ns=60_000_000, ranks=(1,), every=100, first=7, at="end")
    settings = Settings(num_ranks=4, num_steps=12, step_ns=5_000_000, reads_loss="never", faults=(fault,))
    (finding,) = analyze_cached(settings)[1].findings
    assert (finding.kind, finding.where.ranks, finding.confidence) == ("straggler", (1,), "medium")
    assert "DataLoader" not in finding.advice
