"""Downsampling of values and spans that are too many for a page."""

import polars as pl

MAX_PAGE_WIDTH_PX = 3840
"""Width of a page in pixels, at most."""


def select_extremes(values: pl.Series, max_points: int) -> pl.Series:
    """Return the rows of the highest and the lowest value in each of ``max_points`` / 2 buckets, in order.

    All rows are returned if there are not more than ``max_points``.
    """
    rows = pl.int_range(len(values), dtype=pl.UInt32, eager=True)
    if len(values) <= max_points:
        return rows
    bucket = rows.cast(pl.UInt64) * (max_points // 2) // len(values)
    numbered = pl.DataFrame({"row": rows, "bucket": bucket, "value": values})
    found = numbered.group_by("bucket").agg(
        high=pl.col("row").get(pl.col("value").arg_max()), low=pl.col("row").get(pl.col("value").arg_min())
    )
    return pl.concat([found["high"], found["low"]]).unique().sort()


def select_spans(spans: pl.DataFrame, max_spans: int) -> pl.DataFrame:
    """Return the ``max_spans`` most important spans, and the calls that launched them.

    First come all spans of at least a pixel where the whole timeline is visible, and the longest one that starts in
    each pixel of a row, so that no part looks empty; then those in steps of findings (``is_named``), then the longest
    ones.

    Args:
        spans: spans with ``begin``, ``dur``, ``track``, ``row``, ``is_named``, ``key`` and ``launch``.
        max_spans: limit, without the launching calls.
    """
    if len(spans) <= max_spans:
        return spans
    pixel_ns = compute_pixel_ns(spans)
    cell = ["track", "row", (pl.col("begin") // pixel_ns).alias("cell")]
    is_longest = pl.col("dur").rank("ordinal", descending=True).over(cell) == 1
    is_long = pl.col("dur") >= pixel_ns
    importance = pl.when(is_long).then(3).when(is_longest).then(2).when("is_named").then(1).otherwise(0)
    ranked = spans.with_columns(importance=importance)
    kept = ranked.select("importance", "dur", "key").top_k(max_spans, by=["importance", "dur"])["key"]
    launches = spans.filter(pl.col("key").is_in(kept.implode()))["launch"].drop_nulls()
    wanted = pl.concat([kept, launches]).unique()
    return spans.filter(pl.col("key").is_in(wanted.implode()))


def count_hidden_spans(spans: pl.DataFrame, shown: pl.DataFrame) -> pl.DataFrame:
    """Return the ``count`` of spans that are not ``shown``, by ``track`` and the pixel of their ``begin``."""
    pixel_ns = compute_pixel_ns(spans)
    others = spans.select("track", "key", begin=pl.col("begin") // pixel_ns * pixel_ns)
    others = others.filter(~pl.col("key").is_in(shown["key"].implode()))
    return others.group_by("track", "begin").agg(count=pl.len())


def compute_pixel_ns(spans: pl.DataFrame) -> int:
    """Return the nanoseconds of a pixel where all spans are visible."""
    length = spans.select((pl.col("begin") + pl.col("dur")).max() - pl.col("begin").min()).item()
    return max(1, length // MAX_PAGE_WIDTH_PX)
