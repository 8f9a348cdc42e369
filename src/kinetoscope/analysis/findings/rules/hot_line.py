"""Rule for the line at which the loop runs most, where no operators were recorded."""

from collections.abc import Iterator

from kinetoscope.analysis.findings.blocking_calls import advise_on_call
from kinetoscope.analysis.findings.diagnosis import Diagnosis
from kinetoscope.analysis.findings.evidence.run import Evidence
from kinetoscope.analysis.findings.finding import Where
from kinetoscope.analysis.findings.rule import rule
from kinetoscope.analysis.ranks.run_queue_delay import DelayEffect
from kinetoscope.core.text.wording import format_percent


@rule("hot_line")
def find_hot_line(evidence: Evidence) -> Iterator[Diagnosis]:
    """Diagnose the most frequent line in samples of stacks."""
    stalls = evidence.stalls("loop")
    found = stalls.sampled_line
    if found is None or evidence.cpu.has_operators:
        return

    for_late_ns = min(evidence.waits_for_late_ns, stalls.in_torch_ns(found.line))

    def title(cost_ns: float) -> str:
        takes = f"takes {format_percent(cost_ns / evidence.step_ns)} of the step"
        return (
            f"Hot line: {found.line} {takes}"
            if found.fits_title
            else f"Hot line: {found.line}, or code before it, {takes}"
        )

    yield Diagnosis(
        title=title,
        advice=f"{advise_on_call(stalls, evidence.stalls('blocked'))}Record the operators that it calls: leave "
        f"`torch=True`, the default. {stalls.describe_line('the time of the loop without another finding')}".rstrip(),
        cost_ns=max(0.0, found.share * stalls.total_ns - for_late_ns),
        fix=None,
        where=Where(lines=stalls.where().lines or (found.line,)),
        evidence={**stalls.evidence_of_line, "num_samples": int(stalls.by_call["num_samples"].sum())},
        is_estimate=True,
        stalls="loop",
        delay=DelayEffect.APART,
    )
