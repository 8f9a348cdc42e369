"""Text that Kineto saved, compressed in memory, so that it can be exported any number of times.

Kineto saves a window only once, and its text is ten times as large as necessary. The native extension checks each event
and writes it on one line, with its original name; the lines are compressed. A damaged text is kept as Kineto wrote it,
and `export` repairs it each time.
"""

import io
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import IntEnum
from itertools import accumulate
from pathlib import Path
from typing import Any

from kinetoscope.core.clock.clock import choose_base_ns, process_base_ns
from kinetoscope.core.paths.atomic_file import atomic_file
from kinetoscope.errors import TraceFileError
from kinetoscope.formats.chrome import ChromeWriter, Event, encode_text
from kinetoscope.formats.compression import Block, compressed_by_name, pack_block, write_gzip
from kinetoscope.formats.nesting import nest
from kinetoscope.native import native
from kinetoscope.torch.kineto_stream import TextStream
from kinetoscope.torch.original_names import AlteredName, NamesBySpan, possible_spellings, unaltered_names
from kinetoscope.torch.python_frames import PROFILER_PREFIXES, orphan_track_line, orphan_track_name

_SEPARATOR = b",\n"  # between lines; no line contains a line break
_EVENTS = b'"traceEvents": ['
_HEADER_BYTES = 1 << 20  # a text without "traceEvents" in its first megabyte has no header
_BASE = "baseTimeNanoseconds"
_TIME_PATTERN = re.compile(rb'"ts": (\d+)\.\d{3}\D')
_MAX_EARLIER_NS = 100 * 10**9  # an event may be this much earlier than the first one in the text
_DROPPED_FIELDS = ("traceEvents", "traceName")  # Kineto's traceName is the path of the temporary file
_LINES_PER_BATCH = 64
_MAX_ROUNDS = 8  # of nesting: clipping a span may make others overlap. Two rounds have been enough so far.


@dataclass(slots=True)
class CompressedText:
    """A long text in compressed blocks; each can be decompressed, replaced or copied into a file by itself.

    If the text is read by lines, each block must consist of whole lines.
    """

    _blocks: list[Block] = field(default_factory=list)

    def add(self, piece: bytes | memoryview) -> None:
        """Append ``piece`` as a block."""
        if piece:
            self._blocks.append(pack_block(piece))

    def pieces(self) -> Iterator[bytes]:
        """Return the text of each block."""
        return (block.unpack() for block in self._blocks)

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def read_lines_at(self, offsets: Iterable[int]) -> Iterator[bytes]:
        """Yield the lines that start at ``offsets``, which are in bytes and ascend."""
        offsets_of_blocks, unpacked, piece = self._block_offsets(), -1, b""
        for offset in offsets:
            block = bisect_right(offsets_of_blocks, offset) - 1
            if block != unpacked:
                unpacked, piece = block, self._blocks[block].unpack()
            yield piece[offset - offsets_of_blocks[block] : _find_line_end(piece, offset - offsets_of_blocks[block])]

    def replace_lines(self, changed: Mapping[int, bytes]) -> "CompressedText":
        """Return a text with the lines at these offsets replaced."""
        by_block: dict[int, dict[int, bytes]] = {}
        offsets_of_blocks = self._block_offsets()
        for offset, line in changed.items():
            block = bisect_right(offsets_of_blocks, offset) - 1
            by_block.setdefault(block, {})[offset - offsets_of_blocks[block]] = line
        blocks = list(self._blocks)
        for number, lines in by_block.items():
            blocks[number] = pack_block(_replace_lines_in(blocks[number].unpack(), lines))
        return CompressedText(blocks)

    def rewrite_lines(self, rewrite: Callable[[bytes], bytes], after_batch: Callable[[], object]) -> "CompressedText":
        """Return the text with all lines rewritten in batches; ``after_batch`` is called after each."""
        text, separator = CompressedText(), b"\n"
        for piece in self.pieces():
            lines, rewrite_lines = piece.strip(b",\n").split(_SEPARATOR), list[bytes]()
            for first in range(0, len(lines), _LINES_PER_BATCH):
                rewrite_lines.append(rewrite(_SEPARATOR.join(lines[first : first + _LINES_PER_BATCH])))
                after_batch()
            text.add(separator + _SEPARATOR.join(rewrite_lines))
            separator = _SEPARATOR
        return text

    def save(self, path: Path, before: bytes, after: bytes) -> None:
        """Write ``before``, the text and ``after`` to ``path``, compressed if the name ends in ``.gz`` or ``.zst``."""
        with atomic_file(path) as stream:
            if path.name.endswith(".gz"):
                write_gzip(stream, [pack_block(before), *self._blocks, pack_block(after)])
                return
            with compressed_by_name(stream, path) as compressed:
                for piece in (before, *self.pieces(), after):
                    compressed.write(piece)

    def _block_offsets(self) -> list[int]:
        """Return the offset of each block in the text."""
        return list(accumulate((block.num_bytes for block in self._blocks), initial=0))[:-1]


def _find_line_end(piece: bytes, begin: int) -> int:
    end = piece.find(_SEPARATOR, begin)
    return len(piece) if end < 0 else end


def _replace_lines_in(piece: bytes, lines: Mapping[int, bytes]) -> bytes:
    """Return a piece with the lines at these offsets replaced."""
    parts: list[bytes] = []
    done = 0
    for begin, line in sorted(lines.items()):
        parts += [piece[done:begin], line]
        done = _find_line_end(piece, begin)
    return b"".join([*parts, piece[done:]])


class _StopReason(IntEnum):
    """Reason why the native extension stopped reading, as numbered in `src/native/kineto/kineto_text.h`."""

    MORE = 0
    FULL = 1
    ENDED = 2
    DAMAGED = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class KinetoText:
    """Text that Kineto saved for one window.

    Attributes:
        head: The text up to the bracket that opens the list of events.
        lines: One valid event per line, with times that count from a base ``shift_ns`` later than Kineto's.
        remainder: The rest as Kineto wrote it, if the native extension stopped early.
        profiler_frames: Kinetoscope's frames that were dropped before the remainder, as in `ProfilerFrames.above`.
        maybe_changed_names: Names in ``lines`` that Kineto may have altered.
        is_valid: There is no remainder, all names are original, and the spans of each track nest.
    """

    head: bytes
    lines: CompressedText = field(default_factory=CompressedText)
    shift_ns: int = 0
    remainder: CompressedText = field(default_factory=CompressedText)
    profiler_frames: dict[int, int | None] = field(default_factory=dict)
    maybe_changed_names: frozenset[str] = frozenset()
    is_valid: bool = False

    @property
    def may_have_changed_names(self) -> bool:
        """True if Kineto may have altered a name, here or in the part of the text that was not examined."""
        return bool(self.remainder) or not self.maybe_changed_names <= unaltered_names

    def correct_names(self, original_names: NamesBySpan) -> "KinetoText":
        """Return the text with original instead of altered names in its lines.

        Only the lines that have such a name are read into Python: they are few, such as frames of freed code.
        """
        spellings = {
            spelling
            for names in original_names.values()
            for name in names
            for spelling in possible_spellings(name)
            if spelling != name and spelling.isascii() and spelling.isprintable()  # no line has others
        }
        written = re.compile(b'"name":(?:' + b"|".join(map(re.escape, map(encode_text, sorted(spellings)))) + b")")
        by_begin: dict[int, list[tuple[int, str]]] = {}
        for (begin_ns, duration_ns), names in original_names.items():
            by_begin.setdefault(begin_ns, []).extend((duration_ns, name) for name in names)
        base_ns, changed, piece_offset = self.header[_BASE], dict[int, bytes](), 0
        for piece in self.lines.pieces():
            for match in written.finditer(piece):
                begin = piece.rfind(b"\n", 0, match.start()) + 1
                line = piece[begin : _find_line_end(piece, begin)]
                changed[piece_offset + begin] = _correct_name(line, base_ns, by_begin)
            piece_offset += len(piece)
        return replace(self, lines=self.lines.replace_lines(changed))

    @property
    def header(self) -> dict[str, Any]:
        """Fields of the trace other than its events."""
        fields: dict[str, Any] = json.loads(self.head + b"]}")
        kept = {name: value for name, value in fields.items() if name not in _DROPPED_FIELDS}
        return kept | {_BASE: int(fields[_BASE]) + self.shift_ns}

    def documents(self) -> Iterator[bytes]:
        """Yield the text as one or two JSON documents: the lines, and the remainder, which may be damaged."""
        if self.lines:
            head = json.dumps(self.header | {"traceEvents": []}).removesuffix("]}").encode()
            yield b"".join([head, *self.lines.pieces(), b"]}"])
        if self.remainder:
            yield b"".join([self.head, *self.remainder.pieces()])


def _correct_name(line: bytes, base_ns: int, by_begin: Mapping[int, list[tuple[int, str]]]) -> bytes:
    """Return the line of an event with its original name, one of those of spans that start at the same time."""
    event = json.loads(line, parse_float=Decimal)
    begin_ns, duration_ns = (int(event.get(key, 0) * 1000) for key in ("ts", "dur"))
    names = [
        (abs(true_duration_ns - duration_ns), name)  # a span that was clipped to nest is shorter now
        for true_duration_ns, name in by_begin.get(base_ns + begin_ns, ())
        if event["name"] in possible_spellings(name)
    ]
    if not names:
        return line
    old, new = (b'"name":' + encode_text(name) for name in (event["name"], min(names)[1]))
    return line.replace(old, new, 1)


def read_text(stream: TextStream, altered: Sequence[AlteredName] | None) -> KinetoText:
    """Read all of Kineto's text.

    Args:
        stream: The stream to read.
        altered: The names that Kineto altered, in the order of the text; None if unknown.

    Raises:
        TraceFileError: Kineto saved an empty trace.
    """
    head, rest = _read_head(stream)
    if not head and not rest:
        raise TraceFileError("Kineto saved an empty trace. Check whether the disk for temporary files is full.")
    if altered is None or _base_ns(head) is None:
        return KinetoText(head=head, remainder=_remainder(rest, stream))
    shift_ns = _shift_ns(head, rest)
    names = [(name.number, name.raw.encode(), encode_text(name.name)) for name in altered]
    kineto_lines = native.KinetoLines(shift_ns, names, _profiler_prefixes(), rest)
    lines, is_at_end = _read_lines(stream, kineto_lines)
    remainder = CompressedText() if is_at_end else _remainder(kineto_lines.rest, stream)
    nested = _nest_lines(lines, kineto_lines) if is_at_end and kineto_lines.are_true else None
    return KinetoText(
        head=head,
        lines=nested or lines,
        shift_ns=shift_ns,
        remainder=remainder,
        profiler_frames={} if is_at_end else kineto_lines.own_frames,
        maybe_changed_names=frozenset(kineto_lines.maybe_changed_names.decode("ascii").splitlines()),
        is_valid=nested is not None,
    )


def _profiler_prefixes() -> tuple[bytes, ...]:
    """Return the prefixes of Kinetoscope's frame names, as JSON text."""
    return tuple(encode_text(prefix).removesuffix(b'"') for prefix in PROFILER_PREFIXES)


def _read_lines(stream: TextStream, kineto_lines: native.KinetoLines) -> tuple[CompressedText, bool]:
    """Return a line for each event of the stream, and whether the end of the events was reached."""
    lines, stop = CompressedText(), _StopReason.FULL
    while stop is _StopReason.FULL:
        code, batch = kineto_lines.read(stream.fileno(), stream.is_written)
        stop = _StopReason(code)
        lines.add(batch)
        del batch  # so that the next read reuses its memory
    if kineto_lines.have_orphan_frames:
        lines.add(_SEPARATOR + orphan_track_line())
    return lines, stop is _StopReason.ENDED


def _remainder(text: bytes, stream: TextStream) -> CompressedText:
    """Return the rest of the stream after ``text``."""
    compressed = CompressedText()
    while text:
        compressed.add(text)
        text = stream.read()
    return compressed


def _shift_ns(head: bytes, text: bytes) -> int:
    """Return how much later the new base is than Kineto's, from which a double cannot count nanoseconds exactly."""
    match = _TIME_PATTERN.search(text)
    kineto_ns = _base_ns(head) or 0
    earliest_ns = kineto_ns + int(match[1]) * 1000 - _MAX_EARLIER_NS if match else kineto_ns
    return choose_base_ns(earliest_ns, process_base_ns()) - kineto_ns


def _read_head(stream: TextStream) -> tuple[bytes, bytes]:
    """Return the text up to the events, b"" if it has no header, and the text read after it."""
    text = b""
    while piece := stream.read():
        text += piece
        before, bracket, rest = text.partition(_EVENTS)
        if bracket:
            # `_shift_ns` needs the time of the first event.
            return before + bracket, rest if _TIME_PATTERN.search(rest) else rest + stream.read()
        if len(text) > _HEADER_BYTES:
            break
    return b"", text


def _base_ns(head: bytes) -> int | None:
    """Return the base of the text's times; None if the head is not JSON or has no base."""
    try:
        base_ns = json.loads(head + b"]}").get(_BASE)
    except ValueError:
        return None
    return base_ns if isinstance(base_ns, int) else None


def _nest_lines(text: CompressedText, kineto_lines: native.KinetoLines) -> CompressedText | None:
    """Return the text with the spans of each track nested; None if some still overlap.

    The native extension finds overlapping spans, a few in a hundred; only those are read into Python. The changes are
    reported to ``kineto_lines``, which made the text and then finds the spans that overlap after them.
    """
    nester = _Nester(text, kineto_lines)
    crossing = set(kineto_lines.crossings())
    for _ in range(_MAX_ROUNDS):
        if not crossing:
            return nester.text()
        if crossing <= nester.involved.keys():
            return None
        nester.nest_with(crossing)
        crossing = set(kineto_lines.crossings())
    return None


class _Nester:
    """Nests overlapping spans.

    Attributes:
        involved: For each span, by index: its start, end, track and offset in the text.
    """

    def __init__(self, text: CompressedText, kineto_lines: native.KinetoLines) -> None:
        self._text = text
        self._kineto_lines = kineto_lines
        self.involved: dict[int, tuple[int, int, int, int]] = {}
        self._changed: dict[int, bytes] = {}
        self._added: list[bytes] = []

    def nest_with(self, crossing: set[int]) -> None:
        """Nest these spans together with those of earlier rounds, all from their recorded times."""
        for index in crossing - self.involved.keys():
            self.involved[index] = self._kineto_lines.span(index)
        metadata, events = self._read()
        tids = [event["tid"] for event in events.values()]
        everything = [*metadata, *events.values()]
        num_before = len(everything)
        nest(everything)
        lines = _encode_lines([*events.values(), *everything[num_before:]])
        self._changed = dict(zip((self.involved[index][3] for index in events), lines, strict=False))
        self._added = lines[len(events) :]
        for (index, event), tid in zip(events.items(), tids, strict=True):
            self._report_change(index, event, is_moved=event["tid"] != tid)

    def text(self) -> CompressedText:
        """Return the text with the changed lines, followed by the lines that name new tracks."""
        if not self._changed:
            return self._text
        text = self._text.replace_lines(self._changed)
        text.add(b"".join(_SEPARATOR + line for line in self._added))
        return text

    def _read(self) -> tuple[list[Event], dict[int, Event]]:
        """Return the metadata events, which name processes and threads, and the involved events by index."""
        by_offset = {span[3]: index for index, span in self.involved.items()}
        offsets = sorted({*self._kineto_lines.metadata, *by_offset})
        metadata: list[Event] = []
        events: dict[int, Event] = {}
        for offset, line in zip(offsets, self._text.read_lines_at(offsets), strict=True):
            if offset in by_offset:
                begin, end, _, _ = self.involved[by_offset[offset]]
                events[by_offset[offset]] = json.loads(line) | {"ts": begin, "dur": end - begin}
            else:
                metadata.append(json.loads(line))
        if self._kineto_lines.have_orphan_frames:
            metadata.append(orphan_track_name())
        return metadata, events

    def _report_change(self, index: int, event: Event, *, is_moved: bool) -> None:
        """Report the new times and track of a span to the native extension."""
        track = self.involved[index][2]
        if is_moved:
            track = hash((event["pid"], event["tid"])) & (1 << 64) - 1
        self._kineto_lines.move(index, event["ts"], event["ts"] + event["dur"], track)


def _encode_lines(events: list[Event]) -> list[bytes]:
    buffer = io.BytesIO()
    ChromeWriter(buffer, base_ns=0, header={}).write(events)
    return buffer.getvalue().removeprefix(b"\n").split(_SEPARATOR)
