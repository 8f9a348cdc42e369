"""analysis: ranks that were late before their recording began, in a replay in which they are on time from then on."""

from collections.abc import Collection

import polars as pl

START_NS = "start_ns"
"""The column of edges to the first moments of a substitute: by how much later these come in a replay."""


def with_substitute(
    nodes: pl.DataFrame, edges: pl.DataFrame, on_time: Collection[int]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The graph with one more rank, in place of those ``on_time``: it does what an early one of the others does, but
    begins when the last of those ``on_time`` did. What they were late by then is from before the recording, and no
    change moves that. None is added where they began no later, and where no other has the same collectives and was
    never as late itself."""
    firsts = _first_moments(nodes, edges)
    lateness = _lateness(nodes, edges, firsts)
    late = firsts.filter(pl.col("rank").is_in(sorted(on_time))).sort("time").unique("window", keep="last")
    like = lateness.filter(pl.col("rank").is_in(late["rank"].implode()))["calls"]
    others = lateness.filter(~pl.col("rank").is_in(sorted(on_time)) & (pl.lit(like.n_unique() == 1)))
    others = others.filter(pl.col("calls") == like.first()).sort("most_ns", "rank")
    if not len(others):
        return nodes, edges
    model, _, most_ns = others.row(0)
    late = late.join(firsts.filter(rank=model), on="window", suffix="_of_model")
    late = late.filter(pl.col("time") - pl.col("time_of_model") > most_ns)
    return _with_copy(nodes, edges, model, late) if len(late) else (nodes, edges)


def _first_moments(nodes: pl.DataFrame, edges: pl.DataFrame) -> pl.DataFrame:
    """The first moment of each rank's host in each window: ``rank``, ``window``, ``node``, ``time``."""
    of_host = edges.filter(pl.col("kind") == "host")["source"].unique().sort()
    moments = nodes.select("rank", "window", "time", node=pl.int_range(pl.len(), dtype=pl.UInt32))[of_host]
    return moments.drop_nulls("rank").sort("time").unique(["rank", "window"], keep="first", maintain_order=True)


def _lateness(nodes: pl.DataFrame, edges: pl.DataFrame, firsts: pl.DataFrame) -> pl.DataFrame:
    """For each ``rank`` a number that is the same for ranks with the same ``calls``, and ``most_ns``, the most by which
    its host took longer to launch one of them than the fastest."""
    launches = edges.filter(pl.col("kind") == "launch").select(source="target", launch="source")
    entries = edges.filter(pl.col("is_entry").fill_null(False)).select("rank", "source", "target")
    entries = entries.join(launches.unique("source"), on="source")
    at = nodes[entries["launch"]].select("window", launched="time")
    entries = entries.hstack(at).join(firsts.select("rank", "window", first="time"), on=["rank", "window"])
    taken = pl.col("launched") - pl.col("first")
    after = (taken - taken.min()).over("target")
    calls = pl.col("target").sort().hash(seed=0).implode().hash(seed=0).first()
    return entries.with_columns(after=after).group_by("rank").agg(calls=calls, most_ns=pl.col("after").max())


def _with_copy(
    nodes: pl.DataFrame, edges: pl.DataFrame, model: int, late: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The graph with a copy of all that a rank's host did, and launched, in the windows of ``late``, which has the
    ``node`` and ``time`` of a window's late begin, and ``time_of_model``."""
    own = edges.filter(pl.col("rank") == model)
    copies = _copies(nodes, own, late)
    of = copies.select("node", "copy")
    to_copies = own.join(of.rename({"node": "target", "copy": "to"}), on="target")
    to_copies = to_copies.join(of.rename({"node": "source", "copy": "since"}), on="source", how="left")
    to_calls = (
        own.filter("is_entry")
        .with_columns(to="target")
        .join(of.rename({"node": "source", "copy": "since"}), on="source")
    )
    more = pl.concat([to_copies, to_calls], how="diagonal_relaxed")
    more = more.with_columns(source=pl.coalesce("since", "source"), target="to").select(edges.columns)
    firsts = copies.filter(~pl.col("copy").is_in(more["target"].implode()))
    firsts = firsts.join(late.select("window", "time_of_model", begin="time", source="node"), on="window")
    starts = firsts.select(
        "source",
        target="copy",
        kind=pl.lit("start"),
        weight=pl.col("time") - pl.col("begin"),
        start_ns=pl.col("begin") - pl.col("time_of_model"),
    )
    nodes = pl.concat([nodes, copies.select(nodes.columns)], how="vertical_relaxed")
    return nodes, pl.concat([edges, more, starts], how="diagonal_relaxed")


def _copies(nodes: pl.DataFrame, own: pl.DataFrame, late: pl.DataFrame) -> pl.DataFrame:
    """The nodes of a rank in some windows but for events that were in flight when these began, with the numbers of each
    ``node`` and of its ``copy``."""
    kind = pl.col("kind")
    begins = own.filter(kind == "launch")["target"]
    on_host = own.filter(kind.is_in(["host", "thread"]))
    of_host = [on_host[side] for side in ("source", "target")]
    copied = pl.concat([begins, begins + 1, *of_host]).cast(pl.UInt32).unique().sort()  # an event's end is next to it
    rows = nodes[copied].with_columns(node=copied).join(late.select("window"), on="window", how="semi")
    return rows.sort("node").with_columns(copy=pl.int_range(pl.len(), dtype=pl.UInt32) + len(nodes))
