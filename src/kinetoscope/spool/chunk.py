"""Files of a spool folder that hold records: names, tracks, chunks and spool files.

`src/native/recorder/record.h` describes the files byte by byte. Reading them needs no C.
"""

import contextlib
import json
import os
import platform
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from isal import isal_zlib

from kinetoscope.errors import TraceFileError
from kinetoscope.spool.record import RECORD_BYTES, Flag, Kind, Record, pack_records, record_columns, unpack_records

MAX_CHUNK_BYTES = 64 << 20
"""No chunk is larger, packed or unpacked: a recorder's largest has 4 MiB."""

_VERSION = 2
_CHUNK = struct.Struct("<8sIIIIIIIIqq8x")
_CHUNK_MAGIC = b"KSCHUNK\0"
_TRACK = struct.Struct("<8sIIIIIIqqQII128sq56x")
_TRACK_MAGIC = b"KSTRACK\0"
_SPOOL_MAGIC = b"KSSPOOL\0"
# isal 1.9.1 on ARM reads beyond the end of its input, which may not be mapped; it may have more faults there.
_compression = isal_zlib if platform.machine() == "x86_64" else zlib
_SPOOL_LEVEL = 1  # measured on records of a training loop: 400 MB/s and 3 times smaller; level 2 gains nothing
_MAX_PIECES = 512  # of one writev
_MAX_NAME_BYTES = 1 << 20
_MAX_NS = 1 << 62
_PIECE_BYTES, _SEARCH_BYTES = 64 << 10, 1 << 20


# -- the names file -----------------------------------------------------------------------------------------------


class NamesFile:
    """The file in which a recorder writes the names of its ids, which readers of the records need.

    ``names`` is the recorder's list, which grows. Raises OSError if the file cannot be made.
    """

    def __init__(self, folder: str | os.PathLike[str], pid: int, names: Sequence[Any]) -> None:
        self.path = Path(folder) / f"{pid}.names"
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        self._names = names
        self._num_written = self._num_bytes = 0
        self._unwritten = b""
        self.write_new_names()

    def write_new_names(self) -> None:
        """Write the names that were added since the last call: the number of a name's line is its id.

        Names that did not fit on a full disk are written before the next name, so that later lines keep their numbers.
        """
        first = self._num_written
        new = self._names[first:]
        lines = [json.dumps(_fields_of(name)).encode() + b"\n" for name in new]
        text, end = b"".join(lines), first + len(new)
        if self._num_written == first:  # else a signal handler has written the same meanwhile
            self._unwritten, self._num_written = self._unwritten + text, end
        self.flush()

    def flush(self) -> None:
        """Write the names that did not fit on a full disk, as far as they fit now."""
        at = self._num_bytes
        with contextlib.suppress(OSError):
            num_written = os.pwrite(self._file, self._unwritten, at)
            if self._num_bytes == at:  # else it was written meanwhile
                self._unwritten, self._num_bytes = self._unwritten[num_written:], at + num_written

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            self.flush()
            os.close(self._file)
            self._file = -1

    def delete(self) -> None:
        """Close and delete the file."""
        self.close()
        with contextlib.suppress(OSError):
            self.path.unlink()


class RecordName(NamedTuple):
    """The name and the categories of a name id."""

    name: str
    categories: tuple[str, ...]
    args: tuple[tuple[str, str | int], ...] = ()


def _fields_of(name: Any) -> dict[str, Any]:
    fields = {"name": name.name, "categories": name.categories}
    return {**fields, "args": dict(name.args)} if name.args else fields


def read_names(content: bytes) -> tuple[list[RecordName], list[str]]:
    """Return the names in a names file, and a sentence for each unreadable one, which gets a placeholder.

    An unfinished last line is left out.
    """
    names: list[RecordName] = []
    damages: list[str] = []
    for number, line in enumerate(content.split(b"\n")[:-1]):
        try:
            names.append(_read_name(line))
        except (ValueError, TypeError, KeyError, RecursionError):
            names.append(RecordName(f"unreadable name {number}", ()))
            damages.append(f"line {number + 1} cannot be read; what it named is called {names[-1].name!r}")
    return names, damages


def _read_name(line: bytes) -> RecordName:
    if len(line) > _MAX_NAME_BYTES:
        raise ValueError("no name is as long as this")
    fields = json.loads(line)
    name, categories, args = fields["name"], tuple(fields["categories"]), fields.get("args", {})
    if not all(isinstance(text, str) for text in (name, *categories)):
        raise TypeError("names are text")
    if not all(isinstance(value, str | int) for value in args.values()):
        raise TypeError("args of names are strings and integers")
    whole = ((_whole_text(key), _whole_text(value) if isinstance(value, str) else value) for key, value in args.items())
    return RecordName(_whole_text(name), tuple(map(_whole_text, categories)), tuple(whole))


def _whole_text(text: str) -> str:
    """Return the text without lone surrogates, which can be written to no file and no table."""
    return text.encode(errors="backslashreplace").decode()


# -- the spool ----------------------------------------------------------------------------------------------------


class SpooledRecords:
    """Records in a spool file, which stays open while this exists; the length is the number of records."""

    def __init__(self, spool: "SpoolFile", offset: int, num_bytes: int, num_records: int) -> None:
        self._spool = spool
        self._index_of = num_bytes, offset
        self._num_records = num_records

    def __len__(self) -> int:
        return self._num_records

    def read(self) -> bytes:
        """Return the records, 32 bytes each."""
        return zlib.decompress(self._spool.read(*self._index_of))


class SpoolFile:
    """The file of a window's filled chunks, compressed to a third, while the window is open.

    ``folder`` is a spool folder, ``window`` the number of one of this process's windows. The file is made when the
    first chunk is added.
    """

    def __init__(self, folder: str | os.PathLike[str], window: int) -> None:
        self.path = Path(folder) / f"{os.getpid()}-{window}.spool"
        self._file = -1
        self._length = 0

    def __del__(self) -> None:
        if self._file >= 0:
            os.close(self._file)

    def add(self, chunks: Sequence[Any]) -> list[SpooledRecords]:
        """Copy chunks of `kinetoscope._native` into the spool file; afterwards their own files may be deleted.

        Raises OSError if there is no space for all of them; then none is in the file.
        """
        if self._file < 0:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        entries = [self._entry(chunk) for chunk in chunks]
        try:
            _write_all(self._file, [piece for entry in entries for piece in entry])
        except OSError:
            os.ftruncate(self._file, self._length)
            os.lseek(self._file, self._length, os.SEEK_SET)
            raise
        return [self._added(entry, len(chunk)) for entry, chunk in zip(entries, chunks, strict=True)]

    def read(self, num_bytes: int, offset: int) -> bytes:
        """Return the bytes at ``offset``, also after the file was deleted."""
        return os.pread(self._file, num_bytes, offset)

    def delete(self) -> None:
        """Delete the file; existing `SpooledRecords` remain readable."""
        if self._file >= 0:
            self.path.unlink(missing_ok=True)

    def _entry(self, chunk: Any) -> tuple[bytes, bytes]:
        packer = _compression.compressobj(_SPOOL_LEVEL)
        with memoryview(chunk) as records:
            packed = packer.compress(records) + packer.flush()
        header = ChunkHeader(*_CHUNK.unpack(chunk.header))
        header = header._replace(magic=_SPOOL_MAGIC, num_records=len(chunk), packed_bytes=len(packed))
        return _CHUNK.pack(*header), packed

    def _added(self, entry: tuple[bytes, bytes], num_records: int) -> SpooledRecords:
        header, packed = entry
        offset = self._length + len(header)
        self._length = offset + len(packed)
        return SpooledRecords(self, offset, len(packed), num_records)


def _write_all(file: int, pieces: list[bytes]) -> None:
    """Write all pieces with as few calls as possible: after each call this thread waits for the GIL."""
    for first in range(0, len(pieces), _MAX_PIECES):
        piece = pieces[first : first + _MAX_PIECES]
        wanted = sum(map(len, piece))
        written = os.writev(file, piece)
        while written < wanted:  # there is no more space, unless a signal came
            written += os.write(file, b"".join(piece)[written:])


class SpoolEntry(NamedTuple):
    """The compressed records of one chunk in a spool file, and their location in the file."""

    header: "ChunkHeader"
    offset: int
    num_bytes: int

    def unpack(self, packed: bytes) -> bytes:
        """Return the records; fewer if the entry is damaged, and never more than its header has."""
        unpacker, records = zlib.decompressobj(), bytearray()
        with contextlib.suppress(zlib.error):
            for first in range(0, len(packed), _PIECE_BYTES):
                capacity = self.header.num_records * RECORD_BYTES - len(records)
                if capacity > 0:
                    records += unpacker.decompress(packed[first : first + _PIECE_BYTES], capacity)
        return bytes(records[: len(records) - len(records) % RECORD_BYTES])


def read_spool(file: BinaryIO, damages: list[str]) -> Iterator[SpoolEntry]:
    """Yield the entries of a spool file, also those after a damaged one.

    A sentence for each damaged one is added to ``damages``. An unfinished entry is returned with the part of it that
    was written.
    """
    offset, length = _next_entry(file, 0), os.fstat(file.fileno()).st_size
    if offset:
        damages.append("it does not begin with an entry")
    while offset + _CHUNK.size <= length:
        header = ChunkHeader(*_CHUNK.unpack(os.pread(file.fileno(), _CHUNK.size, offset)))
        first = offset + _CHUNK.size
        end = first + header.packed_bytes
        follows = os.pread(file.fileno(), len(_SPOOL_MAGIC), end)
        offset = end if follows in (_SPOOL_MAGIC, b"") else _next_entry(file, first)
        if follows != _SPOOL_MAGIC and offset < length:
            damages.append(f"there is no entry at byte {end:,}")
        if header.version != _VERSION or max(header.num_records * RECORD_BYTES, header.packed_bytes) > MAX_CHUNK_BYTES:
            damages.append(f"the entry before byte {end:,} is left out: it is of another version, or too large")
        else:
            yield SpoolEntry(header, first, min(end, offset, length) - first)


def _next_entry(file: BinaryIO, offset: int) -> int:
    """Return the offset of the next entry of a spool file; the end of the file if there is none."""
    while piece := os.pread(file.fileno(), _SEARCH_BYTES, offset):
        found = piece.find(_SPOOL_MAGIC)
        if found >= 0:
            return offset + found
        if len(piece) < len(_SPOOL_MAGIC):
            break
        offset += len(piece) - len(_SPOOL_MAGIC) + 1
    return os.fstat(file.fileno()).st_size


# -- tracks and chunks --------------------------------------------------------------------------------------------


class TrackHeader(NamedTuple):
    """The thread to which a track belongs. ``monotonic_ns`` and ``unix_ns`` are the same moment on two clocks."""

    magic: bytes
    version: int
    pid: int
    track: int
    tid: int
    rank: int
    is_main: int
    monotonic_ns: int
    unix_ns: int
    num_dropped: int
    num_slots: int
    reserved: int
    name: bytes
    dropped_ns: int


def read_track(content: bytes) -> tuple[TrackHeader, list[Record]] | None:
    """Return a track file's header and its open spans; None if nothing was written to it.

    Raises `TraceFileError` if it cannot be read.
    """
    if not content.strip(b"\0"):
        return None
    header = TrackHeader(*_unpack(_TRACK, _TRACK_MAGIC, content))
    if not _is_moment(header.monotonic_ns, header.unix_ns) or not 0 <= header.dropped_ns < _MAX_NS:
        raise TraceFileError("its times are impossible")
    slots = unpack_records(_whole_records(content, _TRACK.size))
    return header, [slot._replace(end=0) for slot in slots if slot.kind == Kind.SPAN]


def _is_moment(monotonic_ns: int, unix_ns: int) -> bool:
    return 0 < monotonic_ns < _MAX_NS and 0 < unix_ns < _MAX_NS


class ChunkHeader(NamedTuple):
    """The thread and the window of a chunk's first records.

    ``monotonic_ns`` and ``unix_ns`` are the same moment on two clocks.
    """

    magic: bytes
    version: int
    pid: int
    track: int
    window: int
    sequence: int
    num_records: int
    packed_bytes: int
    rank: int
    monotonic_ns: int
    unix_ns: int

    @property
    def has_clock(self) -> bool:
        """True if it has a moment on both clocks."""
        return _is_moment(self.monotonic_ns, self.unix_ns)


def read_chunk(content: bytes) -> tuple[ChunkHeader, bytes] | None:
    """Return a chunk's header and its records, track marks included; None if nothing was written to it.

    Raises `TraceFileError` if it cannot be read.
    """
    if not content.strip(b"\0"):
        return None
    header = ChunkHeader(*_unpack(_CHUNK, _CHUNK_MAGIC, content))
    records = _whole_records(content, _CHUNK.size)
    num_written = len(record_columns(records).kind.tobytes().rstrip(b"\0"))
    return header, records[: num_written * RECORD_BYTES]


def num_chunk_records(content: bytes) -> int:
    """Return the number of records that a chunk file has space for."""
    return max(0, len(content) - _CHUNK.size) // RECORD_BYTES


def _check_version(version: int) -> None:
    if version != _VERSION:
        raise TraceFileError(
            f"it is of version {version}, and this Kinetoscope reads version {_VERSION}; read it with the "
            "Kinetoscope that wrote it"
        )


def _unpack(layout: struct.Struct, magic: bytes, content: bytes) -> tuple[Any, ...]:
    if len(content) < layout.size:
        raise TraceFileError(f"it has {len(content):,} bytes, too few for its header")
    fields = layout.unpack_from(content)
    if fields[0] != magic:
        raise TraceFileError("it does not begin like a file of its kind")
    _check_version(fields[1])
    return fields


def _whole_records(content: bytes, first: int) -> bytes:
    return content[first : len(content) - (len(content) - first) % RECORD_BYTES]


# -- records ------------------------------------------------------------------------------------------------------

_ORDINARY = {(Kind.SPAN, 0), (Kind.SPAN, Flag.CUT), (Kind.INSTANT, 0), (Kind.COUNTER, 0), (Kind.COUNTER, Flag.FLOAT)}


def readable_records(packed: bytes, num_names: int) -> bytes:
    """Return the records that are valid with ``num_names`` names: usually ``packed`` itself."""
    if not packed or _are_all_readable(packed, num_names):
        return packed
    return pack_records(record for record in unpack_records(packed) if _is_readable(record, num_names))


def _are_all_readable(packed: bytes, num_names: int) -> bool:
    columns = record_columns(packed)
    return (
        set(zip(columns.kind, columns.flags, strict=True)) <= _ORDINARY
        and max(columns.name) < num_names
        and max(columns.series) < num_names
        and all(map(_is_in_order, columns.kind, columns.begin, columns.end))
    )


def _is_readable(record: Record, num_names: int) -> bool:
    is_known = (record.kind, record.flags) in _ORDINARY and record.name < num_names
    has_value = record.kind != Kind.COUNTER or record.series < num_names
    return is_known and has_value and _is_in_order(record.kind, record.begin, record.end)


def _is_in_order(kind: int, begin: int, end: float) -> bool:
    """Return whether the start is a possible time and, of a span, the end is not before it."""
    return 0 <= begin < _MAX_NS and (kind != Kind.SPAN or begin <= end < _MAX_NS)
