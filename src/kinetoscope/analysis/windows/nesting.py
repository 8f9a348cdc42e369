"""Spans around moments: the step, the outermost span or the innermost one."""

from typing import Any

import polars as pl

from kinetoscope.analysis.windows.columns import build_frame, constant_column, null_unless, sort_rows
from kinetoscope.analysis.windows.intervals import latest_end_before, zeros
from kinetoscope.frames.tracks import nest_spans

_NEVER = pl.Series("end", [-(2**63)])
_UNCHECKED: Any = {"check_sortedness": False}  # polars cannot check it within groups, and warns


def find_outermost(spans: pl.DataFrame) -> pl.DataFrame:
    """Return the spans that are not inside others of their thread, in the order of ``begin``."""
    spans = spans.sort("begin", "end", descending=[False, True], maintain_order=True)
    until = latest_end_before().over("track")
    is_inside = (pl.col("begin") < until) & (pl.col("end") <= until)
    return spans.filter(~is_inside.fill_null(False))


def interval_index(intervals: pl.DataFrame, times: pl.Series) -> pl.Series:
    """Return the row of the interval around each time, as ``index``; null for none.

    ``intervals`` are disjoint and in order.
    """
    begun = intervals["begin"].search_sorted(times, side="right").alias("index")
    ends = pl.concat([_NEVER, intervals["end"]])  # the first is for times before all intervals
    return null_unless(begun - 1, times < ends[begun])


def find_enclosing(intervals: pl.DataFrame, track: pl.Series, times: pl.Series) -> pl.DataFrame:
    """Return the last interval of a track that began before each time and ended after it; nulls for none.

    Args:
        intervals: intervals with a ``track``, in the order of ``begin``.
        track: the track of each time.
        times: times in ns, in any order.
    """
    names = [name for name in intervals.columns if name != "track"]
    if not len(intervals) or not times.count():
        return pl.DataFrame([constant_column(name, None, intervals.schema[name], len(times)) for name in names])
    queries = build_frame(times.alias("time"), track.alias("track")).with_row_index("row")
    queries = queries if (is_in_order := times.is_sorted()) else queries.sort("time")
    intervals = sort_rows(intervals, "begin")
    found = queries.join_asof(
        intervals, left_on="time", right_on="begin", by="track", strategy="backward", **_UNCHECKED
    )
    found = found if is_in_order else found.sort("row")
    is_inside = found["time"] < found["end"]
    return build_frame(*(null_unless(found[name], is_inside) for name in names))


def find_innermost(spans: pl.DataFrame, times: pl.DataFrame) -> pl.Series:
    """Return the row of the innermost span of a track around each of ``times`` (``ts``, ``track``); null for none."""
    queries = [times["ts"].cast(pl.Int64), zeros(len(times)), times["track"].cast(pl.UInt32)]
    spans_of_rows = [
        spans["begin"].cast(pl.Int64),
        (spans["end"] - spans["begin"]).cast(pl.Int64),
        spans["track"].cast(pl.UInt32),
    ]
    rows = (
        pl.concat(both).alias(name) for name, *both in zip(("ts", "dur", "track"), spans_of_rows, queries, strict=True)
    )
    return nest_spans(build_frame(*rows))["parent"][len(spans) :]
