"""analysis: how often things of one name were called and how long that took, in sums that can be added up."""

from collections.abc import Sequence
from typing import Any

import polars as pl

MAX_EXACT_CALLS = 4096
"""Of more calls in one window, durations are kept to 9 bits, so quantiles are sure to 0.4 %. Sums and the
longest call are exact."""

_SIGNIFICANT_BITS = 9
_UNITS = [1 << max(0, bits - _SIGNIFICANT_BITS) for bits in range(64)]
_MASKS, _HALF_UNITS = pl.Series([-unit for unit in _UNITS]), pl.Series([unit // 2 for unit in _UNITS])
"""Of a number of so many bits, those that are kept, and the middle of what the others can be."""


def sum_calls(calls: pl.DataFrame, by: Sequence[str], sums: Sequence[str]) -> pl.DataFrame:
    """The calls (``dur`` and ``sums``) of one window for each group: ``num_calls``, ``total_ns``, ``sums``, ``max_ns``,
    and the different ``durations`` with how often each ``occurs``, as lists. A sum of nothing known is null."""
    dur = pl.col("dur")
    known = [name for name in by if calls[name].count()] or by  # often nothing says shapes
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
    """The groups of some windows, or of what was added up of others, as those of one window."""
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
    """The groups with ``mean_ns``, ``p50_ns`` and ``p95_ns`` (nearest rank), and without lists."""
    groups = groups.with_row_index("index")
    durations = groups.select("index", "num_calls", "durations", "occurs").explode("durations", "occurs")
    durations = durations.sort("index", "durations")
    before = pl.col("num_calls").cum_sum() - pl.col("num_calls")  # of all groups that stand before
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
    """The same, also with ``name_p50_ns`` and ``name_p95_ns``: those of all groups of one name together."""
    several = groups.filter(pl.len().over("name") > 1)
    sums = pl.col("num_calls", "total_ns").sum()
    together = add_quantiles(several.group_by("name").agg(sums, pl.col("durations", "occurs").explode()))
    together = together.select("name", name_p50_ns="p50_ns", name_p95_ns="p95_ns")
    joined = add_quantiles(groups).join(together, on="name", how="left", nulls_equal=True)
    alone = {f"name_{own}": pl.coalesce(f"name_{own}", own) for own in ("p50_ns", "p95_ns")}
    return joined.with_columns(**alone)


def sum_or_null(name: str) -> pl.Expr:
    """The sum of a column's values that are known; null if none is."""
    return pl.when(pl.col(name).is_not_null().any()).then(pl.col(name).sum()).alias(name)


def _lists_of_field(name: str, dtype: Any) -> pl.Expr:
    """A list of the values that structs in a list have of one field."""
    return pl.col("counts").list.eval(pl.element().struct.field(name)).cast(pl.List(dtype)).alias(name)


def _round_durations(durations: pl.Series) -> pl.Series:
    """Integers with their first bits, and the middle of what the others can be."""
    bits = 64 - durations.clip(0).bitwise_leading_zeros()
    return (durations & _MASKS[bits]) + _HALF_UNITS[bits]
