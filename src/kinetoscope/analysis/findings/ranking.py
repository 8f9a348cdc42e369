"""Order of findings: urgent ones first, then by saving weighted by confidence; minor ones last."""

from collections.abc import Iterable

from kinetoscope.analysis.findings.confidence import HIGH_SHARE
from kinetoscope.analysis.findings.finding import Finding

MAX_URGENT_STEPS = 1000
"""Memory that will run out within so many steps comes before all other findings (the contract's number)."""

_MAX_MINOR_SHARE = 0.03

_WEIGHTS = {"high": 1.0, "medium": 0.6, "low": 0.3}
"""Savings are weighted by confidence before findings are ranked (the contract's factors)."""

_UNTIMED_SHARE = HIGH_SHARE
"""A finding with neither saving nor cost, such as memory growth, ranks as if it saved this share of a step."""


def rank(findings: Iterable[Finding], step_ns: float) -> list[Finding]:
    """Return findings by urgency: memory that runs out soon, then hangs, then by saving weighted by confidence.

    Without a saving the cost counts; ties are broken by cost. Minor findings come last.
    """

    def key(finding: Finding) -> tuple[bool, bool, bool, float, int]:
        is_soon, is_hang = _runs_out_soon(finding), finding.kind == "hang"
        worth_ns = _UNTIMED_SHARE * step_ns if finding.worth_ns is None else finding.worth_ns
        weighted_ns = worth_ns * _WEIGHTS[finding.confidence]
        return not is_soon, not is_hang, is_minor(finding, step_ns), -weighted_ns, -(finding.cost_ns_per_step or 0)

    return sorted(findings, key=key)


def is_minor(finding: Finding, step_ns: float | None) -> bool:
    """Return whether one line is enough for a finding: of low confidence, and worth little of a step at most."""
    max_ns, worth_ns = dict(finding.evidence).get("max_saving_ns"), finding.worth_ns
    worth_ns = worth_ns if worth_ns is None or max_ns is None else max(worth_ns, max_ns)
    return bool(
        finding.confidence == "low" and worth_ns is not None and step_ns and worth_ns < _MAX_MINOR_SHARE * step_ns
    )


def _runs_out_soon(finding: Finding) -> bool:
    return dict(finding.evidence).get("steps_until_full", MAX_URGENT_STEPS) < MAX_URGENT_STEPS
