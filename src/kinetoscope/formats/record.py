"""formats: the 32-byte record, the one form in which spans, instants and counter values leave a recorder."""

import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum, IntFlag
from typing import Any, NamedTuple

try:
    from kinetoscope import _native
except ImportError:  # the functions here serve without
    _native = None


class Kind(IntEnum):
    """What a record is."""

    SPAN = 1
    INSTANT = 2
    COUNTER = 3


class Flag(IntFlag):
    """What is special about a record."""

    NONE = 0
    CUT = 1
    """The span was still open when its window closed, and ends there."""
    FLOAT = 2
    """The counter's value is a double; without this flag it is a 64-bit integer."""


class Record(NamedTuple):
    """One thing that happened on one thread. Times are nanoseconds on the monotonic clock.

    ``end`` is the end of a span, the value of a counter, and 0 for an instant. ``name`` and ``series`` are ids in
    the recorder's tables of names; ``depth`` counts the spans that were open on the thread at the begin.
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
    """The fields of many records, each as a memoryview of one type: items ``q`` (64 bits), ``I``, ``H`` or ``B``.

    ``end`` has the value's 64 bits as they stand: ``end.cast("B").cast("d")`` reads those of records with `Flag.FLOAT`.
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
    """The records in ``packed``, whose length is a multiple of 32, as columns. Where there is `kinetoscope._native`
    other threads run meanwhile."""
    num_records = len(packed) // RECORD_BYTES
    widths = [struct.calcsize(it) for it in _COLUMN_TYPES]
    columns = [bytearray(num_records * width) for width in widths]
    if _native is not None:
        _native.record_columns(packed, *columns)
    else:
        offset = 0
        for column, width in zip(columns, widths, strict=True):
            for byte in range(width):
                column[byte::width] = packed[offset + byte :: RECORD_BYTES]
            offset += width
    return RecordColumns(*(memoryview(it).cast(type_) for it, type_ in zip(columns, _COLUMN_TYPES, strict=True)))


_INTEGER = struct.Struct("<qqIIHBBI")
_FLOAT = struct.Struct("<qdIIHBBI")
RECORD_BYTES = _INTEGER.size
_LARGEST_DEPTH = 2**16 - 1
_LARGEST_INTEGER = 2**63 - 1


def pack_records(records: Iterable[Record | tuple]) -> bytes:
    """The records as bytes, 32 each, little-endian, in the order given."""
    return b"".join(map(_pack, records))


def _pack(record: Record | tuple) -> bytes:
    begin, end, name, batch, depth, kind, flags, series = record
    depth = min(depth, _LARGEST_DEPTH)
    if isinstance(end, float) or abs(end) > _LARGEST_INTEGER:
        return _FLOAT.pack(begin, _as_float(end), name, batch, depth, kind, flags | Flag.FLOAT, series)
    return _INTEGER.pack(begin, end, name, batch, depth, kind, flags, series)


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def unpack_records(packed: bytes | memoryview) -> Iterator[Record]:
    """The records in ``packed``, whose length is a multiple of 32."""
    for offset, fields in zip(range(0, len(packed), RECORD_BYTES), _INTEGER.iter_unpack(packed), strict=True):
        if fields[6] & Flag.FLOAT:
            fields = _FLOAT.unpack_from(packed, offset)
        yield Record._make(fields)
