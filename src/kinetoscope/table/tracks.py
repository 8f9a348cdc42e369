"""table: who the events belong to. Metadata events flow in; one row per track, named and ordered, flows out."""

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kinetoscope.formats.chrome_scan import decode_json_text
from kinetoscope.table.columns import import_polars

if TYPE_CHECKING:
    import polars as pl

_DESCRIBED = {
    "process_name": ("process", "name"),
    "process_labels": ("labels", "labels"),
    "process_sort_index": ("process_sort_index", "sort_index"),
    "thread_name": ("thread", "name"),
    "thread_sort_index": ("thread_sort_index", "sort_index"),
}
_DEVICE_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset")


def build_tracks(events: "pl.LazyFrame", places: list[tuple[Any, Any]]) -> "pl.DataFrame":
    """One row per track: its pid and tid (as text, and as numbers where they are), what the trace calls it, its
    ``kind`` (``thread`` or ``stream``), its number of spans, and its first and last nanosecond."""
    pl = import_polars()
    texts = {"pid": _texts([pid for pid, _ in places]), "tid": _texts([tid for _, tid in places])}
    numbers = {f"{name}_number": [_number(it) for it in values] for name, values in texts.items()}
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


def _texts(values: list[Any]) -> list[str | None]:
    return [None if it is None else str(it) for it in values]


def _number(text: str | None) -> int | None:
    """A pid or tid as a number where it is one: "stream 7" of old traces is 7."""
    digits = (text or "").removeprefix("stream ")
    return int(digits) if digits.removeprefix("-").isdecimal() and len(digits) <= 18 and digits.isascii() else None


def _described(events: "pl.LazyFrame", places: list[tuple[Any, Any]]) -> dict[str, list[Any]]:
    """What metadata events say of each track: those of a process count for all its tracks."""
    pl = import_polars()
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


def _measured(events: "pl.LazyFrame") -> "pl.DataFrame":
    pl = import_polars()
    spans = events.filter(pl.col("kind") == "span")
    is_device = pl.col("category").is_in(list(_DEVICE_CATEGORIES))
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
    """Counter events, each with the values of several series, as one row per value. What is no number is left out."""
    rows: dict[str, list[Any]] = {name: [] for name in ("ts", "track", "name", "category", "series", "value")}
    for ts, track, name, category, args in events:
        values = decode_json_text(args) if args else {}
        for series, value in values.items():
            if isinstance(value, (int, float)):
                for column, item in zip(rows, (ts, track, name, category, series, float(value)), strict=True):
                    rows[column].append(item)
    return rows
