"""Batches of a loader's workers that came late, and the earlier moments that they depend on."""

from functools import cached_property
from typing import Any

import polars as pl

from kinetoscope.analysis.cpu.loop import TrainingLoop
from kinetoscope.analysis.cpu.sampled_lines import find_worker_batches
from kinetoscope.analysis.windows.columns import filter_rows, sort_rows
from kinetoscope.analysis.windows.intervals import IntervalUnion
from kinetoscope.analysis.windows.span_names import FETCH_FROM_WORKERS

_MIN_LATE_SHARE = 0.02
"""A fetch has waited for its workers if it took longer than the shortest one by this share of a step."""

_MIN_ALWAYS_LATE_SHARE = 0.1
"""If even the shortest fetch took this share of a step, all may have waited for their workers."""

_MAX_COST_NS = 500_000
"""Maximum time to fetch a batch that is ready: some tenths of a millisecond, and more on busy cores."""

_MIN_SHORTENING_SHARE = 0.5
"""Fetches wait if they get shorter by this share of the additional time of the loop before them: a constant cost does
not."""

_MIN_CORRELATION = 0.7
_MIN_CORRELATED = 8
"""This number of unrelated durations has this correlation in 1 of 40 recordings."""

_MIN_BUSY_SHARE = 0.95
"""Workers that build batches for this share of the time have no slack, whatever the loop does."""

_MAX_FETCHES_BETWEEN = 4
"""With at most so many fetches between two late ones, the workers had no idle time in between."""

_DEFAULT_PREFETCH_FACTOR = 2
"""Batches that each worker prefetches, if no other prefetch_factor was recorded."""

_DEFAULT_WORKERS = 4
"""Workers that a loader is assumed to have if its trace does not contain the number."""


class DelayedBatches:
    """The fetches of a loop that waited for workers, which build batches ahead of it.

    Args:
        loop: the training loop.
        pace: the time of its steps, divided by that of its CPU, which may run ahead of its device.
    """

    def __init__(self, loop: TrainingLoop, pace: float = 1.0) -> None:
        self.pace, self._loop = pace, loop

    @cached_property
    def fetches(self) -> pl.DataFrame:
        """Fetches that waited: ``track``, ``begin``, ``end``, ``no_wait_ns`` and ``since``.

        ``no_wait_ns`` is the time of a fetch without a wait. ``since`` is a moment after which the batch would be as
        late again: the loop got the late batch just before, or the batch whose worker built this one next. If this
        batch was requested before that, it is the first moment of the loop's thread.
        """
        late = self._late
        before = pl.when(pl.col("row").diff() <= _MAX_FETCHES_BETWEEN).then(pl.col("end").shift(1))
        return late.with_columns(since=pl.coalesce(before, "requested"))

    @cached_property
    def _late(self) -> pl.DataFrame:
        fetches = self.of_workers
        taken: Any = fetches["end"] - fetches["begin"]
        min_late_ns = int(_MIN_LATE_SHARE * self._step_ns)
        no_wait_ns = min_late_ns if self._have_all_waited else int(taken.min() or 0)
        of_each = self._loop.loader.settings.get("prefetch_factor")
        of_each = of_each if isinstance(of_each, int) and of_each > 0 else _DEFAULT_PREFETCH_FACTOR
        num_ahead = of_each * (self._loop.loader.num_workers or _DEFAULT_WORKERS)
        rows = fetches.select(
            "track",
            "begin",
            "end",
            row=pl.int_range(pl.len(), dtype=pl.Int64),
            no_wait_ns=pl.lit(no_wait_ns, pl.Int64),
            requested=pl.col("end").shift(num_ahead),
        )
        return filter_rows(rows, (taken - no_wait_ns > min_late_ns) & (len(fetches) > 1))

    @cached_property
    def _step_ns(self) -> float:
        """The part of a step per fetched batch, on average, without evaluations; 0 if unknown."""
        if len(self.of_workers) < 2:
            return 0.0
        first, last = self.of_workers["begin"][:1], self.of_workers["begin"][-1:]
        host_ns = (last - first - self._loop.loader.evaluating.overlap_ns(first, last))[0]
        return host_ns / (len(self.of_workers) - 1) * self.pace

    @property
    def _have_all_waited(self) -> bool:
        """True if even the shortest fetch took longer than that of a batch that is ready."""
        min_ns: Any = (self.of_workers["end"] - self.of_workers["begin"]).min() or 0
        if min_ns <= _MIN_ALWAYS_LATE_SHARE * self._step_ns:
            return False
        return min_ns > _MAX_COST_NS or self._gets_shorter or self._are_workers_busy

    @property
    def _gets_shorter(self) -> bool:
        """True if fetches get shorter when the loop takes longer before them."""
        begins, ends = self.of_workers["begin"], self.of_workers["end"]
        both = pl.DataFrame({"taken": ends - begins, "before": begins - ends.shift(1)})[1:]
        slope = pl.cov("before", "taken") / pl.col("before").var()
        correlation, slope = both.select(correlation=pl.corr("before", "taken"), slope=slope).row(0)
        if len(both) < _MIN_CORRELATED or correlation is None or slope is None:
            return False
        return correlation <= -_MIN_CORRELATION and slope <= -_MIN_SHORTENING_SHARE

    @property
    def _are_workers_busy(self) -> bool:
        """True if samples show that all workers are always building batches."""
        making, interval_ns = find_worker_batches(self._loop.window)
        if not len(making):
            return False
        since, until = self.of_workers["begin"][:1], self.of_workers["end"][-1:]
        workers = making.with_columns(pl.col("end") + round(interval_ns)).partition_by("worker")
        busy_ns = min(IntervalUnion(of_worker).overlap_ns(since, until)[0] for of_worker in workers)
        return busy_ns >= _MIN_BUSY_SHARE * (until - since)[0]

    @cached_property
    def has_workers(self) -> bool:
        """True if the trace shows that the loader has workers."""
        return bool(self._loop.loader.num_workers) or self.of_workers["name"].str.contains(FETCH_FROM_WORKERS).any()

    @cached_property
    def of_workers(self) -> pl.DataFrame:
        """The fetches that may wait for workers; all of them where torch did not record the loader."""
        fetches = sort_rows(self._loop.loader.fetches, "begin")
        if self._loop.loader.num_workers == 0:
            return fetches.clear()
        of_workers = filter_rows(fetches, fetches["name"].str.contains(FETCH_FROM_WORKERS))
        return of_workers if len(of_workers) else fetches
