"""Choice of the late ranks of a run: those late together, those late once, and those that spans explain."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from kinetoscope.analysis.findings.evidence.recording import RunRows
from kinetoscope.analysis.findings.evidence.window import WindowEvidence
from kinetoscope.analysis.findings.late_group import ONCE_SHARE, group_by_replay, group_by_rows, late_once
from kinetoscope.analysis.findings.proven_causes import ProvenCauses, find_proven_causes
from kinetoscope.analysis.findings.savings import SavingEstimator
from kinetoscope.analysis.findings.uneven_loads import UnevenLoads, find_uneven_loads
from kinetoscope.analysis.ranks.stragglers import LateRanks, StragglerRow, begins_after_first, later_ranks, waits_for
from kinetoscope.analysis.replay.replay import Change, ReplayGraph

_MIN_TIMES_ON_TIME = 1.5
"""All loaders are slow if a run without waits for data gains so many times as much as one with late ranks on time: with
a single slow loader both gain as much."""


@dataclass(frozen=True)
class Lateness:
    """The late ranks of a run, and those that another finding explains."""

    together: list[StragglerRow] = field(default_factory=list)
    """Ranks that delay the others together."""
    once: list[StragglerRow] = field(default_factory=list)
    """Ranks that did so in a single step."""
    proven: ProvenCauses = field(default_factory=ProvenCauses)
    """Ranks that are late for a cause that spans prove."""
    uneven: UnevenLoads = field(default_factory=UnevenLoads)
    """Ranks that alternate because of uneven loads."""
    loaders: frozenset[int] = frozenset()
    """Ranks that are late because the loaders of all are slow."""

    @property
    def explained_ranks(self) -> frozenset[int]:
        """The late ranks that another finding explains."""
        return self.proven.ranks | self.uneven.in_time | self.loaders


def find_late_ranks(
    rows: RunRows, savings: SavingEstimator, windows: Sequence[WindowEvidence], candidates: LateRanks
) -> Lateness:
    """Return the late ranks, of ``candidates``, and of those that hide behind them."""
    return _Finder(rows, savings, windows, candidates).find()


class _Finder:
    def __init__(
        self, rows: RunRows, savings: SavingEstimator, windows: Sequence[WindowEvidence], candidates: LateRanks
    ) -> None:
        self._rows, self._savings, self._windows, self._candidates = rows, savings, windows, candidates
        self._graph, self._is_replayed = savings.graph, savings.is_trusted and not candidates.phases

    def find(self) -> Lateness:
        together = self._together()
        once = self._once(frozenset(row.rank for row in together))
        uneven = self._uneven()
        loaders = self._with_slow_loaders([*together, *once, *self._rows.stragglers])
        late = frozenset(row.rank for row in (*together, *once)) - uneven.in_time - loaders
        found = Lateness([], [], self._proven(late, uneven), uneven, loaders)
        together, once = ([row for row in rows if row.rank not in found.explained_ranks] for rows in (together, once))
        late = frozenset(row.rank for row in (*together, *once))
        if late and late >= {*self._rows.ranks}:
            _spare_one(together, once)
        return replace(found, together=together, once=once)

    def _together(self) -> list[StragglerRow]:
        if not self._is_replayed or not self._rows.num_steps:
            return group_by_rows(self._rows.stragglers, self._rows.ranks, self._rows.step_ns)
        candidates = self._candidates.candidates
        return group_by_replay(candidates, self._later, self._rows.ranks, self._saved_on_time_ns, self._rows.step_ns)

    def _later(self, ranks: frozenset[int]) -> list[StragglerRow]:
        return self._later_with(self._graph.as_recorded, Change(on_time=ranks))

    def _later_with(self, graph: ReplayGraph, change: Change) -> list[StragglerRow]:
        return later_ranks(graph.begins_after_first(change), self._rows.steps)

    def _saved_on_time_ns(self, ranks: frozenset[int]) -> float:
        """Return what a step saves if the ranks had never been late: a few steps of a recording need not show it
        all."""
        return self._savings.gained_ns(self._graph.as_recorded.saving_if_never_late_ns(ranks))

    def _once(self, group: frozenset[int]) -> list[StragglerRow]:
        if not self._rows.num_steps:
            return []
        if self._is_replayed:
            return self._once_with(self._graph.as_recorded, Change(on_time=group))
        calls = self._candidates.calls
        rows = late_once(begins_after_first(calls), self._rows.steps, self._rows.step_ns)
        rows = [row for row in rows if row.rank not in group]
        waits_ns = [waits_for(calls, {row.rank}).get(row.steps[0], 0.0) / self._rows.num_steps for row in rows]
        waited_for = zip(rows, waits_ns, strict=True)
        return [
            replace(row, cost_ns_per_step=round(ns)) for row, ns in waited_for if ns >= ONCE_SHARE * self._rows.step_ns
        ]

    def _once_with(self, graph: ReplayGraph, change: Change) -> list[StragglerRow]:
        return late_once(graph.begins_after_first(change), self._rows.steps, self._rows.step_ns)

    def _proven(self, late: frozenset[int], uneven: UnevenLoads) -> ProvenCauses:
        """Return which of the late ranks spans explain; none where no replay is trusted."""
        if not late or not self._is_replayed:
            return ProvenCauses()
        stalls = pl.concat([one.stalls.with_columns(rank=pl.lit(one.rank, pl.Int64)) for one in self._windows])
        waited_for = self._waited_for - uneven.in_time
        return find_proven_causes(self._savings, stalls, late, waited_for, self._late_with, self._rows.step_ns)

    def _uneven(self) -> UnevenLoads:
        """Return the ranks that are late in turns for uneven loads; none where no replay is trusted."""
        if not self._waited_for or not self._is_replayed:
            return UnevenLoads()
        return find_uneven_loads(self._savings, self._rows.ranks, self._waited_for, self._late_with, self._rows.step_ns)

    def _with_slow_loaders(self, rows: Sequence[StragglerRow]) -> frozenset[int]:
        """Return the ranks that are late for their loaders, where those of the others are slow, too: the run gains much
        more without all waits for data than with these ranks on time."""
        costs = {row.rank: row.cost_ns_per_step for row in rows if row.cause == "data"}
        late = frozenset(costs)
        if late and late >= {*self._rows.ranks}:
            late -= {min(late, key=lambda rank: costs[rank])}  # one rank has to wait
        if not late or not self._is_replayed:
            return frozenset()
        waits = self._graph.only_waits_for_batches()
        change = Change(frozenset(["data"]))
        if waits.saving_ns(change) < _MIN_TIMES_ON_TIME * self._graph.saved_ns(Change(on_time=late)):
            return frozenset()
        return frozenset(costs) - frozenset(self._late_with(waits, change))

    @property
    def _waited_for(self) -> frozenset[int]:
        return frozenset(row.rank for row in self._rows.stragglers)

    def _late_with(self, graph: ReplayGraph, change: Change) -> set[int]:
        return {row.rank for row in (*self._later_with(graph, change), *self._once_with(graph, change))}


def _spare_one(*groups: list[StragglerRow]) -> None:
    """Remove the rank that is late by least: one rank has to wait."""
    rows, least = min(
        reversed([(rows, row) for rows in groups for row in rows]), key=lambda one: one[1].cost_ns_per_step
    )
    rows.remove(least)
