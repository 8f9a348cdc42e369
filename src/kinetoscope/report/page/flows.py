"""Arrows between spans: launches of kernels, and the flows of a trace."""

import polars as pl

from kinetoscope.analysis.windows.nesting import find_innermost
from kinetoscope.analysis.windows.span_names import RUNTIME_CALLS
from kinetoscope.formats.device_events import DEVICE_CATEGORIES
from kinetoscope.frames.trace import Trace
from kinetoscope.report.page.rank_spans import ROLES

_LAUNCHES = ("ac2g", "async_cpu_to_gpu")


def find_launches(spans: pl.DataFrame) -> pl.Series:
    """Return the row of the call that launched each device event of a window; null for other spans."""
    spans = spans.select("category", "correlation").with_row_index("launch")
    has_one = pl.col("correlation") > 0
    calls = spans.filter(pl.col("category").is_in(list(RUNTIME_CALLS)) & has_one).select("launch", "correlation")
    is_device = pl.col("category").is_in(list(DEVICE_CATEGORIES)) & has_one
    device_correlations = spans.select(correlation=pl.when(is_device).then("correlation"))
    calls = calls.unique("correlation", keep="first")
    return device_correlations.join(calls, on="correlation", how="left", maintain_order="left")["launch"]


def find_flows(trace: Trace, spans: pl.DataFrame) -> pl.DataFrame:
    """Return the flows of a window except launches: rows of spans as ``source`` and ``target``, and ``name``."""
    ends = trace.flows.filter(~pl.col("name").is_in(list(_LAUNCHES)) & pl.col("ts").is_not_null()).collect()
    if not len(ends):
        return pl.DataFrame(schema={"source": pl.UInt32, "target": pl.UInt32, "name": pl.String})
    threads = spans.select("begin", "lane", end=pl.col("begin") + pl.col("dur")).with_row_index("at")
    threads = threads.filter(pl.col("lane") % len(ROLES) == 0)
    around = find_innermost(threads.with_columns(track=pl.col("lane") // len(ROLES)), ends)
    ends = ends.with_columns(target=threads["at"].gather(around))
    key = ["category", "name", "id", "id_text"]
    ends = ends.sort(*key, "ts", maintain_order=True)
    ends = ends.with_columns(source=pl.col("target").shift(1).over(key))
    is_arrow = (pl.col("step") != "s") & (pl.col("source") != pl.col("target"))
    return ends.filter(is_arrow).select("source", "target", "name").drop_nulls()
