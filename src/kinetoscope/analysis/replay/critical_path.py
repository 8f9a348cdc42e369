"""Critical path of a run: the spans that, if shorter, would let the run end earlier."""

from dataclasses import dataclass, replace

import polars as pl

from kinetoscope.analysis.plain_data import PlainData
from kinetoscope.analysis.replay.replay import PARTS, ReplayGraph


@dataclass(frozen=True, kw_only=True)
class CriticalSpan(PlainData):
    """An interval of the critical path, on one rank.

    Attributes:
        kind: one of `EDGES` of a replay.
        name: name of the device event; for a thread its largest part, one of `PARTS` or ``operators``; else None.
    """

    rank: int | None
    kind: str
    name: str | None
    begin_ns: int
    end_ns: int


def critical_path(graph: ReplayGraph, begin_ns: int, end_ns: int | None = None) -> list[CriticalSpan]:
    """Return the critical path from ``begin_ns`` to ``end_ns``, or to the end, of the window with ``begin_ns``."""
    nodes = graph.nodes.with_row_index("node")
    bounds = nodes.drop_nulls("window").group_by("window").agg(since=pl.col("time").min(), until=pl.col("time").max())
    window = bounds.filter((pl.col("since") <= begin_ns) & (pl.col("until") > begin_ns))["window"]
    ends = nodes.filter(pl.col("is_end") & pl.col("window").is_in(window.implode())).sort("time")
    before = {row[0]: row[1:] for row in _find_last_causes(graph, begin_ns).iter_rows()}
    found: list[CriticalSpan] = []
    node = ends["node"].last()
    while node in before:
        node, rank, kind, name, since, until = before[node]
        since, until = max(since, begin_ns), until if end_ns is None else min(until, end_ns)
        if since < until:
            found.append(CriticalSpan(rank=rank, kind=kind, name=name, begin_ns=since, end_ns=until))
    return _join_spans(found[::-1])


def _find_last_causes(graph: ReplayGraph, begin_ns: int) -> pl.DataFrame:
    """Return for each node the edge that requires the latest time.

    Columns are ``target``, ``source``, ``rank``, ``kind``, ``name``, and the times of source and target. Nodes before
    ``begin_ns`` have none.
    """
    times = pl.lit(graph.nodes["time"])
    edges = graph.edges.with_columns(since=times.gather("source"), until=times.gather("target"))
    edges = edges.filter(pl.col("until") > begin_ns).sort(pl.col("since") + pl.col("weight"))
    edges = edges.unique("target", keep="last", maintain_order=True)
    others = (pl.col("weight") - pl.sum_horizontal(PARTS)).alias("operators")
    parts = pl.concat_list(pl.col(PARTS).fill_null(0), others)
    names = pl.lit(pl.Series([*PARTS, "operators"])).gather(parts.list.arg_max())
    name = pl.when(pl.col("kind") == "host").then(names).otherwise("name")
    return edges.select("target", "source", "rank", "kind", name.alias("name"), "since", "until")


def _join_spans(spans: list[CriticalSpan]) -> list[CriticalSpan]:
    """Join consecutive spans of a thread with the same name."""
    found: list[CriticalSpan] = []
    for span in spans:
        last = found[-1] if found else None
        if last and span.kind == last.kind == "host" and (span.rank, span.name) == (last.rank, last.name):
            span = replace(span, begin_ns=found.pop().begin_ns)
        found.append(span)
    return found
