"""Groups of late ranks that delay a run together: with only some of them on time it gains nothing."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from kinetoscope.analysis.ranks.stragglers import COLUMNS_OF_CAUSES, StragglerRow, find_steps_before_lateness, longer_ns
from kinetoscope.analysis.steps.steps import StepRow

MIN_LATE_SHARE = 0.03
"""Late ranks are excluded from the averages of all other findings if a step saves this share with them on time."""

_MIN_SHARE_OF_SAVING = 0.9
"""The group is the smallest with this share of the saving of all late ranks on time."""

_MIN_SHARE_IN_TURNS = 0.25
"""Ranks whose loaders are alternately late count from this share of the latest one's delay on."""

_MIN_SHARE_OF_LATEST = 0.1
"""Ranks with a smaller share of the latest one's delay are left out if the others keep `_MIN_SHARE_KEPT` of the saving:
each rank is a little late in some steps."""

_MIN_SHARE_KEPT = 2 / 3

_MIN_COMMON_STEPS_SHARE = 2 / 3
"""Ranks are late in the same steps if each is late in more than this share of the late steps."""

_MAX_RANKS_TO_SPARE = 8
"""In groups of at most so many ranks, each rank is tested for being dispensable; larger groups are nodes, not noise."""

_MAX_ROUNDS = 3
"""Maximum number of searches for further ranks that are late once those found are on time."""

MIN_ONCE_SHARE = 0.05
"""A rank that was late in a single step is reported if that costs this share of all steps."""

_MIN_STEPS = 4
_MIN_TIMES_NEXT = 4
"""A rank was late in a single step if its delay was so many times that of any other step."""

_MAX_LATE_ONCE = 3

_CAUSES = {
    "data": COLUMNS_OF_CAUSES["data"],
    "device": COLUMNS_OF_CAUSES["device"],
    "processor": ("starved_ns",),
    "host": COLUMNS_OF_CAUSES["host"],
}
"""Columns of steps that show a cause. The CPU comes last: a descheduled loop takes longer there, too."""


class LatenessModel(Protocol):
    """A model of a run in which some ranks are on time."""

    @property
    def candidates(self) -> Sequence[StragglerRow]:
        """The late ranks as recorded, the latest first."""
        ...

    def find_still_late(self, on_time: frozenset[int]) -> list[StragglerRow]:
        """Return the ranks that are still late, the latest first."""
        ...

    def find_late_once(self, on_time: frozenset[int]) -> list[StragglerRow]:
        """Return the ranks that are still late in a single step."""
        ...

    def estimate_saving_ns(self, on_time: frozenset[int]) -> float:
        """Estimate the saving per step, in ns."""
        ...


def find_straggler_group(model: LatenessModel, all_ranks: Collection[int], step_ns: float) -> list[StragglerRow]:
    """Return the smallest group of late ranks with enough of a saving, the latest first.

    Ranks that hide behind others are part of it. There are none where the loaders of all ranks are slow. If all ranks
    are late, the least late one is left out: one has to wait.
    """
    rows = list(model.candidates)
    for _ in range(_MAX_ROUNDS if rows else 0):
        if len(rows) >= len(all_ranks) - 1 or not (more := model.find_still_late(_ranks(rows))):
            break
        rows += more
    if _are_most_input_bound(_filter_latest(rows, _MIN_SHARE_IN_TURNS), all_ranks):
        return []
    if rows and {row.rank for row in rows} >= set(all_ranks):
        rows.pop()
    all_save = model.estimate_saving_ns(_ranks(rows)) if rows else 0.0
    latest = _filter_latest(rows, _MIN_SHARE_OF_LATEST)
    if (
        len(latest) < len(rows)
        and (they_save := model.estimate_saving_ns(_ranks(latest))) >= _MIN_SHARE_KEPT * all_save
    ):
        rows, all_save = latest, they_save
    if not rows or all_save < MIN_LATE_SHARE * step_ns:
        return []
    enough_ns = _MIN_SHARE_OF_SAVING * all_save
    low, high = 1, len(rows)
    while low < high:
        middle = (low + high) // 2
        if model.estimate_saving_ns(_ranks(rows[:middle])) >= enough_ns:
            high = middle
        else:
            low = middle + 1
    group = _drop_dispensable(rows[:high], model, enough_ns)
    return [] if _are_most_input_bound(group, all_ranks) else group


def _filter_latest(rows: Sequence[StragglerRow], share: float) -> list[StragglerRow]:
    """Return the ranks with at least this share of the latest one's delay."""
    return [row for row in rows if row.cost_ns_per_step >= share * rows[0].cost_ns_per_step]


def are_late_in_same_steps(rows: Sequence[StragglerRow]) -> bool:
    """Return whether each of them is late in most of the late steps; else they alternate."""
    steps = {step for row in rows for step in row.steps}
    return all(2 * len(steps & {*row.steps}) > len(steps) for row in rows)


def _are_most_input_bound(rows: Sequence[StragglerRow], all_ranks: Collection[int]) -> bool:
    """Return whether half of the ranks wait for data, and not in the same steps: then loaders are slow everywhere."""
    waiting = [row for row in rows if row.cause == "data"]
    if len(waiting) < 2 or 2 * len(waiting) < len(all_ranks) or 2 * len(waiting) <= len(rows):
        return False
    steps = {step for row in waiting for step in row.steps}
    return not all(len(row.steps) > _MIN_COMMON_STEPS_SHARE * len(steps) for row in waiting)


def _drop_dispensable(rows: Sequence[StragglerRow], model: LatenessModel, enough_ns: float) -> list[StragglerRow]:
    """Return the group without ranks that are late only because they wait for another one of it."""
    group = list(rows)
    if len(group) <= _MAX_RANKS_TO_SPARE:
        for row in reversed(rows):
            others = [other for other in group if other is not row]
            if others and model.estimate_saving_ns(_ranks(others)) >= enough_ns:
                group = others
    return group


def find_ranks_late_once(
    after_first: Mapping[int, Mapping[int, float]], steps: Sequence[StepRow], step_ns: float
) -> list[StragglerRow]:
    """Return ranks that were late in a single step, by so much that all steps together took longer; never all of them.

    Args:
        after_first: by rank and step, the maximum delay of its collectives after the first rank's, in ns.
        steps: the recorded steps.
        step_ns: the duration of a step.
    """
    num_steps = len({row.step for row in steps})
    found = []
    for rank, by_step in after_first.items():
        step = max(by_step, key=lambda one: by_step[one])
        others = max((ns for other, ns in by_step.items() if other != step), default=0.0)
        is_large = by_step[step] >= max(_MIN_TIMES_NEXT * others, MIN_ONCE_SHARE * num_steps * step_ns)
        if is_large and num_steps >= _MIN_STEPS:
            cause = _cause(rank, step, by_step, steps)
            cost_ns = round(by_step[step] / num_steps)
            found.append(
                StragglerRow(rank=rank, cost_ns_per_step=cost_ns, steps=(step,), cause=cause, period=None, evidence=())
            )
    return sorted(found, key=lambda row: (-row.cost_ns_per_step, row.rank))[
        : min(_MAX_LATE_ONCE, max(0, len(after_first) - 1))
    ]


def _cause(rank: int, step: int, late_ns: Mapping[int, float], steps: Iterable[StepRow]) -> str:
    """Return the cause of the lateness of a rank in a step, by the times that took it longer than the others."""
    rows: defaultdict[int | None, dict[int, StepRow]] = defaultdict(dict)
    for row in steps:
        rows[row.rank][row.step] = row
    own = rows.pop(rank, {})
    if step not in own or not rows:
        return "unknown"
    for steps_of_it in ([step], find_steps_before_lateness([step], own, late_ns)):
        for cause, columns in _CAUSES.items():
            if (longer_ns(steps_of_it, own, [*rows.values()], columns) or 0) * len(steps_of_it) > late_ns[step] / 2:
                return cause
    return "unknown"


def _ranks(rows: Sequence[StragglerRow]) -> frozenset[int]:
    return frozenset(row.rank for row in rows)
