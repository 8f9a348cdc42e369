"""torch: lines whose spans overlap. A text of lines flows in, one whose spans nest flows out.

Only the spans that overlap, a few in a hundred, are read into Python and go through `kinetoscope.formats.nesting`; the
module in C finds them, and looks again at all when they have changed.
"""

import io
import json
import struct
from collections.abc import Iterator, Mapping
from itertools import chain

from kinetoscope.formats.chrome import ChromeWriter, Event
from kinetoscope.formats.nesting import nest
from kinetoscope.torch.packed_text import PackedText, pieces_of

_SPAN = struct.Struct("=qqQQ")  # begin and end in nanoseconds, track, number of the line; TextSpan in kineto_text.c
_SEPARATOR = b",\n"
_ROUNDS = 8  # each brings in those that overlap only since others were cut: two have been enough so far
_METADATA = b'{"ph":"M"'


def nest_lines(packed: bytes, spans: bytearray) -> bytes | None:
    """The text, packed as it came, with the spans of each track nested; None if that does not come to an end.

    ``spans`` are those of the text, as `kineto_lines` notes them, and are changed with it.
    """
    from kinetoscope import _native

    nester = _Nester(packed, spans)
    crossing = set(_native.kineto_crossings(spans))
    for _ in range(_ROUNDS):
        if not crossing:
            return nester.text()
        if crossing <= nester.involved.keys():
            return None
        nester.nest_with(crossing)
        crossing = set(_native.kineto_crossings(spans))
    return None


class _Nester:
    """Knows the spans that take part, by their index, as they were recorded."""

    def __init__(self, packed: bytes, spans: bytearray) -> None:
        self._packed = packed
        self._spans = spans
        self.involved: dict[int, tuple[int, int, int, int]] = {}
        self._changed: dict[int, bytes] = {}
        self._added: list[bytes] = []

    def nest_with(self, crossing: set[int]) -> None:
        """Nests these and all that took part before, from the beginning."""
        for index in crossing - self.involved.keys():
            self.involved[index] = _SPAN.unpack_from(self._spans, index * _SPAN.size)
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

    def text(self) -> bytes:
        """The text with the changed lines, and those of new tracks behind the others."""
        if not self._changed:
            return self._packed
        with PackedText() as packed:
            separator = b""
            for lines in _replaced(_lines_of(self._packed), self._changed):
                packed.stream.write(separator + _SEPARATOR.join(lines))
                separator = _SEPARATOR
            packed.stream.write(b"".join(_SEPARATOR + line for line in self._added))
        return packed.content

    def _read(self) -> tuple[list[Event], dict[int, Event]]:
        """What is said of processes and threads, and the events that take part by their index."""
        by_line = {span[3]: index for index, span in self.involved.items()}
        metadata: list[Event] = []
        events: dict[int, Event] = {}
        for number, line in enumerate(chain.from_iterable(_lines_of(self._packed))):
            if number in by_line:
                events[by_line[number]] = self._event(by_line[number], line)
            elif line.startswith(_METADATA):
                metadata.append(json.loads(line))
        return metadata, events

    def _event(self, index: int, line: bytes) -> Event:
        begin, end, _, _ = self.involved[index]
        return json.loads(line) | {"ts": begin, "dur": end - begin}

    def _note(self, index: int, event: Event, *, is_moved: bool) -> None:
        _, _, track, line = self.involved[index]
        if is_moved:
            track = hash((event["pid"], event["tid"])) & (1 << 64) - 1
        _SPAN.pack_into(self._spans, index * _SPAN.size, event["ts"], event["ts"] + event["dur"], track, line)


def _lines_of(packed: bytes) -> Iterator[list[bytes]]:
    """The lines, many at a time; no string in them holds a line break."""
    rest = b""
    for piece in pieces_of(packed):
        *lines, rest = (rest + piece).split(_SEPARATOR)
        yield lines
    yield [rest]


def _replaced(parts: Iterator[list[bytes]], changed: Mapping[int, bytes]) -> Iterator[list[bytes]]:
    number = 0
    for lines in parts:
        if lines:
            yield [changed.get(at, line) for at, line in enumerate(lines, number)]
            number += len(lines)


def _as_lines(events: list[Event]) -> list[bytes]:
    buffer = io.BytesIO()
    ChromeWriter(buffer, base_ns=0, header={}).write(events)
    return buffer.getvalue().removeprefix(b"\n").split(_SEPARATOR)
