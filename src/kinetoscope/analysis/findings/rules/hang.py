"""Rule for hangs: phases of a rank that do not end, from the reports of its watchdog."""

import re
from collections.abc import Iterator, Sequence

from kinetoscope.analysis.findings.confidence import confidence_if
from kinetoscope.analysis.findings.evidence.pulse import PulseEvidence
from kinetoscope.analysis.findings.finding import MAX_NAMED, Finding, Where, build_finding
from kinetoscope.analysis.findings.rule import rule
from kinetoscope.analysis.findings.titles import add_detail
from kinetoscope.analysis.steps.slow_steps import PHASE_LABELS
from kinetoscope.core.text.wording import format_duration, format_ranks
from kinetoscope.pulse.stalls import BlockedCollective, StalledPhase, find_blocked_collectives

_FRAME = re.compile(r"^(.+)\((\d+)\): .*$")


@rule("hang", reads=PulseEvidence)
def find_hangs(evidence: PulseEvidence) -> Iterator[Finding]:
    """Find the hangs of all ranks, as one finding."""
    stuck = evidence.stuck
    hangs = [(rank, phase) for rank, phases in sorted(stuck.items()) for phase in phases if phase.hangs]
    if not hangs:
        return
    last = [(rank, phase) for rank, phase in hangs if phase.resumed_ns is None]
    left = [(rank, phase) for rank, phases in stuck.items() for phase in phases[-1:] if phase.resumed_ns is None]
    named = last or hangs
    locations = [phase.location for _, phase in named if phase.location]
    yield build_finding(
        "hang",
        _title(named, num_hangs=len(hangs), has_ended=not last),
        _advice(left if last else []),
        confidence=confidence_if(bool(last)),
        evidence={
            "num_hangs": len(hangs),
            "num_hung_ranks": len({rank for rank, _ in last}),
            "max_duration_ns": max(_length_ns(phase) for _, phase in hangs),
        },
        where=Where(
            ranks=tuple(sorted({rank for rank, _ in named})),
            steps=tuple(sorted({phase.step for _, phase in named})),
            lines=tuple(dict.fromkeys(locations))[:MAX_NAMED],
        ),
    )


def _length_ns(phase: StalledPhase) -> int:
    """Return its known duration."""
    return (phase.found_ns if phase.resumed_ns is None else phase.resumed_ns) - phase.since_ns


def _title(named: Sequence[tuple[int, StalledPhase]], *, num_hangs: int, has_ended: bool) -> str:
    rank, phase = max(named, key=lambda each: _length_ns(each[1]))
    label = PHASE_LABELS.get(phase.phase)
    phase_of = f" in {label}" if label else f" after step {phase.step - 1:,}"
    length = format_duration(_length_ns(phase))
    state, bound = ("Hung, then continued", "") if has_ended else ("Hung", "over ")
    title = f"{state}: rank {rank} stuck{phase_of} for {bound}{length}"
    title = add_detail(title, _FRAME.sub(r" at \1:\2", phase.location))
    return add_detail(title, f" ({num_hangs:,} hangs)" if num_hangs > 1 else "")


def _advice(left: Sequence[tuple[int, StalledPhase]]) -> str:
    """Return the advice: the ranks that wait for each other, by the phases that they have not left."""
    stacks = "Read the stacks of all threads, in the run's folder: pulse/*.stuck."
    return " ".join([*map(_advise_on_collective, find_blocked_collectives(left)), stacks])


def _advise_on_collective(found: BlockedCollective) -> str:
    waiting, missing = map(format_ranks, (found.waiting, found.missing))
    return (
        f"Check the stacks of {missing}: {waiting} waited for {missing} in {found.collective or 'a collective'} "
        f"(number {found.sequence:,} of group {found.group})."
    )
