"""Judgement of a run: its findings, ranked, and the ranks that the others wait for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kinetoscope.analysis.findings.evidence.pulse import PulseEvidence
from kinetoscope.analysis.findings.evidence.recording import RunRows
from kinetoscope.analysis.findings.evidence.run import Evidence
from kinetoscope.analysis.findings.evidence.window import WindowEvidence
from kinetoscope.analysis.findings.finding import Finding
from kinetoscope.analysis.findings.imbalance_findings import straggler_rows, waits_for_slow_stages
from kinetoscope.analysis.findings.ranking import rank
from kinetoscope.analysis.findings.rule import find_all
from kinetoscope.analysis.ranks.stragglers import StragglerCandidates, StragglerRow
from kinetoscope.analysis.replay.replay import ReplayGraph
from kinetoscope.analysis.steps.slow_steps import SlowStepRow
from kinetoscope.pulse.stalls import StalledPhase


@dataclass(frozen=True)
class Judgement:
    """The ranked findings of a run, and the rows of stragglers, with causes that only a replay shows."""

    findings: list[Finding]
    stragglers: Sequence[StragglerRow]
    waits_for_stages: bool = False
    """True if slow stages of a pipeline cause most of the exposed communication."""


def judge_run(
    rows: RunRows, graph: ReplayGraph, windows: Sequence[WindowEvidence], candidates: StragglerCandidates
) -> Judgement:
    """Return the findings of a run, from its rows, its replay, the evidence of its windows, and its late ranks."""
    if not rows.step_ns:
        return Judgement([], rows.stragglers)
    evidence = Evidence(rows, graph, windows, candidates)
    findings = rank((_add_share(finding, rows.step_ns) for finding in find_all(evidence)), rows.step_ns)
    return Judgement(findings, straggler_rows(evidence), waits_for_slow_stages(evidence))


def judge_pulse(
    stuck: Mapping[int, Sequence[StalledPhase]],
    slow_steps: Sequence[SlowStepRow] = (),
    num_steps: int | None = None,
    mean_ns: float = 0.0,
) -> list[Finding]:
    """Return the findings on hangs, and on outlier steps of ``num_steps`` that take ``mean_ns`` on average."""
    return find_all(PulseEvidence(stuck=stuck, slow_steps=slow_steps, num_steps=num_steps, mean_ns=mean_ns))


def _add_share(finding: Finding, step_ns: float) -> Finding:
    saving_ns = finding.saving_ns_per_step
    return finding if saving_ns is None else replace(finding, saving_share=saving_ns / step_ns)
