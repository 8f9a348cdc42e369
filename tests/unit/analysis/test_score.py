"""The score: what its scenarios plant matters, its judge is strict, and a fixed set of its runs is right.

`make score` draws runs anew, and docs/score.md shows the last result.
"""

import itertools
import os
import random
from dataclasses import replace
from typing import get_args

import pytest

from trainsim import simulate
from trainsim.score.catalogue import BY_NAME, SCENARIOS
from trainsim.score.judge import MIN_GAIN_SHARE, judge
from trainsim.score.output import explain, format_command, format_details
from trainsim.score.scenario import Drawn
from trainsim.score.tally import sum_up, sum_up_kinds
from trainsim.settings import FaultKind

NUM_RUNS = int(os.environ.get("KINETOSCOPE_RANDOM_RUNS", "0"))
FIXED = [("healthy", 0), ("healthy-cpu", 1), ("loader", 0), ("late-host", 2), ("items", 0), ("gc-cpu", 1), ("leak", 0)]


def windows_of(run):
    return [window for rank in run.ranks for window in rank.windows]


def overlaps_ns(run):
    """Return the overlap of kernels of one stream with the previous one."""
    found = []
    for window in windows_of(run):
        kernels = [span for span in window.queued if span.stream.track == "7"]
        kernels.sort(key=lambda span: span.begin_ns)
        found += [before.end_ns - after.begin_ns for before, after in itertools.pairwise(kernels)]
    return [overlap_ns for overlap_ns in found if overlap_ns > 0]


# -- scenarios


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_scenario_plants_what_matters(scenario):
    drawn = [scenario.draw(seed) for seed in range(4)]
    assert [scenario.draw(seed) for seed in range(4)] == drawn
    assert any(all(matters(one.settings, plant) for plant in one.plants) for one in drawn)


def test_each_kind_of_fault_has_a_scenario():
    drawn = {fault.kind for scenario in SCENARIOS for seed in range(4) for fault in scenario.draw(seed).settings.faults}
    missing = set(get_args(FaultKind)) - drawn
    assert not missing, f"add scenarios with {sorted(missing)} to tests/trainsim/score/catalogue.py"


def matters(settings, plant):
    run = simulate(settings)
    gain_ns = run.saving_ns_per_step(run.without(*plant.faults))
    return plant.kind.startswith("memory") or gain_ns * run.num_steps > MIN_GAIN_SHARE * run.time_ns


def test_kernels_of_one_stream_overlap_in_half_of_the_runs():
    runs = [simulate(BY_NAME["healthy"].draw(seed).settings) for seed in range(8)]
    assert [bool(overlaps_ns(run)) for run in runs] == [bool(seed % 2) for seed in range(8)]
    assert max(map(max, map(overlaps_ns, runs[1::2]))) <= 3_000


def test_overlapping_kernels_start_and_end_in_the_order_of_their_launches():
    settings = replace(BY_NAME["small-kernels"].draw(1).settings, overlap_ns=3_000, overlap_share=1.0)
    for window in windows_of(simulate(settings)):
        kernels = [span for span in window.queued if span.stream.track == "7"]
        assert kernels == sorted(kernels, key=lambda span: span.begin_ns)
        assert [span.end_ns for span in kernels] == sorted(span.end_ns for span in kernels)


# -- the judge


def test_a_healthy_run_is_wrong_if_it_has_a_fault_that_the_judge_does_not_know_of():
    faulty = BY_NAME["loader"].draw(0).settings
    scenario = replace(BY_NAME["healthy"], draw_run=lambda _: Drawn(settings=faulty))
    verdict = judge(scenario, 0)
    assert (verdict.is_right, verdict.false_high) == (False, ())
    assert explain(verdict).startswith("first: input_bound [] high")


@pytest.mark.parametrize("change", [{"ranks": (0,)}, {"causes": ("data",)}, {"kinds": ("blocked",)}])
def test_a_straggler_of_another_rank_cause_or_kind_is_wrong(change):
    drawn = BY_NAME["late-host"].draw(2)
    (plant,) = drawn.plants
    assert plant.ranks != (0,)
    scenario = replace(BY_NAME["late-host"], draw_run=lambda _: replace(drawn, plants=(replace(plant, **change),)))
    verdict = judge(scenario, 2)
    assert (verdict.is_right, verdict.false_high) == (False, (f"straggler {list(plant.ranks)}",))


def test_high_confidence_is_false_where_the_evidence_allows_medium_at_most():
    drawn = BY_NAME["late-host"].draw(2)
    capped = replace(drawn.plants[0], max_confidence="medium")
    verdict = judge(replace(BY_NAME["late-host"], draw_run=lambda _: replace(drawn, plants=(capped,))), 2)
    assert verdict.is_right
    assert verdict.false_high


def test_an_analysis_that_raises_is_a_failed_run():
    def lose_all_ranks(_: random.Random) -> Drawn:
        settings = BY_NAME["healthy"].draw(0).settings
        return Drawn(settings=replace(settings, missing_ranks=tuple(range(settings.num_ranks))))

    verdict = judge(replace(BY_NAME["healthy"], draw_run=lose_all_ranks), 0)
    assert verdict.is_failed
    assert explain(verdict)


# -- fixed runs, and new ones


def test_the_reports_of_fixed_runs_are_right():
    verdicts = [judge(BY_NAME[name], seed) for name, seed in FIXED]
    failed = "\n\n".join(format_details(BY_NAME[one.scenario].draw(one.seed), one) for one in verdicts if one.is_failed)
    assert not failed
    row = sum_up("all", verdicts)
    assert (row.right.part, row.num_false_high, row.savings.share) == (len(FIXED), 0, 1.0)
    assert all(kind.recall.share == 1.0 for kind in sum_up_kinds(verdicts) if kind.recall.whole)


@pytest.mark.skipif(not NUM_RUNS, reason="make test-long draws new runs")
def test_top_finding_is_right_in_95_percent_of_new_runs():
    first = random.SystemRandom().randrange(10**6)
    covered = [scenario for scenario in SCENARIOS if not scenario.rules_of]
    jobs = [(covered[number % len(covered)], first + number) for number in range(NUM_RUNS)]
    verdicts = [judge(scenario, seed) for scenario, seed in jobs]
    row = sum_up("all", verdicts)
    shown = "\n".join(f"{format_command(one)}   # {explain(one)}" for one in verdicts if one.is_failed)
    assert (row.right.share or 0) >= 0.95, shown
    assert (row.savings.share or 0) >= 0.95, shown
    assert row.num_false_high == 0, shown
