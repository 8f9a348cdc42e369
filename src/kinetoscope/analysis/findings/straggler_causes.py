"""Causes of lateness that recorded spans prove: GC pauses, blocking calls and compilations of some ranks."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

import polars as pl

from kinetoscope.analysis.findings.finding import Where
from kinetoscope.analysis.findings.savings import SavingEstimator
from kinetoscope.analysis.findings.straggler_groups import MIN_LATE_SHARE
from kinetoscope.analysis.replay.replay import Change, ReplayGraph

PARTS_OF_KINDS = {"garbage_collection": "gc", "blocked": "blocked", "recompilation": "compile"}
"""Parts of a replay by the kind of finding on their spans, which prove why a rank was late."""

_MIN_SHARE_OF_SAVING = 0.8
"""A part explains late ranks if a run without it saves this share of what it saves with these ranks on time."""

_MIN_UNEVEN_SHARE = 0.5
"""A part makes ranks late if it differs between them by this share of its saving. Compilations of all ranks in the same
steps make no rank late."""

_MIN_SHARE_OF_LONGEST = 0.25
"""A rank has a part if its time is this share of that on the rank with most of it."""

FindLateRanks = Callable[[ReplayGraph, Change], Collection[int]]
"""Return the ranks that are late in a replay with a change."""


@dataclass(frozen=True)
class StragglerCauses:
    """The late ``ranks`` that are explained, and by kind of finding the ranks that have its part."""

    ranks: frozenset[int] = frozenset()
    by_kind: dict[str, frozenset[int]] = field(default_factory=dict)

    def add_ranks(self, kind: str, where: Where, all_ranks: Collection[int]) -> Where:
        """Add the ranks that have a fault, if spans prove that only some have it, and are late for that."""
        ranks = self.by_kind.get(kind, frozenset())
        is_everywhere = ranks >= {*all_ranks}
        return where if where.ranks or is_everywhere else replace(where, ranks=tuple(sorted(ranks)))


def find_straggler_causes(
    savings: SavingEstimator,
    stalls: pl.DataFrame,
    late: frozenset[int],
    waited_for: frozenset[int],
    late_with: FindLateRanks,
    step_ns: float,
) -> StragglerCauses:
    """Return the ``late`` ranks that are in time in a replay without a part that spans prove, and the ranks with it.

    Others of those ``waited_for`` may be in time then, too. That part is the finding then, with the saving of all
    ranks together. ``stalls`` have the ``rank`` of each.
    """
    graph, saving_per_step_ns = savings.graph, savings.saving_per_step_ns
    explained, by_kind = frozenset[int](), dict[str, frozenset[int]]()
    for kind, part in PARTS_OF_KINDS.items():
        change = Change(frozenset([part]))
        remaining = late - explained
        uneven_ns = _uneven_ns(stalls.filter(kind=part), graph.as_recorded.nodes["rank"].drop_nulls().n_unique())
        if not remaining or saving_per_step_ns(uneven_ns) < MIN_LATE_SHARE * step_ns:
            continue
        saved_ns = graph.saved_ns(change)
        if saving_per_step_ns(saved_ns) < MIN_LATE_SHARE * step_ns or uneven_ns < _MIN_UNEVEN_SHARE * saved_ns:
            continue
        still_late = frozenset(late_with(graph.as_recorded, change))
        in_time = remaining - still_late
        on_time_ns = graph.saved_ns(Change(on_time=in_time)) if in_time else 0
        if in_time and saved_ns >= _MIN_SHARE_OF_SAVING * on_time_ns:
            explained |= in_time | (waited_for - still_late)
            by_kind[kind] = _find_ranks_with(graph.as_recorded, part)
    return StragglerCauses(explained, by_kind)


def _uneven_ns(stalls: pl.DataFrame, num_ranks: int) -> float:
    """Return the excess of the rank with most of a part over the mean of the others, summed over steps."""
    by_rank = stalls.drop_nulls("step").group_by("step", "rank").agg(pl.col("total_ns").sum())
    total, largest = pl.col("total_ns").sum(), pl.col("total_ns").max()
    uneven = by_rank.group_by("step").agg(uneven=largest - (total - largest) / max(1, num_ranks - 1))
    return float(uneven["uneven"].sum())


def _find_ranks_with(graph: ReplayGraph, part: str) -> frozenset[int]:
    takes = graph.edges.drop_nulls("rank").group_by("rank").agg(pl.col(part).sum())
    is_large = pl.col(part) >= _MIN_SHARE_OF_LONGEST * pl.col(part).max()
    return frozenset(takes.filter(is_large)["rank"].to_list())
