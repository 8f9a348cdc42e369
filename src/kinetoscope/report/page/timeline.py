"""Timeline of a page: the spans of all ranks on the common clock, by track, row and start."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import polars as pl
from msgspec import UNSET

from kinetoscope.analysis.run_report import RunReport
from kinetoscope.analysis.windows.nesting import interval_index
from kinetoscope.pages.page_data import Flows, LeftOut, Spans, Stacks, Timeline, Track
from kinetoscope.report.page.call_paths import CallPaths
from kinetoscope.report.page.columns import StringTable, encode_deltas, encode_numbers
from kinetoscope.report.page.counters import build_counters
from kinetoscope.report.page.details import Details, index_stacks
from kinetoscope.report.page.downsampling import compute_pixel_ns, count_hidden_spans, select_spans
from kinetoscope.report.page.flows import find_flows, find_launches
from kinetoscope.report.page.rank_traces import RankTrace
from kinetoscope.report.page.timeline_tracks import Tracks

MAX_SPANS = 1_000_000
"""Limit of shown spans: a page with so many has about 10 MB."""

MAX_DETAILED_SPANS = 1000
"""Limit of spans with arguments and stacks per track, the longest ones, in addition to those in steps of findings."""


_TYPES = {"begin": "Int64", "dur": "Int64", "is_named": "Boolean"} | dict.fromkeys(
    ("row", "track", "name", "category", "launch", "detail", "stack", "module"), "UInt32"
)


class TimelineBuilder:
    """Builder of a timeline from the windows of ranks."""

    def __init__(self, report: RunReport, max_spans: int = MAX_SPANS) -> None:
        self._report, self._max_spans = report, max_spans
        self._texts, self._details, self._paths, self._tracks = StringTable(), Details(), CallPaths(), Tracks()
        self._spans: list[pl.DataFrame] = []
        self._flows: list[pl.DataFrame] = []
        self._counters: list[pl.DataFrame] = []
        self._left_out: list[pl.DataFrame] = []
        self._windows: list[tuple[int, int]] = []
        self._num_spans = 0
        self._num_on_track: Counter[int] = Counter()
        self._add_steps()

    def add(self, part: RankTrace, spans: pl.DataFrame, modules: pl.Series | None = None) -> None:
        """Add a window, its ``spans`` (`read_spans`), and the ``modules`` that they belong to (`ModulesBuilder`)."""
        begins = part.shift_to_common_clock(spans.select("begin"), "begin")["begin"]
        is_named = interval_index(_find_named_steps(self._report, part.rank), begins).is_not_null()
        first = self._append(
            begin=begins,
            dur=spans["dur"],
            row=spans["row"],
            track=self._tracks.add_lanes(part.trace, part.rank, spans["lane"]),
            name=self._texts.indices(spans["name"]),
            category=self._texts.indices(spans["category"]),
            launch=find_launches(spans) + self._num_spans,
            is_named=is_named,
            module=modules if modules is not None else pl.zeros(len(spans), pl.UInt32, eager=True),
            **self._index_details(part, spans, is_named),
        )
        if len(spans):
            extent: Any = begins.min(), (begins + spans["dur"]).max()
            self._windows.append(extent)
        self._add_flows(part, spans, first)
        self._add_counters(part)

    def find_start_ns(self) -> int | None:
        """Return the start of the first span or counter value; None without any."""
        times = [spans["begin"] for spans in self._spans] + [counters["ts"] for counters in self._counters]
        firsts: list[Any] = [first.min() for first in times]
        return min((first for first in firsts if first is not None), default=None)

    def build(self, origin_ns: int) -> Timeline:
        """Return the timeline, with times relative to ``origin_ns``."""
        order = sorted(range(len(self._tracks.all)), key=lambda index: self._tracks.all[index].build_sort_key())
        spans = self._downsample(pl.concat(self._spans))
        spans = spans.with_columns(pl.col("begin") - origin_ns)
        tracks = _invert_order(pl.Series(order, dtype=pl.UInt32))
        spans = spans.with_columns(tracks.gather(spans["track"]).alias("track"))
        spans = spans.sort("track", "row", "begin", maintain_order=True)
        indices = _invert_order(spans["key"])
        return Timeline(
            texts=self._texts.all,
            tracks=self._build_tracks(spans, order),
            spans=_encode_spans(spans, indices),
            flows=_encode_flows(pl.concat(self._flows), indices),
            counters=build_counters(pl.concat(self._counters), origin_ns),
            details=self._details.all,
            stacks=Stacks(
                lines=encode_numbers(pl.Series(self._paths.names, dtype=pl.UInt32)),
                callers=encode_numbers(pl.Series(self._paths.callers, dtype=pl.UInt32)),
            ),
            notes=self._describe_hidden(spans),
            windows=_merge_intervals([(begin - origin_ns, end - origin_ns) for begin, end in self._windows]),
            left_out=_left_out(pl.concat(self._left_out), tracks, origin_ns) if self._left_out else None,
        )

    def _describe_hidden(self, spans: pl.DataFrame) -> list[str]:
        """Return sentences on hidden spans and details."""
        if not self._num_spans:
            return []
        notes = [
            f"Arguments and stacks are shown of the {MAX_DETAILED_SPANS:,} longest spans of each track, and of those "
            "in steps that findings name."
        ]
        if len(spans) < self._num_spans:
            notes.append(
                f"{len(spans):,} of {self._num_spans:,} spans are shown: all that take at least "
                f"{compute_pixel_ns(spans) / 1e6:.3g} ms, those in steps that findings name, and the longest ones of "
                "the rest."
            )
        return notes

    def _append(self, **columns: pl.Series) -> int:
        """Add spans and return the key of the first one."""
        first = self._num_spans
        spans = pl.DataFrame({name: values.alias(name) for name, values in columns.items()})
        values = [pl.col(name).cast(getattr(pl, dtype)) for name, dtype in _TYPES.items()]
        spans = spans.select(*values, key=pl.int_range(first, first + len(spans), dtype=pl.UInt32))
        self._num_on_track.update(dict(spans.group_by("track").len().iter_rows()))
        self._spans.append(self._downsample(spans))
        self._num_spans += len(spans)
        return first

    def _downsample(self, spans: pl.DataFrame) -> pl.DataFrame:
        """Return the spans to show, and count the others."""
        shown = select_spans(spans, self._max_spans)
        if len(shown) < len(spans):
            self._left_out.append(count_hidden_spans(spans, shown))
        return shown

    def _add_steps(self) -> None:
        rows = self._report.steps
        nothing = pl.zeros(len(rows), pl.UInt32, eager=True)
        tracks = {rank: self._tracks.add_steps_track(rank) for rank in dict.fromkeys(row.rank for row in rows)}
        self._windows += [(row.begin_ns, row.begin_ns + row.duration_ns) for row in rows]
        self._append(
            begin=pl.Series([row.begin_ns for row in rows], dtype=pl.Int64),
            dur=pl.Series([row.duration_ns for row in rows], dtype=pl.Int64),
            row=nothing,
            track=pl.Series([tracks[row.rank] for row in rows], dtype=pl.UInt32),
            name=self._texts.indices(pl.Series([f"step {row.step}" for row in rows], dtype=pl.String)),
            category=self._texts.indices(pl.Series(["step"] * len(rows), dtype=pl.String)),
            launch=nothing.clear().extend_constant(None, len(rows)),
            is_named=nothing == 0,
            detail=nothing,
            stack=nothing,
            module=nothing,
        )

    def _index_details(self, part: RankTrace, spans: pl.DataFrame, is_named: pl.Series) -> dict[str, pl.Series]:
        """Return the arguments and stacks of the longest spans of each track, and of those in steps of findings."""
        is_long = pl.col("dur").rank("ordinal", descending=True).over("lane") <= MAX_DETAILED_SPANS
        wanted = spans.with_row_index("at").filter(is_long | pl.lit(is_named))
        found = {
            "detail": self._details.indices(part.trace, wanted["event"]),
            "stack": index_stacks(spans, wanted, self._texts, self._paths),
        }
        return {
            name: pl.zeros(len(spans), pl.UInt32, eager=True).scatter(wanted["at"], indices)
            for name, indices in found.items()
        }

    def _add_flows(self, part: RankTrace, spans: pl.DataFrame, first: int) -> None:
        arrows = find_flows(part.trace, spans)
        names = self._texts.indices(arrows["name"]).alias("name")
        self._flows.append(arrows.select(pl.col("source", "target") + first).with_columns(names))

    def _add_counters(self, part: RankTrace) -> None:
        counters = part.shift_to_common_clock(part.trace.counters.collect(), "ts")
        rank = pl.lit(part.rank, dtype=pl.Int64)
        self._counters.append(counters.select("name", "series", "ts", "value", rank=rank))

    def _build_tracks(self, spans: pl.DataFrame, order: Sequence[int]) -> list[Track]:
        begins = _find_row_starts(spans, len(order))
        descriptions = [self._tracks.all[index] for index in order]
        return [
            Track(
                rank=description.rank,
                kind=description.kind,
                name=description.name,
                process=description.process,
                row_begins=rows,
                num_left_out=self._num_on_track[index] - (rows[-1] - rows[0]),
            )
            for index, description, rows in zip(order, descriptions, begins, strict=True)
        ]


def _merge_intervals(intervals: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Return the intervals in order; those of several ranks that overlap are merged."""
    joined: list[list[int]] = []
    for begin, end in sorted(intervals):
        if joined and begin <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([begin, end])
    return joined


_MAX_CELLS = 1000
"""Number of time intervals in which hidden spans are counted."""


def _left_out(counts: pl.DataFrame, tracks: pl.Series, origin_ns: int) -> LeftOut:
    begin = pl.col("begin") - origin_ns
    cell_ns = max(1, (counts.select(begin.max()).item() or 0) // _MAX_CELLS)
    cells = counts.select(tracks.gather(counts["track"]).alias("track"), cell=begin.clip(0) // cell_ns, count="count")
    cells = cells.group_by("track", "cell").agg(pl.col("count").sum()).sort("track", "cell")
    return LeftOut(
        cell_ns=cell_ns,
        tracks=encode_deltas(cells["track"]),
        cells=encode_deltas(cells["cell"]),
        counts=encode_numbers(cells["count"]),
    )


def _find_named_steps(report: RunReport, rank: int | None) -> pl.DataFrame:
    """Return the steps of a rank that findings name, as intervals."""
    named = {
        step
        for finding in report.findings
        if not finding.where.ranks or rank in finding.where.ranks
        for step in finding.where.steps
    }
    rows = [row for row in report.steps if row.rank == rank and row.step in named]
    intervals = {"begin": [row.begin_ns for row in rows], "end": [row.begin_ns + row.duration_ns for row in rows]}
    return pl.DataFrame(intervals, schema={"begin": pl.Int64, "end": pl.Int64}).sort("begin")


def _invert_order(order: pl.Series) -> pl.Series:
    """Return the index of each number in ``order``; null for numbers that are not in it."""
    max_number: Any = order.max()
    indices = pl.repeat(None, 0 if max_number is None else max_number + 1, dtype=pl.UInt32, eager=True)
    return indices.scatter(order, pl.int_range(len(order), dtype=pl.UInt32, eager=True))


def _find_row_starts(spans: pl.DataFrame, num_tracks: int) -> list[list[int]]:
    """Return for each track the first span of each row, and the end of the last row."""
    begins: list[list[int]] = [[] for _ in range(num_tracks)]
    counts = spans.group_by("track", "row", maintain_order=True).len()
    first = 0
    for track, _, count in counts.iter_rows():
        begins[track] += [first + count] if begins[track] else [first, first + count]
        first += count
    return [rows or [0] for rows in begins]


def _encode_spans(spans: pl.DataFrame, indices: pl.Series) -> Spans:
    has_modules = (spans["module"] > 0).any()
    return Spans(
        begins=encode_deltas(spans["begin"]),
        durations=encode_numbers(spans["dur"]),
        names=encode_numbers(spans["name"]),
        categories=encode_numbers(spans["category"]),
        details=encode_numbers(spans["detail"]),
        stacks=encode_numbers(spans["stack"]),
        launches=encode_deltas((indices.gather(spans["launch"]) + 1).fill_null(0)),
        modules=encode_numbers(spans["module"]) if has_modules else UNSET,
    )


def _encode_flows(flows: pl.DataFrame, indices: pl.Series) -> Flows:
    ends = [indices.gather(flows[end]).alias(end) for end in ("source", "target")]
    found = flows.select("name", *ends).drop_nulls().sort("source")
    return Flows(
        sources=encode_deltas(found["source"]),
        targets=encode_deltas(found["target"]),
        names=encode_numbers(found["name"]),
    )
