"""analysis: unions of time intervals, which overlap as they like. An interval is a row with ``begin`` and ``end``."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kinetoscope.table.events import import_polars

if TYPE_CHECKING:
    import polars as pl


def newly_covered_ns(by: Sequence[str] = ()) -> "pl.Expr":
    """Of each interval, what no interval before it covers, in rows in the order of ``begin``.

    The sum is the length of the union; with ``by``, of the union of each group.
    """
    pl = import_polars()
    reach = pl.col("end").cum_max().shift(1)
    reach = reach.over(list(by)) if by else reach
    return (pl.col("end") - pl.max_horizontal("begin", reach)).clip(0)


def union_ns(intervals: "pl.DataFrame") -> int:
    """The length of the union."""
    return int(intervals.sort("begin").select(newly_covered_ns().sum()).item() or 0)


class Coverage:
    """The union of some intervals, which answers how much of any stretch of time it covers."""

    def __init__(self, *intervals: "pl.DataFrame") -> None:
        pl = import_polars()
        rows = pl.concat([frame.select("begin", "end") for frame in intervals])
        rows = rows.filter(pl.col("end") > pl.col("begin")).sort("begin")
        is_new = (pl.col("begin") > pl.col("end").cum_max().shift(1)).fill_null(True)
        islands = rows.group_by(is_new.cum_sum().alias("island"), maintain_order=True)
        length = pl.col("end") - pl.col("begin")
        self.islands = (
            islands.agg(pl.col("begin").first(), pl.col("end").max())
            .with_columns(before=length.cum_sum() - length)
            .select(pl.col("begin").set_sorted(), "end", "before")
        )

    def __bool__(self) -> bool:
        return len(self.islands) > 0

    def until(self, times: "pl.Series") -> "pl.Series":
        """How many nanoseconds are covered before each of ``times``, which are in any order."""
        pl = import_polars()
        asked = times.to_frame("time").with_row_index("place").sort("time")
        covered = pl.col("before") + pl.min_horizontal("time", "end") - pl.col("begin")
        found = asked.join_asof(self.islands, left_on="time", right_on="begin", strategy="backward")
        return found.select("place", covered.fill_null(0).alias("covered")).sort("place")["covered"]

    def within(self, begins: "pl.Series", ends: "pl.Series") -> "pl.Series":
        """How many nanoseconds of each stretch are covered."""
        return self.until(ends) - self.until(begins)
