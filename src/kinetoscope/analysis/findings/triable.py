"""Findings whose fix `kinetoscope try` can measure."""

from kinetoscope.analysis.findings.finding import Finding
from kinetoscope.formats.experiments import KINDS_WITH_VARIANTS, MIN_CHANGE


def is_triable(finding: Finding, step_ns: float | None = None) -> bool:
    """Return whether a variant may fix a finding, and changes a step of ``step_ns`` enough to be measured."""
    share = finding.reachable_share
    if share is None and finding.cost_ns_per_step is not None and step_ns:
        share = finding.cost_ns_per_step / step_ns
    return finding.kind in KINDS_WITH_VARIANTS and (share is None or share >= MIN_CHANGE)
