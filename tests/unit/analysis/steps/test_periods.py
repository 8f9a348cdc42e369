"""The period of a finding: what comes in every n-th step says so, whatever its kind."""

from dataclasses import replace

import pytest

from kinetoscope.analysis.steps.periods import find_period, format_period
from kinetoscope.report.descriptions import describe_finding
from trainsim import FINDINGS, Fault, Settings, planted_settings
from trainsim.analyses import analyze_cached

IN_EVERY_FOURTH = ("slow_loader", "items", "pageable_copies", "slow_network", "gc", "slow_python", "recompilation")


def found(kind, settings):
    return next(finding for finding in analyze_cached(settings)[1].findings if finding.kind == FINDINGS[kind])


def every_fourth(kind, *, every=4, num_steps=21):
    planted = planted_settings(0, kind)
    faults = tuple(
        replace(fault, every=every, cost_ns=5 * fault.cost_ns, count=5 * fault.count) for fault in planted.faults
    )
    return replace(planted, num_ranks=2, num_steps=num_steps, reads_loss="never", faults=faults)


@pytest.mark.parametrize("kind", IN_EVERY_FOURTH)
def test_a_fault_in_every_fourth_step_says_its_period_whatever_its_kind(kind):
    finding = found(kind, every_fourth(kind))
    assert finding.period == 4
    assert "every 4th step" in " ".join(describe_finding(finding)) + finding.title


def test_straggler_has_its_period_in_the_same_field():
    fault = Fault(kind="late_host", cost_ns=9_000_000, ranks=(1,), every=4)
    finding = found("late_host", Settings(num_ranks=2, num_steps=21, faults=(fault,)))
    assert (finding.period, "every 4th step" in finding.title) == (4, True)


def test_a_fault_in_every_step_says_no_period_in_its_title():
    finding = found("gc", every_fourth("gc", every=1))
    assert finding.period == 1
    assert "every" not in finding.title


def test_with_too_few_steps_no_period_is_known():
    finding = found("gc", every_fourth("gc", num_steps=7))
    assert finding.period is None
    assert finding.to_dict()["period"] is None


@pytest.mark.parametrize(
    ("times", "period"),
    [
        ({step: 100 if step % 10 == 0 else 1 for step in range(40)}, 10),
        (dict.fromkeys(range(0, 40, 3), 100), 3),
        ({step: 100 + step % 3 for step in range(40)}, 1),
        ({step: 1000 if step == 7 else 2 for step in range(40)}, None),
        (dict.fromkeys((0, 1, 5, 13, 14, 29), 100), None),
        ({0: 100, 20: 100}, None),
        ({}, None),
        (dict.fromkeys(range(40), 0), None),
    ],
    ids=[
        "beside a little each time",
        "alone",
        "each step",
        "one that took long",
        "at random",
        "twice",
        "never",
        "none",
    ],
)
def test_only_what_comes_regularly_has_a_period(times, period):
    assert find_period(times, num_steps=40) == period


def test_the_last_of_a_few_in_a_longer_recording_is_no_regular_one():
    assert find_period({0: 5, 5: 5, 10: 5}, num_steps=15) == 5
    assert find_period({0: 5, 5: 5, 10: 5}, num_steps=40) is None


@pytest.mark.parametrize(
    ("period", "words"), [(2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"), (21, "21st"), (113, "113th")]
)
def test_a_period_in_words(period, words):
    assert format_period(period) == f"every {words} step"
    assert format_period(1) == format_period(None) == ""
