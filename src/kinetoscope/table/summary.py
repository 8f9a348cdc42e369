"""table: what is in a trace, in a few figures. A trace flows in; a `TraceSummary` flows out."""

import os
from dataclasses import dataclass
from typing import Any

from kinetoscope.table.columns import import_polars
from kinetoscope.table.trace import Trace

_BATCH, _STEP = "event/batch", "ProfilerStep#"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """One trace in figures. ``begin_ns`` and ``end_ns`` are unix nanoseconds if ``has_clock``, read to within
    ``clock_bound_ns`` where the trace says so. ``categories`` counts spans."""

    name: str
    size_bytes: int | None
    rank: int | None
    ranks: list[int]
    world_size: int | None
    host: str | None
    has_clock: bool
    clock_bound_ns: int | None
    begin_ns: int | None
    end_ns: int | None
    num_spans: int
    num_instants: int
    num_counters: int
    num_flows: int
    num_tracks: int
    num_batches: int
    categories: dict[str, int]
    repairs: list[str]
    notes: list[str]
    """What there is to say of it, in sentences: files that were left out when it was merged, records that were lost."""


def summarize_trace(trace: Trace) -> TraceSummary:
    """Counts what is in a trace, in one pass over four of its columns."""
    pl = import_polars()
    kinds = dict(trace.events.group_by(pl.col("kind").cast(pl.String)).len().collect().rows())
    spans = trace.events.filter(pl.col("kind") == "span")
    name = pl.col("name").cast(pl.String)
    figures = spans.select(
        pl.col("ts").min().alias("begin_ns"),
        (pl.col("ts") + pl.col("dur")).max().alias("end_ns"),
        pl.col("track").n_unique().alias("num_tracks"),
        (name == _BATCH).sum().alias("num_batches"),
        name.filter(name.str.starts_with(_STEP)).n_unique().alias("num_steps"),
    ).collect()
    begin_ns, end_ns, num_tracks, num_batches, num_steps = figures.row(0)
    return TraceSummary(
        name=trace.name,
        size_bytes=os.path.getsize(trace.name) if os.path.isfile(trace.name) else None,
        rank=trace.rank,
        ranks=trace.ranks,
        world_size=trace.world_size,
        host=trace.host,
        has_clock=trace.has_clock,
        clock_bound_ns=_clock_bound_ns(trace.header),
        begin_ns=begin_ns,
        end_ns=end_ns,
        num_spans=kinds.get("span", 0),
        num_instants=kinds.get("instant", 0),
        num_counters=kinds.get("counter", 0),
        num_flows=kinds.get("flow", 0),
        num_tracks=num_tracks,
        # Every rank has a span for each batch; torch numbers its steps anew.
        num_batches=(num_batches or 0) // max(1, len(trace.ranks)) or num_steps,
        categories=_categories(trace),
        repairs=trace.repairs,
        notes=trace.notes,
    )


def _categories(trace: Trace) -> dict[str, int]:
    """The number of spans of each category, the most frequent first."""
    pl = import_polars()
    counts = trace.events.filter(pl.col("kind") == "span").group_by(pl.col("category").cast(pl.String)).len().collect()
    ordered = sorted(counts.rows(), key=lambda row: (-row[1], row[0] or ""))
    return {category or "none": count for category, count in ordered}


def _clock_bound_ns(header: dict[str, Any]) -> int | None:
    """How exactly the two moments were read that tie the trace's clock to unix time."""
    own = header.get("kinetoscope")
    clock = own.get("clock") if isinstance(own, dict) else None
    anchors = clock.get("anchors") if isinstance(clock, dict) else None
    bounds = [it.get("bound_ns") for it in anchors if isinstance(it, dict)] if isinstance(anchors, list) else []
    return max((it for it in bounds if isinstance(it, int)), default=None)
