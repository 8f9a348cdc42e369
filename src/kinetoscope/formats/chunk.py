"""formats: the live folder. Chunk, track and names files, live or left by a killed process, flow in; records flow out.

`src/native/record.h` explains the files byte by byte. This reader needs nothing but Python.
"""

import contextlib
import json
import mmap
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from isal import isal_zlib

from kinetoscope.errors import TraceFileError
from kinetoscope.formats.record import RECORD_BYTES, Kind, Record, record_columns, unpack_records
from kinetoscope.training.attempt import is_process_alive

_VERSION = 1
_CHUNK = struct.Struct("<8sIIIIII32x")
_CHUNK_MAGIC = b"KSCHUNK\0"
_TRACK = struct.Struct("<8sIIIIIIqqQII128s64x")
_TRACK_MAGIC = b"KSTRACK\0"
_SPOOLED = struct.Struct("<8sIIIIIII28x")
_SPOOL_MAGIC = b"KSSPOOL\0"
_SPOOL_LEVEL = 1  # measured on records of a training loop: 400 MB/s and 3 times smaller; level 2 gains nothing
_MOST_PIECES = 512  # of one writev


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

    def close(self) -> None:
        """Closes the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def delete(self) -> None:
        """Closes and deletes the file."""
        self.close()
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


# -- the spool ----------------------------------------------------------------------------------------------------


class SpooledRecords:
    """Records that a spool holds: as long as there are records. The spool's file is open as long as these are."""

    def __init__(self, spool: "Spool", offset: int, num_bytes: int, num_records: int) -> None:
        self._spool = spool
        self._place = num_bytes, offset
        self._num_records = num_records

    def __len__(self) -> int:
        return self._num_records

    def read(self) -> bytes:
        """The records, 32 bytes each."""
        return zlib.decompress(self._spool.read(*self._place))


class Spool:
    """The file that takes over the records of filled chunks while their window is open, a third as long as they are.

    ``folder`` is a live folder, and the window one of this process. The file is made when something is added.
    """

    def __init__(self, folder: str | os.PathLike[str], window: int) -> None:
        self.path = Path(folder) / f"{os.getpid()}-{window}.spool"
        self._file = -1
        self._length = 0

    def __del__(self) -> None:
        if self._file >= 0:
            os.close(self._file)

    def add(self, chunks: Sequence[Any]) -> list[SpooledRecords]:
        """Takes over chunks of `kinetoscope._native`: afterwards their own files may go.

        Raises OSError if there is no space for all of them; then it has taken none.
        """
        if self._file < 0:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        entries = [self._entry(it) for it in chunks]
        try:
            _write_all(self._file, [piece for entry in entries for piece in entry])
        except OSError:
            os.ftruncate(self._file, self._length)
            os.lseek(self._file, self._length, os.SEEK_SET)
            raise
        return [self._added(entry, len(chunk)) for entry, chunk in zip(entries, chunks, strict=True)]

    def read(self, num_bytes: int, offset: int) -> bytes:
        """What stands at ``offset``; also after the file was deleted."""
        return os.pread(self._file, num_bytes, offset)

    def delete(self) -> None:
        """Deletes the file. What was added can be read as long as anybody has it."""
        if self._file >= 0:
            self.path.unlink(missing_ok=True)

    def _entry(self, chunk: Any) -> tuple[bytes, bytes]:
        with memoryview(chunk) as records:
            packed = isal_zlib.compress(records, _SPOOL_LEVEL)
        fields = (_SPOOL_MAGIC, _VERSION, os.getpid(), chunk.track, chunk.window, chunk.sequence, len(chunk))
        return _SPOOLED.pack(*fields, len(packed)), packed

    def _added(self, entry: tuple[bytes, bytes], num_records: int) -> SpooledRecords:
        header, packed = entry
        offset = self._length + len(header)
        self._length = offset + len(packed)
        return SpooledRecords(self, offset, len(packed), num_records)


def _write_all(file: int, pieces: list[bytes]) -> None:
    """Writes all of it, with as few calls as the system allows: each gives up the GIL, and waits to get it back."""
    for first in range(0, len(pieces), _MOST_PIECES):
        piece = pieces[first : first + _MOST_PIECES]
        wanted = sum(map(len, piece))
        written = os.writev(file, piece)
        while written < wanted:  # there is no more space, unless a signal came
            written += os.write(file, b"".join(piece)[written:])


def _read_spool(path: Path) -> Iterator[tuple["_ChunkHeader", bytes]]:
    """What was spooled; an entry that was not finished is left out."""
    content = _read(path)
    offset = 0
    while offset + _SPOOLED.size <= len(content):
        *fields, length = _SPOOLED.unpack_from(content, offset)
        header = _ChunkHeader(*fields)
        offset += _SPOOLED.size + length
        if header.magic != _SPOOL_MAGIC or offset > len(content):
            return
        _check_version(path, header.version)
        yield header, zlib.decompress(content[offset - length : offset])


# -- tracks and chunks --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LivePart:
    """Some of a thread's records: as long as there are records.

    ``window`` is the number of their window if their process opens windows itself. A child process's records may be of
    several windows.
    """

    window: int
    packed: bytes = field(repr=False)

    def __len__(self) -> int:
        return len(self.packed) // RECORD_BYTES

    def read(self) -> bytes:
        """The records, 32 bytes each."""
        return self.packed


@dataclass(slots=True)
class LiveTrack:
    """What one thread recorded and has not been saved, and the spans that it has open.

    ``parts`` are its records, oldest first. ``monotonic_ns`` and ``unix_ns`` are one moment on two clocks;
    records have nanoseconds on the monotonic clock.
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
    parts: list[LivePart] = field(default_factory=list, repr=False)
    open_spans: list[Record] = field(default_factory=list)
    """Spans in progress; their ``end`` is 0, and their ``series`` the number of the window in which they began."""

    def records(self) -> Iterator[Record]:
        """Every record, oldest first."""
        return chain.from_iterable(unpack_records(part.read()) for part in self.parts)


@dataclass(slots=True)
class LiveProcess:
    """What one process keeps in a live folder."""

    pid: int
    names: list[LiveName]
    tracks: list[LiveTrack]


def read_live_folder(folder: str | os.PathLike[str], *, without_pid: int = 0) -> list[LiveProcess]:
    """Everything that stands in a live folder, whether its processes still run or were killed.

    What was spooled counts as well. The files of the process ``without_pid`` are not looked at.
    Raises `TraceFileError` if a file is of another version.
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
        written = _written(content)
        is_later = any(it > read_to_ns for it in record_columns(written).begin)
        is_needed |= is_later
        if not is_later and (has_ended or len(written) // RECORD_BYTES == (len(content) - _CHUNK.size) // RECORD_BYTES):
            path.unlink(missing_ok=True)
    if has_ended and not is_needed:
        for path in [*folder.glob(f"{pid}-*.track"), folder / f"{pid}.names"]:
            path.unlink(missing_ok=True)


def _read_process(folder: Path, pid: int, names: Path) -> LiveProcess:
    # The open spans before the chunks: one that ends meanwhile is then found twice, rather than not at all.
    tracks = {it.number: it for it in _read_tracks(folder.glob(f"{pid}-*.track"))}
    # And the chunks before the spool that takes them over.
    chunks = dict(_read_chunks(folder.glob(f"{pid}-*.chunk")))
    for path in folder.glob(f"{pid}-*.spool"):
        chunks |= {header._replace(magic=_CHUNK_MAGIC): records for header, records in _read_spool(path)}
    in_order = {header.sequence: (header, records) for header, records in chunks.items()}
    for _, (header, records) in sorted(in_order.items()):
        if header.track in tracks:
            tracks[header.track].parts.append(LivePart(header.window, records))
    for track in tracks.values():
        track.open_spans = [it for it in track.open_spans if not _has_ended(it, track.parts)]
    return LiveProcess(pid, read_names(names), [tracks[number] for number in sorted(tracks)])


def _has_ended(span: Record, parts: list[LivePart]) -> bool:
    """Whether there is a record of a span that was open a moment ago."""
    begin = struct.pack("<q", span.begin)
    for part in map(LivePart.read, parts):
        offset = part.find(begin)
        while offset >= 0:
            if offset % RECORD_BYTES == 0:
                (ended,) = unpack_records(part[offset : offset + RECORD_BYTES])
                if (ended.begin, ended.name, ended.depth) == (span.begin, span.name, span.depth):
                    return True
            offset = part.find(begin, offset + 1)
    return False


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
        track.open_spans = [it._replace(end=0) for it in open_spans]
        yield track


class _ChunkHeader(NamedTuple):
    magic: bytes
    version: int
    pid: int
    track: int
    window: int
    sequence: int
    num_records: int


def _read_chunks(paths: Iterable[Path]) -> Iterator[tuple[_ChunkHeader, bytes]]:
    """The chunks in which anything was recorded."""
    for path in paths:
        content = _read(path)
        if len(content) < _CHUNK.size:
            continue
        header = _ChunkHeader(*_CHUNK.unpack_from(content))
        if header.magic == _CHUNK_MAGIC and header.track:
            _check_version(path, header.version)
            yield header, _written(content)


def _written(content: bytes) -> bytes:
    """A chunk's records up to the first place where none was written yet."""
    records = content[_CHUNK.size : len(content) - (len(content) - _CHUNK.size) % RECORD_BYTES]
    num_written = record_columns(records).kind.tobytes().find(0)
    return records if num_written < 0 else records[: num_written * RECORD_BYTES]


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
