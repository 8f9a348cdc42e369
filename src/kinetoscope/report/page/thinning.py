"""report: what is left of values and spans that are too many for a page."""

from typing import TYPE_CHECKING

from kinetoscope.table.events import import_polars

if TYPE_CHECKING:
    import polars as pl


def highest_and_lowest(values: "pl.Series", most: int) -> "pl.Series":
    """The rows, in order, of the highest and the lowest value of each of ``most`` / 2 stretches; all rows of fewer."""
    pl = import_polars()
    rows = pl.int_range(len(values), dtype=pl.UInt32, eager=True)
    if len(values) <= most:
        return rows
    stretch = rows.cast(pl.UInt64) * (most // 2) // len(values)
    numbered = pl.DataFrame({"row": rows, "stretch": stretch, "value": values})
    found = numbered.group_by("stretch").agg(
        high=pl.col("row").get(pl.col("value").arg_max()), low=pl.col("row").get(pl.col("value").arg_min())
    )
    return pl.concat([found["high"], found["low"]]).unique().sort()
