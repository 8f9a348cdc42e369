"""report: what is left of values and spans that are too many for a page."""

import polars as pl

MOST_PIXELS = 3840
"""How wide a page is at most."""


def highest_and_lowest(values: pl.Series, most: int) -> pl.Series:
    """The rows, in order, of the highest and the lowest value of each of ``most`` / 2 stretches; all rows of fewer."""
    rows = pl.int_range(len(values), dtype=pl.UInt32, eager=True)
    if len(values) <= most:
        return rows
    stretch = rows.cast(pl.UInt64) * (most // 2) // len(values)
    numbered = pl.DataFrame({"row": rows, "stretch": stretch, "value": values})
    found = numbered.group_by("stretch").agg(
        high=pl.col("row").get(pl.col("value").arg_max()), low=pl.col("row").get(pl.col("value").arg_min())
    )
    return pl.concat([found["high"], found["low"]]).unique().sort()


def spans_to_show(spans: pl.DataFrame, most: int) -> pl.DataFrame:
    """The ``most`` spans (``begin``, ``dur``, ``track``, ``row``, ``is_named``, ``key``, ``launch``) to show of too
    many, and the calls that launched them.

    First come all that are as long as a pixel where everything is seen at once, and the longest one that begins in
    each pixel of a row, so that no stretch looks empty; then those that are named, and then the longest ones.
    """
    if len(spans) <= most:
        return spans
    pixel_ns = pixel_of(spans)
    cell = ["track", "row", (pl.col("begin") // pixel_ns).alias("cell")]
    is_longest = pl.col("dur").rank("ordinal", descending=True).over(cell) == 1
    is_long = pl.col("dur") >= pixel_ns
    importance = pl.when(is_long).then(3).when(is_longest).then(2).when("is_named").then(1).otherwise(0)
    ranked = spans.with_columns(importance=importance)
    kept = ranked.select("importance", "dur", "key").top_k(most, by=["importance", "dur"])["key"]
    launches = spans.filter(pl.col("key").is_in(kept.implode()))["launch"].drop_nulls()
    wanted = pl.concat([kept, launches]).unique()
    return spans.filter(pl.col("key").is_in(wanted.implode()))


def left_out_of(spans: pl.DataFrame, shown: pl.DataFrame) -> pl.DataFrame:
    """How many spans are not ``shown``: a row for each ``track`` and each pixel in which some ``begin``, ``count``."""
    pixel_ns = pixel_of(spans)
    others = spans.select("track", "key", begin=pl.col("begin") // pixel_ns * pixel_ns)
    others = others.filter(~pl.col("key").is_in(shown["key"].implode()))
    return others.group_by("track", "begin").agg(count=pl.len())


def pixel_of(spans: pl.DataFrame) -> int:
    """How much time a pixel has in nanoseconds where all spans are seen at once."""
    length = spans.select((pl.col("begin") + pl.col("dur")).max() - pl.col("begin").min()).item()
    return max(1, length // MOST_PIXELS)
