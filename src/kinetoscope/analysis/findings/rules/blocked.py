"""Rule for a loop that is blocked in a system call or on a lock."""

from collections.abc import Iterator

from kinetoscope.analysis.findings.blocking_calls import find_wait_reason
from kinetoscope.analysis.findings.diagnosis import Diagnosis
from kinetoscope.analysis.findings.evidence.loader import MIN_SAMPLES
from kinetoscope.analysis.findings.evidence.run import Evidence
from kinetoscope.analysis.findings.finding import Where
from kinetoscope.analysis.findings.fix import Fix
from kinetoscope.analysis.findings.rule import rule
from kinetoscope.analysis.findings.titles import add_detail
from kinetoscope.analysis.ranks.run_queue_delay import DelayEffect
from kinetoscope.analysis.replay.replay import Change
from kinetoscope.core.text.wording import format_ms

_MIN_TITLE_SHARE = 0.5
"""A title names the line with this share of the time or more."""


@rule("blocked")
def find_blocked(evidence: Evidence) -> Iterator[Diagnosis]:
    """Diagnose waits for something else than data, devices and other ranks."""
    stalls, has_operators = evidence.stalls("blocked"), evidence.cpu.has_operators_everywhere
    for_late_ns = max(0.0, evidence.waits_for_late_ns - evidence.stalls("loop").in_torch_ns())
    blocked_ns = max(0.0, evidence.cpu.part_ns("blocked") - for_late_ns)
    samples = stalls.by_call.to_dicts()
    num_samples = sum(sample["num_samples"] for sample in samples)
    first = samples[0] if samples else {}
    line, call, share = first.get("line"), first.get("call"), first.get("share", 0.0)
    reason = find_wait_reason(first)
    at_line = f" at {line}" if line and share >= _MIN_TITLE_SHARE else ""
    on_line = f"{line}{f', in {call},' if call else ''} takes {100 * share:.0f} % of this time." if line else ""
    # Few samples name a line only if all agree.
    where = stalls.where()
    lines = where.lines or tuple(one["line"] for one in samples[:1] if one["line"] and one["share"] == 1)
    yield Diagnosis(
        title=lambda cost_ns: add_detail(f"Blocked: {format_ms(cost_ns)} ms/step {reason.title}", at_line),
        advice=f"{reason.advice} {on_line}".rstrip(),
        cost_ns=min(blocked_ns, evidence.device_wait_ns),
        fix=Fix(Change(frozenset(["blocked"]))) if has_operators else None,
        where=Where(lines=lines, modules=where.modules),
        evidence={
            "blocked_ns": blocked_ns,
            "share_of_reason": first.get("share"),
            "num_samples": num_samples,
            **stalls.evidence_of_line,
        },
        is_estimate=not has_operators or num_samples < MIN_SAMPLES,
        stalls="blocked",
        delay=DelayEffect.APART,
    )
