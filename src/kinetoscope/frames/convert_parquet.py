"""Converts trace files to Parquet and back."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from kinetoscope.core.paths.atomic_file import atomic_file
from kinetoscope.core.paths.user_cache import SUFFIX
from kinetoscope.errors import KinetoscopeError, OutputError
from kinetoscope.formats.chrome import ChromeWriter
from kinetoscope.formats.chrome_scan import decode_json_text
from kinetoscope.formats.compression import compressed_by_name
from kinetoscope.frames.events import TraceInfo
from kinetoscope.frames.load import read_trace
from kinetoscope.frames.trace_parquet import read_parquet, write_parquet

_ROWS = 1 << 16
_COLUMNS = ("phase", "name", "category", "track", "ts", "dur", "id", "id_text", "args", "fields")
_PHASES_WITH_DURATION = frozenset("X")


def convert_parquet(
    source: str | os.PathLike[str], target: str | os.PathLike[str], on_bytes: Callable[[int], None] | None = None
) -> list[str]:
    """Convert a trace to Parquet or back, and return the repairs of the source.

    Converted back to Chrome JSON, every event has its fields and arguments again, in the order of the file; repairs
    remain.

    Args:
        source: the trace to read.
        target: the file to write. It or ``source`` ends in ``.parquet``.
        on_bytes: called now and then with the bytes of ``source`` read since the last call.

    Raises:
        TraceFileError: if ``source`` cannot be read.
        OutputError: if ``target`` cannot be written.
    """
    if os.fspath(target).endswith(SUFFIX):
        trace = read_trace(os.fspath(source), on_bytes)
        write_parquet(trace, target)
        return trace.about.repairs
    about, events = read_parquet(source)
    output = Path(target)
    header = {key: value for key, value in about.header.items() if key != "baseTimeNanoseconds"}
    try:
        with atomic_file(output) as stream, compressed_by_name(stream, output) as packed:
            with ChromeWriter(packed, base_ns=about.base_ns, header=header) as writer:
                writer.write(
                    _build_events(about, events, os.path.getsize(source), on_bytes or (lambda num_bytes: None))
                )
    except KinetoscopeError:
        raise
    except OSError as error:
        raise OutputError(f"Cannot write {output}: {error.strerror or error}. Is there space?") from error
    return about.repairs


def _build_events(
    about: TraceInfo, events: Any, size_bytes: int, on_bytes: Callable[[int], None]
) -> Iterator[dict[str, Any]]:
    num_events = events.select(pl.len()).collect().item()
    tracks = about.spellings if len(about.spellings) == len(about.tracks) else about.tracks
    for first in range(0, num_events, _ROWS):
        rows = events.slice(first, _ROWS).select(_COLUMNS).collect()
        for row in rows.iter_rows(named=True):
            yield _build_event(row, *tracks[row["track"]])
        on_bytes(size_bytes * len(rows) // num_events)


def _build_event(row: dict[str, Any], pid: Any, tid: Any) -> dict[str, Any]:
    """Return an event as in Chrome JSON, without the fields that it did not have."""
    dur = row["dur"] if row["phase"] in _PHASES_WITH_DURATION else None
    id = row["id"] if row["id"] is not None else row["id_text"]
    given = {"name": row["name"], "cat": row["category"], "pid": pid, "tid": tid, "ts": row["ts"], "dur": dur, "id": id}
    event = {"ph": row["phase"]} | {key: value for key, value in given.items() if value is not None}
    if row["fields"] is not None:
        event |= decode_json_text(row["fields"])
    if row["args"] is not None:
        event["args"] = msgspec.Raw(row["args"])
    return event
