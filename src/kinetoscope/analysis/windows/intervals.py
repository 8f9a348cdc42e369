"""analysis: unions of time intervals, which overlap as they like. An interval is a row with ``begin`` and ``end``."""

from typing import Any

import polars as pl

from kinetoscope.analysis.windows.columns import frame_of
from kinetoscope.native import native

_UNCHECKED: Any = {"check_sortedness": False}  # it was checked
_FEW = 1000
"""To look so few times up one by one is quicker than to join them."""


def newly_covered_ns(where: pl.Expr | None = None) -> pl.Expr:
    """Of each interval, what no interval before it covers, in rows in the order of ``begin``; with ``where``, only of
    those intervals. The sum is the length of the union."""
    begin, end = (pl.col(side) if where is None else pl.col(side).filter(where) for side in ("begin", "end"))
    return (end - pl.max_horizontal(begin, end.cum_max().shift(1))).clip(0)


def union_ns(intervals: pl.DataFrame) -> int:
    """The length of the union."""
    return int(intervals.sort("begin").select(newly_covered_ns().sum()).item() or 0)


class Coverage:
    """The union of some intervals, which answers how much of any stretch of time it covers.

    ``islands`` are its pieces, in order: ``begin``, ``end``, and ``before``, what is covered before each.
    """

    def __init__(self, *intervals: pl.DataFrame) -> None:
        rows = [frame_of(frame["begin"], frame["end"]) for frame in intervals if len(frame)]
        if not rows:
            self.islands = pl.DataFrame(schema=dict.fromkeys(("begin", "end", "before"), pl.Int64))
        else:
            columns = native.cover_intervals(pl.concat(rows).rechunk().__arrow_c_stream__())
            self.islands = frame_of(*(pl.Series(values=column).alias(column.name) for column in columns))

    def __bool__(self) -> bool:
        return len(self.islands) > 0

    @property
    def gaps(self) -> pl.DataFrame:
        """The stretches (``begin``, ``end``) between its pieces."""
        return frame_of(self.islands["end"][:-1].alias("begin"), self.islands["begin"][1:].alias("end"))

    @property
    def length_ns(self) -> int:
        """How long it is in all."""
        if not self:
            return 0
        last = self.islands[-1:].row(0, named=True)
        return last["before"] + last["end"] - last["begin"]

    def and_of(self, *intervals: pl.DataFrame) -> "Coverage":
        """The union with further intervals."""
        return Coverage(self.islands, *intervals) if any(map(len, intervals)) else self

    def without(self, other: "Coverage") -> "Coverage":
        """Return the part of it that another one does not cover."""
        if not other:
            return self
        sides = [islands[side].alias("begin") for islands in (self.islands, other.islands) for side in ("begin", "end")]
        begin = pl.concat(sides).unique().sort()
        pieces = frame_of(begin[:-1], begin[1:].alias("end"))
        is_left = (self.within(*pieces) > 0) & (other.within(*pieces) == 0)
        return Coverage(pieces.filter(is_left))

    def until(self, times: pl.Series) -> pl.Series:
        """How many nanoseconds are covered before each of ``times``, which are in any order; 0 for null."""
        if not self:
            return no_time(len(times))
        asked = (times.fill_null(-(2**63)) if times.null_count() else times).to_frame().rechunk()
        (found,) = native.covered_until(self.islands.__arrow_c_stream__(), asked.__arrow_c_stream__())
        return pl.Series("covered", found)

    def within(self, begins: pl.Series, ends: pl.Series) -> pl.Series:
        """How many nanoseconds of each stretch are covered."""
        return self.until(ends) - self.until(begins) if self else no_time(len(begins))


def no_time(number: int) -> pl.Series:
    """So many zeros: of `pl.zeros` a query is made, which takes ten times as long."""
    return pl.Series([0], dtype=pl.Int64).new_from_index(0, number)


def num_begun(begins: pl.Series, ends: pl.Series) -> pl.Series:
    """How many of some intervals, in the order of ``begins``, begin in each of them, with itself."""
    rows = frame_of(begins.alias("begin"), ends.alias("end"))
    (found,) = native.count_begun(rows.rechunk().__arrow_c_stream__())
    return pl.Series("begun", found)


def num_before(moments: pl.Series, times: pl.Series) -> pl.Series:
    """How many of the ``moments``, which are in order, are not after each of ``times``."""
    if len(times) < _FEW or not times.is_sorted():
        return moments.search_sorted(times, side="right").cast(pl.Int64)
    numbered = pl.DataFrame({"moment": moments, "number": pl.int_range(1, len(moments) + 1, eager=True)})
    found = times.to_frame("time").join_asof(numbered, left_on="time", right_on="moment", **_UNCHECKED)
    return found["number"].fill_null(0)
