"""Time inside of some operators, which a replay can speed up."""

from collections.abc import Iterable, Iterator

import polars as pl

from kinetoscope.analysis.windows.intervals import IntervalUnion
from kinetoscope.analysis.windows.nesting import find_enclosing
from kinetoscope.analysis.windows.window import RankWindow

Span = tuple[int, int, int, str]
"""Track, begin, end and name."""


class OperatorIntervals:
    """The operators of these ``names``. Time inside of two of them counts for the inner one."""

    def __init__(self, window: RankWindow, names: Iterable[str]) -> None:
        self._names = sorted(names)
        schema = {"track": pl.UInt32, "begin": pl.Int64, "end": pl.Int64, "name": pl.String}
        intervals = list(_find_innermost(self._spans(window).iter_rows())) if self._names else []
        self._intervals = pl.DataFrame(intervals, schema=schema, orient="row")

    def _spans(self, window: RankWindow) -> pl.DataFrame:
        spans = window.cpu.operators.filter(pl.col("name").is_in(self._names))
        spans = spans.select("track", "begin", "end", pl.col("name").cast(pl.String))
        return spans.sort("track", "begin", "end", descending=[False, False, True])

    def on_threads(self, edges: pl.DataFrame) -> pl.DataFrame:
        """Return how long each edge is inside of each operator, as columns.

        Args:
            edges: ``track``, ``begin``, ``end``.
        """
        found = []
        for name in self._names:
            inside = pl.zeros(len(edges), dtype=pl.Int64, eager=True)
            for (track,), of_track in (
                self._intervals.filter(pl.col("name") == name).partition_by("track", as_dict=True).items()
            ):
                covered = IntervalUnion(of_track).overlap_ns(edges["begin"], edges["end"])
                inside += covered * (edges["track"] == track)
            found.append(inside.alias(inside_column(name)))
        return pl.DataFrame(found)

    def on_device(self, device: pl.DataFrame) -> pl.DataFrame:
        """Return the time of each event that was launched inside of each operator: all of it, or 0."""
        inside = find_enclosing(self._intervals, device["launch_track"], device["launch_begin"])["name"]
        length = device["end"] - device["begin"]
        return pl.DataFrame(
            [(length * (inside == name).fill_null(False)).alias(inside_column(name)) for name in self._names]
        )


def inside_column(name: str) -> str:
    """Return the column of edges with the time inside of an operator."""
    return f"inside {name}"


def _find_innermost(spans: Iterable[Span]) -> Iterator[Span]:
    """Yield the intervals of nested spans in which each is the innermost, in the order of track and start."""
    open_spans: list[tuple[int, int, str]] = []
    at = 0

    def close_until(track: int, until: int) -> Iterator[Span]:
        nonlocal at
        while open_spans and (open_spans[-1][0] != track or open_spans[-1][1] <= until):
            of_track, end, name = open_spans.pop()
            if end > at:
                yield of_track, at, end, name
                at = end

    for track, begin, end, name in spans:
        yield from close_until(track, begin)
        if open_spans and begin > at:
            yield track, at, begin, open_spans[-1][2]
        at = begin
        open_spans.append((track, end, name))
    yield from close_until(-1, 0)
