"""Tracks of a trace, a row each, and the nesting of the spans of each track.

Where spans of a track overlap and neither contains the other, both are inside the innermost span that contains them.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import polars as pl

from kinetoscope.formats.chrome_scan import decode_json_text
from kinetoscope.formats.device_events import DEVICE_CATEGORIES
from kinetoscope.native import native

_DESCRIBED = {
    "process_name": ("process", "name"),
    "process_labels": ("labels", "labels"),
    "process_sort_index": ("process_sort_index", "sort_index"),
    "thread_name": ("thread", "name"),
    "thread_sort_index": ("thread_sort_index", "sort_index"),
}


def build_tracks(events: pl.LazyFrame, thread_ids: list[tuple[Any, Any]]) -> pl.DataFrame:
    """Build the frame of tracks.

    Returns:
        A row per track: its pid and tid (as strings, and as numbers if they are numbers), its names in the trace, its
            ``kind`` (``thread`` or ``stream``), its number of spans, and its first and last nanosecond.
    """
    texts = {"pid": _to_strings([pid for pid, _ in thread_ids]), "tid": _to_strings([tid for _, tid in thread_ids])}
    numbers = {f"{name}_number": [_parse_number(text) for text in values] for name, values in texts.items()}
    schema = dict.fromkeys(texts, pl.String) | dict.fromkeys(numbers, pl.Int64)
    frame = pl.DataFrame(texts | numbers, schema=schema).with_row_index("track")
    described = _read_descriptions(events, thread_ids)
    for column in (column for column, _ in _DESCRIBED.values()):
        dtype = pl.Int64 if column.endswith("index") else pl.String
        frame = frame.with_columns(pl.Series(column, described[column], dtype=dtype))
    return (
        frame.join(_span_statistics(events), on="track", how="left", maintain_order="left")
        .with_columns(
            pl.when(pl.col("num_device_spans").fill_null(0) > 0)
            .then(pl.lit("stream"))
            .otherwise(pl.lit("thread"))
            .alias("kind"),
            pl.col("num_spans").fill_null(0),
        )
        .drop("num_device_spans")
    )


def read_track_names(events: pl.LazyFrame, thread_ids: list[tuple[Any, Any]]) -> frozenset[str]:
    """Return the names of processes and threads in metadata events."""
    described = _read_descriptions(events, thread_ids)
    return frozenset(name for column in ("process", "thread") for name in described[column] if name is not None)


def _to_strings(values: list[Any]) -> list[str | None]:
    return [None if value is None else str(value) for value in values]


def _parse_number(text: str | None) -> int | None:
    """Return a pid or tid as a number, if it is one; "stream 7" of old traces is 7."""
    digits = (text or "").removeprefix("stream ")
    return int(digits) if digits.removeprefix("-").isdecimal() and len(digits) <= 18 and digits.isascii() else None


def _read_descriptions(events: pl.LazyFrame, thread_ids: list[tuple[Any, Any]]) -> dict[str, list[Any]]:
    """Return the names and sort indexes of tracks in metadata events. Those of a process apply to all its tracks."""
    rows = events.filter(pl.col("kind") == "metadata").select("name", "track", "args").collect()
    of_process: defaultdict[str, dict[Any, Any]] = defaultdict(dict)
    of_thread: defaultdict[str, dict[int, Any]] = defaultdict(dict)
    for name, track, args in rows.iter_rows():
        if name not in _DESCRIBED or args is None:
            continue
        column, key = _DESCRIBED[name]
        value = _convert_value(decode_json_text(args).get(key), column)
        if name.startswith("process"):
            of_process[column].setdefault(thread_ids[track][0], value)
        else:
            of_thread[column].setdefault(track, value)
    return {
        column: [
            of_process[column].get(pid) if name.startswith("process") else of_thread[column].get(number)
            for number, (pid, _) in enumerate(thread_ids)
        ]
        for name, (column, _) in _DESCRIBED.items()
    }


def _convert_value(value: Any, column: str) -> Any:
    if column.endswith("index"):
        return value if isinstance(value, int) and abs(value) < 2**63 else None
    return None if value is None else str(value)


def _span_statistics(events: pl.LazyFrame) -> pl.DataFrame:
    spans = events.filter(pl.col("kind") == "span")
    is_device = pl.col("category").is_in(list(DEVICE_CATEGORIES))
    return (
        spans.group_by("track")
        .agg(
            pl.len().alias("num_spans"),
            pl.col("ts").min().alias("first_ns"),
            (pl.col("ts") + pl.col("dur")).max().alias("last_ns"),
            is_device.sum().alias("num_device_spans"),
        )
        .collect()
    )


def expand_counters(events: Iterable[tuple[int, int, str, str, bytes | None]]) -> dict[str, list[Any]]:
    """Expand counter events, each with the values of several series, to a row per value. Other values are left out."""
    rows: dict[str, list[Any]] = {name: [] for name in ("ts", "track", "name", "category", "series", "value")}
    for ts, track, name, category, args in events:
        values = decode_json_text(args) if args else {}
        for series, value in values.items():
            if isinstance(value, (int, float)):
                for column, item in zip(rows, (ts, track, name, category, series, float(value)), strict=True):
                    rows[column].append(item)
    return rows


def nest_spans(spans: pl.DataFrame, *, clip: bool = False) -> pl.DataFrame:
    """Return the nesting of spans: ``self_ns``, ``parent`` (a row, or null) and ``depth``.

    ``self_ns`` is the part of a span that none of its direct children covers.

    Args:
        spans: a row per span with ``ts`` and ``dur`` in ns, and ``track``.
        clip: whether a span that begins within another one is its child and ends with it at the latest; ``dur`` is then
            the rest of each.
    """
    wanted = {"ts": pl.Int64, "dur": pl.Int64, "track": pl.UInt32}  # it takes a tenth of a query's time
    spans = pl.DataFrame([spans[name].cast(dtype).rechunk() for name, dtype in wanted.items()])
    columns: list[Any] = native.nest_spans(spans.__arrow_c_stream__(), clip)
    return pl.DataFrame([pl.Series(values=column).alias(column.name) for column in columns])
