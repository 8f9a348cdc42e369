"""Ranks that were late before their recording started, in a replay in which they are on time from then on."""

from collections.abc import Collection
from typing import NamedTuple

import polars as pl

START_NS = "start_ns"
"""Column of edges to the first moments of a substitute: the time by which these are later in a replay."""


class Substitute(NamedTuple):
    """Replacement of ranks that started late: a copy of the rank ``model``.

    Attributes:
        model: the rank to copy.
        begins: the windows: ``node`` and ``time`` of the late start, and ``time_of_model``.
    """

    model: int
    begins: pl.DataFrame


def find_substitute(nodes: pl.DataFrame, edges: pl.DataFrame, on_time: Collection[int]) -> Substitute | None:
    """Return a copy of an early one of the other ranks, which starts when the last of those ``on_time`` did.

    Their lateness by then is from before the recording, and no change moves it. None where they started no later, and
    where no other rank has the same collectives and was never as late itself.
    """
    firsts = _first_moments(nodes, edges)
    lateness = _lateness(nodes, edges, firsts)
    is_on_time = pl.col("rank").is_in(sorted(on_time))
    late = firsts.filter(is_on_time).sort("time").unique("window", keep="last")
    like = lateness.filter(pl.col("rank").is_in(late["rank"].implode()))["calls"]
    if like.n_unique() != 1:
        return None
    others = lateness.filter(~is_on_time & (pl.col("calls") == like.first())).sort("max_ns", "rank")
    if not len(others):
        return None
    model, _, max_ns = others.row(0)
    late = late.join(firsts.filter(rank=model), on="window", suffix="_of_model")
    late = late.filter(pl.col("time") - pl.col("time_of_model") > max_ns)
    return Substitute(model, late) if len(late) else None


def _first_moments(nodes: pl.DataFrame, edges: pl.DataFrame) -> pl.DataFrame:
    """Return the first moment of each rank's CPU in each window: ``rank``, ``window``, ``node``, ``time``."""
    of_host = edges["source"].filter(edges["kind"] == "host").unique().sort()
    moments = nodes[["rank", "window", "time"]][of_host].with_columns(of_host.alias("node"))
    return moments.drop_nulls("rank").sort("time").unique(["rank", "window"], keep="first", maintain_order=True)


def _lateness(nodes: pl.DataFrame, edges: pl.DataFrame, firsts: pl.DataFrame) -> pl.DataFrame:
    """Return by ``rank`` a hash of its ``calls``, and its maximum lateness ``max_ns``.

    The lateness is the additional time of its CPU until it launched a call, compared with the fastest rank.
    """
    edges = edges[["rank", "source", "target", "kind", "is_entry"]]
    launches = edges.filter(pl.col("kind") == "launch").select(source="target", launch="source")
    entries = edges.filter("is_entry")[["rank", "source", "target"]]
    entries = entries.join(launches.unique("source"), on="source")
    at = nodes[entries["launch"]].select("window", launched="time")
    entries = entries.hstack(at).join(firsts.select("rank", "window", first="time"), on=["rank", "window"])
    taken = pl.col("launched") - pl.col("first")
    after = (taken - taken.min()).over("target")
    calls = pl.col("target").sort().hash(seed=0).implode().hash(seed=0).first()
    return entries.with_columns(after=after).group_by("rank").agg(calls=calls, max_ns=pl.col("after").max())


def add_substitute(
    nodes: pl.DataFrame, edges: pl.DataFrame, substitute: Substitute
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the graph with one more rank: a copy of all that the CPU of the model did and launched."""
    own = edges.filter(pl.col("rank") == substitute.model)
    copies = _copies(nodes, own, substitute.begins)
    copy_of = pl.Series([None], dtype=pl.UInt32).new_from_index(0, len(nodes)).scatter(copies["node"], copies["copy"])
    own = own.with_columns(copy_of[own["source"]].alias("since"), copy_of[own["target"]].alias("to"))
    of_call = pl.when(pl.col("is_entry") & pl.col("since").is_not_null()).then("target")
    more = own.with_columns(source=pl.coalesce("since", "source"), target=pl.coalesce("to", of_call))
    more = more.drop_nulls("target")[edges.columns]
    begins = substitute.begins.select("window", "time_of_model", begin="time", source="node")
    firsts = copies.join(more.select(copy="target"), on="copy", how="anti").join(begins, on="window")
    starts = firsts.select(
        "source",
        target="copy",
        kind=pl.lit("start"),
        weight=pl.col("time") - pl.col("begin"),
        start_ns=pl.col("begin") - pl.col("time_of_model"),
    )
    nodes = pl.concat([nodes, copies[nodes.columns]], how="vertical_relaxed")
    return nodes, pl.concat([edges, more, starts], how="diagonal_relaxed")


def _copies(nodes: pl.DataFrame, own: pl.DataFrame, begins: pl.DataFrame) -> pl.DataFrame:
    """Return the nodes of a rank in some windows, with the numbers of each ``node`` and of its ``copy``.

    Events in flight when the windows started are left out.
    """
    kind, source, target = own["kind"], own["source"], own["target"]
    launched, is_on_host = target.filter(kind == "launch"), kind.is_in(["host", "thread"])
    copied = pl.concat([launched, launched + 1, source.filter(is_on_host), target.filter(is_on_host)])
    copied = copied.cast(pl.UInt32).unique().sort()  # an event's end is next to its start
    rows = nodes[copied].with_columns(copied.alias("node"))
    rows = rows.filter(pl.col("window").is_in(begins["window"].implode()))
    return rows.with_row_index("copy", offset=len(nodes))
