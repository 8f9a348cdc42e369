"""Ranks that wait for each other in turns since they have unequal amounts to compute: batches, or experts."""

from collections.abc import Collection
from dataclasses import dataclass

from kinetoscope.analysis.findings.late_group import LATE_SHARE
from kinetoscope.analysis.findings.proven_causes import LateRanksOf
from kinetoscope.analysis.findings.savings import SavingEstimator
from kinetoscope.analysis.replay.even_loads import excess_in_turns_ns, lasts_whole_steps, loads
from kinetoscope.analysis.replay.replay import Change


@dataclass(frozen=True)
class UnevenLoads:
    """Ranks with uneven loads: all ``ranks`` that alternate, and those late ranks that are ``in_time`` with even
    loads."""

    ranks: frozenset[int] = frozenset()
    in_time: frozenset[int] = frozenset()

    @property
    def change(self) -> Change:
        """The replay in which these ranks have even loads."""
        return Change(even=self.ranks)


def find_uneven_loads(
    savings: SavingEstimator,
    ranks: Collection[int],
    late: frozenset[int],
    late_with: LateRanksOf,
    step_ns: float,
) -> UnevenLoads:
    """Return the ranks with uneven loads: nearly all have more than the mean in turns, and even loads gain enough."""
    graph = savings.graph
    rows = graph.as_recorded.load_rows(ranks)
    if not len(graph.as_recorded.exchanges) and not lasts_whole_steps(rows):
        return UnevenLoads()
    of_ranks = loads(rows)
    if savings.gained_ns(excess_in_turns_ns(of_ranks, ranks)) < LATE_SHARE * step_ns:
        return UnevenLoads()
    found = UnevenLoads(frozenset(ranks))
    if savings.gained_ns(graph.saved_ns(found.change)) < LATE_SHARE * step_ns:
        return UnevenLoads()
    return UnevenLoads(found.ranks, late - frozenset(late_with(graph.as_recorded, found.change)))
