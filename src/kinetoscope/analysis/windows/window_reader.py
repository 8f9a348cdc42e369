"""Reading of windows: the spans of a trace, sorted into those of threads, devices, steps and samples."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import polars as pl

from kinetoscope.analysis.windows.columns import filter_rows, select_columns
from kinetoscope.analysis.windows.kernel_names import COPY, is_communication
from kinetoscope.analysis.windows.span_names import (
    ANNOTATIONS_OF_DEVICES,
    FETCH,
    RUNTIME_CALLS,
    SYNCHRONISATIONS,
    THREAD_CATEGORIES_WITH_STREAM,
    UNKNOWN_DEVICE_CATEGORIES,
)
from kinetoscope.analysis.windows.step_spans import find_steps, infer_steps
from kinetoscope.analysis.windows.window import RankWindow
from kinetoscope.formats.device_events import COPIES, DEVICE_CATEGORIES
from kinetoscope.formats.trace_names import BATCH, SAMPLES, WATCHED_PHASE
from kinetoscope.frames.trace import Trace

_IS_RUNTIME_CALL = pl.col("category").is_in(list(RUNTIME_CALLS))
_COLUMNS = ("ts", "dur", "name", "category", "track", "correlation", "stream", "device", "batch")
_ARGUMENTS = (
    "bytes",
    "collective_sequence",
    "shapes",
    "collective",
    "dtype",
    "group",
    "elements_in",
    "elements_out",
    "group_size",
    "types",
)


def read_windows(trace: Trace, step_name: str | None = None) -> list[RankWindow]:
    """Return the windows in a trace, one per rank.

    Args:
        trace: a trace of one rank, or a merged one.
        step_name: name of the spans that are steps, if not the usual. Then a window lasts from the first to the last.
    """
    return [_build_window(part, _read_spans(part), step_name) for part in trace.parts]


def read_recorded_windows(trace: Trace, step_name: str | None = None) -> list[RankWindow]:
    """Return the windows in a trace without events that began in warm-up batches."""
    return [_window_after_warmup(part, _read_spans(part), step_name) for part in trace.parts]


def _window_after_warmup(trace: Trace, spans: pl.DataFrame, step_name: str | None) -> RankWindow:
    is_warmup = [pl.col("batch").is_between(first, until - 1) for first, until in trace.warmup_batches]
    warmup = spans.filter((pl.col("name") == BATCH) & pl.any_horizontal(is_warmup)) if is_warmup else spans.clear()
    if not len(warmup):
        return _build_window(trace, spans, step_name)
    until_ns: Any = warmup["end"].max()
    spans = _clip_before(spans, until_ns)
    return replace(_build_window(trace.since(until_ns), spans, step_name), trace_with_warmup=trace)


def _clip_before(spans: pl.DataFrame, since_ns: int) -> pl.DataFrame:
    """Return the spans that began no earlier, and the rest of frames of sampled stacks; each frame is one span."""
    is_sample = pl.col("category").is_in(list(SAMPLES)).fill_null(False)
    spans = spans.filter((pl.col("begin") >= since_ns) | (is_sample & (pl.col("end") > since_ns)))
    return spans.with_columns(pl.col("begin").clip(since_ns))


def _read_spans(trace: Trace) -> pl.DataFrame:
    spans = trace.spans.select(*_COLUMNS, *_ARGUMENTS).drop_nulls(("ts", "dur")).rename({"ts": "begin"})
    end = pl.col("begin") + pl.col("dur").clip(0)
    found = spans.with_columns(pl.col("category").cast(pl.Categorical), end=end).drop("dur").collect()
    if found["begin"].is_sorted():
        return found
    order = found[["begin"]].with_row_index("row").sort("begin")["row"]
    return pl.DataFrame([column[order] for column in _pop_columns(found)])


def _pop_columns(frame: pl.DataFrame) -> Iterator[pl.Series]:
    """Yield the columns of a frame, each removed before the next, so that a copy needs little memory."""
    return map(frame.drop_in_place, frame.columns)


def _build_window(trace: Trace, spans: pl.DataFrame, step_name: str | None) -> RankWindow:
    """Return the window of some spans; the frame has no columns afterwards."""
    counts = spans.group_by("category").len()
    unknown_device_events = _count_unknown_device_events(spans, counts)
    off_threads = {
        *DEVICE_CATEGORIES,
        *ANNOTATIONS_OF_DEVICES,
        *SYNCHRONISATIONS,
        *SAMPLES,
        WATCHED_PHASE,
        *unknown_device_events,
    }
    off_threads &= set(counts["category"])
    is_other = pl.col("category").is_in(list(off_threads)).fill_null(False)  # a span may have no category
    cpu_spans, others = _partition(spans, spans.select(is_other=is_other)["is_other"])
    device, samples, watched = (
        others.filter(pl.col("category").is_in(sorted(wanted)))
        if (wanted := off_threads & {*categories})
        else others.clear()
        for categories in (DEVICE_CATEGORIES, SAMPLES, (WATCHED_PHASE,))
    )
    steps = find_steps(cpu_spans, step_name)
    since_until = _loop_bounds(steps, cpu_spans) if step_name is not None and len(steps) else None
    inferred = infer_steps(cpu_spans) if step_name is None and not len(steps) else None
    if inferred is not None:
        number = pl.int_range(pl.len(), dtype=pl.Int64).alias("step")
        steps = inferred.steps.select(number, "begin", "end", "track", is_batch=pl.lit(False))
        since_until = (steps["begin"][0], steps["end"][-1])
    if since_until is not None:
        cpu_spans, samples, watched = (_clip_to(frame, *since_until) for frame in (cpu_spans, samples, watched))
    device = _add_launches(_classify_device_events(device), cpu_spans)
    if since_until is not None:
        device = device.filter(pl.col("launch_begin").is_not_null() | pl.col("begin").is_between(*since_until))
    inferred_from = inferred.name if inferred is not None else None
    return RankWindow(
        trace,
        trace.rank,
        cpu_spans,
        device,
        steps,
        samples,
        watched,
        unknown_device_events,
        inferred_from=inferred_from,
    )


def _loop_bounds(steps: pl.DataFrame, cpu_spans: pl.DataFrame) -> tuple[int, int]:
    """Return the start of the first step, or of the fetch of its batch before it, and the end of the last step."""
    begin, end = steps["begin"][0], steps["end"][0]
    fetches = cpu_spans.filter((pl.col("track") == steps["track"][0]) & pl.col("name").str.contains(FETCH))
    before = fetches.filter(pl.col("end") <= begin)
    if not len(before) or fetches["begin"].is_between(begin, end, closed="left").any():
        return begin, steps["end"][-1]
    last = before["begin"][-1]
    is_same_wait = (before["begin"] == last) | (before["end"] > last)  # the fetch, or a span around it
    return before["begin"].filter(is_same_wait)[0], steps["end"][-1]


def _clip_to(spans: pl.DataFrame, since: int, until: int) -> pl.DataFrame:
    """Return the spans that began between two times, and the part between them of frames of sampled stacks."""
    is_sample = pl.col("category").is_in(list(SAMPLES)).fill_null(False)
    end = pl.when(is_sample).then(pl.col("end").clip(upper_bound=until)).otherwise("end")
    return _clip_before(spans, since).filter(pl.col("begin") < until).with_columns(end=end).rechunk()


def _partition(spans: pl.DataFrame, is_other: pl.Series) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Partition spans by ``is_other`` into two single-chunk frames, as the Arrow consumer requires.

    Afterwards ``spans`` has no columns.
    """
    is_cpu = ~is_other
    cpu_spans, others = [], []
    for column in _pop_columns(spans):
        cpu_spans.append(_in_one_chunk(column.filter(is_cpu)))
        others.append(_in_one_chunk(column.filter(is_other)))
    return _build_frame(cpu_spans), _build_frame(others)


def _in_one_chunk(column: pl.Series) -> pl.Series:
    """Return the column in one chunk; without any row where all values are null."""
    return column.rechunk() if column.null_count() < len(column) else column.clear()


def _build_frame(columns: list[pl.Series]) -> pl.DataFrame:
    """Return the columns as a frame. A column without rows becomes nulls, which take no space."""
    found = pl.DataFrame([column for column in columns if len(column)])
    if not found.width:
        return pl.DataFrame(columns)
    nothing = [pl.lit(None, column.dtype).alias(column.name) for column in columns if not len(column)]
    return found.with_columns(nothing)[[column.name for column in columns]] if nothing else found


def _count_unknown_device_events(spans: pl.DataFrame, counts: pl.DataFrame) -> dict[str, int]:
    """Return the number of events by category, for categories of an unknown device, or unknown ones on a stream.

    Args:
        spans: all spans of a trace.
        counts: the number of events of each category.
    """
    known = (
        *DEVICE_CATEGORIES,
        *RUNTIME_CALLS,
        *ANNOTATIONS_OF_DEVICES,
        *SYNCHRONISATIONS,
        *THREAD_CATEGORIES_WITH_STREAM,
    )
    others = {*counts["category"]} - {None, *known}
    if not others:
        return {}
    has_stream = pl.all_horizontal(pl.col("stream", "device").is_not_null())
    on_streams = {*spans["category"].filter(spans.select(has_stream).to_series()).unique()}
    is_unknown = {*UNKNOWN_DEVICE_CATEGORIES, *(others & on_streams)}
    return dict(sorted((category, number) for category, number in counts.iter_rows() if category in is_unknown))


def _classify_device_events(spans: pl.DataFrame) -> pl.DataFrame:
    known = spans["name"].unique()
    names = [name for name in known if is_communication(name)]
    copies = known.filter(known.str.contains(COPY)).to_list()
    is_named_in_args = pl.any_horizontal(pl.col("collective", "group").is_not_null())
    communicates = is_named_in_args | pl.col("name").is_in(names)
    kind = (
        pl.when(pl.col("category").is_in(list(COPIES)) | pl.col("name").is_in(copies))
        .then(pl.lit("copy"))
        .when(communicates)
        .then(pl.lit("communication"))
        .otherwise(pl.lit("compute"))
    )
    return spans.with_columns(kind=kind)


def _add_launches(device: pl.DataFrame, cpu_spans: pl.DataFrame) -> pl.DataFrame:
    """Add the call with its correlation to each device event; a launch of a graph has many events."""
    calls = select_columns(
        cpu_spans, "correlation", launch_begin="begin", launch_end="end", launch_track="track", launch_name="name"
    )
    is_launch = cpu_spans.select(_IS_RUNTIME_CALL & (pl.col("correlation") > 0)).to_series()
    calls = filter_rows(calls, is_launch).unique("correlation", keep="first", maintain_order=True)
    return device.join(calls, on="correlation", how="left", maintain_order="left")
