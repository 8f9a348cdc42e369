"""analysis: which of the late ranks hold the run up together. A replay without a few of them gains nothing."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from kinetoscope.analysis.steps import StepRow
from kinetoscope.analysis.stragglers import COLUMNS_OF_CAUSES, StragglerRow, longer_ns, steps_until_late

LATE_SHARE = 0.03
"""Late ranks are left out of all other findings if the others would save this part of a step without them."""

_MOST_OF_SAVING = 0.9
"""The group is the smallest that saves so much of what all late ranks on time would save."""

_AS_LATE = 0.25
"""Of ranks that wait for their loaders in turns, those count that are so late beside the latest."""

_LEAST_AS_LATE = 0.1
"""Who is late by less than this part of the latest is not told beside those who save `_MUCH_OF_SAVING` without it: each
rank is late by a little now and then."""

_MUCH_OF_SAVING = 2 / 3

_SAME_STEPS = 2 / 3
"""Ranks are late in the same steps if each is late in more than this part of those in which any is."""

_MOST_SPARED = 8
"""In a group of at most so many ranks, each is tried without; larger ones are nodes, not chance."""

_MOST_ROUNDS = 3
"""So many times it is asked who would be late if those found so far were not."""

ONCE_SHARE = 0.05
"""A rank that was late in a single step is told if that costs this part of all steps."""

_FEWEST_TO_COMPARE = 4
_TIMES_USUAL = 4
"""It was late in a single step if it was so many times as late as in any other."""

_MOST_ONCE = 3

_CAUSES = {
    "data": COLUMNS_OF_CAUSES["data"],
    "device": COLUMNS_OF_CAUSES["device"],
    "processor": ("starved_ns",),
    "host": COLUMNS_OF_CAUSES["host"],
}
"""The columns of steps that show a cause. The host comes last: a loop without a processor takes longer there, too."""

Later = Callable[[frozenset[int]], list[StragglerRow]]
"""Who would be late if some ranks were on time, the latest first."""

Saved = Callable[[frozenset[int]], float]
"""What a step saves if nobody waits for some ranks."""


def group_by_replay(
    candidates: Sequence[StragglerRow], later: Later, all_ranks: Collection[int], saved: Saved, step_ns: float
) -> list[StragglerRow]:
    """The late ranks that matter, of ``candidates``, the latest first, and of those that hide behind them; none where
    nobody would save much, and where it is the loaders of all that are slow.

    Of ranks that are all late, the least late one stays: somebody has to wait.
    """
    rows = list(candidates)
    for _ in range(_MOST_ROUNDS if rows else 0):
        if len(rows) >= len(all_ranks) - 1 or not (more := later(_ranks(rows))):
            break
        rows += more
    if _are_all_loaders(_as_late(rows, _AS_LATE), all_ranks):
        return []
    if rows and {row.rank for row in rows} >= set(all_ranks):
        rows.pop()
    all_save = saved(_ranks(rows)) if rows else 0.0
    latest = _as_late(rows, _LEAST_AS_LATE)
    if len(latest) < len(rows) and (they_save := saved(_ranks(latest))) >= _MUCH_OF_SAVING * all_save:
        rows, all_save = latest, they_save
    if not rows or all_save < LATE_SHARE * step_ns:
        return []
    enough = _MOST_OF_SAVING * all_save
    fewest, most = 1, len(rows)
    while fewest < most:
        middle = (fewest + most) // 2
        if saved(_ranks(rows[:middle])) >= enough:
            most = middle
        else:
            fewest = middle + 1
    group = _spared(rows[:most], saved, enough)
    return [] if _are_all_loaders(group, all_ranks) else group


def _as_late(rows: Sequence[StragglerRow], share: float) -> list[StragglerRow]:
    """Those that are late by this part of the latest at least."""
    return [row for row in rows if row.cost_ns_per_step >= share * rows[0].cost_ns_per_step]


def are_late_together(rows: Sequence[StragglerRow]) -> bool:
    """Whether each of them is late in most of the steps in which any is; else they are late in turns."""
    steps = {step for row in rows for step in row.steps}
    return all(2 * len(steps & {*row.steps}) > len(steps) for row in rows)


def _are_all_loaders(rows: Sequence[StragglerRow], all_ranks: Collection[int]) -> bool:
    """Return whether half of the ranks wait for data, and not in the same steps: then loaders are slow everywhere, in
    some steps a little more so on one rank and in some on another."""
    waiting = [row for row in rows if row.cause == "data"]
    if len(waiting) < 2 or 2 * len(waiting) < len(all_ranks) or 2 * len(waiting) <= len(rows):
        return False
    steps = {step for row in waiting for step in row.steps}
    return not all(len(row.steps) > _SAME_STEPS * len(steps) for row in waiting)


def _spared(rows: Sequence[StragglerRow], saved: Saved, enough: float) -> list[StragglerRow]:
    """The group without ranks that are late only since they wait for another one of it."""
    group = list(rows)
    if len(group) <= _MOST_SPARED:
        for row in reversed(rows):
            others = [other for other in group if other is not row]
            if others and saved(_ranks(others)) >= enough:
                group = others
    return group


def group_by_rows(rows: Sequence[StragglerRow], all_ranks: Collection[int], step_ns: float) -> list[StragglerRow]:
    """The same where no replay is trusted: those that the others are seen to wait for that much."""
    costly = [row for row in rows if row.cost_ns_per_step >= LATE_SHARE * step_ns]
    costly = _as_late(costly, _LEAST_AS_LATE)
    if _are_all_loaders(costly, all_ranks):
        return []
    return costly[:-1] if {row.rank for row in costly} >= set(all_ranks) else costly


def late_once(
    after_first: Mapping[int, Mapping[int, float]], steps: Sequence[StepRow], step_ns: float
) -> list[StragglerRow]:
    """The ranks that were late in a single step, by so much that all steps together took longer for it; the latest
    first, and never all. ``after_first`` is the most by which each rank, in each step, began a collective after the
    first of its ranks."""
    num_steps = len({row.step for row in steps})
    found = []
    for rank, by_step in after_first.items():
        step = max(by_step, key=lambda one: by_step[one])
        others = max((ns for other, ns in by_step.items() if other != step), default=0.0)
        is_much = by_step[step] >= max(_TIMES_USUAL * others, ONCE_SHARE * num_steps * step_ns)
        if is_much and num_steps >= _FEWEST_TO_COMPARE:
            cause = _cause(rank, step, by_step, steps)
            cost_ns = round(by_step[step] / num_steps)
            found.append(
                StragglerRow(rank=rank, cost_ns_per_step=cost_ns, steps=(step,), cause=cause, period=None, evidence=())
            )
    return sorted(found, key=lambda row: (-row.cost_ns_per_step, row.rank))[
        : min(_MOST_ONCE, max(0, len(after_first) - 1))
    ]


def _cause(rank: int, step: int, late_ns: Mapping[int, float], steps: Iterable[StepRow]) -> str:
    """Return the cause that took a rank longer than the others until its calls of a step. ``late_ns`` is by step."""
    rows: defaultdict[int | None, dict[int, StepRow]] = defaultdict(dict)
    for row in steps:
        rows[row.rank][row.step] = row
    own = rows.pop(rank, {})
    if step not in own or not rows:
        return "unknown"
    for steps_of_it in ([step], steps_until_late([step], own, late_ns)):
        for cause, columns in _CAUSES.items():
            if (longer_ns(steps_of_it, own, [*rows.values()], columns) or 0) * len(steps_of_it) > late_ns[step] / 2:
                return cause
    return "unknown"


def _ranks(rows: Sequence[StragglerRow]) -> frozenset[int]:
    return frozenset(row.rank for row in rows)
