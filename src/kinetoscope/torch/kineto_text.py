"""torch: what Kineto saved, kept small. The text flows in once; it can be read any number of times."""

import io
import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import accumulate
from pathlib import Path
from typing import Any

from kinetoscope.errors import TraceFileError
from kinetoscope.formats.chrome import ChromeWriter, Event, encode_text
from kinetoscope.formats.compression import Block, compressed_by_name, pack_block, write_gzip
from kinetoscope.formats.nesting import nest
from kinetoscope.formats.trace_base import choose_base_ns, process_base_ns
from kinetoscope.recording.recorder_choice import IS_PURE
from kinetoscope.torch.kineto_stream import TextStream
from kinetoscope.torch.python_frames import PREFIXES, orphan_track_line, orphan_track_name
from kinetoscope.torch.true_names import Renamed, plain_names
from kinetoscope.writing.atomic_file import atomic_file

SEPARATOR = b",\n"  # between lines, none of which holds a line break


@dataclass(slots=True)
class PackedText:
    """Pieces of a text. Where its lines matter, each piece is of whole ones, every line after a separator or at the
    text's begin.
    """

    _blocks: list[Block] = field(default_factory=list)

    def add(self, piece: bytes | memoryview) -> None:
        """Puts ``piece`` behind what there is."""
        if piece:
            self._blocks.append(pack_block(piece))

    def pieces(self) -> Iterator[bytes]:
        """The text again, piece by piece."""
        return (block.unpack() for block in self._blocks)

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def lines_at(self, places: Iterable[int]) -> Iterator[bytes]:
        """The lines that begin at the ``places``, in bytes from the text's begin and in order."""
        begins, number, piece = self._begins(), -1, b""
        for place in places:
            holder = bisect_right(begins, place) - 1
            if holder != number:
                number, piece = holder, self._blocks[holder].unpack()
            yield piece[place - begins[holder] : _end_of_line(piece, place - begins[holder])]

    def with_lines(self, changed: Mapping[int, bytes]) -> "PackedText":
        """The text with other lines at the places that are the keys."""
        by_block: dict[int, dict[int, bytes]] = {}
        begins = self._begins()
        for place, line in changed.items():
            holder = bisect_right(begins, place) - 1
            by_block.setdefault(holder, {})[place - begins[holder]] = line
        blocks = list(self._blocks)
        for number, lines in by_block.items():
            blocks[number] = pack_block(_replaced(blocks[number].unpack(), lines))
        return PackedText(blocks)

    def save(self, path: Path, before: bytes, after: bytes) -> None:
        """Writes the file ``path``, with more text before and after, packed as its name says."""
        with atomic_file(path) as stream:
            if path.name.endswith(".gz"):
                write_gzip(stream, [pack_block(before), *self._blocks, pack_block(after)])
                return
            with compressed_by_name(stream, path) as packed:
                for piece in (before, *self.pieces(), after):
                    packed.write(piece)

    def _begins(self) -> list[int]:
        return list(accumulate((block.num_bytes for block in self._blocks), initial=0))[:-1]


def _end_of_line(piece: bytes, begin: int) -> int:
    end = piece.find(SEPARATOR, begin)
    return len(piece) if end < 0 else end


def _replaced(piece: bytes, lines: Mapping[int, bytes]) -> bytes:
    parts: list[bytes] = []
    done = 0
    for begin, line in sorted(lines.items()):
        parts += [piece[done:begin], line]
        done = _end_of_line(piece, begin)
    return b"".join([*parts, piece[done:]])


_ROUNDS = 8  # each brings in those that overlap only since others were cut: two have been enough so far


def nest_lines(text: PackedText, found: Any) -> PackedText | None:
    """The text with the spans of each track nested; None if that does not come to an end.

    ``found`` are the module's `KinetoLines`, which knows the spans of the text; it is changed with them.
    """
    nester = _Nester(text, found)
    crossing = set(found.crossings())
    for _ in range(_ROUNDS):
        if not crossing:
            return nester.text()
        if crossing <= nester.involved.keys():
            return None
        nester.nest_with(crossing)
        crossing = set(found.crossings())
    return None


class _Nester:
    """Knows the spans that take part, by their index, as they were recorded."""

    def __init__(self, text: PackedText, found: Any) -> None:
        self._text = text
        self._found = found
        self.involved: dict[int, tuple[int, int, int, int]] = {}
        self._changed: dict[int, bytes] = {}
        self._added: list[bytes] = []

    def nest_with(self, crossing: set[int]) -> None:
        """Nests these and all that took part before, from the beginning."""
        for index in crossing - self.involved.keys():
            self.involved[index] = self._found.span(index)
        metadata, events = self._read()
        tids = [event["tid"] for event in events.values()]
        everything = [*metadata, *events.values()]
        num_before = len(everything)
        nest(everything)
        lines = _as_lines([*events.values(), *everything[num_before:]])
        self._changed = dict(zip((self.involved[index][3] for index in events), lines, strict=False))
        self._added = lines[len(events) :]
        for (index, event), tid in zip(events.items(), tids, strict=True):
            self._note(index, event, is_moved=event["tid"] != tid)

    def text(self) -> PackedText:
        """The text with the changed lines, and those of new tracks behind the others."""
        if not self._changed:
            return self._text
        text = self._text.with_lines(self._changed)
        text.add(b"".join(SEPARATOR + line for line in self._added))
        return text

    def _read(self) -> tuple[list[Event], dict[int, Event]]:
        """What is said of processes and threads, and the events that take part by their index."""
        by_place = {span[3]: index for index, span in self.involved.items()}
        places = sorted({*self._found.metadata, *by_place})
        metadata: list[Event] = []
        events: dict[int, Event] = {}
        for place, line in zip(places, self._text.lines_at(places), strict=True):
            if place in by_place:
                begin, end, _, _ = self.involved[by_place[place]]
                events[by_place[place]] = json.loads(line) | {"ts": begin, "dur": end - begin}
            else:
                metadata.append(json.loads(line))
        if self._found.have_orphan_frames:
            metadata.append(orphan_track_name())
        return metadata, events

    def _note(self, index: int, event: Event, *, is_moved: bool) -> None:
        track = self.involved[index][2]
        if is_moved:
            track = hash((event["pid"], event["tid"])) & (1 << 64) - 1
        self._found.move(index, event["ts"], event["ts"] + event["dur"], track)


def _as_lines(events: list[Event]) -> list[bytes]:
    buffer = io.BytesIO()
    ChromeWriter(buffer, base_ns=0, header={}).write(events)
    return buffer.getvalue().removeprefix(b"\n").split(SEPARATOR)


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


@dataclass(frozen=True, kw_only=True, slots=True)
class KinetoText:
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


def read_text(stream: TextStream, renamed: Sequence[Renamed] | None) -> KinetoText:
    """Reads all of Kineto's text; ``renamed`` are those of its names that are not true, in order, if that is known."""
    head, rest = _read_head(stream)
    if not head and not rest:
        raise TraceFileError("Kineto saved nothing. Look whether the disk for temporary files is full.")
    if IS_PURE or renamed is None or _base_ns(head) is None:
        return KinetoText(head=head, remainder=_remainder(rest, stream))
    from kinetoscope._native import KinetoLines

    shift_ns = _shift_ns(head, rest)
    names = [(it.number, it.raw.encode(), encode_text(it.name)) for it in renamed]
    found = KinetoLines(shift_ns, names, _own_prefixes(), rest)
    lines, is_at_end = _read_lines(stream, found)
    remainder = PackedText() if is_at_end else _remainder(found.rest, stream)
    nested = nest_lines(lines, found) if is_at_end and found.are_true else None
    return KinetoText(
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
    if found.have_orphan_frames:
        lines.add(SEPARATOR + orphan_track_line())
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
