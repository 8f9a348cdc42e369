"""analysis/steps/call_times_by_step.py: how long operators and kernels took in each step."""

from collections import defaultdict

import pytest

import kinetoscope
from trainsim import Settings, simulate


def analyse(folder, **settings):
    run = simulate(Settings(**settings))
    run.write(folder)
    return run, kinetoscope.analyze(folder, cache=False)


def sums(report, kind):
    """Return the time of each name over all steps and ranks, without names that took too little to be kept."""
    found = defaultdict(int)
    for row in report.by_step:
        if row.kind == kind:
            found[row.name] += sum(row.times_ns) * len(report.run["ranks"])
    return found


@pytest.mark.parametrize("has_device", [True, False])
def test_the_steps_of_an_operator_add_up_to_its_time(has_device, tmp_path):
    run, report = analyse(tmp_path, num_ranks=2, has_device=has_device)
    found = sums(report, "operator")
    whole = defaultdict(int)
    for row in report.operators:
        whole[row.name] += row.self_ns
    rounding_ns = run.settings.num_steps * 2 * 8
    assert found["aten::mm"] == pytest.approx(whole["aten::mm"], abs=rounding_ns)
    assert found["aten::addmm"] == pytest.approx(whole["aten::addmm"], abs=rounding_ns)
    assert sum(found.values()) > 0.9 * sum(whole.values())


def test_the_time_of_a_device_is_given_to_one_operator_only(tmp_path):
    run, report = analyse(tmp_path, num_ranks=2)
    steps = range(run.settings.first_step, run.settings.total_steps)
    launched_ns = sum(
        span.end_ns - span.begin_ns
        for rank in run.ranks
        for span in rank.windows[0].queued
        if span.launch.step in steps and span.launch.window is not None
    )
    assert sum(sums(report, "operator on device").values()) == pytest.approx(launched_ns, rel=0.001)
    assert sums(report, "operator on device")["aten::mm"] < sum(sums(report, "kernel").values())


def test_a_slow_step_is_the_step_in_which_the_operator_was_slow(tmp_path):
    run, report = analyse(tmp_path, num_ranks=1, has_device=False, noise=0.0)
    row = next(row for row in report.by_step if row.name == "aten::mm")
    assert len(row.times_ns) == run.settings.num_steps
    assert len(set(row.times_ns)) == 1


def test_without_a_step_there_are_no_times(tmp_path):
    simulate(Settings(num_ranks=1)).write(tmp_path)
    assert kinetoscope.analyze(tmp_path, step="no such span", cache=False).by_step == []
