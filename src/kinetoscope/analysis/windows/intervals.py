"""The algebra of time intervals. An interval is a row with ``begin`` and ``end``; intervals overlap freely."""

from collections.abc import Callable
from typing import Any, cast

import polars as pl

from kinetoscope.analysis.windows.columns import build_frame
from kinetoscope.analysis.windows.schemas import INTERVALS
from kinetoscope.native import native

_UNCHECKED: Any = {"check_sortedness": False}  # it was checked
_NO_PIECES = pl.DataFrame(schema=pl.Schema({**INTERVALS, "before": pl.Int64}))
_MAX_SEARCHED = 1000
"""A join is slower than one search for each of so few times."""


class IntervalUnion:
    """The union of some intervals: a set of nanoseconds.

    ``pieces`` are its intervals, apart and in order: ``begin``, ``end``, and ``before``, the time covered before each.
    """

    __slots__ = ("pieces",)

    def __init__(self, *intervals: pl.DataFrame) -> None:
        rows = [build_frame(frame["begin"], frame["end"]) for frame in intervals if len(frame)]
        if not rows:
            self.pieces = _NO_PIECES
        else:
            joined = rows[0] if len(rows) == 1 else pl.concat(rows)
            columns = native.cover_intervals(joined.rechunk().__arrow_c_stream__())
            self.pieces = build_frame(*(pl.Series(values=column).alias(column.name) for column in columns))

    def __bool__(self) -> bool:
        """Return False if the union is empty."""
        return len(self.pieces) > 0

    @property
    def total_ns(self) -> int:
        """The length of all pieces together."""
        if not self:
            return 0
        last = self.pieces[-1:].row(0, named=True)
        return last["before"] + last["end"] - last["begin"]

    @property
    def gaps(self) -> pl.DataFrame:
        """The intervals between its pieces."""
        return build_frame(self.pieces["end"][:-1].alias("begin"), self.pieces["begin"][1:].alias("end"))

    def union(self, *intervals: pl.DataFrame) -> "IntervalUnion":
        """Return the union with further intervals."""
        return IntervalUnion(self.pieces, *intervals) if any(map(len, intervals)) else self

    def intersection(self, other: "IntervalUnion") -> "IntervalUnion":
        """Return the part that both unions cover."""
        return (
            self._select_parts(other, lambda inside, inside_other: inside & inside_other) if self and other else _EMPTY
        )

    def difference(self, other: "IntervalUnion") -> "IntervalUnion":
        """Return the part that the other one does not cover."""
        return (
            self._select_parts(other, lambda inside, inside_other: inside & ~inside_other) if self and other else self
        )

    def clip(self, begin_ns: int, end_ns: int) -> "IntervalUnion":
        """Return the part between two times."""
        return self.intersection(IntervalUnion(_interval(begin_ns, end_ns)))

    def complement(self, begin_ns: int, end_ns: int) -> "IntervalUnion":
        """Return the time between two times that the union does not cover."""
        return IntervalUnion(_interval(begin_ns, end_ns)).difference(self)

    def covered_before(self, times: pl.Series) -> pl.Series:
        """Return the nanoseconds covered before each time; 0 for null. ``times`` are in any order."""
        if not self:
            return zeros(len(times))
        queries = (times.fill_null(-(2**63)) if times.null_count() else times).to_frame().rechunk()
        (found,) = native.covered_until(self.pieces.__arrow_c_stream__(), queries.__arrow_c_stream__())
        return pl.Series("covered", found)

    def overlap_ns(self, begins: pl.Series, ends: pl.Series) -> pl.Series:
        """Return the nanoseconds covered of each interval from ``begins`` to ``ends``."""
        return self.covered_before(ends) - self.covered_before(begins) if self else zeros(len(begins))

    def covers(self, times: pl.Series) -> pl.Series:
        """Return whether the union contains the nanosecond after each time."""
        return self.overlap_ns(times, times + 1) > 0

    def _select_parts(
        self, other: "IntervalUnion", is_wanted: Callable[[pl.Series, pl.Series], pl.Series]
    ) -> "IntervalUnion":
        """Return the parts between two ends of pieces, of either union, that are wanted by whether each covers them."""
        ends = [pieces[side].alias("begin") for pieces in (self.pieces, other.pieces) for side in ("begin", "end")]
        begin = pl.concat(ends).unique().sort()
        parts = build_frame(begin[:-1], begin[1:].alias("end"))
        inside, inside_other = (union.overlap_ns(parts["begin"], parts["end"]) > 0 for union in (self, other))
        return IntervalUnion(parts.filter(is_wanted(inside, inside_other)))


_EMPTY = IntervalUnion()


def _interval(begin_ns: int, end_ns: int) -> pl.DataFrame:
    return pl.DataFrame({"begin": [begin_ns], "end": [end_ns]}, schema=INTERVALS)


def union_ns(where: pl.Expr) -> pl.Expr:
    """Return the length of the union of the wanted intervals of a group; rows are in the order of ``begin``."""
    begin, end = (pl.col(side).filter(where) for side in ("begin", "end"))
    return (end - pl.max_horizontal(begin, end.cum_max().shift(1))).clip(0).sum()


def latest_end_before() -> pl.Expr:
    """Return when all earlier intervals have ended, in rows in the order of ``begin``; null for the first one."""
    return pl.col("end").cum_max().shift(1)


def time_bounds(intervals: pl.DataFrame) -> tuple[int, int]:
    """Return the first start and the last end of some intervals, at least one."""
    first, last = intervals["begin"].min(), intervals["end"].max()
    return int(cast("int", first)), int(cast("int", last))


def zeros(number: int) -> pl.Series:
    """Return a series of ``number`` zeros, ten times as fast as `pl.zeros`, which makes a query."""
    return pl.Series([0], dtype=pl.Int64).new_from_index(0, number)


def count_starts_inside(begins: pl.Series, ends: pl.Series) -> pl.Series:
    """Return how many intervals begin in each, itself included. Intervals are in the order of ``begins``."""
    rows = build_frame(begins.alias("begin"), ends.alias("end"))
    (found,) = native.count_begun(rows.rechunk().__arrow_c_stream__())
    return pl.Series("begun", found)


def count_up_to(moments: pl.Series, times: pl.Series) -> pl.Series:
    """Return how many ``moments``, which are in order, are not after each of ``times``."""
    if len(times) < _MAX_SEARCHED or not times.is_sorted():
        return moments.search_sorted(times, side="right").cast(pl.Int64)
    numbered = pl.DataFrame({"moment": moments, "number": pl.int_range(1, len(moments) + 1, eager=True)})
    found = times.to_frame("time").join_asof(numbered, left_on="time", right_on="moment", **_UNCHECKED)
    return found["number"].fill_null(0)
