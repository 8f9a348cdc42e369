"""Time outside of steps, and the cost of a transfer next to a straggler: two numbers that other rules build on."""

from dataclasses import replace

import pytest

import kinetoscope
from trainsim import Fault, Settings
from trainsim.analyses import analyze_cached

SLOW_NETWORK = Fault(kind="slow_network", cost_ns=1_000_000)
LATE = Fault(kind="late_device", ranks=(1,), cost_ns=6_000_000)


@pytest.mark.parametrize("has_device", [True, False])
def test_the_gap_between_cycles_is_no_step(has_device):
    """Between two cycles lie steps that are not recorded, which take longer than any step."""
    settings = Settings(num_ranks=1, num_steps=4, num_cycles=3, num_warmup_steps=20, has_device=has_device)
    _, report = analyze_cached(settings)
    longest_ns = max(row.duration_ns for row in report.steps)
    assert report.run["step_ns"] < 1.1 * longest_ns
    assert report.run["step_ns"] == pytest.approx(
        analyze_cached(replace(settings, num_cycles=1))[1].run["step_ns"], rel=0.1
    )


def test_rank_late_by_part_of_a_step_is_named_despite_long_gaps_between_cycles():
    """The same wait would be a small part of the time from one cycle's last step to the next one's first."""
    late = replace(LATE, kind="late_host", cost_ns=150_000)
    settings = Settings(num_ranks=2, num_steps=4, num_cycles=3, num_warmup_steps=20, has_device=False, faults=(late,))
    _, report = analyze_cached(settings)
    assert 0.02 < 150_000 / report.run["step_ns"] < 0.1
    assert [row.rank for row in report.stragglers] == [1]


def test_recordings_of_one_training_match_despite_gaps_between_cycles():
    settings = Settings(num_ranks=1, num_steps=6, num_warmup_steps=20)
    one, several = (analyze_cached(replace(settings, num_cycles=count))[1] for count in (1, 3))
    steps = [row for row in kinetoscope.compare(one, several).rows if row.kind == "step"]
    assert {row.name for row in steps} == {"typical step", "mean step"}
    assert [row.after for row in steps] == pytest.approx([row.before for row in steps], rel=0.05)


def test_wait_for_a_straggler_is_reported_once_and_not_as_communication():
    _, report = analyze_cached(Settings(num_ranks=3, num_steps=12, faults=(SLOW_NETWORK, LATE)))
    (found,) = (one for one in report.findings if one.kind == "exposed_communication")
    (late,) = report.stragglers
    exposed_ns = dict(found.evidence)["exposed_communication_ns"]
    assert late.cost_ns_per_step > 0.5 * exposed_ns
    assert found.cost_ns_per_step + late.cost_ns_per_step == pytest.approx(exposed_ns, rel=0.01)
