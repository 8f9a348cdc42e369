"""Rule for profiler overhead: time of the steps that recording itself takes."""

from collections.abc import Iterator

from kinetoscope.analysis.findings.diagnosis import Diagnosis
from kinetoscope.analysis.findings.evidence.run import Evidence
from kinetoscope.analysis.findings.fix import Fix
from kinetoscope.analysis.findings.rule import rule
from kinetoscope.analysis.replay.replay import Change
from kinetoscope.core.text.wording import format_ms


@rule("profiler_cost")
def find_profiler_cost(evidence: Evidence) -> Iterator[Diagnosis]:
    """Diagnose the profiler's time in steps; its time around a window is separate evidence."""
    stalls = evidence.stalls("profiler")
    recurring = stalls.recurring
    yield Diagnosis(
        title=lambda cost_ns: f"Profiler overhead: {format_ms(cost_ns)} ms/step of this recording",
        advice="Record less: leave out `--diagnose` and `--modules`, or in Python pass `with_stack=False, "
        "record_shapes=False, profile_memory=False`. The other findings leave this time out.",
        cost_ns=recurring.total_ns,
        fix=Fix(Change(frozenset(["profiler"]))),
        where=recurring.where(with_steps=True),
        evidence={"profiler_ns": recurring.total_ns, "window_overhead_ns": stalls.nonrecurring_ns_per_window},
        stalls="profiler",
    )
