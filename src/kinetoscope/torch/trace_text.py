"""torch: what Kineto saved, kept small. The text flows in once; it can be read any number of times.

Kineto saves once, and what it wrote takes ten times the room it needs: so it is kept in memory, packed. On the way in
the module in C checks each event and writes it on one line, with its true name (`TraceText.is_whole`). Where there is
no such module, or something in the text is odd, the text is kept as it came, and `repair` makes a trace of it.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import ModuleType
from typing import Any, BinaryIO

from kinetoscope.errors import TraceFileError
from kinetoscope.formats.chrome import encode_text
from kinetoscope.recording.recorder_choice import IS_PURE
from kinetoscope.torch.kineto_stream import TextStream
from kinetoscope.torch.nested_lines import nest_lines
from kinetoscope.torch.packed_text import PackedText, pieces_of
from kinetoscope.torch.strays import stray_name_line

_EVENTS = b'"traceEvents": ['
_HEADER_BYTES = 1 << 20  # beyond which there is no header to be found
_LINES_BYTES = 4 << 20
_SPANS_BYTES = 1 << 19
_BASE = "baseTimeNanoseconds"
_TIME = re.compile(rb'"ts": (\d+)\.\d{3}\D')
_SECOND_US = 1_000_000
_EARLIER_S = 100  # by how much an event may be earlier than the first that is written
# Kineto's traceName is the path of the file it saved, which was one of ours.
_NOT_OURS = ("traceEvents", "traceName")


class _Stop(IntEnum):
    """Why the module in C stopped; the numbers are those of `src/native/kineto_text.c`."""

    MORE = 0
    FULL = 1
    ENDED = 2
    RENAMED = 3
    DAMAGED = 4


@dataclass(frozen=True, slots=True)
class Renamed:
    """A name that Kineto wrote as ``raw``, of its activity ``number``."""

    number: int
    name: str
    raw: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceText:
    """Kineto's text: its head, up to the bracket that opens the list of events; ``lines``; and what is no line.

    The ``lines`` are packed: an event each, one that every viewer reads, its time ``shift_ns`` after what it says.
    ``remainder``, packed as well, is the text that follows in Kineto's file, if that is not at its end there.
    ``is_right``: there is none, all names are true, and the spans of each track nest.
    """

    head: bytes
    lines: bytes = b""
    shift_ns: int = 0
    remainder: bytes = b""
    is_right: bool = False

    @property
    def header(self) -> dict[str, Any]:
        """What stands beside the lines."""
        fields: dict[str, Any] = json.loads(self.head + b"]}")
        kept = {name: value for name, value in fields.items() if name not in _NOT_OURS}
        return kept | {_BASE: int(fields[_BASE]) + self.shift_ns}

    def documents(self) -> Iterator[bytes]:
        """The text as one trace or two, each with a head of its own; the second may be damaged."""
        if self.lines:
            head = json.dumps(self.header | {"traceEvents": []}).removesuffix("]}").encode()
            yield b"".join([head, *pieces_of(self.lines), b"]}"])
        if self.remainder:
            yield b"".join([self.head, *pieces_of(self.remainder)])


def read_text(stream: TextStream, renamed: Sequence[Renamed] | None) -> TraceText:
    """Reads all of Kineto's text; ``renamed`` are those of its names that are not true, in order, if that is known."""
    head, rest = _read_head(stream)
    if not head and not rest:
        raise TraceFileError("Kineto saved nothing. Look whether the disk for temporary files is full.")
    native = _native() if renamed is not None and _has_base(head) else None
    if native is None:
        return TraceText(head=head, remainder=_packed(rest, stream))
    shift_ns = _shift_ns(rest)
    with PackedText() as packed:
        lines = _Lines(native, packed.stream, shift_ns, renamed or ())
        rest = lines.add_all(rest, stream)
    remainder = b"" if lines.is_at_end else _packed(rest, stream)
    nested = nest_lines(packed.content, lines.spans) if lines.are_true else None
    return TraceText(
        head=head,
        lines=nested or packed.content,
        shift_ns=shift_ns,
        remainder=remainder,
        is_right=nested is not None,
    )


def _packed(text: bytes, stream: TextStream) -> bytes:
    with PackedText() as packed:
        while text:
            packed.stream.write(text)
            text = stream.read()
    return packed.content


def _shift_ns(text: bytes) -> int:
    """By how much Kineto's base is too early: with it, times are no longer exact in a double. Whole microseconds."""
    found = _TIME.search(text)
    return max(0, int(found[1]) // _SECOND_US - _EARLIER_S) * _SECOND_US * 1000 if found else 0


def _read_head(stream: TextStream) -> tuple[bytes, bytes]:
    text = b""
    while piece := stream.read():
        text += piece
        before, bracket, rest = text.partition(_EVENTS)
        if bracket:
            # The time of the first event is looked at before the others come.
            return before + bracket, rest if _TIME.search(rest) else rest + stream.read()
        if len(text) > _HEADER_BYTES:
            break
    return b"", text


def _has_base(head: bytes) -> bool:
    """Whether the head is JSON and says what its times count from."""
    try:
        return isinstance(json.loads(head + b"]}").get(_BASE), int)
    except ValueError:
        return False


def _native() -> ModuleType | None:
    if IS_PURE:
        return None
    from kinetoscope import _native as native

    return native


class _Lines:
    """Turns events as Kineto writes them into lines, and remembers whether their spans nest."""

    def __init__(self, native: Any, stream: BinaryIO, shift_ns: int, renamed: Sequence[Renamed]) -> None:
        self._native = native
        self._shift_ns = shift_ns
        self._stream = stream
        self._renamed = iter([(it.number, it.raw.encode(), encode_text(it.name)) for it in renamed])
        self._next_renamed = next(self._renamed, (-1, b"", b""))
        self._into, self._some_spans = bytearray(_LINES_BYTES), bytearray(_SPANS_BYTES)
        self.spans = bytearray()
        self._num_activities = self._num_lines = 0
        self._is_damaged = self.is_at_end = self._has_strays = False

    @property
    def are_true(self) -> bool:
        """Whether all of the text was lines, and every name that was to be put right has been."""
        return self.is_at_end and self._next_renamed[0] < 0

    def add_all(self, text: bytes, stream: TextStream) -> bytes:
        """Writes the events in ``text`` and in what follows it in ``stream``; returns what was read and is no event."""
        rest = self._add_events(text, stream)
        if self._has_strays:
            self._stream.write(b",\n" + stray_name_line())
        return rest

    def _add_events(self, text: bytes, stream: TextStream) -> bytes:
        while text and not self.is_at_end:
            rest = self._add(text)
            piece = b"" if self._is_damaged else stream.read()
            if not piece:
                return rest
            text = rest + piece
        return b""

    def _add(self, text: bytes) -> bytes:
        """Writes the events in ``text``; returns the begin of one that is not all there, or what is no event."""
        view, at = memoryview(text), 0
        stop = _Stop.FULL
        while stop in (_Stop.FULL, _Stop.RENAMED):
            stop, num_read = self._add_some(view[at:])
            at += num_read
        self.is_at_end = stop is _Stop.ENDED
        self._is_damaged = stop is _Stop.DAMAGED
        return text[at:]

    def _add_some(self, text: memoryview) -> tuple[_Stop, int]:
        number, line = self._num_activities, self._num_lines
        code, num_read, num_written, num_spans, self._num_activities, self._num_lines, has_strays = (
            self._native.kineto_lines(
                text, self._into, self._some_spans, number, line, self._shift_ns, self._next_renamed
            )
        )
        self._has_strays |= has_strays
        stop = _Stop(code)
        with memoryview(self._into) as written:
            # The first line needs no comma before it.
            self._stream.write(written[1 if num_written and not line else 0 : num_written])
        self.spans += memoryview(self._some_spans)[:num_spans]
        if stop is _Stop.RENAMED:
            self._next_renamed = next(self._renamed, (-1, b"", b""))
        elif stop is _Stop.FULL and not num_read:
            self._into = bytearray(2 * len(self._into))
        return stop, num_read
