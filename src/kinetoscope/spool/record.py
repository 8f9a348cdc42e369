"""The 32-byte record of a span, an instant or a counter value, as a recorder writes it.

Threads may share a chunk; then track marks name the thread of the records after them. Both are described byte by byte
in `src/native/recorder/record.h`.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import chain
from typing import Any, NamedTuple, Protocol, Self

from kinetoscope.native import native


class Kind(IntEnum):
    """The kind of a record."""

    SPAN = 1
    INSTANT = 2
    COUNTER = 3


class Flag(IntEnum):
    """The flags of a record: bits that may be combined.

    An `IntFlag` takes nine times as long.
    """

    NONE = 0
    CUT = 1
    """The span was still open when its window closed, and ends there."""
    FLOAT = 2
    """The counter's value is a double; without this flag it is a 64-bit integer."""


class Record(NamedTuple):
    """One thing that happened on one thread. Times are nanoseconds on the monotonic clock.

    ``end`` is the end of a span, the value of a counter, and 0 for an instant. ``name`` and ``series`` are ids in
    the recorder's tables of names; ``depth`` counts the spans that were open on the thread at its start.
    """

    begin: int
    end: int | float
    name: int
    batch: int
    depth: int
    kind: int
    flags: int
    series: int = 0


class RecordColumns(NamedTuple):
    """The fields of many records, each field a memoryview with items ``q`` (64 bits), ``I``, ``H`` or ``B``.

    ``end`` holds the bits of the value: for records with `Flag.FLOAT`, ``end.cast("B").cast("d")`` reads them.
    """

    begin: memoryview
    end: memoryview
    name: memoryview
    batch: memoryview
    depth: memoryview
    kind: memoryview
    flags: memoryview
    series: memoryview


_COLUMN_TYPES: tuple[Any, ...] = ("q", "q", "I", "I", "H", "B", "B", "I")


def record_columns(packed: bytes | memoryview) -> RecordColumns:
    """Return the records in ``packed``, whose length is a multiple of 32, as columns. Other threads run meanwhile."""
    num_records = len(packed) // RECORD_BYTES
    widths = [struct.calcsize(type_) for type_ in _COLUMN_TYPES]
    columns = [bytearray(num_records * width) for width in widths]
    native.record_columns(packed, *columns)
    typed = zip(columns, _COLUMN_TYPES, strict=True)
    return RecordColumns(*(memoryview(column).cast(type_) for column, type_ in typed))


_INTEGER = struct.Struct("<qqIIHBBI")
_FLOAT = struct.Struct("<qdIIHBBI")
RECORD_BYTES = _INTEGER.size
_MAX_DEPTH = 2**16 - 1
_MAX_INTEGER = 2**63 - 1


def pack_records(records: Iterable[Record | tuple]) -> bytes:
    """Return the records as bytes: 32 each, little-endian, in the given order."""
    return b"".join(map(_pack, records))


def _pack(record: Record | tuple) -> bytes:
    begin, end, name, batch, depth, kind, flags, series = record
    depth = min(depth, _MAX_DEPTH)
    if isinstance(end, float) or abs(end) > _MAX_INTEGER:
        return _FLOAT.pack(begin, _as_float(end), name, batch, depth, kind, flags | Flag.FLOAT, series)
    return _INTEGER.pack(begin, end, name, batch, depth, kind, flags, series)


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def unpack_records(packed: bytes | memoryview) -> Iterator[Record]:
    """Yield the records in ``packed``, whose length is a multiple of 32."""
    is_float = int(Flag.FLOAT)  # looking it up takes as long as all else for a record
    for offset, fields in zip(range(0, len(packed), RECORD_BYTES), _INTEGER.iter_unpack(packed), strict=True):
        if fields[6] & is_float:
            fields = _FLOAT.unpack_from(packed, offset)
        yield Record._make(fields)


# -- track marks --------------------------------------------------------------------------------------------------

_MARK = struct.Struct("<20sIHBBI")
_FLAG_MAIN = 4
_NAME_BYTES = 20
_MAX_THREAD_NAME_BYTES = 128
_KIND_OFFSET = 26
MAX_MARKS = -(-_MAX_THREAD_NAME_BYTES // _NAME_BYTES)
"""The most records that one track mark may take."""
MARK = 6
"""The ``kind`` of a record that is part of a track mark."""


class TrackMark(NamedTuple):
    """The thread of the records after it."""

    track: int
    tid: int
    name: str
    is_main: bool


class ThreadSlice(NamedTuple):
    """The records from ``first`` up to but not including ``end``, all of one thread."""

    mark: TrackMark
    first: int
    end: int


def pack_mark(mark: TrackMark) -> bytes:
    """Return the mark as records, 32 bytes each."""
    name = mark.name.encode(errors="replace")[:_MAX_THREAD_NAME_BYTES]
    pieces = [name[at : at + _NAME_BYTES] for at in range(0, max(1, len(name)), _NAME_BYTES)]
    flags = _FLAG_MAIN if mark.is_main else 0
    return b"".join(_MARK.pack(piece, mark.track, 0, MARK, flags, mark.tid) for piece in pieces)


def split_by_thread(packed: bytes | memoryview, unmarked: TrackMark) -> Iterator[ThreadSlice]:
    """Yield the slices of records between marks.

    Records before the first mark, which exist only if that mark was damaged, get the mark ``unmarked``.
    """
    kinds = bytes(packed[_KIND_OFFSET::RECORD_BYTES])
    at = kinds.find(MARK)
    if at != 0 and kinds:
        yield ThreadSlice(unmarked, 0, at if at > 0 else len(kinds))
    while at >= 0:
        mark, first = _read_mark(packed, kinds, at)
        at = kinds.find(MARK, first)
        end = at if at >= 0 else len(kinds)
        if end > first:
            yield ThreadSlice(mark, first, end)


def _read_mark(packed: bytes | memoryview, kinds: bytes, first: int) -> tuple[TrackMark, int]:
    """Return the mark that begins at a record, and the number of the first record after it."""
    piece, track, _, _, flags, tid = _MARK.unpack_from(packed, first * RECORD_BYTES)
    name, end = piece, first + 1
    while end < len(kinds) and kinds[end] == MARK:
        piece, also_track, *_ = _MARK.unpack_from(packed, end * RECORD_BYTES)
        if also_track != track:
            break
        name, end = name + piece, end + 1
    return TrackMark(track, tid, name.rstrip(b"\0").decode(errors="replace"), bool(flags & _FLAG_MAIN)), end


# -- threads ------------------------------------------------------------------------------------------------------


class RecordPart(Protocol):
    """Some of a thread's records, in memory or in a file; its length is their number."""

    def __len__(self) -> int: ...
    def read(self) -> bytes | memoryview:
        """Return the records, 32 bytes each."""
        ...


@dataclass(frozen=True, slots=True)
class RecordsInMemory:
    """Records in memory."""

    packed: bytes

    def __len__(self) -> int:
        return len(self.packed) // RECORD_BYTES

    def read(self) -> bytes:
        """Return the records, 32 bytes each."""
        return self.packed


@dataclass(frozen=True, slots=True)
class ThreadRecords:
    """The records of one thread in one window, 32 bytes each, in the order in which they ended.

    ``num_dropped`` further ones did not fit into the files. The records may not all fit into memory; read them part by
    part.
    """

    tid: int
    name: str
    is_main: bool
    parts: Sequence[RecordPart] = field(repr=False)
    num_dropped: int = 0

    @classmethod
    def of(cls, tid: int, name: str, is_main: bool, packed: bytes, num_dropped: int = 0) -> Self:
        """Return records of a thread that are all in memory."""
        return cls(tid, name, is_main, (RecordsInMemory(packed),), num_dropped)

    @property
    def num_records(self) -> int:
        """The number of records."""
        return sum(map(len, self.parts))

    def records(self) -> Iterator[Record]:
        """Yield every record, read part by part."""
        return chain.from_iterable(unpack_records(part.read()) for part in self.parts)
