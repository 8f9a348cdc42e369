"""Compute load of ranks, step by step and between all-to-alls, in a replay in which all ranks have the same.

A piece of a run is a step, or the time between two all-to-alls in it: tokens go to other experts in each layer. Ranks
wait for each other at the end of each piece.
"""

from collections.abc import Collection, Sequence

import polars as pl

from kinetoscope.analysis.windows.kernel_names import COPY

_COPY_OR_MEMSET = rf"(?i)^memset|{COPY}"
_PIECE = ("step", "piece")


_MAX_SHARE_OF_ONE = 0.75
"""A rank that is the longest for a larger share of the excess is a straggler."""

_MIN_EXCESS = 0.1
"""A rank exceeds the mean from this share of the usual excess of the longest rank."""

_MIN_UNEVEN_EXCESS = 0.3
"""The load of a kernel is uneven if its longest rank exceeds the mean by this share of the usual excess of uneven ones.
With noise of 10 % on 8 ranks, even kernels reach 0.2 of that of experts; kernels that scale linearly with the length of
a batch reach half of what attention does."""

_MIN_SHARE_OF_RANKS = 0.9

_MIN_CORRELATION = 0.5
"""A rank with a long batch takes longer in both halves of a step. Kernels that vary by 20 % on their own do not."""


def load_rows(nodes: pl.DataFrame, edges: pl.DataFrame, exchanges: pl.DataFrame, ranks: Sequence[int]) -> pl.DataFrame:
    """Return the compute kernels of these ranks.

    Columns are ``edge``, ``rank``, ``step``, ``piece``, ``name``, ``time`` and ``takes_ns``.

    Args:
        nodes: nodes of the graph.
        edges: edges of the graph; ``edge`` is the row in it.
        exchanges: the ends of all-to-alls: ``rank``, ``time``, and ``piece``, a number of the call.
        ranks: the ranks.
    """
    is_compute = (
        (pl.col("kind") == "device")
        & ~pl.col("is_communication")
        & ~pl.col("name").str.contains(_COPY_OR_MEMSET)
        & pl.col("rank").is_in(sorted(ranks))
    )
    rows = edges.with_row_index("edge").filter(is_compute).drop_nulls(["name", "step"])
    rows = rows.select("edge", "rank", "step", "name", time=nodes["time"].gather(rows["source"]), takes_ns="weight")
    if len(exchanges):
        rows = rows.sort("time").join_asof(exchanges.sort("time"), on="time", by="rank", check_sortedness=False)
    else:
        rows = rows.with_columns(piece=pl.lit(None, pl.UInt32))
    return rows.with_columns(pl.col("piece").fill_null(0))


def loads(rows: pl.DataFrame) -> pl.DataFrame:
    """Return by ``rank``, ``step`` and ``piece`` the ``load_ns`` of `load_rows`, and ``even_ns``, the mean of ranks."""
    found = rows.group_by("rank", *_PIECE).agg(load_ns=pl.col("takes_ns").sum())
    return found.with_columns(even_ns=pl.col("load_ns").mean().over(_PIECE))


def cpu_load_rows(nodes: pl.DataFrame, edges: pl.DataFrame) -> pl.DataFrame:
    """Return the time of the CPUs of ranks in steps without waits, in the form of `load_rows`."""
    rows = edges.with_row_index("edge").filter(pl.col("kind") == "host").drop_nulls(["step", "rank"])
    rows = rows.select("edge", "rank", "step", time=nodes["time"].gather(rows["source"]), takes_ns="weight")
    return rows.with_columns(piece=pl.lit(0, pl.UInt32))


def reduce_to_usual_loads(rows: pl.DataFrame, weights: pl.Series, ranks: Collection[int]) -> pl.Series:
    """Return the weights of edges in a replay in which ``ranks`` have no more work in a step than others usually have.

    Args:
        rows: `load_rows` or `cpu_load_rows` of all ranks.
        weights: weights of the edges.
        ranks: ranks with more work.
    """
    by_step = rows.group_by("rank", "step").agg(load_ns=pl.col("takes_ns").sum())
    is_slow = pl.col("rank").is_in(sorted(ranks))
    usual = by_step.filter(~is_slow).group_by("step").agg(usual_ns=pl.col("load_ns").quantile(0.5, "lower"))
    slow = by_step.filter(is_slow).join(usual, on="step").filter(pl.col("load_ns") > pl.col("usual_ns"))
    found = rows.join(slow, on=["rank", "step"], maintain_order="left")
    share = pl.col("usual_ns") / pl.col("load_ns")
    changed = found.select("edge", weight=(pl.lit(weights.gather(found["edge"])) * share).round().cast(pl.Int64))
    return weights.scatter(changed["edge"], changed["weight"])


def balance_loads(rows: pl.DataFrame, weights: pl.Series) -> pl.Series:
    """Return the weights of edges in a replay in which all ranks of `load_rows` have the same load.

    Each kernel with an uneven load takes its mean over ranks; the others, such as those of the optimizer, are
    unchanged. Where ranks have different kernels in a piece, their loads are scaled to the mean.
    """
    rows = _add_uneven(rows.join(loads(rows), on=["rank", *_PIECE], how="left", maintain_order="left"))
    scaled = pl.when(pl.col("load_ns") > 0).then(pl.col("even_ns") / pl.col("load_ns")).otherwise(1.0)
    is_changed = pl.col("is_uneven") & (pl.col("takes_ns") > 0)
    of_kernel = pl.when(is_changed).then(pl.col("mean_ns") / pl.col("takes_ns")).otherwise(1.0)
    share = rows.select(share=pl.when("is_matched").then(of_kernel).otherwise(scaled))["share"]
    return weights.scatter(rows["edge"], (weights.gather(rows["edge"]) * share).round().cast(pl.Int64))


def _add_uneven(rows: pl.DataFrame) -> pl.DataFrame:
    """Add to kernels ``mean_ns`` over ranks, ``is_uneven``, and ``is_matched``: all ranks have those of the piece."""
    kernel, at = ("name", "number"), ("step", "name", "number")
    rows = rows.sort("time").with_columns(number=pl.int_range(pl.len()).over("rank", "step", "name"))
    is_matched = (pl.len().over(at) == rows["rank"].n_unique()).all().over(_PIECE)
    rows = rows.with_columns(is_matched=is_matched, mean_ns=pl.col("takes_ns").mean().over(at))
    excess_ns = (pl.col("takes_ns").max().over(at) - pl.col("mean_ns")).sum().over(kernel)
    rows = rows.with_columns(excess=excess_ns / pl.col("mean_ns").sum().over(kernel))
    weight = pl.col("excess") * pl.col("mean_ns")
    usual = (pl.col("excess") * weight).sum() / weight.sum()
    return rows.with_columns(is_uneven=pl.col("excess") >= _MIN_UNEVEN_EXCESS * usual)


def alternating_excess_ns(loads_of_ranks: pl.DataFrame, ranks: Collection[int]) -> float:
    """Return the excess of the longest ranks over the mean, of all pieces, where the longest rank alternates; else 0.

    It alternates where nearly every rank exceeds the mean in some pieces, and no rank is the longest for most of the
    excess. A rank that always has more than the others is a straggler, as are two of four that alternate.
    """
    excess = pl.col("load_ns") - pl.col("even_ns")
    by_piece = loads_of_ranks.with_columns(excess=excess).with_columns(max_excess=pl.col("excess").max().over(_PIECE))
    is_most = (pl.col("excess") == pl.col("max_excess")) & (pl.col("max_excess") > 0)
    by_rank = by_piece.filter(is_most).group_by("rank").agg(pl.col("excess").sum())["excess"].to_list()
    total_ns = float(sum(by_rank))
    if not total_ns or max(by_rank) > _MAX_SHARE_OF_ONE * total_ns:
        return 0.0
    usual_ns = total_ns / by_piece.select(_PIECE).n_unique()
    num_above = by_piece.filter(pl.col("excess") > _MIN_EXCESS * usual_ns)["rank"].n_unique()
    return total_ns if num_above >= _MIN_SHARE_OF_RANKS * len(ranks) else 0.0


def has_uneven_steps(rows: pl.DataFrame) -> bool:
    """Return whether ranks with more to compute in one half of a step's kernels also have more in the other half.

    Args:
        rows: kernels, from `load_rows`.
    """
    index, number = pl.int_range(pl.len()).over("rank", "step"), pl.len().over("rank", "step")
    halves = rows.sort("time").with_columns(is_first=2 * index < number)
    by_half = halves.group_by("rank", "step", "is_first").agg(load_ns=pl.col("takes_ns").sum())
    excess = (pl.col("load_ns") - pl.col("load_ns").mean()).over("step", "is_first")
    by_half = by_half.with_columns(excess=excess)
    both = by_half.filter("is_first").join(by_half.filter(~pl.col("is_first")), on=["rank", "step"])
    first, second = both["excess"], both["excess_right"]
    scale = (float((first**2).sum()) * float((second**2).sum())) ** 0.5
    return scale > 0 and float((first * second).sum()) >= _MIN_CORRELATION * scale
