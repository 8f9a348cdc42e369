"""analysis: what the ranks of a run have found of phases that hung."""

from collections.abc import Mapping, Sequence

from kinetoscope.analysis.findings.finding import Finding, Where, build_finding
from kinetoscope.analysis.slow_steps import PHASE_WORDS
from kinetoscope.pulse.stuck_phases import StuckPhase, Unarrived, unarrived
from kinetoscope.texts.wording import ranks_named

_MOST_NAMED = 3


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
    where = (f" in {words}" if words else "") + (f" at {phase.place}" if phase.place else "")
    length = f"{_length_ns(phase) / 1e9:,.0f} s"
    times = f"; {num_hangs:,} phases hung in all" if num_hangs > 1 else ""
    if goes_on:
        return f"Rank {rank} hung{where} for {length} after step {phase.step - 1:,}, and went on{times}"
    return f"Rank {rank} hung{where} after step {phase.step - 1:,}, for more than {length}{times}"


def _advice(left: Sequence[tuple[int, StuckPhase]]) -> str:
    """From what ranks have not left, be it a hang or not: who waits for whom."""
    stacks = "The folder pulse of the run has the stacks of all threads, in files that end in .stuck."
    return " ".join([*map(_on_unarrived, unarrived(left)), stacks])


def _on_unarrived(found: Unarrived) -> str:
    waiting, missing = map(ranks_named, (found.waiting, found.missing))
    who = "it" if len(found.missing) == 1 else "they"
    return (
        f"{waiting.capitalize()} waited in {found.collective or 'a collective'} ({found.sequence:,} of group "
        f"{found.group}), to which {missing} had not come: look at what {who} did."
    )
