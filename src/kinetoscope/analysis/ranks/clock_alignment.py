"""Alignment of the clocks of all ranks to that of rank 0, by measured offsets and by collectives."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import polars as pl

from kinetoscope.analysis.ranks.collectives import MOMENTS, ClockShift, find_collective_calls, join_collectives
from kinetoscope.analysis.ranks.ranks import RankRow
from kinetoscope.analysis.ranks.stragglers import MIN_CLOCK_BOUNDS
from kinetoscope.analysis.windows.window_reader import read_windows
from kinetoscope.core.clock.file_clock import DriftCorrection, FileClock
from kinetoscope.core.text.wording import format_duration, format_ranks
from kinetoscope.errors import KinetoscopeError
from kinetoscope.frames.load import load_one

_MIN_REPORTED_SHIFT_NS = 1_000_000
"""Clocks that agree within a millisecond are as good as NTP keeps them in a network."""


@dataclass(frozen=True)
class TimeShift:
    """Shift of the times of one trace."""

    shift_ns: int = 0
    drift: DriftCorrection | None = None

    def apply(self, time_ns: int) -> int:
        """Return a moment on the common clock."""
        return self.shift_ns + (time_ns if self.drift is None else self.drift.apply(time_ns))

    def expression(self, column: str) -> pl.Expr:
        """Return a column of moments on the common clock, to about a nanosecond."""
        if self.drift is None:
            return pl.col(column) + self.shift_ns
        part = self.drift.gain_ns / self.drift.over_ns
        gained_ns = ((pl.col(column) - self.drift.begin_ns).cast(pl.Float64) * part).floor().cast(pl.Int64)
        return pl.col(column) + gained_ns + self.shift_ns

    @classmethod
    def of(cls, shifts: Mapping[int, ClockShift], rank: int | None) -> "TimeShift":
        """Return the shift of a rank by its collectives; none where it is unknown."""
        return cls() if rank is None or rank not in shifts else cls(shifts[rank].shift_ns)


def shifts_to_rank_0(clocks: Sequence[tuple[int | None, FileClock | None]]) -> list[TimeShift]:
    """Return the shift of each trace to rank 0's unix time, as merging does.

    Args:
        clocks: rank and clock of each trace.
    """
    lines = [clock.line for rank, clock in clocks if rank == 0 and clock is not None]
    return [TimeShift() if clock is None else TimeShift(*clock.shift_to_rank_0(lines)) for _, clock in clocks]


def estimate_clock_shifts(names: Iterable[str]) -> dict[int, ClockShift]:
    """Return by how much the clocks of ranks differ from the first one's, as far as the ends of collectives show it.

    Args:
        names: trace files of one run. One that cannot be loaded is left out.
    """
    calls, clocks, exact_ranks = list[list[pl.DataFrame]](), list[tuple[int | None, FileClock | None]](), set[int]()
    for name in names:
        with suppress(KinetoscopeError):
            trace = load_one(name)
            calls.append([find_collective_calls(window) for window in read_windows(trace)])
            clocks.append((trace.rank, trace.clock))
            exact_ranks |= {part.rank for part in trace.parts if part.clock_bound_ns == 0 and part.rank is not None}
    moved = [
        one.with_columns(map(shift.expression, MOMENTS))
        for of_trace, shift in zip(calls, shifts_to_rank_0(clocks), strict=True)
        for one in of_trace
    ]
    return join_collectives(moved, exact_ranks)[1] if moved else {}


def build_clock_shift_notes(shifts: Mapping[int, ClockShift]) -> list[str]:
    """Return a sentence on clocks that differ by more than the error of the estimate, if some do."""
    differing = {
        rank: abs(shift.shift_ns)
        for rank, shift in sorted(shifts.items())
        if abs(shift.shift_ns) > max(_MIN_REPORTED_SHIFT_NS, MIN_CLOCK_BOUNDS * shift.bound_ns)
    }
    if not differing:
        return []
    far = format_duration(max(differing.values()))
    return [f"The clocks of ranks differ by up to {far}, by the ends of their collectives: {format_ranks(differing)}."]


def add_clock_bounds(rows: Sequence[RankRow], shifts: Mapping[int, ClockShift]) -> list[RankRow]:
    """Return the rows of several ranks, with the error of the clock shifts in ``clock_bound_ns``."""
    if len({row.rank for row in rows}) < 2:
        return list(rows)
    return [_add_clock_bound(row, None if row.rank is None else shifts.get(row.rank)) for row in rows]


def _add_clock_bound(row: RankRow, shift: ClockShift | None) -> RankRow:
    return row if shift is None else replace(row, clock_bound_ns=(row.clock_bound_ns or 0) + shift.bound_ns)
