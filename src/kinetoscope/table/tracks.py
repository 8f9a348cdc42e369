"""The tracks of a trace, as one row each, and how the spans of each track are nested.

Where spans of a track overlap and neither contains the other, both are inside the innermost span that contains them.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import polars as pl

from kinetoscope.formats.chrome_scan import decode_json_text
from kinetoscope.formats.device_events import DEVICE_CATEGORIES
from kinetoscope.native import native_module

_DESCRIBED = {
    "process_name": ("process", "name"),
    "process_labels": ("labels", "labels"),
    "process_sort_index": ("process_sort_index", "sort_index"),
    "thread_name": ("thread", "name"),
    "thread_sort_index": ("thread_sort_index", "sort_index"),
}


def build_tracks(events: pl.LazyFrame, places: list[tuple[Any, Any]]) -> pl.DataFrame:
    """One row per track: its pid and tid (as text, and as numbers if they are numbers), its names in the trace, its
    ``kind`` (``thread`` or ``stream``), its number of spans, and its first and last nanosecond."""
    texts = {"pid": _texts([pid for pid, _ in places]), "tid": _texts([tid for _, tid in places])}
    numbers = {f"{name}_number": [_number(text) for text in values] for name, values in texts.items()}
    schema = dict.fromkeys(texts, pl.String) | dict.fromkeys(numbers, pl.Int64)
    frame = pl.DataFrame(texts | numbers, schema=schema).with_row_index("track")
    described = _described(events, places)
    for column in (column for column, _ in _DESCRIBED.values()):
        dtype = pl.Int64 if column.endswith("index") else pl.String
        frame = frame.with_columns(pl.Series(column, described[column], dtype=dtype))
    return (
        frame.join(_measured(events), on="track", how="left", maintain_order="left")
        .with_columns(
            pl.when(pl.col("num_device_spans").fill_null(0) > 0)
            .then(pl.lit("stream"))
            .otherwise(pl.lit("thread"))
            .alias("kind"),
            pl.col("num_spans").fill_null(0),
        )
        .drop("num_device_spans")
    )


def track_names(events: pl.LazyFrame, places: list[tuple[Any, Any]]) -> frozenset[str]:
    """The names that metadata events say of processes and threads."""
    described = _described(events, places)
    return frozenset(name for column in ("process", "thread") for name in described[column] if name is not None)


def _texts(values: list[Any]) -> list[str | None]:
    return [None if value is None else str(value) for value in values]


def _number(text: str | None) -> int | None:
    """A pid or tid as a number, if it is one; "stream 7" of old traces is 7."""
    digits = (text or "").removeprefix("stream ")
    return int(digits) if digits.removeprefix("-").isdecimal() and len(digits) <= 18 and digits.isascii() else None


def _described(events: pl.LazyFrame, places: list[tuple[Any, Any]]) -> dict[str, list[Any]]:
    """What metadata events say about each track. Those of a process apply to all its tracks."""
    rows = events.filter(pl.col("kind") == "metadata").select("name", "track", "args").collect()
    of_process: defaultdict[str, dict[Any, Any]] = defaultdict(dict)
    of_thread: defaultdict[str, dict[int, Any]] = defaultdict(dict)
    for name, track, args in rows.iter_rows():
        if name not in _DESCRIBED or args is None:
            continue
        column, key = _DESCRIBED[name]
        value = _plain(decode_json_text(args).get(key), column)
        if name.startswith("process"):
            of_process[column].setdefault(places[track][0], value)
        else:
            of_thread[column].setdefault(track, value)
    return {
        column: [
            of_process[column].get(pid) if name.startswith("process") else of_thread[column].get(number)
            for number, (pid, _) in enumerate(places)
        ]
        for name, (column, _) in _DESCRIBED.items()
    }


def _plain(value: Any, column: str) -> Any:
    if column.endswith("index"):
        return value if isinstance(value, int) and abs(value) < 2**63 else None
    return None if value is None else str(value)


def _measured(events: pl.LazyFrame) -> pl.DataFrame:
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


def counter_rows(events: Iterable[tuple[int, int, str, str, bytes | None]]) -> dict[str, list[Any]]:
    """Counter events, each with the values of several series, as one row per value. Other values are left out."""
    rows: dict[str, list[Any]] = {name: [] for name in ("ts", "track", "name", "category", "series", "value")}
    for ts, track, name, category, args in events:
        values = decode_json_text(args) if args else {}
        for series, value in values.items():
            if isinstance(value, (int, float)):
                for column, item in zip(rows, (ts, track, name, category, series, float(value)), strict=True):
                    rows[column].append(item)
    return rows


def nest_spans(spans: pl.DataFrame, *, clip: bool = False) -> pl.DataFrame:
    """For each row of ``ts``, ``dur`` and ``track``: ``self_ns``, ``parent`` (a row, or null) and ``depth``.

    ``self_ns`` is the part of a span that none of its direct children covers. With ``clip``, a span that begins within
    another one is its child and ends with it at the latest; ``dur`` is then what is left of each.
    """
    wanted = {"ts": pl.Int64, "dur": pl.Int64, "track": pl.UInt32}  # it takes a tenth of a query's time
    spans = pl.DataFrame([spans[name].cast(dtype).rechunk() for name, dtype in wanted.items()])
    if (native := native_module()) is None:
        schema = {"self_ns": pl.Int64, "parent": pl.UInt32, "depth": pl.UInt32} | ({"dur": pl.Int64} if clip else {})
        return pl.DataFrame(_Sweep(spans, clip).columns, schema=schema)
    columns: list[Any] = native.nest_spans(spans.__arrow_c_stream__(), clip)
    return pl.DataFrame([pl.Series(values=column).alias(column.name) for column in columns])


class _Sweep:
    """The twin of `src/native/scan/nested.c`, and the reference for its tests."""

    def __init__(self, spans: pl.DataFrame, clip: bool) -> None:
        num_spans = len(spans)
        self._own_ns: list[int] = [0] * num_spans
        self._parents: list[int | None] = [None] * num_spans
        self._depths = [0] * num_spans
        self.columns: dict[str, list[Any]] = {"self_ns": self._own_ns, "parent": self._parents, "depth": self._depths}
        self._clipped_ns = [0] * num_spans if clip else None
        if self._clipped_ns is not None:
            self.columns["dur"] = self._clipped_ns
        self._open: list[tuple[int, int]] = []  # the end and the row of each open span
        self._covered_until: dict[int, int] = {}
        last_track = None
        for track, row, begin_ns, end_ns in _in_order(spans):
            if track != last_track:
                self._open.clear()
            last_track = track
            self._add(row, begin_ns, end_ns)

    def _add(self, row: int, begin_ns: int, end_ns: int) -> None:
        # A span that ends before this one can contain nothing later that this one does not contain too.
        while self._open and self._is_over(self._open[-1][0], begin_ns, end_ns):
            self._covered_until.pop(self._open.pop()[1])
        if self._clipped_ns is not None:
            end_ns = min(end_ns, self._open[-1][0]) if self._open else end_ns
            self._clipped_ns[row] = end_ns - begin_ns
        self._own_ns[row], self._depths[row] = end_ns - begin_ns, len(self._open)
        if self._open:
            _, parent = self._open[-1]
            self._parents[row] = parent
            from_ns = max(begin_ns, self._covered_until[parent])
            self._own_ns[parent] -= max(0, end_ns - from_ns)
            self._covered_until[parent] = max(end_ns, from_ns)
        self._open.append((end_ns, row))
        self._covered_until[row] = begin_ns

    def _is_over(self, open_end_ns: int, begin_ns: int, end_ns: int) -> bool:
        """Whether an open span contains neither the given span nor any later one."""
        return open_end_ns <= begin_ns or (self._clipped_ns is None and open_end_ns < end_ns)


def _in_order(spans: pl.DataFrame) -> Any:
    """Track, row, begin and end of each span, by track, begin, and latest end first."""
    ends = pl.col("ts") + pl.col("dur").clip(0)
    rows = spans.with_row_index("row").select("track", "row", "ts", end=ends)
    return rows.sort("track", "ts", "end", descending=[False, False, True], maintain_order=True).iter_rows()
