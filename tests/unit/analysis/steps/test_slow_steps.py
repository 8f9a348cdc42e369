"""Outlier steps: a row for each step of all ranks, one for periodic ones, and one finding."""

from dataclasses import replace

import msgspec
import pytest

from kinetoscope.analysis.analyze import add_findings
from kinetoscope.analysis.findings.judgement import judge_pulse
from kinetoscope.analysis.steps.slow_steps import slow_step_rows
from kinetoscope.formats.slow_steps import SlowStep
from kinetoscope.pulse.layout import Phase
from kinetoscope.report.descriptions import (
    describe_worth,
    explain_slow_step,
    format_ranks_of_slow_step,
    locate_slow_step,
)
from trainsim import Fault, Settings
from trainsim.analyses import analyze_cached

MS = 1_000_000
ONE = SlowStep(
    start="a",
    restart=0,
    rank=0,
    step=150,
    epoch=0,
    begin_ns=10**18,
    duration_ns=50 * MS,
    usual_ns=10 * MS,
    phase=int(Phase.FORWARD),
    phase_ns=44 * MS,
    phase_usual_ns=4 * MS,
    line="train.py:41",
    starved_ns=0,
)


def slow(**changes):
    return msgspec.structs.replace(ONE, **changes)


def test_a_row_has_the_rank_that_was_slow_first_and_all_that_waited():
    waited = [slow(rank=rank, phase=int(Phase.BACKWARD), line="train.py:50", duration_ns=55 * MS) for rank in (0, 2, 3)]
    (row,) = slow_step_rows([*waited, slow(rank=1)])
    assert (row["rank"], row["ranks"], row["phase"], row["line"]) == (1, [0, 1, 2, 3], "forward", "train.py:41")
    assert format_ranks_of_slow_step(row) == "1 and 3 more"
    assert locate_slow_step(row) == "150: forward, train.py:41"


def test_the_slowest_step_comes_first():
    rows = slow_step_rows([slow(step=step, duration_ns=took * MS) for step, took in ((1, 30), (2, 90), (3, 60))])
    assert [row["step"] for row in rows] == [2, 3, 1]


def test_regular_steps_are_one_row_also_those_before_it_was_known():
    checkpoint = {"phase": int(Phase.CHECKPOINT), "line": "train.py:60"}
    kept = [slow(step=step, **checkpoint) for step in (99, 149, 199)]
    kept += [slow(step=249, every=50, duration_ns=90 * MS, **checkpoint), slow(step=131, **checkpoint)]
    regular, other = slow_step_rows(kept)
    assert (regular["step"], regular["num_kept"]) == (249, 4)
    assert explain_slow_step(regular) == "every 50th step"
    assert (other["step"], other["every"], other["num_kept"]) == (131, None, 1)


def test_step_of_a_descheduled_thread_is_marked():
    (row,) = slow_step_rows([slow(starved_ns=25 * MS)])
    assert row["is_machines"]
    assert explain_slow_step(row) == "waiting for a CPU"
    (row,) = slow_step_rows([slow(starved_ns=None)])
    assert (row["starved_ns"], row["is_machines"]) == (None, False)


def test_the_finding_names_the_slowest_step_and_has_no_saving():
    rows = slow_step_rows([slow(), slow(step=300, duration_ns=110 * MS, line=None, phase=int(Phase.DATA_WAIT))])
    (finding,) = judge_pulse({}, rows, 1000, 10 * MS)
    assert finding.title == "Outlier steps: 2 of 1,000 steps took up to 100.0 ms longer (data wait)"
    assert finding.saving_ns_per_step is None
    assert finding.cost_ns_per_step == 140 * MS // 1000
    assert finding.where.lines == ("train.py:41",)
    assert finding.confidence == "low"


def test_periodic_slow_step_costs_even_if_not_kept():
    (finding,) = judge_pulse({}, slow_step_rows([slow(every=10)]), 1000, 10 * MS)
    assert finding.cost_ns_per_step == 4 * MS
    assert finding.confidence == "medium"  # never high: no replay tells
    assert "every 10th step" in finding.advice


def test_the_finding_is_ranked_among_the_others_by_its_weighted_cost():
    """The others keep the saving of their replay at their new positions."""
    faults = (Fault(kind="gc", cost_ns=3 * MS, every=2), Fault(kind="slow_loader", cost_ns=9 * MS))
    _, report = analyze_cached(Settings(num_ranks=1, num_steps=6, reads_loss="each step", faults=faults))
    savings = {finding.kind: finding.saving_ns_per_step for finding in report.findings}
    assert [finding.confidence for finding in report.findings] == ["high", "medium"]
    for cost_ns, position in ((1, 2), (50 * MS, 0)):
        found = replace(report.findings[1], id="slow_steps", kind="slow_steps", cost_ns_per_step=cost_ns)
        found = replace(found, saving_ns_per_step=None, saving_share=None, fix=None)
        more = add_findings(report, [found])
        assert more.findings.index(found) == position
        for number, finding in enumerate(more.findings, start=1):
            assert more.saving_of_fix(number) == pytest.approx(savings.get(finding.kind), abs=1), finding.kind


def test_its_share_is_one_of_all_steps_which_may_take_longer_than_the_recorded_ones():
    (finding,) = judge_pulse({}, slow_step_rows([slow(every=10)]), 1000, 16 * MS)
    _, report = analyze_cached(Settings(num_ranks=1, num_steps=8))
    run = report.run | {"step_ns": 2.0 * MS, "all_steps": {"mean_ns": 16.0 * MS}}
    assert describe_worth(finding, run) == "cost 4.00 ms/step (25%), confidence medium"


def test_without_slow_steps_there_is_no_finding():
    assert judge_pulse({}, [], 1000, 10 * MS) == []
