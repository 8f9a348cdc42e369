"""table: a trace as one Parquet file. Its events flow in and out; its tracks and header stand in the file's metadata.

As a cache it says what it was made from: a file that has another size, another time of change, or was read by another
version, is read again. `cache_place` says where it is.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kinetoscope.errors import OutputError, TraceFileError
from kinetoscope.table.columns import import_polars
from kinetoscope.table.events import TraceAbout, TraceEvents, event_schema
from kinetoscope.writing.atomic_file import atomic_file

if TYPE_CHECKING:
    import polars as pl

_VERSION = 3  # of the columns and of what they mean: counted up when either changes
_KEY = "kinetoscope"
_LEVEL = 1


Place = str | int | float | bool | None


class _Header(msgspec.Struct):
    """What a Parquet file says of its trace beside the events."""

    version: int
    fingerprint: str | None
    tracks: list[tuple[Place, Place]]
    header: dict[str, Any]
    repairs: list[str]
    base_ns: int
    has_clock: bool
    written: list[tuple[Place, Place]] = []


def write_parquet(trace: TraceEvents, path: str | os.PathLike[str], fingerprint: str | None = None) -> None:
    """Writes a trace whole: `read_parquet` gives it back. The file appears when it is complete.

    Raises `OutputError` where it cannot be written to its end.
    """
    about = trace.about
    said = _Header(
        _VERSION, fingerprint, about.tracks, about.header, about.repairs, about.base_ns, about.has_clock, about.written
    )
    pl = import_polars()
    try:
        metadata = {_KEY: msgspec.json.encode(said).decode()}
        with atomic_file(Path(path)) as stream:
            trace.frame.write_parquet(stream, compression="zstd", compression_level=_LEVEL, metadata=metadata)
    except (pl.exceptions.PolarsError, UnicodeEncodeError) as error:  # such as a full disk; text that is no Unicode
        raise OutputError(f"Cannot write {os.fspath(path)}: {error}.") from error


def is_our_parquet(path: str | os.PathLike[str]) -> bool:
    """Whether a Parquet file is a trace of ours, of any version."""
    pl = import_polars()
    try:
        return _KEY in pl.read_parquet_metadata(path)
    except (OSError, pl.exceptions.PolarsError):
        return False


def read_parquet(path: str | os.PathLike[str], fingerprint: str | None = None) -> "tuple[TraceAbout, pl.LazyFrame]":
    """The trace in a Parquet file of ours; its events are read when they are asked for.

    Raises `TraceFileError` if it is no such file, or, with a ``fingerprint``, was made from something else.
    """
    pl = import_polars()
    try:
        said = pl.read_parquet_metadata(path).get(_KEY)
        about = msgspec.json.decode(said or "null", type=_Header | None)
    except (OSError, msgspec.MsgspecError, pl.exceptions.PolarsError) as error:
        raise TraceFileError(f"Cannot read {os.fspath(path)}: {error}.") from error
    if about is None or about.version != _VERSION:
        raise TraceFileError(
            f"Cannot read {os.fspath(path)}: it is a Parquet file, but no trace of this version of Kinetoscope. "
            "Convert the trace again: kinetoscope convert TRACE OUT.parquet"
        )
    if fingerprint is not None and about.fingerprint != fingerprint:
        raise TraceFileError(f"Cannot use {os.fspath(path)}: the trace has changed since.")
    tracks = [(pid, tid) for pid, tid in about.tracks]
    events = pl.scan_parquet(path, glob=False)
    if not _fits(events, len(tracks)):
        raise TraceFileError(f"Cannot read {os.fspath(path)}: its events are not those of a trace. Convert it again.")
    return TraceAbout(
        tracks, about.header, about.repairs, about.base_ns, about.has_clock, list(map(tuple, about.written))
    ), events


def _fits(events: "pl.LazyFrame", num_tracks: int) -> bool:
    """Whether events have the columns of ours, and no track that is not there."""
    pl = import_polars()
    try:
        schema = events.collect_schema()
        if any(schema.get(name) != dtype for name, dtype in event_schema().items()):
            return False
        last = events.select(pl.col("track").max()).collect().item()
    except (OSError, pl.exceptions.PolarsError):
        return False
    return last is None or last < num_tracks
