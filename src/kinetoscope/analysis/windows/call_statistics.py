"""Statistics of calls by name: counts, sums and quantiles that can be combined across windows."""

from collections.abc import Sequence
from typing import Any

import polars as pl

MAX_EXACT_CALLS = 4096
"""With more calls in one window, durations are rounded to 9 bits: quantiles are exact to 0.4 %, sums and maxima fully.
"""

_SIGNIFICANT_BITS = 9
"""Kept bits of rounded durations."""

_UNITS = [1 << max(0, bits - _SIGNIFICANT_BITS) for bits in range(64)]
_MASKS, _HALF_UNITS = pl.Series([-unit for unit in _UNITS]), pl.Series([unit // 2 for unit in _UNITS])
"""Masks of the kept bits of numbers with so many bits, and half of the unit of the last kept bit."""


def sum_calls(calls: pl.DataFrame, by: Sequence[str], sums: Sequence[str]) -> pl.DataFrame:
    """Sum up the calls of one window by group.

    Args:
        calls: a row per call: ``dur`` (ns), and the columns of ``by`` and ``sums``.
        by: columns to group by.
        sums: columns to sum; a sum without any known value is null.

    Returns:
        A frame with ``by``, ``num_calls``, ``total_ns``, ``sums``, ``max_ns``, and as lists the distinct ``durations``
            (ns) and how often each ``occurs``.
    """
    dur = pl.col("dur")
    known = [name for name in by if calls[name].count()] or by  # often no shapes were recorded
    kept = dur.alias("durations")
    if len(calls) > MAX_EXACT_CALLS:
        calls = calls.with_columns(rounded=_round_durations(calls["dur"]))
        kept = pl.when(pl.len() <= MAX_EXACT_CALLS).then(dur).otherwise("rounded").alias("durations")
    groups = calls.group_by(known).agg(
        pl.len().cast(pl.Int64).alias("num_calls"),
        dur.sum().alias("total_ns"),
        *map(sum_or_null, sums),
        dur.max().alias("max_ns"),
        kept.value_counts(name="occurs").alias("counts"),
    )
    groups = groups.with_columns(_lists_of_field("durations", pl.Int64), _lists_of_field("occurs", pl.UInt32)).drop(
        "counts"
    )
    return groups.with_columns(pl.lit(None, calls.schema[name]).alias(name) for name in by if name not in known)


def combine_call_sums(groups: Sequence[pl.DataFrame], by: Sequence[str], sums: Sequence[str]) -> pl.DataFrame:
    """Combine the groups of several windows, or of earlier combinations, as those of one window."""
    if len(groups) == 1:
        return groups[0]
    added = (
        pl.concat(groups, how="diagonal")  # in any order of columns
        .group_by(by)
        .agg(
            pl.col("num_calls", "total_ns").sum(),
            *map(sum_or_null, sums),
            pl.col("max_ns").max(),
            pl.col("durations", "occurs").explode(),
        )
    )
    added = added.with_row_index("index")
    durations = added.select("index", "durations", "occurs").explode("durations", "occurs")
    durations = durations.group_by("index", "durations").agg(pl.col("occurs").sum())
    lists = durations.group_by("index").agg("durations", "occurs")
    return added.drop("durations", "occurs").join(lists, on="index").drop("index")


def add_quantiles(groups: pl.DataFrame) -> pl.DataFrame:
    """Add ``mean_ns``, ``p50_ns`` and ``p95_ns`` (nearest rank) to groups, and drop their lists."""
    groups = groups.with_row_index("index")
    durations = groups.select("index", "num_calls", "durations", "occurs").explode("durations", "occurs")
    durations = durations.sort("index", "durations")
    before = pl.col("num_calls").cum_sum() - pl.col("num_calls")  # of all earlier groups
    starts = groups.select("index", start=before)
    so_far = pl.col("occurs").cast(pl.Int64).cum_sum()
    durations = durations.with_columns(so_far=so_far).join(starts, on="index", maintain_order="left")
    is_reached = {
        percent: pl.col("so_far") - pl.col("start") >= (pl.col("num_calls") * percent + 99) // 100
        for percent in (50, 95)
    }
    quantiles = durations.group_by("index").agg(
        pl.col("durations").filter(reached).min().alias(f"p{percent}_ns") for percent, reached in is_reached.items()
    )
    mean = pl.col("total_ns") / pl.col("num_calls")
    groups = groups.join(quantiles, on="index").with_columns(mean.alias("mean_ns"))
    return groups.drop("index", "durations", "occurs")


def add_quantiles_by_name(groups: pl.DataFrame) -> pl.DataFrame:
    """Add quantiles, and ``name_p50_ns`` and ``name_p95_ns`` of all groups with the same name together."""
    several = groups.filter(pl.len().over("name") > 1)
    sums = pl.col("num_calls", "total_ns").sum()
    together = add_quantiles(several.group_by("name").agg(sums, pl.col("durations", "occurs").explode()))
    together = together.select("name", name_p50_ns="p50_ns", name_p95_ns="p95_ns")
    joined = add_quantiles(groups).join(together, on="name", how="left", nulls_equal=True)
    alone = {f"name_{column}": pl.coalesce(f"name_{column}", column) for column in ("p50_ns", "p95_ns")}
    return joined.with_columns(**alone)


def sum_or_null(name: str) -> pl.Expr:
    """Return the sum of the known values of a column; null if all are null."""
    return pl.when(pl.col(name).is_not_null().any()).then(pl.col(name).sum()).alias(name)


def _lists_of_field(name: str, dtype: Any) -> pl.Expr:
    """Return a field of the structs in ``counts`` as a list."""
    return pl.col("counts").list.eval(pl.element().struct.field(name)).cast(pl.List(dtype)).alias(name)


def _round_durations(durations: pl.Series) -> pl.Series:
    """Round integers to their first 9 bits, and to the middle of the interval of the other bits."""
    bits = 64 - durations.clip(0).bitwise_leading_zeros()
    return (durations & _MASKS[bits]) + _HALF_UNITS[bits]
