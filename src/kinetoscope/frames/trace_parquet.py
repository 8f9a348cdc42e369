"""Traces as Parquet files, as they are cached and converted.

The file's metadata contain the tracks, the header and a fingerprint of the source: if that has another size or time of
change, or was read by another version, it is read again.
"""

import os
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import polars as pl

from kinetoscope.core.paths.atomic_file import atomic_file
from kinetoscope.core.paths.regular_file import raise_open_file_limit
from kinetoscope.core.paths.run_folder import open_file
from kinetoscope.core.text.wording import format_count
from kinetoscope.errors import OutputError, TraceFileError
from kinetoscope.formats.chrome_event import MAX_ABS_TIME_NS
from kinetoscope.formats.header import Count, describe_validation_error, validate_header
from kinetoscope.formats.parquet import require_reasonable_size
from kinetoscope.frames.events import TraceEvents, TraceInfo, event_schema

_VERSION = 4  # increased when the columns or their meaning change
_KEY = "kinetoscope"
_LEVEL = 1
_TIMES = ("ts", "dur")
_NEVER_NULL = ("kind", "phase", "name", "track")


_Id = str | int | float | bool | None
"""A pid or a tid, as the trace has it."""


class _Header(msgspec.Struct):
    """The header of a Parquet file: everything about its trace except the events."""

    version: int
    fingerprint: str | None
    tracks: list[tuple[_Id, _Id]]
    header: dict[str, Any]
    repairs: list[str]
    base_ns: Count
    has_clock: bool
    spellings: list[tuple[_Id, _Id]] = msgspec.field(name="written", default_factory=list)


# Made once: msgspec crashes if two threads read a type of struct for the first time.
_READER = msgspec.json.Decoder(_Header | None)


def write_parquet(trace: TraceEvents, path: str | os.PathLike[str], fingerprint: str | None = None) -> None:
    """Write a complete trace, for `read_parquet`. The file appears when it is complete.

    Args:
        trace: the trace.
        path: the file to write.
        fingerprint: that of its source, for a file of the cache.

    Raises:
        OutputError: if it cannot be written.
    """
    about = trace.about
    file_header = _Header(
        _VERSION,
        fingerprint,
        about.tracks,
        about.header,
        about.repairs,
        about.base_ns,
        about.has_clock,
        about.spellings,
    )
    try:
        metadata = {_KEY: msgspec.json.encode(file_header).decode()}
        with atomic_file(Path(path)) as stream:
            trace.frame.write_parquet(stream, compression="zstd", compression_level=_LEVEL, metadata=metadata)
    except (
        pl.exceptions.PolarsError,
        UnicodeEncodeError,
    ) as error:  # for example a full disk, or text that is not Unicode
        raise OutputError(f"Cannot write {os.fspath(path)}: {error}.") from error


def is_trace_parquet(path: str | os.PathLike[str]) -> bool:
    """Return whether a Parquet file is a trace of ours, of any version."""
    try:
        return _KEY in pl.read_parquet_metadata(os.fspath(path))
    except (OSError, pl.exceptions.PolarsError):
        return False


def read_parquet(path: str | os.PathLike[str], fingerprint: str | None = None) -> tuple[TraceInfo, pl.LazyFrame]:
    """Read the trace in a Parquet file of ours; its events are read on demand.

    Args:
        path: the file to read.
        fingerprint: that of its source. With it, the file is in the user's cache, and its contents are trusted.

    Raises:
        TraceFileError: if it is no such file, unpacks to more than any trace does, has a number out of range, or was
            made from a file with another ``fingerprint``.
    """
    name = os.fspath(path)
    if fingerprint is not None:
        return _read(name, str(name), fingerprint)
    with open_file(name) as file:  # polars keeps it open: another file may have this name before the events are read
        raise_open_file_limit(file.fileno())
        require_reasonable_size(file, name)
        return _read(name, file, None)


def _read(name: str, source: str | BinaryIO, fingerprint: str | None) -> tuple[TraceInfo, pl.LazyFrame]:
    about = _read_header(name, source)
    if about is None or about.version != _VERSION:
        raise TraceFileError(
            f"Cannot read {name}: it is a Parquet file, but not a trace of this version of Kinetoscope. "
            "Convert the trace again: kinetoscope convert TRACE -o OUT.parquet"
        )
    if fingerprint is not None and about.fingerprint != fingerprint:
        raise TraceFileError(f"Cannot use {name}: the trace has changed since.")
    validate_header(name, about.header)
    events = pl.scan_parquet(_rewound(source), glob=False)
    if (why := _find_schema_error(events, len(about.tracks))) is not None:
        raise TraceFileError(f"Cannot read {name}: its events are not those of a trace: {why}. Convert it again.")
    tracks, spellings = ([(pid, tid) for pid, tid in ids] for ids in (about.tracks, about.spellings))
    return TraceInfo(tracks, about.header, about.repairs, about.base_ns, about.has_clock, spellings), events


def _rewound(source: str | BinaryIO) -> str | BinaryIO:
    if not isinstance(source, str):
        source.seek(0)
    return source


def _read_header(name: str, source: str | BinaryIO) -> _Header | None:
    try:
        json_text = pl.read_parquet_metadata(_rewound(source)).get(_KEY)
        return _READER.decode(json_text or "null")
    except msgspec.ValidationError as error:
        raise TraceFileError(
            f"Cannot read {name}: in its metadata, {describe_validation_error(error)}. Convert the trace again."
        ) from error
    except (OSError, ValueError, RecursionError, pl.exceptions.PolarsError) as error:
        raise TraceFileError(f"Cannot read {name}: {error}. Convert the trace again.") from error


def _find_schema_error(events: pl.LazyFrame, num_tracks: int) -> str | None:
    """Return the first error in the columns, or in the numbers of tracks; None for none."""
    try:
        schema = events.collect_schema()
        wrong = [name for name, dtype in event_schema().items() if schema.get(name) != dtype]
        if wrong:
            return f"the column {wrong[0]} is missing, or of another type"
        nulls = [pl.col(name).null_count() for name in _NEVER_NULL]
        far = [(~pl.col(name).is_between(-MAX_ABS_TIME_NS, MAX_ABS_TIME_NS)).sum() for name in _TIMES]
        counts = events.select(*nulls, *far, last=pl.col("track").max()).collect().row(0, named=True)
    except (OSError, pl.exceptions.PolarsError) as error:
        return f"{error}".partition("\n")[0].rstrip(".")
    empty = next((name for name in _NEVER_NULL if counts[name]), None)
    if empty is not None:
        return f"{format_count(counts[empty], 'row')} have nothing in the column {empty}"
    beyond = next((name for name in _TIMES if counts[name]), None)
    if beyond is not None:
        return f"{format_count(counts[beyond], 'row')} have a number in the column {beyond} that is out of its range"
    if counts["last"] is not None and counts["last"] >= num_tracks:
        return f"there is a track {counts['last']:,}, but only {format_count(num_tracks, 'track')} are named"
    return None
