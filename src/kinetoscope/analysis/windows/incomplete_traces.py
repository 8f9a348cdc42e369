"""Incomplete traces: truncated files, runs that ended within a step, and traces from which events were removed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from kinetoscope.analysis.windows.columns import filter_rows
from kinetoscope.analysis.windows.nesting import interval_index
from kinetoscope.analysis.windows.span_names import ANNOTATIONS, LAUNCHES, OPERATORS
from kinetoscope.analysis.windows.window import RankWindow
from kinetoscope.formats.trace_names import BATCH

MAX_MISSING_SHARE = 0.02
"""A step is whole if device events of at most this share of its launches are missing: the cut is in its last ones."""

_OPEN_AT_END = r'"cut": ?"'
"""Pattern in the args of our spans that were open when their window closed."""

_MAX_KEPT_SHARE = 0.1
"""A trace was filtered if at most this share of its event numbers is left."""

_MIN_GAPS = 100
"""Fewer gaps between numbers do not show whether events were removed."""

_MAX_EVENTS = 2_000
"""Number of events whose numbers are read."""

_LARGE_GAP_SHARE = 0.02
"""Share of the gaps between event numbers, the largest, that count as cut time instead of removed events."""


def last_whole_step(windows: Sequence[RankWindow]) -> int | None:
    """Return the number of the last step before the end of a truncated file; None if no step is whole.

    Profilers write the events of threads before those of devices, stream by stream. So a step is whole if another one
    follows it, and if what it launched is there.
    """
    whole = [step for window in windows for step in _whole_steps(window)]
    return max(whole, default=None)


def _whole_steps(window: RankWindow) -> list[int]:
    steps = window.steps.sort("begin")
    if not len(steps):
        return []
    calls = window.cpu.runtime_calls
    is_launch = calls["name"].str.contains(LAUNCHES)
    calls = calls.select("begin", is_missing=~window.has_launched)
    calls = filter_rows(calls, is_launch)
    missing = calls.hstack([interval_index(steps, calls["begin"])]).drop_nulls("index")
    shares = dict(missing.group_by("index").agg(pl.col("is_missing").mean()).iter_rows())
    whole: list[int] = []
    for index, step in enumerate(steps["step"].to_list()[:-1]):
        if shares.get(index, 0.0) > MAX_MISSING_SHARE:
            break
        whole.append(step)
    return whole


def truncate_after_step(window: RankWindow, last_step: int) -> RankWindow:
    """Return the window without what the loop did after a step, nor what devices did for that."""
    until_ns: Any = window.steps.filter(pl.col("step") > last_step)["begin"].min()
    return window if until_ns is None else _truncate_at(window, until_ns)


def drop_unfinished_step(window: RankWindow) -> RankWindow:
    """Return the window without the step in which the run ended: its span was still open when its window closed."""
    if not len(window.steps) or not window.steps["is_batch"][-1]:
        return window
    begin_ns = int(window.steps["begin"][-1])
    is_step = (pl.col("name") == BATCH) & (pl.col("ts") == begin_ns)
    args = window.trace.spans.filter(is_step).select(pl.col("args").cast(pl.String)).collect()["args"]
    return _truncate_at(window, begin_ns) if args.str.contains(_OPEN_AT_END).any() else window


def _truncate_at(window: RankWindow, until_ns: int) -> RankWindow:
    is_before = pl.col("begin") < until_ns
    device = window.device.filter(pl.coalesce("launch_begin", "begin") < until_ns)
    return replace(
        window,
        trace=window.trace.until(until_ns),
        cpu_spans=window.cpu_spans.filter(is_before),
        device=device,
        steps=window.steps.filter(is_before),
        samples=window.samples.filter(is_before),
        watched_phases=window.watched_phases.filter(is_before),
    )


def is_filtered(window: RankWindow) -> bool:
    """Return whether most events were removed from a trace of torch.profiler.

    CUPTI numbers the runtime calls, and does not record all of them; Kineto numbers the events of threads (``Ev Idx``).
    Where few numbers of both are left, events are missing all over the trace. Either alone is no evidence: calls may
    not have been recorded, or only stacks removed.
    """
    return _are_mostly_missing(window.cpu.runtime_calls["correlation"].drop_nulls()) and _are_mostly_missing(
        _read_event_numbers(window)
    )


def _are_mostly_missing(numbers: pl.Series) -> bool:
    """Return whether most numbers between others are missing, apart from some large gaps; False for few numbers."""
    gaps = numbers.unique().sort().diff().drop_nulls().sort()
    gaps = gaps.head(len(gaps) - int(len(gaps) * _LARGE_GAP_SHARE))
    return len(gaps) >= _MIN_GAPS and len(gaps) <= _MAX_KEPT_SHARE * int(gaps.sum())


def _read_event_numbers(window: RankWindow) -> pl.Series:
    """Return Kineto's numbers of some operators and annotations, which follow each other in the file."""
    spans = window.trace.spans.filter(pl.col("category").is_in([*OPERATORS, *ANNOTATIONS])).head(_MAX_EVENTS)
    number = pl.col("args").cast(pl.String).str.extract(r'"Ev Idx": ?(\d{1,15})\b').cast(pl.Int64)
    return spans.select(number=number).collect()["number"].drop_nulls()
