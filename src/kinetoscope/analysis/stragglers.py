"""analysis: ranks that the others wait for, how often, and why."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from kinetoscope.analysis.collectives import CollectiveRow
from kinetoscope.analysis.step_time import step_time_ns
from kinetoscope.analysis.steps import StepRow
from kinetoscope.analysis.window import FEWEST_STEPS

SHARE_OF_STEP = 0.02
"""A rank is reported if the others wait for it for more than this part of a step."""

CLOCK_BOUNDS = 4
_FEWEST_LATE_STEPS, _FEWEST_OF_A_PERIOD = 2, 3
_REGULAR_SHARE = 0.7
_LATE_SHARE = 0.5
"""A step counts as late if the wait in it is at least half of that in the steps with the longest waits."""


@dataclass(frozen=True, kw_only=True)
class StragglerRow:
    """A rank that is late. ``cost_ns_per_step`` is how long each other rank waits for it in a step, on average.

    ``steps`` are those in which it was late; ``cause`` is ``data``, ``host``, ``device`` or ``unknown``; with a
    ``period`` of n, known of 8 steps or more, it is late in every n-th step. ``evidence`` are pairs of name and number.
    """

    rank: int
    cost_ns_per_step: int
    steps: tuple[int, ...]
    cause: str
    period: int | None
    evidence: tuple[tuple[str, int | float], ...]

    def to_dict(self) -> dict[str, Any]:
        """The row as plain data."""
        return asdict(self) | {"evidence": dict(self.evidence)}


def straggler_rows(
    calls: Sequence[CollectiveRow], steps: Sequence[StepRow], clock_bound_ns: int = 0
) -> list[StragglerRow]:
    """The stragglers, worst first. Waits below four times ``clock_bound_ns`` are not told from an error of clocks."""
    waits = _waits(calls)
    if not waits or not steps:
        return []
    step_ns = step_time_ns(steps) or 0.0
    num_steps = len({row.step for row in steps})
    rows = [_row(rank, by_step, num_steps, steps, clock_bound_ns) for rank, by_step in waits.items()]
    found = [
        row for row in rows if row.cost_ns_per_step > SHARE_OF_STEP * step_ns and len(row.steps) >= _FEWEST_LATE_STEPS
    ]
    return sorted(found, key=lambda row: (-row.cost_ns_per_step, row.rank))


def _waits(calls: Sequence[CollectiveRow]) -> dict[int, dict[int, float]]:
    """By late rank and step: the mean time that the other ranks of the calls waited for it, and did nothing else."""
    waits: defaultdict[int, defaultdict[int, float]] = defaultdict(lambda: defaultdict(float))
    for call in calls:
        if call.late_rank is not None and call.waits_ns is not None and call.step is not None:
            waits[call.late_rank][call.step] += sum(call.waits_ns) / (call.num_ranks - 1)
    return {rank: dict(by_step) for rank, by_step in waits.items()}


def _row(
    rank: int, by_step: Mapping[int, float], num_steps: int, steps: Sequence[StepRow], clock_bound_ns: int
) -> StragglerRow:
    longest = sorted(by_step.values())[-max(1, len(by_step) // 4) :]
    least = max(_LATE_SHARE * median(longest), CLOCK_BOUNDS * clock_bound_ns)
    late = tuple(sorted(step for step, wait in by_step.items() if wait >= least))
    cause, evidence = _cause(rank, late, steps)
    return StragglerRow(
        rank=rank,
        cost_ns_per_step=round(sum(by_step[step] for step in late) / num_steps),
        steps=late,
        cause=cause,
        period=_period(late, num_steps),
        evidence=evidence,
    )


def _period(late: Sequence[int], num_steps: int) -> int | None:
    """The usual distance between late steps, if nearly all are multiples of it apart, and there are as many of them as
    a recording of this length would have."""
    apart = [other - one for one, other in pairwise(late)]
    if num_steps < FEWEST_STEPS or len(late) < _FEWEST_OF_A_PERIOD:
        return None
    usual = max(1, round(median(apart)))
    is_regular = sum(distance % usual == 0 for distance in apart) >= _REGULAR_SHARE * len(apart)
    return usual if is_regular and len(late) >= _REGULAR_SHARE * (num_steps // usual) else None


def _cause(rank: int, late: Sequence[int], steps: Sequence[StepRow]) -> tuple[str, tuple[tuple[str, float], ...]]:
    """What took the rank longer than the others in the steps in which it was late."""
    own = {row.step: row for row in steps if row.rank == rank}
    others: defaultdict[int, list[StepRow]] = defaultdict(list)
    for row in steps:
        if row.rank != rank:
            others[row.step].append(row)
    longer: dict[str, float] = {}
    for cause, fields in _FIELDS.items():
        differences = [
            _sum(own[step], fields) - median(_sum(row, fields) for row in others[step])
            for step in late
            if step in own and others[step]
        ]
        longer[cause] = sum(differences) / len(differences) if differences else 0.0
    cause = max(longer, key=lambda name: longer[name])
    evidence = tuple((f"{name}_longer_ns", round(value)) for name, value in longer.items())
    return (cause if longer[cause] > 0 else "unknown"), evidence


_FIELDS = {
    "data": ("data_wait_ns",),
    "device": ("device_compute_ns",),
    "host": ("forward_ns", "python_ns", "optimizer_ns", "between_ns", "gc_ns"),
}


def _sum(row: StepRow, fields: Sequence[str]) -> int:
    return sum(getattr(row, name) or 0 for name in fields)
