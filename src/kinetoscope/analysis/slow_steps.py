"""Outlier steps that were kept while nothing was recorded, and the finding on them."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TypedDict

from kinetoscope.analysis.findings.finding import Finding, Where, build_finding, confidence_without_replay
from kinetoscope.analysis.findings.titles import add_detail
from kinetoscope.analysis.periods import format_period
from kinetoscope.formats.slow_steps import SlowStep
from kinetoscope.pulse.layout import Phase
from kinetoscope.texts.wording import format_ms

_IN_ORDER = (
    Phase.CHECKPOINT,
    Phase.EVALUATION,
    Phase.DATA_WAIT,
    Phase.FORWARD,
    Phase.BACKWARD,
    Phase.OPTIMIZER,
    Phase.OTHER,
)
"""Ranks wait for each other in a backward pass, or after it: what is slow before it holds the others up."""

_MOST_NAMED = 3
PHASE_WORDS = {
    "data_wait": "data wait",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "evaluation": "evaluation",
    "checkpoint": "checkpoint",
}
"""The labels of the phases of `SlowStepRow`."""


class SlowStepRow(TypedDict):
    """A step that took much longer than the steps before it, on ``ranks``.

    It took ``duration_ns`` on ``rank``, ``excess_ns`` more than usual, most of that in ``phase`` and at ``line``
    (``file:line``), None where that is not known. ``rank`` is where it began, as far as the phases tell: others may
    have waited for it. ``starved_ns`` of the excess its thread was ready without a processor, None where the system
    does not say; ``is_machines`` is whether that is half of it. Such a step comes ``every`` so many, None if it does
    not come regularly; then ``num_kept`` of them were kept, and this is the slowest.
    """

    step: int
    ranks: list[int]
    rank: int
    duration_ns: int
    excess_ns: int
    phase: str
    line: str | None
    starved_ns: int | None
    is_machines: bool
    every: int | None
    num_kept: int


def slow_step_rows(kept: Iterable[SlowStep]) -> list[SlowStepRow]:
    """A row per step, the slowest first; regular ones have one together."""
    by_step: defaultdict[int, list[SlowStep]] = defaultdict(list)
    for slow in kept:
        by_step[slow.step].append(slow)
    alone, regular = list[SlowStepRow](), defaultdict[tuple[str, int], list[SlowStepRow]](list)
    for row in map(_row, by_step.values()):
        if row["every"] is None:
            alone.append(row)
        else:
            regular[row["phase"], row["every"]].append(row)
    for (phase, every), rows in regular.items():
        earlier = [row for row in alone if row["phase"] == phase and (rows[0]["step"] - row["step"]) % every == 0]
        alone = [row for row in alone if row not in earlier]
        slowest = max((*rows, *earlier), key=lambda row: row["excess_ns"])
        alone.append({**slowest, "every": every, "num_kept": len(rows) + len(earlier)})
    return sorted(alone, key=lambda row: -row["excess_ns"])


def _row(same_step: Sequence[SlowStep]) -> SlowStepRow:
    first = min(same_step, key=lambda slow: (_IN_ORDER.index(Phase(slow.phase)), -slow.excess_ns))
    return {
        "step": first.step,
        "ranks": sorted({slow.rank for slow in same_step}),
        "rank": first.rank,
        "duration_ns": first.duration_ns,
        "excess_ns": first.excess_ns,
        "phase": Phase(first.phase).name.lower(),
        "line": first.line,
        "starved_ns": first.starved_ns,
        "is_machines": first.is_machines,
        "every": next((slow.every for slow in same_step if slow.every is not None), None),
        "num_kept": 1,
    }


def find_slow_steps(rows: Sequence[SlowStepRow], num_steps: int, mean_ns: float) -> list[Finding]:
    """The finding on slow steps of a run of so many, of that length on average; none if there are no slow ones."""
    if not rows or not num_steps:
        return []
    slowest, num_kept = rows[0], sum(row["num_kept"] for row in rows)
    cost_ns = sum(_times(row, num_steps) * row["excess_ns"] for row in rows) / num_steps
    num_machines = sum(row["is_machines"] for row in rows)
    return [
        build_finding(
            "slow_steps",
            _title(slowest, num_kept, num_steps),
            _advice(rows, num_machines),
            confidence=confidence_without_replay(cost_ns / mean_ns if mean_ns else 0.0),
            evidence={
                "num_slow_steps": num_kept,
                "num_of_machine": num_machines,
                "most_excess_ns": slowest["excess_ns"],
                "num_with_line": sum(row["line"] is not None for row in rows),
            },
            where=Where(
                ranks=tuple(sorted({row["rank"] for row in rows})),
                steps=tuple(sorted(row["step"] for row in rows)),
                lines=tuple(dict.fromkeys(row["line"] for row in rows if row["line"] is not None))[:_MOST_NAMED],
            ),
            cost_ns=cost_ns,
        )
    ]


def _times(row: SlowStepRow, num_steps: int) -> float:
    """How often such a step has come, at least."""
    return row["num_kept"] if row["every"] is None else max(row["num_kept"], num_steps // row["every"])


def _title(slowest: SlowStepRow, num_kept: int, num_steps: int) -> str:
    longer = f"{format_ms(slowest['excess_ns'])} ms longer"
    if num_kept == 1:
        title = f"Outlier step: step {slowest['step']:,} took {longer} than usual"
    else:
        title = f"Outlier steps: {num_kept:,} of {num_steps:,} steps took up to {longer}"
    location = _location(slowest)
    return add_detail(title, f" ({location})" if location else "")


def _location(row: SlowStepRow) -> str:
    """Return the phase and the line with most of the excess; "" where both are unknown."""
    phase = PHASE_WORDS.get(row["phase"], "")
    return " at ".join(filter(None, [phase, row["line"]]))


def _advice(rows: Sequence[SlowStepRow], num_machines: int) -> str:
    periods = [(row, format_period(row["every"])) for row in rows if row["every"] is not None]
    regular = [f"{_location(row) or 'slow'}, recurs {period or 'every step'}" for row, period in periods]
    sentences = list[str]()
    if regular:
        recurring = "; ".join(regular[:_MOST_NAMED])
        sentences.append(f"The fault recurs ({recurring}): do this work less often, or in the background.")
    if num_machines:
        sentences.append(
            f"In {num_machines:,} of them the loop waited for a CPU for half of the excess or more: other processes, "
            "or too many threads, used the cores."
        )
    return " ".join([*sentences, "The run's folder has a trace of each, in slow_steps."])
