"""Savings of unrecorded steps: those of a training run, which recording makes longer."""

from collections.abc import Sequence
from dataclasses import replace

from kinetoscope.analysis.findings.batch_transfer_advice import remove_recording_cost_of_batches
from kinetoscope.analysis.findings.finding import Finding
from kinetoscope.analysis.findings.loader_advice import limit_reach_without_recording
from kinetoscope.analysis.run_report import RunFacts
from kinetoscope.analysis.steps.all_steps import AllSteps, describe_abnormal_recording

_MIN_DIFFERENCE = 0.01
"""Steps that differ by a smaller share count as equally long."""


def find_unrecorded_step_ns(run: RunFacts) -> float | None:
    """Return the step time without recording, which shown savings are of; None if unknown, or about the recorded one.

    That step may also be the longer one: other processes may have disturbed it.
    """
    unrecorded_ns = run["all_steps"]["unrecorded_ns"] if run["all_steps"] is not None else None
    if unrecorded_ns is None or not run["step_ns"]:
        return None
    return unrecorded_ns if abs(unrecorded_ns / run["step_ns"] - 1) >= _MIN_DIFFERENCE else None


def displayed_saving_ns(finding: Finding, run: RunFacts) -> float | None:
    """Return the saving per step that people are shown: of a step that was not recorded, where the pulse has such.

    ``saving_ns_per_step`` is that of a recorded step, which `whatif --fix N` reproduces.
    """
    if finding.saving_share is None:
        return finding.saving_ns_per_step
    unrecorded_ns = run["all_steps"]["unrecorded_ns"] if run["all_steps"] is not None else None
    step_ns = run["step_ns"] if unrecorded_ns is None else unrecorded_ns
    return finding.saving_ns_per_step if step_ns is None else finding.saving_share * step_ns


def subtract_recording_cost(
    findings: Sequence[Finding], about: AllSteps, step_ns: float | None, fetch_ratio: float | None
) -> list[Finding]:
    """Return the findings with shares of savings, and advice on batches, that leave the cost of recording out.

    Recording costs about the same for each operator, so that a finding has as much of the cost as it has of the
    operators (``share_of_operators`` of its evidence).

    Args:
        findings: findings with savings of recorded steps.
        about: facts on all steps.
        step_ns: recorded step time.
        fetch_ratio: median time to fetch a batch in unrecorded steps, divided by that in recorded ones.
    """
    cost_ns = _recording_cost_ns(about)
    if not cost_ns or not step_ns:
        return [*findings]
    found = [_subtract_cost(finding, cost_ns, step_ns) for finding in findings]
    found = [limit_reach_without_recording(finding, cost_ns, step_ns) for finding in found]
    return found if fetch_ratio is None else [remove_recording_cost_of_batches(one, fetch_ratio) for one in found]


def _recording_cost_ns(about: AllSteps) -> float:
    recorded_ns, unrecorded_ns = about["recorded_ns"], about["unrecorded_ns"]
    return 0.0 if recorded_ns is None or unrecorded_ns is None else max(0.0, recorded_ns - unrecorded_ns)


def _subtract_cost(finding: Finding, cost_ns: float, step_ns: float) -> Finding:
    share = dict(finding.evidence).get("share_of_operators")
    if share is None or finding.saving_ns_per_step is None:
        return finding
    saving_ns = max(0.0, finding.saving_ns_per_step - share * cost_ns)
    return replace(finding, saving_share=saving_ns / step_ns)


def add_note_on_abnormal_steps(findings: Sequence[Finding], about: AllSteps, step_ns: float) -> list[Finding]:
    """Return the findings, with a sentence on recorded steps that are unlike the others.

    A confidence is not high where the saving may be no more than what makes recorded steps longer.
    """
    sentence, change = describe_abnormal_recording(about), about["recorded_change"] or 0.0
    if not sentence:
        return [*findings]
    excess_ns = step_ns * change / (1 + change)
    return [found if found.worth_ns is None else _add_note(found, sentence, excess_ns=excess_ns) for found in findings]


def _add_note(found: Finding, sentence: str, *, excess_ns: float) -> Finding:
    is_explained = found.saving_ns_per_step is not None and found.saving_ns_per_step <= excess_ns
    confidence = "medium" if found.confidence == "high" and is_explained else found.confidence
    return replace(found, advice=f"{found.advice} {sentence}", confidence=confidence)
