"""Confidence of what is seen in a single step of a window."""

import pytest

from kinetoscope.analysis.findings.confidence import CONFIDENCES
from trainsim import FINDINGS, Fault, Settings
from trainsim.analyses import analyze_cached

MS = 1_000_000


def report_with(kind, cost_ns, every, first=0, **settings):
    """Return the report on ten steps with one fault."""
    fault = Fault(kind=kind, cost_ns=cost_ns, every=every, first=first)
    return analyze_cached(Settings(num_ranks=2, num_steps=10, step_ns=8 * MS, faults=(fault,), **settings))[1]


ONE_HICCUP = {
    "slow_network": 4 * MS,  # for each of a step's collectives
    "gc": 40 * MS,
    "recompilation": 40 * MS,
    "pageable_copies": 40 * MS,
    "profiler_cost": 40 * MS,
    "blocked": 40 * MS,
    "slow_python": 4 * MS,  # between two operators
    "slow_loader": 160 * MS,  # of one of two workers
}


@pytest.mark.parametrize("kind", ONE_HICCUP)
def test_one_hiccup_in_a_window_is_at_most_of_medium_confidence(kind):
    report = report_with(kind, ONE_HICCUP[kind], every=100, first=8, has_states=kind == "blocked")
    assert "high" not in [finding.confidence for finding in report.findings]


@pytest.mark.parametrize("kind", ["slow_network", "gc", "slow_python"])
def test_the_same_in_every_step_is_of_high_confidence(kind):
    found = {finding.kind: finding for finding in report_with(kind, ONE_HICCUP[kind] // 4, every=1).findings}
    assert CONFIDENCES.index(found[FINDINGS[kind]].confidence) == 0


@pytest.mark.parametrize("every", [1, 3, 100])
def test_a_pause_in_a_system_call_is_not_also_a_host_device_sync(every):
    report = report_with("blocked", 40 * MS, every=every, first=min(8, every - 1), has_states=True)
    assert [finding.kind for finding in report.findings] == ["blocked"]
