"""formats: the live folder. Chunk, track and names files, live or left by a killed process, flow in; records flow out.

`src/native/record.h` explains the files byte by byte. This reader needs nothing but Python.
"""

import contextlib
import json
import mmap
import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from kinetoscope.errors import TraceFileError
from kinetoscope.formats.record import RECORD_BYTES, Flag, Kind, Record, pack_records, unpack_records
from kinetoscope.training.attempt import is_process_alive

_VERSION = 1
_CHUNK = struct.Struct("<8sIIIIII32x")
_CHUNK_MAGIC = b"KSCHUNK\0"
_TRACK = struct.Struct("<8sIIIIIIqqQII128s64x")
_TRACK_MAGIC = b"KSTRACK\0"


# -- the names file -----------------------------------------------------------------------------------------------


class NamesFile:
    """The file in which a recorder writes down what its name ids stand for. Whoever reads records needs it.

    Raises OSError if it cannot be made.
    """

    def __init__(self, folder: str | os.PathLike[str], pid: int, names: Iterable[Any]) -> None:
        self.path = Path(folder) / f"{pid}.names"
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            for name in list(names):
                self.append(name)
        except OSError:
            self.delete()
            raise

    def append(self, name: Any) -> None:
        """Writes down the next name: the line's number is its id."""
        line = json.dumps({"name": name.name, "categories": name.categories}) + "\n"
        os.write(self._file, line.encode())

    def delete(self) -> None:
        """Closes and deletes the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        with contextlib.suppress(OSError):
            self.path.unlink()


class LiveName(NamedTuple):
    """What a name id stands for."""

    name: str
    categories: tuple[str, ...]


def read_names(path: Path) -> list[LiveName]:
    """The names in a names file; a last line that was not finished is left out."""
    names = []
    for line in path.read_bytes().split(b"\n")[:-1]:
        fields = json.loads(line)
        names.append(LiveName(fields["name"], tuple(fields["categories"])))
    return names


# -- tracks and chunks --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class LiveTrack:
    """What one thread recorded and has not been saved, oldest first, and the spans that it has open.

    ``monotonic_ns`` and ``unix_ns`` are one moment on two clocks. Records have nanoseconds on the monotonic clock.
    """

    number: int
    pid: int
    tid: int
    name: str
    rank: int
    is_main: bool
    monotonic_ns: int
    unix_ns: int
    num_dropped: int = 0
    records: list[Record] = field(default_factory=list)
    open_spans: list[Record] = field(default_factory=list)
    """Spans in progress; their ``end`` is 0."""

    def packed(self, cut_ns: int) -> bytes:
        """All records as bytes, with the open spans cut at ``cut_ns``."""
        cut = (it._replace(end=max(it.begin, cut_ns), flags=Flag.CUT, series=0) for it in self.open_spans)
        return pack_records([*self.records, *cut])


@dataclass(slots=True)
class LiveProcess:
    """What one process keeps in a live folder."""

    pid: int
    names: list[LiveName]
    tracks: list[LiveTrack]


def read_live_folder(folder: str | os.PathLike[str], *, without_pid: int = 0) -> list[LiveProcess]:
    """Everything that stands in a live folder, whether its processes still run or were killed.

    The files of the process ``without_pid`` are not looked at. Raises `TraceFileError` if a file is of another version.
    """
    folder = Path(folder)
    names_files = {int(it.stem): it for it in sorted(folder.glob("*.names"))}
    return [_read_process(folder, pid, names) for pid, names in names_files.items() if pid != without_pid]


def delete_read(folder: Path, pid: int, read_to_ns: int) -> None:
    """Deletes what a child process has left and nobody needs any more, everything until ``read_to_ns`` having been
    read: the chunks that are full, and all its files if it has ended."""
    has_ended = not is_process_alive(pid)
    is_needed = False
    for path in folder.glob(f"{pid}-*.chunk"):
        content = _read(path)
        records = list(_written_records(content)) if len(content) >= _CHUNK.size else []
        is_later = any(it.begin > read_to_ns for it in records)
        is_needed |= is_later
        if not is_later and (has_ended or len(records) == (len(content) - _CHUNK.size) // RECORD_BYTES):
            path.unlink(missing_ok=True)
    if has_ended and not is_needed:
        for path in [*folder.glob(f"{pid}-*.track"), folder / f"{pid}.names"]:
            path.unlink(missing_ok=True)


def _read_process(folder: Path, pid: int, names: Path) -> LiveProcess:
    # The open spans before the chunks: one that ends meanwhile is then found twice, rather than not at all.
    tracks = {it.number: it for it in _read_tracks(folder.glob(f"{pid}-*.track"))}
    for header, records in _read_chunks(folder.glob(f"{pid}-*.chunk")):
        if header.track in tracks:
            tracks[header.track].records += records
    for track in tracks.values():
        ended = {(it.begin, it.name, it.depth) for it in track.records}
        track.open_spans = [it for it in track.open_spans if (it.begin, it.name, it.depth) not in ended]
    return LiveProcess(pid, read_names(names), [tracks[number] for number in sorted(tracks)])


def _read_tracks(paths: Iterable[Path]) -> Iterator[LiveTrack]:
    for path in paths:
        content = _read(path)
        if len(content) < _TRACK.size:
            continue
        magic, version, pid, number, tid, rank, is_main, monotonic, unix, dropped, _, _, name = _TRACK.unpack_from(
            content
        )
        if magic != _TRACK_MAGIC:  # allocated, and not begun
            continue
        _check_version(path, version)
        slots = content[_TRACK.size : len(content) - (len(content) - _TRACK.size) % RECORD_BYTES]
        open_spans = [it for it in unpack_records(slots) if it.kind == Kind.SPAN]
        text = name.rstrip(b"\0").decode(errors="replace")
        track = LiveTrack(number, pid, tid, text, rank, bool(is_main), monotonic, unix, dropped)
        track.open_spans = [it._replace(end=0, series=0) for it in open_spans]
        yield track


class _ChunkHeader(NamedTuple):
    magic: bytes
    version: int
    pid: int
    track: int
    window: int
    sequence: int
    num_records: int


def _read_chunks(paths: Iterable[Path]) -> list[tuple[_ChunkHeader, list[Record]]]:
    """The chunks in which anything was recorded, in the order in which they were begun."""
    chunks = []
    for path in paths:
        content = _read(path)
        if len(content) < _CHUNK.size:
            continue
        header = _ChunkHeader(*_CHUNK.unpack_from(content))
        if header.magic == _CHUNK_MAGIC and header.track:
            _check_version(path, header.version)
            chunks.append((header, list(_written_records(content))))
    return sorted(chunks, key=lambda chunk: chunk[0].sequence)


def _written_records(content: bytes) -> Iterator[Record]:
    """The records up to the first place where none was written yet."""
    end = len(content) - (len(content) - _CHUNK.size) % RECORD_BYTES
    kind_at = 26
    for offset in range(_CHUNK.size, end, RECORD_BYTES):
        if not content[offset + kind_at]:
            end = offset
            break
    return unpack_records(content[_CHUNK.size : end])


def _read(path: Path) -> bytes:
    """The file's bytes; none if its process has deleted it by now."""
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            return mapped[:]
    except (FileNotFoundError, ValueError):
        return b""


def _check_version(path: Path, version: int) -> None:
    if version != _VERSION:
        raise TraceFileError(
            f"Cannot read {path}: it is of version {version}, and this Kinetoscope reads version {_VERSION}. "
            "Read it with the Kinetoscope that wrote it."
        )
