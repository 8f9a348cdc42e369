"""Idle time of a device, by what the event that ends each gap waited for."""

from dataclasses import dataclass

import polars as pl

from kinetoscope.analysis.windows.intervals import latest_end_before
from kinetoscope.analysis.windows.span_names import GRAPH_LAUNCH

MAX_KERNEL_WAIT_NS = 30_000
"""A shorter rest of a gap, once its event was launched, is the device's pause between two kernels (HTA's bound)."""


@dataclass(frozen=True)
class IdleTime:
    """Idle time of a device by reason, in nanoseconds.

    ``host_wait_ns``: the next event was not launched yet. ``kernel_wait_ns``: it was, and began within 30 us of that.
    ``other_ns``: it waited longer, as for another stream, or its launch was not recorded.
    """

    host_wait_ns: int
    kernel_wait_ns: int
    other_ns: int


def idle_time(device: pl.DataFrame) -> IdleTime:
    """Return the idle time between the first and the last event of a device.

    Args:
        device: its events, in the order of ``begin``.
    """
    gaps, is_short = _find_gaps(device), pl.col("is_short")
    rest = pl.col("rest")
    sums = gaps.select(
        pl.col("host_wait").sum(), rest.filter(is_short).sum(), rest.filter(~is_short).sum().alias("other")
    )
    return IdleTime(*(int(value or 0) for value in sums.row(0)))


def find_launch_waits(device: pl.DataFrame) -> pl.DataFrame:
    """Return the intervals of ``host_wait_ns``, with the ``track`` of the thread that launched the next event."""
    gaps = device.select(
        begin=latest_end_before(), end=pl.min_horizontal("begin", "launch_begin"), track="launch_track"
    )
    return gaps.drop_nulls().filter(pl.col("begin") < pl.col("end"))


def idle_before_graphs_ns(device: pl.DataFrame) -> int:
    """Return the part of ``other_ns`` that ends in a kernel of a CUDA graph, whose kernels share one launch."""
    if not device["launch_name"].unique().cast(pl.String).str.contains(GRAPH_LAUNCH).any():
        return 0
    is_of_graph = pl.col("launch_name").cast(pl.String).str.contains(GRAPH_LAUNCH).fill_null(False)
    return int(_find_gaps(device).filter(~pl.col("is_short") & is_of_graph)["rest"].sum())


def _find_gaps(device: pl.DataFrame) -> pl.DataFrame:
    """Return the gap before each event of a device, often 0.

    Returns:
        A frame with ``launch_name``; ``host_wait``, the ns until the event was launched; ``rest``, the ns after that;
            and ``is_short``, whether the rest is a pause between kernels.
    """
    idle_from = latest_end_before()
    gap = (pl.col("begin") - idle_from).clip(0)
    gaps = device.select("launch_begin", "launch_name", gap=gap, idle_from=idle_from)
    host_wait = (pl.col("launch_begin") - pl.col("idle_from")).clip(0, pl.col("gap")).fill_null(0)
    rest = pl.col("gap") - host_wait
    is_short = pl.col("launch_begin").is_not_null() & (rest < MAX_KERNEL_WAIT_NS)
    return gaps.select("launch_name", host_wait=host_wait, rest=rest, is_short=is_short)
