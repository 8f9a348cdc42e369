"""analysis: batches of a loader's workers that came late, and what each of them came so long after."""

from functools import cached_property

import polars as pl

from kinetoscope.analysis.columns import rows_where, sorted_by
from kinetoscope.analysis.host_time import HostTime

_LATE_SHARE = 0.02
"""A fetch has waited for its workers if it took so much of a step longer than the shortest one."""

_ALWAYS_LATE_SHARE = 0.1
"""If even the shortest fetch took so much of a step, all have waited for their workers."""

_MOST_BETWEEN = 4
"""If no more fetches lie between two late ones, the workers had no time to rest in between."""

_AHEAD = 2
"""How many batches each worker makes ahead, if no other prefetch_factor was recorded."""

_OF_WORKERS = "MultiProcessing"

_USUAL_WORKERS = 4
"""How many workers a loader is taken to have if its trace does not say so."""


class LateBatches:
    """The fetches of a loop that waited for workers, which make batches ahead of it. Its steps take ``pace`` times as
    long as its host takes for them, which may be ahead of its device."""

    def __init__(self, host: HostTime, pace: float = 1.0) -> None:
        self._host, self._pace = host, pace

    @cached_property
    def fetches(self) -> pl.DataFrame:
        """Fetches that waited: ``track``, ``begin``, ``end``; ``own_ns``, what one takes that need not wait; and
        ``since``, a moment after which the batch would come so late again: where the loop got the late batch just
        before, where it got the batch whose worker made this one next, or the first moment of the loop's thread,
        because this batch was asked for before that."""
        late = self._late
        before = pl.when(pl.col("row").diff() <= _MOST_BETWEEN).then(pl.col("end").shift(1))
        return late.with_columns(since=pl.coalesce(before, "asked"))

    @cached_property
    def _late(self) -> pl.DataFrame:
        fetches, taken = self.of_workers, pl.col("end") - pl.col("begin")
        apart = pl.col("end").diff().median() * self._pace
        little = (_LATE_SHARE * apart).cast(pl.Int64)
        have_all_waited = taken.min() > _ALWAYS_LATE_SHARE * apart
        own_ns = pl.when(have_all_waited).then(little).otherwise(taken.min())
        of_each = self._host.loader.get("prefetch_factor")
        of_each = of_each if isinstance(of_each, int) and of_each > 0 else _AHEAD
        num_ahead = of_each * (self._host.num_workers or _USUAL_WORKERS)
        fetches = fetches.select(
            "track",
            "begin",
            "end",
            row=pl.int_range(pl.len(), dtype=pl.Int64),
            own_ns=own_ns,
            little=little,
            asked=pl.col("end").shift(num_ahead),
        )
        return fetches.filter(taken - pl.col("own_ns") > pl.col("little"))

    @property
    def has_workers(self) -> bool:
        """Whether the trace says that the loader has workers."""
        return bool(self._host.num_workers) or self.of_workers["name"].str.contains(_OF_WORKERS).any()

    @cached_property
    def of_workers(self) -> pl.DataFrame:
        """The fetches that may wait for workers; where torch did not record the loader, all of them."""
        fetches = sorted_by(self._host.fetches, "begin")
        if self._host.num_workers == 0:
            return fetches.clear()
        of_workers = rows_where(fetches, fetches["name"].str.contains(_OF_WORKERS))
        return of_workers if len(of_workers) else fetches
