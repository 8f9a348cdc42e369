"""A recorded run as its evidence uses it: rows, windows and replays, averaged over the ranks that are not late."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from kinetoscope.analysis.cpu.operators import OperatorRow
from kinetoscope.analysis.findings.evidence.stalls import Stalls, StallTable
from kinetoscope.analysis.findings.evidence.window import WindowEvidence
from kinetoscope.analysis.findings.savings import SavingEstimator
from kinetoscope.analysis.gpu.kernels import KernelRow
from kinetoscope.analysis.memory.memory import MemoryRow
from kinetoscope.analysis.ranks.collectives import CollectiveRow
from kinetoscope.analysis.ranks.ranks import RankRow
from kinetoscope.analysis.ranks.stragglers import StragglerRow
from kinetoscope.analysis.replay.replay import is_of_ranks
from kinetoscope.analysis.steps.steps import StepRow
from kinetoscope.analysis.steps.time_breakdown import StepBreakdown


@dataclass(frozen=True, kw_only=True)
class RunRows:
    """The rows of a run, as reports have them; ``ranks`` are the numbers of the recorded ones."""

    ranks: Sequence[int]
    world_size: int | None
    num_steps: int
    step_ns: float
    parts: StepBreakdown | None
    by_rank: Sequence[RankRow]
    steps: Sequence[StepRow]
    collectives: Sequence[CollectiveRow]
    stragglers: Sequence[StragglerRow]
    operators: Sequence[OperatorRow]
    kernels: Sequence[KernelRow]
    memory: Sequence[MemoryRow]


class Recording:
    """A recorded run. Averages leave out the ``late_ranks``; ``steps`` and ``windows`` are of the other ranks."""

    def __init__(
        self,
        rows: RunRows,
        savings: SavingEstimator,
        all_windows: Sequence[WindowEvidence],
        late_ranks: frozenset[int],
    ) -> None:
        self.rows, self.savings, self.all_windows, self.late_ranks = rows, savings, all_windows, late_ranks
        self.steps = [row for row in rows.steps if row.rank not in late_ranks]
        self.windows = [one for one in all_windows if one.rank not in late_ranks]
        self.num_rank_steps = max(1, len(self.steps))

    def mean_ns(self, column: str) -> float:
        """Return the mean of a column of steps; 0 where it is unknown."""
        values = [value for row in self.steps if (value := getattr(row, column)) is not None]
        return sum(values) / max(1, len(values))

    def mean_of_ranks_ns(self, column: str) -> float:
        """Return the mean of a column of ranks per step; where a rank has several devices, that of these."""
        rows = [row for row in self.rows.by_rank if row.rank not in self.late_ranks and row.num_steps]
        values = [(getattr(row, column) or 0) / row.num_steps for row in rows]
        return sum(values) / max(1, len(values))

    @cached_property
    def edges(self) -> pl.DataFrame:
        """The edges of the replay."""
        return self.savings.graph.edges.filter(~is_of_ranks(self.late_ranks))

    def stalls(self, kind: str) -> Stalls:
        """Return the stalls of one kind."""
        return self._stalls.of_kind(kind)

    @cached_property
    def _stalls(self) -> StallTable:
        return StallTable(self.windows, len(self.steps), self.rows.num_steps)
