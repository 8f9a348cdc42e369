"""Operators that compute on the CPU while the GPU idles, and waits whose data the CPU needs."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import polars as pl

from kinetoscope.analysis.windows.columns import build_frame, drop_null_rows, filter_rows
from kinetoscope.analysis.windows.intervals import IntervalUnion
from kinetoscope.analysis.windows.kernel_names import COPY_TO_HOST
from kinetoscope.analysis.windows.nesting import find_innermost, interval_index
from kinetoscope.analysis.windows.span_names import COMMUNICATION_CALLS
from kinetoscope.analysis.windows.window import MIN_RECURRING_STEPS, RankWindow

CPU_OPERATORS = ("cpu_optimizer", "cpu_operator")
"""Parts of the CPU's time in replays, and kinds of stalls: operators of the optimizer, and all others."""

MIN_CPU_OPERATOR_NS = 100_000
"""An operator that launches a kernel takes up to this by itself (the limit of launches in replays)."""

MIN_DATA_BYTES = 16_384
"""A larger copy to the CPU is data that the CPU works on; the values that a loop reads for its log are smaller."""

_SPAN = ("track", "begin", "end")
_NATIVE_NAME = r"^[A-Za-z_]\w*::"
_PYTHON_NAME = rf"^(autograd|torch)::|{COMMUNICATION_CALLS}"
"""Spans around hooks in Python, which autograd or torch may call, and collectives, which wait for other ranks."""


def find_cpu_operators(
    window: RankWindow, others: Iterable[pl.DataFrame], *, excluded: IntervalUnion, optimizing: IntervalUnion
) -> pl.DataFrame:
    """Return the intervals in which operators compute on the CPU while a GPU idles.

    An interval is time of an operator itself, outside of the operators and runtime calls inside it.

    Args:
        window: a window of one rank.
        others: spans that interrupt operators, such as garbage collections.
        excluded: time that does not count, such as fetches.
        optimizing: time of the optimizer.

    Returns:
        A frame with ``track``, ``begin``, ``end``, ``name``, ``idle_ns`` of the GPU in it, and ``part``, one of
            `CPU_OPERATORS`, of operators that recur in several steps. Without a GPU, or where its runtime calls were
            not recorded, no rows.
    """
    intervals = (
        _find_self_time(window, others) if len(window.device) and len(window.cpu.runtime_calls) else _no_intervals()
    )
    begins, ends = intervals["begin"], intervals["end"]
    idle = ends - begins - window.devices.time.busy.overlap_ns(begins, ends) if len(intervals) else begins
    in_optimizer = optimizing.overlap_ns(begins, ends) > 0
    found = intervals.hstack([idle.alias("idle_ns"), in_optimizer.alias("in_optimizer")])
    found = filter_rows(found, excluded.overlap_ns(begins, ends) == 0)
    optimizer, other = map(pl.lit, CPU_OPERATORS)
    part = pl.when("in_optimizer").then(optimizer).otherwise(other)
    return _filter_recurring(window, found.filter(pl.col("idle_ns") > 0).with_columns(part=part).drop("in_optimizer"))


def find_sync_calls(window: RankWindow) -> pl.DataFrame:
    """Return the runtime calls that wait for the device.

    They are named ``*Synchronize``, or returned after the copy that they started had ended on the device.
    """
    calls, device = window.cpu.runtime_calls, window.device
    waits = calls["name"].str.ends_with("Synchronize")
    copies = filter_rows(device[["correlation", "end"]], device["kind"] == "copy")
    if len(copies):
        copies = copies.group_by("correlation").agg(copied=pl.col("end").max())
        copied = calls[["correlation"]].join(copies, on="correlation", how="left", maintain_order="left")["copied"]
        waits |= calls["end"] >= copied
    return filter_rows(calls, waits)


def are_of_cpu_optimizer(
    device: pl.DataFrame, operators: Mapping[str, pl.DataFrame], optimizing: IntervalUnion
) -> pl.Series:
    """Return whether each device event is a copy for an optimizer on the CPU: of gradients, or of weights.

    Args:
        device: the device events of a window.
        operators: the intervals of `find_cpu_operators`, by part.
        optimizing: time of the optimizer.
    """
    begins = device["launch_begin"]
    if not len(operators["cpu_optimizer"]):
        return pl.repeat(False, len(device), eager=True)
    is_data = (device["kind"] == "copy") & (device["bytes"].fill_null(0) >= MIN_DATA_BYTES)
    return is_data & begins.is_not_null() & optimizing.covers(begins)


def _no_intervals() -> pl.DataFrame:
    return pl.DataFrame(schema={"track": pl.UInt32, "begin": pl.Int64, "end": pl.Int64, "name": pl.String})


def _find_self_time(window: RankWindow, others: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Return the long intervals in which a native operator is the innermost span of a thread that launches work."""
    named = [window.cpu.operators.select(*_SPAN, pl.col("name").cast(pl.String))]
    named += [
        frame.select(*_SPAN, name=pl.lit(None, pl.String))
        for frame in (window.cpu.runtime_calls, *others)
        if len(frame)
    ]
    spans = pl.concat(named, how="vertical_relaxed")
    tracks = {window.loop_track, *window.device["launch_track"].drop_nulls().unique().to_list()}
    spans = spans.filter(pl.col("track").is_in(list(tracks))).sort("begin")
    moments = pl.concat([build_frame(spans["track"], spans[side].alias("begin")) for side in ("begin", "end")])
    moments = moments.sort("track", "begin")
    end, is_same_track = pl.col("begin").shift(-1), pl.col("track").shift(-1) == pl.col("track")
    is_long = is_same_track & (end - pl.col("begin") >= MIN_CPU_OPERATOR_NS)
    long = moments.with_columns(end=end).filter(is_long)
    if not len(long):
        return _no_intervals()
    rows = find_innermost(spans, long.select("track", ts=pl.col("begin") + 1))
    named_intervals = drop_null_rows(long.hstack([spans["name"][rows]]), "name")
    name = pl.col("name").str
    return named_intervals.filter(name.contains(_NATIVE_NAME) & ~name.contains(_PYTHON_NAME)).select(*_SPAN, "name")


def _filter_recurring(window: RankWindow, intervals: pl.DataFrame) -> pl.DataFrame:
    """Return the intervals of operators that recur: on a busy machine, any operator may be interrupted once."""
    step = interval_index(window.steps, intervals["begin"]).alias("step")
    at_least = min(MIN_RECURRING_STEPS, max(1, len(window.steps)))
    is_recurring = pl.col("step").drop_nulls().n_unique().over("name") >= at_least
    return intervals.hstack([step]).filter(is_recurring).drop("step")


def are_for_data(calls: pl.DataFrame, device: pl.DataFrame, cpu_operators: Collection[pl.DataFrame]) -> pl.Series:
    """Return whether the CPU needs the data of each blocking call.

    It does if the call waits for a copy of `MIN_DATA_BYTES` or more to the CPU, or if an operator computes on the CPU
    after it, before the thread launches anything else.
    """
    is_large = (device["kind"] == "copy") & (device["bytes"].fill_null(0) >= MIN_DATA_BYTES)
    is_large &= device["name"].str.contains(COPY_TO_HOST)
    if not len(calls) or not (is_large.any() or any(map(len, cpu_operators))):
        return pl.repeat(False, len(calls), eager=True)
    copies = filter_rows(device[["correlation", "bytes"]], is_large)
    copies_of_calls = calls[["correlation"]].join(
        copies.unique("correlation"), on="correlation", how="left", maintain_order="left"
    )
    large = copies_of_calls["bytes"].is_not_null()
    rows = calls.select(*_SPAN).with_row_index("call")
    launched = device.select(launched="launch_begin", track="launch_track", is_large=is_large)
    launched = drop_null_rows(launched, "launched", "track").sort("launched")
    options: Any = {"by": "track", "check_sortedness": False}
    before = rows.sort("begin").join_asof(launched, left_on="begin", right_on="launched", **options)
    operators = pl.concat(cpu_operators).select("track", computed="begin").sort("computed")
    after = before.sort("end").join_asof(operators, left_on="end", right_on="computed", strategy="forward", **options)
    following = launched.select("track", next_launch="launched")
    after = after.join_asof(following, left_on="end", right_on="next_launch", strategy="forward", **options)
    is_read = pl.col("computed").is_not_null() & (pl.col("computed") < pl.col("next_launch").fill_null(2**62))
    found = after.select("call", for_data=pl.col("is_large").fill_null(False) | is_read).sort("call")["for_data"]
    return large | found
