"""torch: what Kineto saved, kept small. The text flows in once; it can be read any number of times.

Kineto saves once, and what it wrote takes ten times the room it needs: so it is kept in memory, packed. On the way in
the module in C checks each event and writes it on one line, with its true name (`TraceText.is_whole`). Where there is
no such module, or something in the text is odd, the text is kept as it came, and `repair` makes a trace of it.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from kinetoscope.errors import TraceFileError
from kinetoscope.formats.chrome import encode_text
from kinetoscope.formats.trace_base import choose_base_ns, process_base_ns
from kinetoscope.recording.recorder_choice import IS_PURE
from kinetoscope.torch.kineto_stream import TextStream
from kinetoscope.torch.known_names import plain_names
from kinetoscope.torch.nested_lines import nest_lines
from kinetoscope.torch.own_frames import PREFIXES
from kinetoscope.torch.packed_text import SEPARATOR, PackedText
from kinetoscope.torch.strays import stray_name_line

_EVENTS = b'"traceEvents": ['
_HEADER_BYTES = 1 << 20  # beyond which there is no header to be found
_BASE = "baseTimeNanoseconds"
_TIME = re.compile(rb'"ts": (\d+)\.\d{3}\D')
_EARLIER_NS = 100 * 10**9  # by how much an event may be earlier than the first that is written
# Kineto's traceName is the path of the file it saved, which was one of ours.
_NOT_OURS = ("traceEvents", "traceName")


class _Stop(IntEnum):
    """Why the module in C stopped; the numbers are those of `src/native/kineto/kineto_text.h`."""

    MORE = 0
    FULL = 1
    ENDED = 2
    DAMAGED = 3


@dataclass(frozen=True, slots=True)
class Renamed:
    """A name that Kineto wrote as ``raw``, of its activity ``number``."""

    number: int
    name: str
    raw: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceText:
    """Kineto's text: its head, up to the bracket that opens the list of events; ``lines``; and what is no line.

    The ``lines`` are an event each, one that every viewer reads, its time ``shift_ns`` after what it says.
    ``remainder`` is the text that follows in Kineto's file, if that is not at its end there.
    ``own_frames``: those of ours that the lines lack, as `OwnFrames.above` has them, where there is a remainder.
    ``doubtful_names``: those of the lines that Kineto may have changed.
    ``is_right``: there is none, all names are true, and the spans of each track nest.
    """

    head: bytes
    lines: PackedText = field(default_factory=PackedText)
    shift_ns: int = 0
    remainder: PackedText = field(default_factory=PackedText)
    own_frames: dict[int, int | None] = field(default_factory=dict)
    doubtful_names: frozenset[str] = frozenset()
    is_right: bool = False

    @property
    def may_be_renamed(self) -> bool:
        """Whether Kineto may have changed names of it: some look so, or part of the text was not looked at."""
        return bool(self.remainder) or not self.doubtful_names <= plain_names

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
            yield b"".join([head, *self.lines.pieces(), b"]}"])
        if self.remainder:
            yield b"".join([self.head, *self.remainder.pieces()])


def read_text(stream: TextStream, renamed: Sequence[Renamed] | None) -> TraceText:
    """Reads all of Kineto's text; ``renamed`` are those of its names that are not true, in order, if that is known."""
    head, rest = _read_head(stream)
    if not head and not rest:
        raise TraceFileError("Kineto saved nothing. Look whether the disk for temporary files is full.")
    if IS_PURE or renamed is None or _base_ns(head) is None:
        return TraceText(head=head, remainder=_remainder(rest, stream))
    from kinetoscope._native import KinetoLines

    shift_ns = _shift_ns(head, rest)
    names = [(it.number, it.raw.encode(), encode_text(it.name)) for it in renamed]
    found = KinetoLines(shift_ns, names, _own_prefixes(), rest)
    lines, is_at_end = _read_lines(stream, found)
    remainder = PackedText() if is_at_end else _remainder(found.rest, stream)
    nested = nest_lines(lines, found) if is_at_end and found.are_true else None
    return TraceText(
        head=head,
        lines=nested or lines,
        shift_ns=shift_ns,
        remainder=remainder,
        own_frames={} if is_at_end else found.own_frames,
        doubtful_names=frozenset(found.doubtful_names.decode("ascii").splitlines()),
        is_right=nested is not None,
    )


def _own_prefixes() -> tuple[bytes, ...]:
    """What the names of our own frames begin with, as they stand in the text."""
    return tuple(encode_text(prefix).removesuffix(b'"') for prefix in PREFIXES)


def _read_lines(stream: TextStream, found: Any) -> tuple[PackedText, bool]:
    """A line for each event that comes from the stream, and whether that was all of them."""
    lines, stop = PackedText(), _Stop.FULL
    while stop is _Stop.FULL:
        code, some = found.read(stream.fileno(), stream.is_written)
        stop = _Stop(code)
        lines.add(some)
        del some  # so that the next ones find the same memory
    if found.have_strays:
        lines.add(SEPARATOR + stray_name_line())
    return lines, stop is _Stop.ENDED


def _remainder(text: bytes, stream: TextStream) -> PackedText:
    packed = PackedText()
    while text:
        packed.add(text)
        text = stream.read()
    return packed


def _shift_ns(head: bytes, text: bytes) -> int:
    """By how much our base is later than Kineto's, with which times may no longer be exact in a double."""
    found = _TIME.search(text)
    kineto_ns = _base_ns(head) or 0
    earliest_ns = kineto_ns + int(found[1]) * 1000 - _EARLIER_NS if found else kineto_ns
    return choose_base_ns(earliest_ns, process_base_ns()) - kineto_ns


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


def _base_ns(head: bytes) -> int | None:
    """What the times count from; None if the head is no JSON or does not say it."""
    try:
        base_ns = json.loads(head + b"]}").get(_BASE)
    except ValueError:
        return None
    return base_ns if isinstance(base_ns, int) else None
