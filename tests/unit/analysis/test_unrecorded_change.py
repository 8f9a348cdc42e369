"""Verdict on the step from the unrecorded steps of two runs."""

import math
import random
from dataclasses import replace
from typing import Any

import pytest

from kinetoscope.analysis.compare.all_steps_change import MIN_STEPS, compare_steps
from kinetoscope.analysis.compare.compare import compare_reports
from kinetoscope.report.comparison import describe_comparison
from trainsim import Fault, Settings
from trainsim.analyses import measured

MS = 1_000_000


def steps_beside_others(draw, step_ms, num_steps=260):
    """Return the durations of steps on a crowded machine: most wait for a CPU, some do not."""
    share_of_waits = draw.uniform(0.5, 0.9)
    waits = [draw.expovariate(1 / draw.uniform(3, 12)) * (draw.random() < share_of_waits) for _ in range(num_steps)]
    return [(step_ms * draw.uniform(1, 1.02) + wait) * MS for wait in waits]


def steps_on_shared_cores(draw, step_ms, num_steps=260):
    """Return the durations of steps where another process uses the same core for most of the run.

    As measured with two busy processes on two cores: for intervals, each step takes 1.7 times as long.
    """
    share_of_slow, durations, is_slow, left = draw.uniform(0.3, 0.85), [], False, 0
    for _ in range(num_steps):
        if not left:
            is_slow = draw.random() < share_of_slow
            left = draw.randint(10, 60)
        left -= 1
        durations.append(step_ms * (1.7 if is_slow else 1) * draw.uniform(1, 1.08) * MS)
    return durations


def verdict_of(before, after):
    change = compare_steps(before, after, 0.05)
    assert change is not None
    return change.verdict


@pytest.mark.parametrize("steps", [steps_beside_others, steps_on_shared_cores])
def test_two_runs_of_one_program_on_a_crowded_machine_have_no_verdict(steps):
    draw = random.Random(0)
    verdicts = [verdict_of(*(steps(draw, 5) for _ in range(2))) for _ in range(100)]
    assert sum(verdict in ("slower", "faster") for verdict in verdicts) <= 5


def test_runs_of_unequal_lengths_have_no_verdict_either():
    """The fastest of many steps is faster than that of a few."""
    draw = random.Random(3)
    verdicts = [verdict_of(steps_beside_others(draw, 5, 4000), steps_beside_others(draw, 5, 60)) for _ in range(40)]
    assert sum(verdict in ("slower", "faster") for verdict in verdicts) <= 2


@pytest.mark.parametrize("steps", [steps_beside_others, steps_on_shared_cores])
@pytest.mark.parametrize(("factor", "verdict"), [(1.25, "slower"), (0.8, "faster")])
def test_a_change_of_every_step_is_found_on_a_crowded_machine(factor, verdict, steps):
    draw = random.Random(1)
    verdicts = [verdict_of(*(steps(draw, 5 * one) for one in (1, factor))) for _ in range(20)]
    assert verdicts.count(verdict) >= 19


@pytest.mark.parametrize("num_steps", [15, 260])
def test_change_is_the_ratio_of_both_steps_and_within_its_interval(num_steps):
    """In few blocks, the ratio of two medians can be far from the median of the ratios."""
    draw = random.Random(4)
    for factor in (0.3, 0.8, 1, 2):
        before, after = (steps_beside_others(draw, 5 * one, num_steps) for one in (1, factor))
        change = compare_steps(before, after, 0.05)
        assert change is not None
        assert math.log(change.after_ns / change.before_ns) == pytest.approx(change.shift.log)
        assert change.shift.low <= change.shift.log <= change.shift.high
        assert min(before) * 0.9 <= change.before_ns <= max(before)


def test_few_steps_suffice_for_a_factor_of_ten():
    draw = random.Random(2)
    assert verdict_of(*(steps_beside_others(draw, step_ms, 20) for step_ms in (60, 5))) == "faster"
    assert compare_steps([5 * MS] * (MIN_STEPS - 1), [5 * MS] * 100, 0.05) is None


def test_mostly_recorded_run_is_faster_than_unrecorded_runs():
    """Recording makes steps longer: what is faster all the same is faster, and what is slower may be by recording."""
    slow, fast = [60 * MS] * 16, [5 * MS] * 25
    verdicts = {}
    for name, (few, many) in {"faster": (fast, slow), "slower": (slow + slow, fast)}.items():
        before, after = recorded(), recorded(seed=2)
        rows = [replace(before, unrecorded_ns=many, usual_ns=many), replace(after, unrecorded_ns=[], usual_ns=few)]
        verdicts[name, "after"] = compare_reports(*rows).step.verdict
        verdicts[name, "before"] = compare_reports(*reversed(rows)).step.verdict
    without = compare_reports(recorded(), recorded(seed=2)).step.verdict
    assert verdicts == {
        ("faster", "after"): "faster",
        ("faster", "before"): "slower",
        ("slower", "after"): without,
        ("slower", "before"): without,
    }


def test_steady_steps_are_the_same():
    """Where the interval with the noise of a crowded machine is within the threshold."""
    change = compare_steps([5 * MS] * 100, [5 * MS] * 100, 0.10)
    assert change is not None
    assert change.verdict == "same"


def test_batches_that_come_late_now_and_then_show_in_the_means():
    """Every second batch is there at once, so that the fastest steps are as before."""
    assert verdict_of([5 * MS, 120 * MS] * 60, [5 * MS, 6 * MS] * 60) == "faster"
    assert verdict_of([5 * MS, 8 * MS] * 60, [5 * MS, 6 * MS] * 60) == "unsure"


def recorded(**changes):
    return measured(Settings(num_ranks=1, num_steps=10, **changes))[1]


def test_a_comparison_rests_on_unrecorded_steps_where_both_runs_have_them():
    before, after = recorded(), recorded(seed=2)
    without = compare_reports(before, after).step
    before, after = (replace(one, unrecorded_ns=[step_ms * MS] * 100) for one, step_ms in ((before, 5), (after, 7)))
    comparison = compare_reports(before, after)
    assert comparison.step.verdict == "slower"
    assert comparison.step.change == pytest.approx(0.4)
    assert any("100 unrecorded steps before and 100 unrecorded steps after" in note for note in comparison.notes)
    assert compare_reports(before, replace(after, unrecorded_ns=())).step == without
    late = replace(before, unrecorded_ns=[5 * MS, 120 * MS] * 50)
    comparison = compare_reports(late, replace(after, unrecorded_ns=[5 * MS, 6 * MS] * 50))
    assert comparison.step.verdict == "unsure", "the means of blocks count only if the recorded steps agree"
    (note,) = [note for note in comparison.notes if note.startswith("The verdict on the step")]
    assert "from the mean of each 12 or more" in note
    assert "The means of all of them are 62.5 ms and 5.50 ms." in note
    assert "fastest" not in note


def test_runs_with_nearly_all_steps_recorded_name_the_remedy():
    """As with ``-n 80`` of 100 steps."""
    about: Any = {"num_steps": 100, "num_recorded": 80, "unrecorded_ns": None}
    before, after = (
        replace(one, run=one.run | {"all_steps": about}, unrecorded_ns=[5.0 * MS] * 9, usual_ns=[5.0 * MS] * 89)
        for one in (measured(Settings(num_ranks=1, num_steps=5, seed=seed))[1] for seed in (0, 1))
    )
    comparison = compare_reports(before, after)
    assert comparison.step.verdict == "unsure"
    sentence = (
        "A verdict needs 12 unrecorded steps of each run, after the first ten: before 9 (80 of 100 steps were "
        "recorded), after 9 (80 of 100 steps were recorded). Record fewer steps (kinetoscope run -n 10), or run longer."
    )
    assert describe_comparison(comparison)[1] == sentence
    assert describe_comparison(comparison).count(sentence) == 1
    assert comparison.to_dict()["why_unsure"] == sentence
    known = replace(after, unrecorded_ns=[5.0 * MS] * 9, usual_ns=())
    part = compare_reports(replace(before, usual_ns=()), known)
    assert part.why_unsure == "A verdict needs about 3 more steps of each run.", "a part of the run was selected"


@pytest.mark.parametrize("has_device", [True, False])
def test_phases_are_the_parts_of_the_summary(has_device):
    faults = (Fault(kind="slow_python", cost_ns=100_000),)
    before, after = (recorded(has_device=has_device, faults=some) for some in ((), faults))
    rows = [row for row in compare_reports(before, after).rows if row.kind == "phase"]
    names = {row.name for row in rows}
    for side, report in (("before", before), ("after", after)):
        parts: Any = report.run["parts"]
        shown = {**parts["host"], **{f"device_{name}": value for name, value in (parts["device"] or {}).items()}}
        assert {getattr(row, side) for row in rows} == {shown[f"{row.name}_ns"] for row in rows}
    assert {"forward", "backward", "optimizer"} <= names
    assert ("device_compute" in names) == has_device


def test_saving_is_no_failure_if_part_of_the_recorded_steps_became_slower():
    slower = (Fault(kind="slow_python", cost_ns=300_000),)
    before, after = recorded(), recorded(seed=2, faults=slower)
    assert compare_reports(before, after).worse
    before, after = (replace(one, unrecorded_ns=[ms * MS] * 100) for one, ms in ((before, 7), (after, 5)))
    comparison = compare_reports(before, after)
    assert comparison.step.verdict == "faster"
    assert not comparison.worse
