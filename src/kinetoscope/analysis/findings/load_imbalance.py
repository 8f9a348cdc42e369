"""Load imbalance: ranks that alternately wait for each other because of unequal batches or experts."""

from collections.abc import Collection
from dataclasses import dataclass

from kinetoscope.analysis.findings.savings import SavingEstimator
from kinetoscope.analysis.findings.straggler_causes import FindLateRanks
from kinetoscope.analysis.findings.straggler_groups import MIN_LATE_SHARE
from kinetoscope.analysis.replay.load_balancing import alternating_excess_ns, has_uneven_steps, loads
from kinetoscope.analysis.replay.replay import Change


@dataclass(frozen=True)
class LoadImbalance:
    """Ranks with uneven loads.

    Attributes:
        ranks: all ranks that alternate.
        in_time: late ranks that are in time with even loads.
    """

    ranks: frozenset[int] = frozenset()
    in_time: frozenset[int] = frozenset()

    @property
    def change(self) -> Change:
        """The replay in which these ranks have even loads."""
        return Change(balanced=self.ranks)


def find_load_imbalance(
    savings: SavingEstimator,
    ranks: Collection[int],
    late: frozenset[int],
    late_with: FindLateRanks,
    step_ns: float,
) -> LoadImbalance:
    """Return the ranks with uneven loads: nearly all exceed the mean at some time, and even loads save enough."""
    graph = savings.graph
    rows = graph.as_recorded.load_rows(ranks)
    if not len(graph.as_recorded.exchanges) and not has_uneven_steps(rows):
        return LoadImbalance()
    of_ranks = loads(rows)
    if savings.saving_per_step_ns(alternating_excess_ns(of_ranks, ranks)) < MIN_LATE_SHARE * step_ns:
        return LoadImbalance()
    found = LoadImbalance(frozenset(ranks))
    if savings.saving_per_step_ns(graph.saved_ns(found.change)) < MIN_LATE_SHARE * step_ns:
        return LoadImbalance()
    return LoadImbalance(found.ranks, late - frozenset(late_with(graph.as_recorded, found.change)))
