"""Outlier steps that were kept while nothing was recorded."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TypedDict

from kinetoscope.formats.slow_steps import SlowStep
from kinetoscope.pulse.layout import Phase

_PHASE_ORDER = (
    Phase.CHECKPOINT,
    Phase.EVALUATION,
    Phase.DATA_WAIT,
    Phase.FORWARD,
    Phase.BACKWARD,
    Phase.OPTIMIZER,
    Phase.OTHER,
)
"""Order in which a slow phase is the cause: ranks wait for each other in a backward pass, or after it."""

PHASE_LABELS = {
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
    (``file:line``), None if unknown. ``rank`` is where it began, as far as the phases show: others may have waited for
    it. ``starved_ns`` of the excess is run-queue delay of its thread, None where the system does not report it;
    ``is_machines`` is true if that is half of it. ``every`` is the period in steps of a regular one, else
    None; ``num_kept`` of these were kept, and this is the slowest.
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
    """Return a row per outlier step, the slowest first; regular ones share one."""
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
    first = min(same_step, key=lambda slow: (_PHASE_ORDER.index(Phase(slow.phase)), -slow.excess_ns))
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
