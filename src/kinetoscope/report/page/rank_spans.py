"""Spans of one rank in one window, as the timeline shows them."""

from bisect import bisect_left, insort
from heapq import heappop, heappush

import polars as pl

from kinetoscope.analysis.windows.intervals import IntervalUnion
from kinetoscope.analysis.windows.span_names import (
    ANNOTATIONS,
    ANNOTATIONS_OF_DEVICES,
    OPERATORS,
    RUNTIME_CALLS,
    SYNCHRONISATIONS,
)
from kinetoscope.formats.device_events import DEVICE_CATEGORIES
from kinetoscope.formats.trace_names import MODULE, SAMPLES, STEP
from kinetoscope.frames.trace import Trace
from kinetoscope.frames.tracks import nest_spans

PYTHON = "python_function"
ROLES = ("thread", "markers", "asynchronous", "modules")
"""Tracks of a thread: its spans, Kinetoscope's markers, spans that do not nest, and calls of torch modules."""

_KINETO_SPAN = "Trace"  # Kineto's span for its own recording
_INSTANTS_OF_KINETO = r"^(\[memory\]$|Iteration Start: |Record Window End$)"
_ASYNCHRONOUS = ("b", "S")
_IN_THREADS = (*DEVICE_CATEGORIES, *RUNTIME_CALLS, *OPERATORS, *ANNOTATIONS, *ANNOTATIONS_OF_DEVICES, *SYNCHRONISATIONS)
_IN_THREADS += (*SAMPLES, PYTHON, "gc", "compile", "kinetoscope", "overhead", "ac2g", "async_cpu_to_gpu")


def read_spans(trace: Trace) -> pl.DataFrame:
    """Return the spans and instants of a window, with times of the trace's clock in nanoseconds.

    Columns: ``begin`` and ``dur``; ``lane``, 4 times the track plus the index of its role in `ROLES`, and ``row`` in
    it; ``name``, ``category`` and ``correlation``; ``event``, the row in `select_shown_events`.
    """
    columns = ("ts", "dur", "track", "name", "category", "correlation", "phase", "kind")
    spans = select_shown_events(trace).select("event", *columns).collect()
    spans = spans.with_columns(pl.col("dur").fill_null(0).clip(0), pl.col("category").fill_null(""))
    spans = spans.with_columns(lane=pl.col("track") * len(ROLES) + _find_role(_has_kinetoscope_markers(trace)))
    rows = _assign_rows(spans.select("ts", "dur", pl.col("lane").alias("track")))
    return spans.select("event", "lane", "name", "category", "correlation", "dur", rows, begin="ts")


def measure_profiler_ns(spans: pl.DataFrame) -> tuple[int, int]:
    """Return the profiler's overhead on the thread of the loop: within the steps of a window, and around them.

    ``spans`` are all spans of the window.
    """
    is_step = (pl.col("category") == "batch") | pl.col("name").str.starts_with(STEP)
    tracks = spans.filter(is_step).select(pl.col("lane") // len(ROLES)).to_series().unique()
    is_profiler = (pl.col("category") == "kinetoscope") & (pl.col("lane") // len(ROLES)).is_in(tracks.implode())
    times = spans.select("begin", end=pl.col("begin") + pl.col("dur"))
    profiler_intervals, steps = (
        IntervalUnion(times.filter(spans.select(kind).to_series())) for kind in (is_profiler, is_step)
    )
    in_steps_ns = profiler_intervals.intersection(steps).total_ns
    return in_steps_ns, profiler_intervals.total_ns - in_steps_ns


def select_shown_events(trace: Trace) -> pl.LazyFrame:
    """Return the events that are shown as spans, numbered by ``event``."""
    is_span = (
        (pl.col("kind") == "span")
        & (pl.col("category") != _KINETO_SPAN).fill_null(True)
        & (pl.col("dur").is_not_null())
    )
    is_instant = (pl.col("kind") == "instant") & ~pl.col("name").str.contains(_INSTANTS_OF_KINETO)
    return trace.events.filter((is_span | is_instant) & pl.col("ts").is_not_null()).with_row_index("event")


def _find_role(has_markers: bool) -> pl.Expr:
    """Return an expression of the role of each span."""
    is_marker = ~pl.col("category").is_in(list(_IN_THREADS)) & (pl.col("category") != "") & pl.lit(has_markers)
    role = pl.when(pl.col("phase").cast(pl.String).is_in(list(_ASYNCHRONOUS))).then(2)
    return role.when(pl.col("category") == MODULE).then(3).when(is_marker).then(1).otherwise(0).cast(pl.UInt32)


def _has_kinetoscope_markers(trace: Trace) -> bool:
    """Return whether a trace may have Kinetoscope's markers, whose categories differ from Kineto's."""
    return "kinetoscope" in trace.header


def _assign_rows(spans: pl.DataFrame) -> pl.Series:
    """Return the row of each span (``ts``, ``dur``, ``track``): below its parents, overlapping no other span.

    If spans overlap and neither contains the other, the later one goes to the next free row.
    """
    nested = spans.select("ts", pl.col("dur").clip(0), "track").with_row_index("source_row")
    nested = nested.with_columns(nest_spans(nested).rename({"depth": "row"}).get_columns())
    nested = nested.with_columns(end=pl.col("ts") + pl.col("dur"))
    overlapping = nested.filter(pl.col("track").is_in(_find_overlapping_tracks(nested).implode()))
    if len(overlapping):
        overlapping = overlapping.sort("track", "ts", "end", descending=[False, False, True], maintain_order=True)
        found = nested["row"].scatter(overlapping["source_row"], pl.Series(_free_rows(overlapping), dtype=pl.UInt32))
        return found.rename("row")
    return nested["row"]


def _find_overlapping_tracks(nested: pl.DataFrame) -> pl.Series:
    """Return the tracks in which nested spans of one row overlap."""
    in_rows = nested.sort("track", "row", "ts")
    before = pl.col("end").shift(1).over("track", "row")
    return in_rows.filter(pl.col("ts") < before)["track"].unique()


def _free_rows(spans: pl.DataFrame) -> list[int]:
    """Return the first free row of each span, below its parent; spans come by track, in the order of time."""
    rows: list[int] = []
    row_of: dict[int, int] = {}
    track, track_rows = None, _TrackRows()
    for track_of_span, source_row, parent, begin, end in spans.select(
        "track", "source_row", "parent", "ts", "end"
    ).iter_rows():
        if track_of_span != track:
            track, track_rows = track_of_span, _TrackRows()
        row_of[source_row] = row = track_rows.occupy(0 if parent is None else row_of[parent] + 1, begin, end)
        rows.append(row)
    return rows


class _TrackRows:
    """Rows of one track: the free ones in order, and the others by the time at which they become free."""

    def __init__(self) -> None:
        self._num_rows = 0
        self._free: list[int] = []
        self._occupied: list[tuple[int, int]] = []

    def occupy(self, first: int, begin: int, end: int) -> int:
        """Return the first row that is free from ``begin`` on, at or below ``first``, and occupy it until ``end``."""
        while self._occupied and self._occupied[0][0] <= begin:
            insort(self._free, heappop(self._occupied)[1])
        index = bisect_left(self._free, first)
        if index < len(self._free):
            row = self._free.pop(index)
        else:
            row = max(self._num_rows, first)
            self._free += range(self._num_rows, row)
            self._num_rows = row + 1
        heappush(self._occupied, (end, row))
        return row
