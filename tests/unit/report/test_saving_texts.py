"""Savings on a screen: their step, their upper bounds, why one that saves nothing is listed, and offers of `try`."""

from dataclasses import replace

import pytest

from kinetoscope.analysis.findings.finding import build_finding
from kinetoscope.analysis.findings.triable import is_triable
from kinetoscope.experiments.plan import suggest_requests
from kinetoscope.report.descriptions import (
    build_advice,
    describe_evidence,
    describe_saving,
    describe_saving_basis,
    describe_worth,
    explain_saving,
)
from kinetoscope.report.page.build import build_page
from kinetoscope.variants.registry import load_variants
from support.report_consistency import screen
from trainsim import Settings
from trainsim.analyses import analyze_cached

MS = 1_000_000
STEP_NS = 30 * MS
RUN = {"step_ns": STEP_NS, "all_steps": None}
UNRECORDED = {"step_ns": STEP_NS, "all_steps": {"unrecorded_ns": 20 * MS}}


def finding(saving_ms, *, kind="input_bound", cost_ms=15.0, share=None, **evidence):
    """Return a finding that is worth this much of a step of 30 ms; ``share`` is that without recording."""
    found = build_finding(
        kind,
        "A fault",
        "Add workers: `num_workers=2`.",
        confidence="medium",
        evidence=evidence,
        cost_ns=cost_ms * MS,
        saving_ns=None if saving_ms is None else saving_ms * MS,
    )
    share = saving_ms * MS / STEP_NS if share is None and saving_ms is not None else share
    return replace(found, saving_share=share)


def report_with(*findings):
    report = analyze_cached(Settings(num_ranks=1, has_device=False))[1]
    return replace(report, findings=list(findings), run=report.run | {"step_ns": float(STEP_NS)})


# -- offers of `kinetoscope try`


@pytest.mark.parametrize(
    ("found", "is_offered"),
    [
        (finding(15.0), True),
        (finding(15.0, reachable_saving_ns=0), False),
        (finding(15.0, reachable_saving_ns=0.5 * MS), False),
        (finding(15.0, reachable_saving_ns=5 * MS), True),
        (finding(0.0), False),
        (finding(15.0, share=0.0), False),
        (finding(None, cost_ms=0.3), False),
        (finding(None, cost_ms=9.0), True),
        (finding(15.0, kind="hot_line"), False),
    ],
)
def test_a_fix_that_cannot_be_measured_is_not_offered(found, is_offered):
    report = report_with(found)
    assert is_triable(found, STEP_NS) == is_offered
    assert ("kinetoscope try" in "\n".join(line for line in screen(report) if "--fix" in line)) == is_offered
    assert ("Measure it: " in build_advice(found, report.run, "")) == is_offered


def test_findings_that_save_nothing_suggest_no_variant():
    findings = [finding(0.0), finding(15.0, kind="garbage_collection")]
    assert [one.variant.name for one in suggest_requests(findings, load_variants())] == ["relaxed_gc"]


# -- savings of nothing, and upper bounds


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (finding(0.0), "It is listed for its cost of 15.0 ms/step. A step gains nothing without it"),
        (finding(12.0, share=0.0), "It is listed for its 15.0 ms of a recorded step. Recording itself takes as much"),
        (finding(0.0, max_saving_ns=9 * MS), "is listed because it may save up to 9.00 ms/step"),
    ],
)
def test_a_finding_that_saves_nothing_says_why_it_is_listed(found, reason):
    assert reason in explain_saving(found, RUN)
    assert reason in build_advice(found, RUN, "")
    assert any(reason in line for line in screen(report_with(found)))


def test_a_saving_beyond_the_reach_of_workers_is_an_upper_bound_everywhere():
    found = finding(15.0, reachable_saving_ns=6 * MS)
    lines = screen(report_with(found))
    reached = "More workers alone would save about 6.00 ms/step (20 %)."
    assert any("up to 15.0 ms  50 %" in line for line in lines)
    assert any(reached in line for line in lines)
    assert "estimated saving up to 15.0 ms/step (50%)" in describe_worth(found, RUN)
    assert describe_evidence(found) == "Evidence: saving by more workers 6.00 ms"
    assert reached in build_page(report_with(found), "").report["findings"][0]["advice"]


def test_what_workers_save_is_of_a_step_without_recording_too():
    found = finding(15.0, reachable_saving_ns=6 * MS)
    assert "about 4.00 ms/step (20 %)." in explain_saving(found, UNRECORDED)


def test_workers_that_save_too_little_for_try_are_no_remedy():
    assert explain_saving(finding(15.0, reachable_saving_ns=0.3 * MS), RUN) == (
        "More workers alone would save about 0.30 ms/step (1 %), too little for `kinetoscope try` to measure."
    )


def test_workers_that_save_nothing_have_no_number():
    assert explain_saving(finding(15.0, reachable_saving_ns=0), RUN) == "More workers alone would save nothing."


def test_other_findings_need_no_sentence():
    assert explain_saving(finding(15.0), RUN) == explain_saving(finding(None), RUN) == ""


# -- the step that savings are of


def test_savings_of_a_step_without_recording_name_that_step():
    basis = "Savings are of a step without recording (20.0 ms), times in titles and costs of a recorded one (30.0 ms)."
    assert describe_saving_basis([finding(15.0)], UNRECORDED) == basis
    assert describe_worth(finding(15.0), UNRECORDED).startswith(
        "cost 15.0 ms/step (50%) with recording, estimated saving 10.0 ms/step (50%) without recording"
    )


def test_the_line_at_the_end_of_a_run_names_the_step_and_the_bound():
    assert describe_saving(finding(15.0), RUN) == "estimated saving 15.0 ms/step"
    bounded = finding(15.0, reachable_saving_ns=6 * MS)
    assert describe_saving(bounded, UNRECORDED) == "estimated saving up to 10.0 ms/step without recording"
    assert describe_saving(finding(None), RUN) == describe_saving(finding(0.0), RUN) == ""


@pytest.mark.parametrize("unrecorded_ns", [None, STEP_NS * 1.001])
def test_savings_of_the_recorded_step_need_no_sentence(unrecorded_ns):
    run = RUN | {"all_steps": {"unrecorded_ns": unrecorded_ns}}
    assert describe_saving_basis([finding(15.0)], run) == ""
    assert "recording" not in describe_worth(finding(15.0), run)
    assert describe_saving_basis([finding(None)], UNRECORDED) == ""
