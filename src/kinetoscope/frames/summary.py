"""Summary of a trace: counts, times and notes, as data and as text."""

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

import polars as pl

from kinetoscope.core.text.wording import format_count, format_file_size, sanitize
from kinetoscope.formats.trace_names import BATCH, STEP

_MAX_SHOWN_CATEGORIES = 8


class SummarizedTrace(Protocol):
    """A trace with the properties that a summary reads: those of `Trace`."""

    name: str
    has_clock: bool
    header: dict[str, Any]
    repairs: list[str]

    @property
    def world_size(self) -> int | None:
        """The number of ranks of the run."""
        ...

    @property
    def rank(self) -> int | None:
        """The rank that recorded it."""
        ...

    @property
    def ranks(self) -> list[int]:
        """The ranks in it."""
        ...

    @property
    def host(self) -> str | None:
        """The machine on which it was recorded."""
        ...

    @property
    def notes(self) -> list[str]:
        """Notes in sentences."""
        ...

    @property
    def events(self) -> pl.LazyFrame:
        """All its events."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """Summary of one trace.

    ``begin_ns`` and ``end_ns`` are unix nanoseconds if ``has_clock``, with an error of at most ``clock_bound_ns`` if
    that is known. ``categories`` counts spans.
    """

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
    """Notes in sentences, for example on files that a merge left out and on lost records."""


def summarize_trace(trace: SummarizedTrace) -> TraceSummary:
    """Summarize a trace in one pass over four of its columns."""
    kinds = dict(trace.events.group_by(pl.col("kind").cast(pl.String)).len().collect().rows())
    spans = trace.events.filter(pl.col("kind") == "span")
    figures = spans.select(
        pl.col("ts").min().alias("begin_ns"),
        (pl.col("ts") + pl.col("dur")).max().alias("end_ns"),
        pl.col("track").n_unique().alias("num_tracks"),
        (pl.col("name") == BATCH).sum().alias("num_batches"),
        pl.col("name").filter(pl.col("name").str.starts_with(STEP)).n_unique().alias("num_steps"),
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
        # Every rank has a span for each batch. torch's steps, which every rank numbers itself, are counted by name.
        num_batches=(num_batches or 0) // max(1, len(trace.ranks)) or num_steps,
        categories=_count_categories(trace),
        repairs=trace.repairs,
        notes=trace.notes,
    )


def render_summary(summary: TraceSummary) -> str:
    """Render the summary as lines of text."""
    lines = [summary.name + (f" ({format_file_size(summary.size_bytes)})" if summary.size_bytes is not None else "")]
    lines.append(f"  rank        {_format_rank(summary)}" + (f" on {summary.host}" if summary.host else ""))
    lines.append(f"  clock       {_format_clock(summary)}")
    lines.append(f"  time        {_format_time(summary)}, {format_count(summary.num_batches, 'batch')}")
    lines.append(
        f"  events      {format_count(summary.num_spans, 'span')} on {format_count(summary.num_tracks, 'track')}, "
        f"{format_count(summary.num_instants, 'instant')}, {format_count(summary.num_counters, 'counter')}, "
        f"{format_count(summary.num_flows, 'flow end')}"
    )
    first = list(summary.categories.items())[:_MAX_SHOWN_CATEGORIES]
    rest = len(summary.categories) - len(first)
    more = [f"{rest} more"] if rest else []
    lines.append("  categories  " + ", ".join([*(f"{sanitize(name)} {count:,}" for name, count in first), *more]))
    lines += [f"  note        {note}" for note in summary.notes]
    return "\n".join(lines + [f"  repaired    {repair}" for repair in summary.repairs])


def _format_rank(summary: TraceSummary) -> str:
    of = f" of {summary.world_size}" if summary.world_size else ""
    if summary.rank is not None:
        return f"{summary.rank}{of}"
    if len(summary.ranks) > 1:
        return f"{len(summary.ranks)} ranks, {summary.ranks[0]} to {summary.ranks[-1]}{of}"
    return f"unknown{of}"


def _format_clock(summary: TraceSummary) -> str:
    if not summary.has_clock:
        return "not unix time: other traces can be aligned with it only on a span that both have"
    bound = "" if summary.clock_bound_ns is None else f", read to within {summary.clock_bound_ns / 1e3:.1f} us"
    return f"unix time{bound}"


def _format_time(summary: TraceSummary) -> str:
    if summary.begin_ns is None or summary.end_ns is None:
        return "no spans"
    length = f"{(summary.end_ns - summary.begin_ns) / 1e9:.3f} s"
    if not summary.has_clock:
        return length
    begin = datetime.fromtimestamp(summary.begin_ns / 1e9, UTC)
    return f"{length} from {begin:%Y-%m-%d %H:%M:%S} UTC"


def _count_categories(trace: SummarizedTrace) -> dict[str, int]:
    """Count the spans of each category, the most frequent first."""
    counts = trace.events.filter(pl.col("kind") == "span").group_by("category").len().collect()
    ordered = sorted(counts.rows(), key=lambda row: (-row[1], row[0] or ""))
    return {category or "none": count for category, count in ordered}


def _clock_bound_ns(header: dict[str, Any]) -> int | None:
    """Return the error bound of the anchors that relate the trace's clock to unix time, in ns."""
    fields = header.get("kinetoscope")
    clock = fields.get("clock") if isinstance(fields, dict) else None
    anchors = clock.get("anchors") if isinstance(clock, dict) else None
    bounds = (
        [anchor.get("bound_ns") for anchor in anchors if isinstance(anchor, dict)] if isinstance(anchors, list) else []
    )
    return max((bound for bound in bounds if isinstance(bound, int)), default=None)
