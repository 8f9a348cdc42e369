"""The finding on phases that hung, from the hang reports of the ranks."""

import re
from collections.abc import Mapping, Sequence

from kinetoscope.analysis.findings.finding import Finding, Where, build_finding
from kinetoscope.analysis.findings.titles import add_detail
from kinetoscope.analysis.slow_steps import PHASE_WORDS
from kinetoscope.pulse.stuck_phases import StuckPhase, Unarrived, unarrived
from kinetoscope.texts.wording import lasting, ranks_named

_MOST_NAMED = 3
_FRAME = re.compile(r"^(.+)\((\d+)\): .*$")


def find_hangs(stuck: Mapping[int, Sequence[StuckPhase]]) -> list[Finding]:
    """The finding on hangs, of what each rank has found, by rank; none if no phase hung."""
    hangs = [(rank, phase) for rank, phases in sorted(stuck.items()) for phase in phases if phase.hangs]
    if not hangs:
        return []
    last = [(rank, phase) for rank, phase in hangs if phase.goes_on_ns is None]
    left = [(rank, phase) for rank, phases in stuck.items() for phase in phases[-1:] if phase.goes_on_ns is None]
    named = last or hangs
    places = [phase.place for _, phase in named if phase.place]
    return [
        build_finding(
            "hang",
            _title(named, num_hangs=len(hangs), goes_on=not last),
            _advice(left if last else []),
            confidence="medium" if not last else "high",
            evidence={
                "num_hangs": len(hangs),
                "num_ranks_left_hanging": len({rank for rank, _ in last}),
                "most_ns": max(_length_ns(phase) for _, phase in hangs),
            },
            where=Where(
                ranks=tuple(sorted({rank for rank, _ in named})),
                steps=tuple(sorted({phase.step for _, phase in named})),
                lines=tuple(dict.fromkeys(places))[:_MOST_NAMED],
            ),
        )
    ]


def _length_ns(phase: StuckPhase) -> int:
    """How long it is known to have lasted."""
    return (phase.found_ns if phase.goes_on_ns is None else phase.goes_on_ns) - phase.since_ns


def _title(named: Sequence[tuple[int, StuckPhase]], *, num_hangs: int, goes_on: bool) -> str:
    rank, phase = max(named, key=lambda each: _length_ns(each[1]))
    words = PHASE_WORDS.get(phase.phase)
    phase_of = f" in {words}" if words else f" after step {phase.step - 1:,}"
    length = lasting(_length_ns(phase))
    state, bound = ("Hung, then continued", "") if goes_on else ("Hung", "over ")
    title = f"{state}: rank {rank} stuck{phase_of} for {bound}{length}"
    title = add_detail(title, _FRAME.sub(r" at \1:\2", phase.place))
    return add_detail(title, f" ({num_hangs:,} hangs)" if num_hangs > 1 else "")


def _advice(left: Sequence[tuple[int, StuckPhase]]) -> str:
    """From what ranks have not left, be it a hang or not: who waits for whom."""
    stacks = "The stacks of all threads are in the run's folder, in pulse/*.stuck."
    return " ".join([*map(_on_unarrived, unarrived(left)), stacks])


def _on_unarrived(found: Unarrived) -> str:
    waiting, missing = map(ranks_named, (found.waiting, found.missing))
    return (
        f"{waiting.capitalize()} waited in {found.collective or 'a collective'} (number {found.sequence:,} of group "
        f"{found.group}) for {missing}: check the stacks of {missing}."
    )
