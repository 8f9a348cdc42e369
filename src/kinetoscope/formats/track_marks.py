"""formats: track marks. Records of several threads in one piece flow in; the stretch of each thread flows out.

`src/native/recorder/record.h` explains them byte by byte.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from kinetoscope.formats.record import RECORD_BYTES

_MARK = struct.Struct("<20sIHBBI")
_FLAG_MAIN = 4
_NAME_BYTES = 20
_LONGEST_NAME_BYTES = 128
_KIND_OFFSET = 26
MOST_MARKS = -(-_LONGEST_NAME_BYTES // _NAME_BYTES)
"""How many records name one thread at most."""
MARK = 6
"""The kind of record that a mark is, beside those of `kinetoscope.formats.record.Kind`."""


class TrackMark(NamedTuple):
    """Whose the records after it are."""

    track: int
    tid: int
    name: str
    is_main: bool


class Stretch(NamedTuple):
    """The records from ``first`` up to but not including ``end``, all of one thread."""

    mark: TrackMark
    first: int
    end: int


def pack_mark(mark: TrackMark) -> bytes:
    """The mark as records, 32 bytes each."""
    name = mark.name.encode(errors="replace")[:_LONGEST_NAME_BYTES]
    pieces = [name[at : at + _NAME_BYTES] for at in range(0, max(1, len(name)), _NAME_BYTES)]
    flags = _FLAG_MAIN if mark.is_main else 0
    return b"".join(_MARK.pack(piece, mark.track, 0, MARK, flags, mark.tid) for piece in pieces)


def stretches(packed: bytes | memoryview, unmarked: TrackMark) -> Iterator[Stretch]:
    """Every stretch in which there is a record. What stands before the first mark, because that was damaged, is
    ``unmarked``'s."""
    kinds = bytes(packed[_KIND_OFFSET::RECORD_BYTES])
    at = kinds.find(MARK)
    if at != 0 and kinds:
        yield Stretch(unmarked, 0, at if at > 0 else len(kinds))
    while at >= 0:
        mark, first = _read_mark(packed, kinds, at)
        at = kinds.find(MARK, first)
        end = at if at >= 0 else len(kinds)
        if end > first:
            yield Stretch(mark, first, end)


def _read_mark(packed: bytes | memoryview, kinds: bytes, first: int) -> tuple[TrackMark, int]:
    """The mark that begins at a record, and the number of the first record after it."""
    piece, track, _, _, flags, tid = _MARK.unpack_from(packed, first * RECORD_BYTES)
    name, end = piece, first + 1
    while end < len(kinds) and kinds[end] == MARK:
        piece, also_track, *_ = _MARK.unpack_from(packed, end * RECORD_BYTES)
        if also_track != track:
            break
        name, end = name + piece, end + 1
    return TrackMark(track, tid, name.rstrip(b"\0").decode(errors="replace"), bool(flags & _FLAG_MAIN)), end
