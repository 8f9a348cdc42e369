"""Savings that people are shown: those of steps that were not recorded."""

from dataclasses import replace

import pytest

from kinetoscope.analysis.findings.finding import build_finding
from kinetoscope.analysis.unrecorded_steps import (
    add_note_on_abnormal_steps,
    displayed_saving_ns,
    subtract_recording_cost,
)
from kinetoscope.report.descriptions import describe_worth

MS = 1_000_000
RECORDED = {"all_steps": {"recorded_ns": 30 * MS, "unrecorded_ns": 10 * MS}, "step_ns": 30 * MS}


def finding_of(kind, saving_ns, **evidence):
    found = build_finding(
        kind, "A fault", "", confidence="high", evidence=evidence, cost_ns=saving_ns, saving_ns=saving_ns
    )
    return replace(found, saving_share=saving_ns / RECORDED["step_ns"])


def test_the_saving_that_is_shown_is_that_of_a_step_that_was_not_recorded():
    found = finding_of("input_bound", 15 * MS)
    assert displayed_saving_ns(found, RECORDED) == 5 * MS
    assert "estimated saving 5.00 ms/step (50%)" in describe_worth(found, RECORDED)


@pytest.mark.parametrize("about", [None, {"recorded_ns": 30 * MS, "unrecorded_ns": None}])
def test_without_unrecorded_steps_it_is_that_of_a_recorded_one(about):
    assert displayed_saving_ns(finding_of("input_bound", 15 * MS), RECORDED | {"all_steps": about}) == 15 * MS


def test_the_cost_of_recording_its_operators_is_no_saving_of_a_finding():
    """The operators that only the late rank has cost 0.75 of 20 ms of profiler overhead."""
    late, slow = finding_of("straggler", 21 * MS, share_of_operators=0.75), finding_of("input_bound", 3 * MS)
    found = subtract_recording_cost([late, slow], RECORDED["all_steps"], RECORDED["step_ns"], None)
    assert [one.saving_share for one in found] == [pytest.approx(0.2), pytest.approx(0.1)]
    assert [one.saving_ns_per_step for one in found] == [21 * MS, 3 * MS]
    assert displayed_saving_ns(found[0], RECORDED) == 2 * MS


def test_recording_that_costs_nothing_takes_nothing_off():
    found = finding_of("straggler", 15 * MS, share_of_operators=1.0)
    for recorded_ns in (None, 8 * MS):
        about = {"recorded_ns": recorded_ns, "unrecorded_ns": 10 * MS}
        assert subtract_recording_cost([found], about, RECORDED["step_ns"], None) == [found]


def test_a_saving_that_may_be_of_the_recording_alone_is_not_sure():
    """Recorded steps of 30 ms take 20 ms longer than the others."""
    about = RECORDED["all_steps"] | {"recorded_change": 2.0, "is_abnormal": True}
    small, large = finding_of("input_bound", 15 * MS), finding_of("blocked", 25 * MS)
    found = add_note_on_abnormal_steps([small, large], about, RECORDED["step_ns"])
    assert [one.confidence for one in found] == ["medium", "high"]
    assert all("3.0 times as long" in one.advice for one in found)
    assert add_note_on_abnormal_steps([small], about | {"is_abnormal": False}, RECORDED["step_ns"]) == [small]
