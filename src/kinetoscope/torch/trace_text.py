"""torch: what Kineto saved, kept small. The text flows in once; it can be read any number of times.

Kineto saves once, and what it wrote takes ten times the room it needs: so it is kept in memory, packed. On the way in
the module in C checks each event and writes it on one line, with its true name (`TraceText.is_whole`). Where there is
no such module, or something in the text is odd, the text is kept as it came, and `repair` makes a trace of it.
"""

import io
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import IntEnum
from types import ModuleType
from typing import Any, BinaryIO

from kinetoscope.errors import TraceFileError
from kinetoscope.formats.chrome import encode_text
from kinetoscope.formats.compression import compressed_by_name, open_unpacked
from kinetoscope.recording.recorder_choice import IS_PURE
from kinetoscope.torch.kineto_stream import TextStream

_EVENTS = b'"traceEvents": ['
_HEADER_BYTES = 1 << 20  # beyond which there is no header to be found
_LINES_BYTES = 4 << 20
_SPANS_BYTES = 1 << 19
_COPY_BYTES = 4 << 20
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


@dataclass(frozen=True, slots=True)
class TraceText:
    """Kineto's text: the head, up to the bracket that opens the list of events, and the rest, packed.

    ``is_whole``: the rest is nothing but lines, each one event and right as it stands, and the spans of a track nest.
    """

    head: bytes
    packed_rest: bytes
    is_whole: bool

    @property
    def header(self) -> dict[str, Any]:
        """What stands beside the events, if the text is whole."""
        fields = json.loads(self.head + b"]}")
        return {name: value for name, value in fields.items() if name not in _NOT_OURS}

    def write_packed(self, stream: BinaryIO) -> None:
        """Writes the text as JSON of an unknown shape, packed; for `kinetoscope.formats.chrome.read_chrome`."""
        with compressed_by_name(stream, ".gz") as packed:
            packed.write(self.head)
        stream.write(self.packed_rest)
        if self.is_whole:
            with compressed_by_name(stream, ".gz") as packed:
                packed.write(b"]}")

    def rest(self) -> Iterator[bytes]:
        """What follows the head, piece by piece."""
        with open_unpacked(self.packed_rest) as stream:
            while piece := stream.read(_COPY_BYTES):
                yield piece


def read_text(stream: TextStream, renamed: Sequence[Renamed] | None) -> TraceText:
    """Reads all of Kineto's text; ``renamed`` are those of its names that are not true, in order, if that is known."""
    head, rest = _read_head(stream)
    if not head and not rest:
        raise TraceFileError("Kineto saved nothing. Look whether the disk for temporary files is full.")
    native = _native() if renamed is not None and head and _is_json(head) else None
    with _Packed() as packed:
        lines = _Lines(native, packed.stream, renamed or ()) if native else None
        if lines is None:
            packed.stream.write(rest)
        else:
            rest = lines.add(rest)
        while piece := stream.read():
            if lines is None or lines.is_damaged:
                packed.stream.write(piece)
            elif not lines.is_at_end:
                rest = lines.add(rest + piece)
        is_whole = lines is not None and lines.finish(rest)
    return TraceText(head, packed.content, is_whole)


def _read_head(stream: TextStream) -> tuple[bytes, bytes]:
    text = b""
    while piece := stream.read():
        text += piece
        before, bracket, rest = text.partition(_EVENTS)
        if bracket:
            return before + bracket, rest
        if len(text) > _HEADER_BYTES:
            break
    return b"", text


def _is_json(head: bytes) -> bool:
    try:
        json.loads(head + b"]}")
    except ValueError:
        return False
    return True


def _native() -> ModuleType | None:
    if IS_PURE:
        return None
    from kinetoscope import _native as native

    return native


class _Packed:
    """A stream whose content is kept packed in memory."""

    def __enter__(self) -> "_Packed":
        self._buffer = io.BytesIO()
        self._open = ExitStack()
        self.stream: BinaryIO = self._open.enter_context(compressed_by_name(self._buffer, ".gz"))
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)
        self.content = self._buffer.getvalue()


class _Lines:
    """Turns events as Kineto writes them into lines, and remembers whether their spans nest."""

    def __init__(self, native: Any, stream: BinaryIO, renamed: Sequence[Renamed]) -> None:
        self._native = native
        self._stream = stream
        self._renamed = iter([(it.number, it.raw.encode(), encode_text(it.name)) for it in renamed])
        self._next_renamed = next(self._renamed, (-1, b"", b""))
        self._into, self._some_spans = bytearray(_LINES_BYTES), bytearray(_SPANS_BYTES)
        self._spans = bytearray()
        self._num_activities = self._num_lines = 0
        self.is_damaged = self.is_at_end = False

    def add(self, text: bytes) -> bytes:
        """Writes the events in ``text``; returns the begin of one that is not all there."""
        view, at = memoryview(text), 0
        stop = _Stop.FULL
        while stop in (_Stop.FULL, _Stop.RENAMED):
            stop, num_read = self._add_some(view[at:])
            at += num_read
        self.is_at_end = stop is _Stop.ENDED
        if stop is _Stop.DAMAGED:
            self.is_damaged = True
            self._stream.write(b",\n" if self._num_lines else b"")
            self._stream.write(view[at:])
        return b"" if self.is_damaged else text[at:]

    def _add_some(self, text: memoryview) -> tuple[_Stop, int]:
        number, line = self._num_activities, self._num_lines
        code, num_read, num_written, num_spans, self._num_activities, self._num_lines = self._native.kineto_lines(
            text, self._into, self._some_spans, number, line, self._next_renamed
        )
        stop = _Stop(code)
        with memoryview(self._into) as written:
            # The first line needs no comma before it.
            self._stream.write(written[1 if num_written and not line else 0 : num_written])
        self._spans += memoryview(self._some_spans)[:num_spans]
        if stop is _Stop.RENAMED:
            self._next_renamed = next(self._renamed, (-1, b"", b""))
        elif stop is _Stop.FULL and not num_read:
            self._into = bytearray(2 * len(self._into))
        return stop, num_read

    def finish(self, rest: bytes) -> bool:
        """Completes the text; whether all of it was lines, names true, and spans that nest."""
        is_right = self.is_at_end and self._next_renamed[0] < 0 and self._native.kineto_nests(self._spans)
        if self.is_at_end and not is_right:
            self._stream.write(b"]}")
        elif not self.is_at_end and not self.is_damaged:
            self._stream.write(b",\n" + rest if self._num_lines else rest)
        return is_right
