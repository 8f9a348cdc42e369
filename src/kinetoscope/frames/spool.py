"""Traces of runs that are still recording, from their spools."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from kinetoscope.core.text.wording import format_count
from kinetoscope.errors import TraceFileError
from kinetoscope.frames.events import KINDS, TraceInfo, complete_frame
from kinetoscope.frames.trace import Trace
from kinetoscope.spool.chunk import RecordName
from kinetoscope.spool.contents import SpooledProcess, SpooledTrack, read_spool_folder
from kinetoscope.spool.folders import is_spool_folder, read_spool_owner
from kinetoscope.spool.record import Flag, Kind, Record
from kinetoscope.spool.window_log import LoggedWindow, SavedWindows, read_windows

_COLUMNS = ("kind", "phase", "name", "category", "track", "ts", "dur", "batch", "args")
_KINDS = {Kind.SPAN: ("span", "X"), Kind.INSTANT: ("instant", "i"), Kind.COUNTER: ("counter", "C")}


class EmptySpoolError(TraceFileError):
    """The spool contains no unsaved data."""


class SpoolPath(str):
    """The path of a spool that was found in the folder of a run, whose process may delete it at any time."""

    __slots__ = ()


def read_found_spool(name: SpoolPath) -> Trace:
    """Return the trace in a spool, without events if it is gone or empty.

    Raises:
        TraceFileError: if it is there and cannot be read.
    """
    try:
        return read_spool(Path(name))
    except EmptySpoolError:
        return _empty_trace(name, [])
    except (TraceFileError, OSError):
        if is_spool_folder(Path(name)):
            raise
        return _empty_trace(
            name, [f"{name} went away while it was read: its process has saved what was in it. Look again."]
        )


def _empty_trace(name: str, notes: list[str]) -> Trace:
    header: dict[str, Any] = {"kinetoscope": {"live": True, "notes": notes}}
    with suppress(TraceFileError, OSError):  # the folder may be gone
        header |= read_spool_owner(Path(name)).ranks.header_fields
    about = TraceInfo([], header)
    return Trace(name, about, complete_frame(_build_frame({column: [] for column in _COLUMNS})).lazy())


def read_spool(folder: Path) -> Trace:
    """Return the unsaved records of the processes of one rank. Open spans end with the last record.

    Nothing is cached, and the folder is not changed.

    Raises:
        EmptySpoolError: without any record.
    """
    run, (windows, damages) = read_spool_owner(folder), read_windows(folder)
    left = read_spool_folder(folder)
    rows = _Rows(SavedWindows(windows))
    for process in left.processes:
        rows.add_process(process, run.ranks.rank)
    if not rows.columns["name"]:
        raise EmptySpoolError(f"Nothing in {folder} yet: its process has saved everything that it recorded.")
    frame = complete_frame(_build_frame(rows.columns))
    fields = {
        "rank": run.ranks.rank,
        "run_name": run.run_name,
        "host": run.attempt.host,
        "start": run.attempt.start,
        "live": True,
    }
    fields |= {"cycle": windows[-1].cycle} if windows else {}
    fields["warmup_batches"] = [pair for window in windows if (pair := _warmup_batches(window))]
    header = run.ranks.header_fields | {"kinetoscope": fields}
    about = TraceInfo(rows.tracks, header, [*rows.notes(), *left.damages, *damages], has_clock=True)
    return Trace(str(folder), about, frame.lazy())


def _build_frame(columns: dict[str, list[Any]]) -> pl.DataFrame:
    schema = {"kind": pl.Enum(KINDS), "phase": pl.Categorical, "name": pl.String, "category": pl.String}
    schema |= {"track": pl.UInt32, "args": pl.Binary}
    schema |= dict.fromkeys(("ts", "dur", "batch"), pl.Int64)
    return pl.DataFrame(columns, schema={name: schema[name] for name in columns})


def _warmup_batches(window: LoggedWindow) -> list[int] | None:
    """Return the first batch of a window that only warms up, and the first one after them."""
    first = (window.timestamp or {}).get("batch")
    return None if first is None or window.first_active is None else [int(first), window.first_active]


def is_redacted(folder: Path) -> bool:
    """Return whether a spool belongs to a run that redacts what it writes: nothing in it may be shown."""
    try:
        return read_spool_owner(folder).redacts
    except TraceFileError:
        return False  # `read_spool` reports why it cannot be read


def read_attempt(folder: Path) -> int:
    """Return the number of the attempt of a spool."""
    try:
        return read_spool_owner(folder).attempt.restart
    except TraceFileError:
        return 0  # `read_spool` reports why it cannot be read


class _Rows:
    """Builder of columns from records, except records of ``saved`` windows, which workers' files may still hold."""

    def __init__(self, saved: SavedWindows) -> None:
        self._saved = saved
        self.columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
        self.tracks: list[tuple[Any, Any]] = []
        self._num_dropped = 0

    def add_process(self, process: SpooledProcess, rank: int) -> None:
        """Add the records of all threads of a process; open spans end with its last record."""
        last_ns = max((_end_ns(record) for track in process.tracks for record in track.records()), default=0)
        for track in process.tracks:
            number = len(self.tracks)
            self.tracks.append((track.pid, track.tid))
            self._num_dropped += track.num_dropped
            for record in track.records():
                self._add_record(record, track, number, process.names)
            for record in track.open_spans:
                cut = record._replace(end=max(record.begin, last_ns), flags=record.flags | Flag.CUT)
                self._add_record(cut, track, number, process.names)
            if track.parts or track.open_spans:
                self._describe(number, "process_name", {"name": "rank"})
                self._describe(number, "thread_name", {"name": track.name})

    def notes(self) -> list[str]:
        """Return sentences on missing records."""
        return (
            [f"{format_count(self._num_dropped, 'record')} were dropped because there was no space."]
            if self._num_dropped
            else []
        )

    def _add_record(self, record: Record, track: SpooledTrack, number: int, names: list[RecordName]) -> None:
        if record.kind not in _KINDS or record.name >= len(names) or self._saved.contains(record.begin):
            return
        kind, phase = _KINDS[Kind(record.kind)]
        name = names[record.name]
        ts = record.begin - track.monotonic_ns + track.unix_ns
        dur = int(record.end) - record.begin if kind == "span" else None
        args = _build_args(record, names)
        self._add(kind, phase, name.name, ",".join(name.categories), number, ts, dur, record.batch, args)

    def _describe(self, number: int, name: str, args: dict[str, Any]) -> None:
        self._add("metadata", "M", name, "", number, None, None, None, args)

    def _add(self, *values: Any) -> None:
        for column, value in zip(self.columns.values(), values[:-1], strict=False):
            column.append(value)
        self.columns["args"].append(msgspec.json.encode(values[-1]))


def _build_args(record: Record, names: list[RecordName]) -> dict[str, Any]:
    if record.kind == Kind.COUNTER:
        return {names[record.series].name: record.end} if record.series < len(names) else {}
    return {"batch": record.batch} | ({"cut": "still open"} if record.flags & Flag.CUT else {})


def _end_ns(record: Record) -> int:
    return int(record.end) if record.kind == Kind.SPAN else record.begin
