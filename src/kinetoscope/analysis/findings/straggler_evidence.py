"""Stragglers of a run: ranks that are late together, or once, and those that other findings explain."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from kinetoscope.analysis.findings.evidence.recording import RunRows
from kinetoscope.analysis.findings.evidence.window import WindowEvidence
from kinetoscope.analysis.findings.lateness_models import RecordedLateness, ReplayedLateness
from kinetoscope.analysis.findings.load_imbalance import LoadImbalance, find_load_imbalance
from kinetoscope.analysis.findings.savings import SavingEstimator
from kinetoscope.analysis.findings.straggler_causes import StragglerCauses, find_straggler_causes
from kinetoscope.analysis.findings.straggler_groups import find_straggler_group
from kinetoscope.analysis.ranks.stragglers import StragglerCandidates, StragglerRow
from kinetoscope.analysis.replay.replay import Change

_MIN_TIMES_ON_TIME = 1.5
"""All loaders are slow if a run without waits for data saves so many times as much as one with late ranks on time: with
a single slow loader both save as much."""


@dataclass(frozen=True)
class StragglerEvidence:
    """The stragglers of a run, and the late ranks that another finding explains."""

    together: list[StragglerRow] = field(default_factory=list)
    """Ranks that delay the others together."""
    once: list[StragglerRow] = field(default_factory=list)
    """Ranks that delay the others in a single step."""
    proven: StragglerCauses = field(default_factory=StragglerCauses)
    """Ranks that are late for a cause that spans prove."""
    uneven: LoadImbalance = field(default_factory=LoadImbalance)
    """Ranks that alternate because of uneven loads."""
    loaders: frozenset[int] = frozenset()
    """Ranks that are late because the loaders of all are slow."""
    baseline_rank: int | None = None
    """The least late rank where all are late: averages are of this rank."""

    @property
    def ranks(self) -> frozenset[int]:
        """The late ranks that averages leave out."""
        return frozenset(row.rank for row in (*self.together, *self.once)) - {self.baseline_rank}

    @property
    def explained_ranks(self) -> frozenset[int]:
        """The late ranks that another finding explains."""
        return self.proven.ranks | self.uneven.in_time | self.loaders


def find_straggler_evidence(
    rows: RunRows, savings: SavingEstimator, windows: Sequence[WindowEvidence], candidates: StragglerCandidates
) -> StragglerEvidence:
    """Return the stragglers of a run, of ``candidates`` and of ranks that hide behind them."""
    return _Finder(rows, savings, windows, candidates).find()


class _Finder:
    def __init__(
        self,
        rows: RunRows,
        savings: SavingEstimator,
        windows: Sequence[WindowEvidence],
        candidates: StragglerCandidates,
    ) -> None:
        self._rows, self._savings, self._windows = rows, savings, windows
        is_replayed = savings.is_trusted and not candidates.phases
        self._replayed = ReplayedLateness(rows, savings, candidates) if is_replayed else None
        self._model = self._replayed or RecordedLateness(rows, candidates)

    def find(self) -> StragglerEvidence:
        if not self._rows.num_steps:
            return StragglerEvidence()
        together = find_straggler_group(self._model, self._rows.ranks, self._rows.step_ns)
        once = self._model.find_late_once(frozenset(row.rank for row in together))
        if self._replayed is None:
            return StragglerEvidence(together, once, baseline_rank=self._find_baseline_rank(together, once))
        uneven = self._uneven(self._replayed)
        loaders = self._find_slow_loaders(self._replayed, [*together, *once, *self._rows.stragglers])
        late = frozenset(row.rank for row in (*together, *once)) - uneven.in_time - loaders
        found = StragglerEvidence([], [], self._proven(self._replayed, late, uneven), uneven, loaders)
        together, once = ([row for row in rows if row.rank not in found.explained_ranks] for rows in (together, once))
        return replace(found, together=together, once=once, baseline_rank=self._find_baseline_rank(together, once))

    def _find_baseline_rank(self, *groups: list[StragglerRow]) -> int | None:
        """Return the least late rank if all are late: one has to wait."""
        rows = [row for group in groups for row in group]
        if not rows or not {row.rank for row in rows} >= {*self._rows.ranks}:
            return None
        return min(reversed(rows), key=lambda row: row.cost_ns_per_step).rank

    def _proven(self, replayed: ReplayedLateness, late: frozenset[int], uneven: LoadImbalance) -> StragglerCauses:
        """Return which of the late ranks spans explain."""
        if not late:
            return StragglerCauses()
        stalls = pl.concat([one.stalls.with_columns(rank=pl.lit(one.rank, pl.Int64)) for one in self._windows])
        waited_for = self._waited_for - uneven.in_time
        return find_straggler_causes(
            self._savings, stalls, late, waited_for, replayed.find_late_with, self._rows.step_ns
        )

    def _uneven(self, replayed: ReplayedLateness) -> LoadImbalance:
        """Return the ranks that are alternately late because of uneven loads."""
        if not self._waited_for:
            return LoadImbalance()
        return find_load_imbalance(
            self._savings, self._rows.ranks, self._waited_for, replayed.find_late_with, self._rows.step_ns
        )

    def _find_slow_loaders(self, replayed: ReplayedLateness, rows: Sequence[StragglerRow]) -> frozenset[int]:
        """Return the ranks that are late because of their loaders, where those of the others are slow, too.

        The run then saves much more without all waits for data than with these ranks on time.
        """
        costs = {row.rank: row.cost_ns_per_step for row in rows if row.cause == "data"}
        late = frozenset(costs)
        if late and late >= {*self._rows.ranks}:
            late -= {min(late, key=lambda rank: costs[rank])}  # one rank has to wait
        if not late:
            return frozenset()
        waits = replayed.graph.only_waits_for_batches()
        change = Change(frozenset(["data"]))
        if waits.saving_ns(change) < _MIN_TIMES_ON_TIME * replayed.graph.saved_ns(Change(on_time=late)):
            return frozenset()
        return frozenset(costs) - frozenset(replayed.find_late_with(waits, change))

    @property
    def _waited_for(self) -> frozenset[int]:
        return frozenset(row.rank for row in self._rows.stragglers)
