"""Recorded windows of each rank on the common clock, the required ranks first."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from kinetoscope.analysis.ranks.clock_alignment import TimeShift, shifts_to_rank_0
from kinetoscope.analysis.run_report import RunReport
from kinetoscope.analysis.summaries import read_end_of_recording, starts_of_last_seconds
from kinetoscope.formats.header import rank_in_name
from kinetoscope.frames.load import load_one
from kinetoscope.frames.trace import Trace

Source = str | Trace

_MAX_NAMED_RANKS = 16


@dataclass(frozen=True)
class RankTrace:
    """Recording of one rank in one window. ``shifts`` move its times to the common clock, one after the other.

    ``is_required``: a finding names the rank, so it must be shown.
    """

    trace: Trace
    rank: int | None
    shifts: tuple[TimeShift, ...]
    is_required: bool

    def shift_to_common_clock(self, times: pl.DataFrame, column: str) -> pl.DataFrame:
        """Return the frame with a column of times on the common clock."""
        for shift in self.shifts:
            times = times.with_columns(shift.expression(column))
        return times


def find_required_ranks(report: RunReport) -> list[int]:
    """Return the first rank, and those that findings name."""
    named = [rank for finding in report.findings for rank in finding.where.ranks]
    return list(dict.fromkeys([*report.run["ranks"][:1], *named]))[:_MAX_NAMED_RANKS]


class RankTraces:
    """Iterable over the windows of the ranks of a report; a trace is read when it is reached.

    ``on_progress`` is called with the number of finished traces, and of all.
    """

    def __init__(
        self,
        report: RunReport,
        sources: Sequence[Source],
        *,
        cache: bool = True,
        last_s: float | None = None,
        on_progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        self._on_progress = on_progress
        self._report, self._sources, self._cache, self._last_s = report, sources, cache, last_s
        self._named = find_required_ranks(report)
        self._clocks_of_0: list[Any] = []

    def __iter__(self) -> Iterator[RankTrace]:
        by_rank: dict[int | None, list[Source]] = {}
        for source in self._sources:
            rank = source.rank if isinstance(source, Trace) else rank_in_name(source)
            by_rank.setdefault(rank, []).append(source)
        num_done = 0
        for rank in sorted(by_rank, key=self._build_sort_key):
            yield from self._read_rank(by_rank[rank])
            num_done += len(by_rank[rank])
            self._on_progress(num_done, len(self._sources))

    def _build_sort_key(self, rank: int | None) -> tuple[int, int]:
        """Return a sort key: rank 0, whose clock is the reference, and traces of several ranks, then required ranks."""
        is_first = rank is None or rank == 0
        return (0 if is_first else 1 if rank in self._named else 2, rank or 0)

    def _read_rank(self, sources: Sequence[Source]) -> Iterator[RankTrace]:
        """Yield the windows of one rank."""
        traces = [load_one(one, cache=self._cache) if isinstance(one, str) else one for one in sources]
        clocks = [(trace.rank, trace.clock) for trace in traces]
        self._clocks_of_0 += [clock for clock in clocks if clock[0] == 0]
        shifts = shifts_to_rank_0([*self._clocks_of_0, *clocks])[-len(traces) :]
        begins = [None] * len(traces)
        if self._last_s is not None:
            begins = starts_of_last_seconds([read_end_of_recording(trace) for trace in traces], self._last_s)
        for trace, shift, since_ns in zip(traces, shifts, begins, strict=True):
            yield from self._split_by_rank(trace if since_ns is None else trace.since(since_ns), shift)

    def _split_by_rank(self, trace: Trace, shift: TimeShift) -> Iterator[RankTrace]:
        """Yield the windows in a trace of the ranks of the report, the required ones first."""
        wanted = {None, *self._report.run["ranks"]}
        named = {None, *self._named}
        parts = [(part.rank not in named, part) for part in trace.parts if part.rank in wanted]
        for is_other, part in sorted(parts, key=lambda pair: pair[0]):
            joined = TimeShift.of(self._report.clock_shifts, part.rank)
            yield RankTrace(part, part.rank, (shift, joined), not is_other)
