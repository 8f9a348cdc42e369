"""Chrome JSON traces read piece by piece, in constant memory, and passed as text to an `EventSink`.

This is the only lenient reader: text that the sink rejects is read event by event here, repaired where it is not JSON
(`chrome_event.repair_event`), or left out and counted.
"""

import contextlib
import io
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import islice
from typing import Any, Protocol

import msgspec

from kinetoscope.core.paths.run_folder import open_descriptor
from kinetoscope.errors import TraceFileError, UnsafePathError
from kinetoscope.formats.chrome_event import (
    Damage,
    decode_leniently,
    escape_surrogates,
    event_to_nanoseconds,
    find_error_position,
    has_negative_duration,
    is_strict,
    read_event,
    read_fields,
    repair_event,
)
from kinetoscope.formats.compression import UnpackedStream, is_packed
from kinetoscope.formats.health import Health

Event = dict[str, Any]

CLOSING_BRACKET = ord("]")

_PIECE_BYTES = 1 << 20
_MAX_EVENT_BYTES = 1 << 26  # longer text is treated as damage, such as a missing quote
_MAX_BYTES_WITHOUT_EVENTS = 1 << 25
_PEEK_BYTES = 1 << 12  # bytes in which the end of a malformed event is searched first
# If the end of an event is not in so many bytes, it is given up: Python objects take up to 30 times the text's size.
_LOOKAHEAD_BYTES = 1 << 23
_MAX_REPAIRED_BYTES = 1 << 16
_MAX_STARTS = 16
_MAX_EVENT_PREFIX_BYTES = 256  # of an event, up to its first colon
_NEAR_END_BYTES = 16
# A budget of bytes that may be read without finding an event: its limit, the least cost of a lost piece, and how much
# each byte of an event repays. When the budget is overdrawn, the end of an event is not searched far ahead, and text
# after a lost piece is skipped: the more, the larger the debt.
_MAX_WASTE_BYTES = 1 << 24
_MIN_WASTE_BYTES = 400
_WASTE_REPAID_PER_BYTE = 16
_WASTE_PER_BYTE_SKIPPED = 25
_MAX_SKIPPED_BYTES = 1 << 16
_EVENTS = re.compile(rb'(?<!\\)"traceEvents"[ \t\n\r]*:[ \t\n\r]*\[')
_SEPARATORS = re.compile(rb"[ \t\n\r,]*")
_EVENT_AFTER = re.compile(rb'\{[ \t\n\r]*"ph"[ \t\n\r]*:[ \t\n\r]*"')  # after the end of the events
_NEXT_EVENT = re.compile(rb'\{[ \t\n\r]*"(?:ph|name|cat|pid|tid|ts|id|args)"[ \t\n\r]*:')
_SPACE = b" \t\r\n"
_MARK = b"\xef\xbb\xbf"  # some editors write it before UTF-8
_UTF_16 = (b"\xff\xfe", b"\xfe\xff", b"[\0", b"{\0", b"\0[", b"\0{")  # marked, or by its first bracket
_NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


NOT_STRICT = "The JSON is not valid; each event was read by itself."
"""A repair of every file that a strict parser would refuse."""


class Stop(IntEnum):
    """The reason why a sink stopped."""

    MORE = 0
    """The text ends, maybe within an event."""
    END = 1
    """The list of events is closed."""
    MALFORMED = 2
    """The next event is one that it does not take."""


class EventSink(Protocol):
    """A consumer of events as text."""

    @property
    def num_comma_errors(self) -> int:
        """The number of missing or extra commas between the events that `take` accepted."""
        ...

    def take(self, text: bytearray, start: int, end: int, is_first: bool) -> tuple[int, Stop]:
        """Accept whole events from ``start`` on, with their separators.

        ``is_first``: no event is known to come before, so no comma is needed.

        Returns:
            The index of the stop, and its reason.
        """
        ...

    def add_event(self, event: Event, text: bytes) -> bool:
        """Add an event that `take` did not accept; return False if it cannot be added.

        ``text`` is the event as in the file if that is JSON, else b"". Times are in microseconds, or of any other type.
        """
        ...


class OneByOne:
    """A sink that accepts no text, so that `add_event` gets every event."""

    num_comma_errors = 0

    def take(self, text: bytearray, start: int, end: int, is_first: bool) -> tuple[int, Stop]:
        """Accept nothing."""
        at = skip_separators(text, start, end)
        if at == end:
            return start, Stop.MORE
        if text[at] != CLOSING_BRACKET:
            return start, Stop.MALFORMED
        self.num_comma_errors += text.count(b",", start, at)
        return at + 1, Stop.END


def skip_separators(text: bytearray | bytes, start: int, end: int) -> int:
    """Return the index of the next event, or of the text in its place; ``end`` if it is not in memory yet."""
    match = _SEPARATORS.match(text, start, end)
    return match.end() if match else start


@dataclass(slots=True)
class StreamedTrace:
    """A file's header, and its faults."""

    header: dict[str, Any] = field(default_factory=dict)
    repairs: list[str] = field(default_factory=list)
    health: Health = field(default_factory=Health)
    is_strict: bool = True
    """True if its events are valid JSON."""
    num_non_objects: int = 0
    """The number of entries that are not objects, so not events."""


def stream_chrome(
    path: str | os.PathLike[str],
    sink: EventSink,
    on_header: Callable[[dict[str, Any]], None] | None = None,
    on_bytes: Callable[[int], None] | None = None,
) -> StreamedTrace:
    """Pass the events of a Chrome JSON file to ``sink``, in order.

    ``on_header`` is called with the fields before the events, once they are read; ``on_bytes`` now and then with the
    bytes of the file that were read since. Raises `TraceFileError` when the file is empty, binary or no trace.
    """
    name = os.fspath(path)
    with open_trace(name) as file:
        return ChromeStream(UnpackedStream(file, name), name, sink, on_bytes).read(on_header)


def open_trace(name: str) -> io.FileIO:
    """Open a file whose read errors are `TraceFileError`, so that they differ from errors of writing."""
    with _reading(name):
        return _TraceFile(name, opener=open_descriptor)


class _TraceFile(io.FileIO):
    def read(self, size: int | None = -1, /) -> bytes:
        with _reading(self.name):
            return super().read(-1 if size is None else size)

    def readinto(self, buffer: Any, /) -> int:
        with _reading(self.name):
            return super().readinto(buffer)


@contextlib.contextmanager
def _reading(name: object) -> Iterator[None]:
    try:
        yield
    except UnsafePathError:
        raise
    except OSError as error:
        raise TraceFileError(f"Cannot read the trace {name}: {error.strerror}. Check the path.") from error


class ChromeStream:
    """One pass over a trace: the piece in memory, and the faults so far."""

    def __init__(
        self,
        stream: UnpackedStream,
        name: str,
        sink: EventSink,
        on_bytes: Callable[[int], None] | None = None,
    ) -> None:
        self._name = name
        self._stream = stream
        self._sink = sink
        self._on_bytes = on_bytes
        self._num_unpacked = self._num_reported = 0
        self._buffer = bytearray(_PIECE_BYTES)
        self._begin = self._end = 0
        self._is_over = False
        self._trace = StreamedTrace()
        self._is_strict = self._are_fields_strict = True
        self._is_first = True
        self._has_events = False
        self._waste_left = _MAX_WASTE_BYTES
        self._damages: Counter[int] = Counter()
        self._num_comma_errors = self._num_non_objects = self._num_skipped = 0

    def read(self, on_header: Callable[[dict[str, Any]], None] | None = None) -> StreamedTrace:
        """Read the whole trace. Raises `TraceFileError` when it is empty, binary or no trace."""
        is_list = self._find_events()
        if on_header is not None:
            on_header(self._trace.header)
        is_closed = self._read_events()
        while is_closed and self._read_rest(is_list):
            is_closed = self._read_events()
        self._begin = self._end
        self._report_progress(0)
        self._report(is_closed)
        return self._trace

    # -- the piece in memory --

    def _more(self) -> bool:
        """Read the next piece; False at the end of the file, or when no more fits."""
        if self._is_over or self._end - self._begin >= _MAX_EVENT_BYTES:
            return False
        self._buffer[: self._end - self._begin] = self._buffer[self._begin : self._end]
        self._begin, self._end = 0, self._end - self._begin
        if self._end == len(self._buffer):
            self._buffer += bytes(len(self._buffer))
        with memoryview(self._buffer) as view, view[self._end :] as buffer:
            num_read = self._stream.readinto(buffer)
        self._end += num_read
        self._num_unpacked += num_read
        self._is_over = num_read == 0
        return num_read > 0

    def _report_progress(self, min_bytes: int = _PIECE_BYTES) -> None:
        """Report the bytes done since the last report, if they are at least ``min_bytes``."""
        num_done = self._num_unpacked - (self._end - self._begin)
        num_bytes = self._stream.num_packed * num_done // max(1, self._num_unpacked) - self._num_reported
        if self._on_bytes is not None and num_bytes >= min_bytes:
            self._num_reported += num_bytes
            self._on_bytes(num_bytes)

    def _text(self, max_bytes: int | None = None) -> bytes:
        end = self._end if max_bytes is None else min(self._end, self._begin + max_bytes)
        return bytes(self._buffer[self._begin : end])

    def _next_index(self) -> int:
        """Return the index of the next event, or of the text in its place."""
        return skip_separators(self._buffer, self._begin, self._end)

    def _skip_space(self) -> bytes:
        """Skip white space, and return the first byte after it, b"" at the end."""
        while True:
            text = self._text()
            kept = text.lstrip(_SPACE)
            self._begin += len(text) - len(kept)
            if kept or not self._more():
                return kept[:1]

    # -- before the events --

    def _find_events(self) -> bool:
        """Read the header, go to the first event, and return whether the trace is a bare list."""
        first = self._skip_space()
        if first == b"\xef":
            self._begin += 3
            first = self._skip_space()
        require_trace_start(self._name, self._text(8), self._stream.damage)
        if first == b"[":
            self._begin += 1
            return True
        while (begin := self._start_of_events()) is None:
            if not self._more():
                as_far = f" as far as it can be unpacked. {self._stream.damage}".rstrip(".")
                raise build_format_error(
                    self._name, 'it has no list "traceEvents"' + (as_far if self._stream.damage else "")
                )
        self._begin = begin
        return False

    def _start_of_events(self) -> int | None:
        """Read the fields before the list of events and return its start.

        The header may contain the same text.
        """
        matches: list[re.Match[bytes]] = []
        # The first match is nearly always right, and searching for more is slow if there are none.
        for match in islice(_EVENTS.finditer(self._buffer, self._begin, self._end), _MAX_STARTS):
            matches.append(match)
            fields = bytes(self._buffer[self._begin + 1 : match.start()])
            with contextlib.suppress(*_NOT_JSON):
                self._trace.header = msgspec.json.decode(b"{" + fields + b'"":0}', type=dict[str, Any])
                del self._trace.header[""]
                return match.end()
        if not matches:
            return None
        start, end = matches[0].start() - self._begin, matches[0].end() - self._begin
        if len(matches) < _MAX_STARTS and self._more():
            return None
        self._trace.header = self._read_fields(bytes(self._buffer[self._begin + 1 : self._begin + start]))
        return self._begin + end

    def _read_fields(self, text: bytes) -> dict[str, Any]:
        try:
            return msgspec.json.decode(b"{" + text.strip().rstrip(b",") + b"}", type=dict[str, Any])
        except _NOT_JSON:
            self._is_strict = self._are_fields_strict = False
            return escape_surrogates(read_fields(text.decode(errors="replace")))

    # -- the events --

    def _read_events(self) -> bool:
        """Pass on all events, and return whether their list is closed."""
        while True:
            self._report_progress()
            place = self._next_index()
            self._begin, stop = self._sink.take(self._buffer, self._begin, self._end, self._is_first)
            if self._begin > place:
                self._is_first = False
                self._count_event(self._begin - place)
            if stop == Stop.END:
                return True
            if stop == Stop.MORE:
                if self._more():
                    continue
                if self._next_index() == self._end:
                    return False
            self._read_rejected()

    def _count_event(self, num_bytes: int) -> None:
        self._has_events = True
        self._waste_left = min(_MAX_WASTE_BYTES, self._waste_left + _WASTE_REPAID_PER_BYTE * num_bytes)

    def _count_waste(self, num_bytes: int = 0) -> None:
        if not self._has_events and self._num_unpacked - (self._end - self._begin) > _MAX_BYTES_WITHOUT_EVENTS:
            raise build_format_error(self._name, f"there is no event in its first {_MAX_BYTES_WITHOUT_EVENTS >> 20} MB")
        max_debt = _WASTE_PER_BYTE_SKIPPED * _MAX_SKIPPED_BYTES
        self._waste_left = max(-max_debt, self._waste_left - max(_MIN_WASTE_BYTES, num_bytes))

    def _skip_ahead(self) -> None:
        """Skip text when almost nothing could be read for long."""
        distance = -self._waste_left // _WASTE_PER_BYTE_SKIPPED
        if distance > 0:
            match = _NEXT_EVENT.search(self._buffer, self._begin + distance, self._end)
            reached = match.start() if match else max(self._begin, self._end - _MAX_EVENT_PREFIX_BYTES)
            self._num_skipped += reached - self._begin
            self._begin, self._is_first = reached, True

    def _read_rejected(self) -> None:
        """Read an event that was not accepted, or more text, with which it can be accepted."""
        place = self._next_index()
        if place == self._end or self._buffer[place] == CLOSING_BRACKET:
            return
        self._num_comma_errors += abs(self._buffer.count(b",", self._begin, place) - (not self._is_first))
        self._begin, self._is_first = place, True  # after a comma no other is needed
        window = _PEEK_BYTES
        while True:
            text = self._text(window).decode("latin-1")  # one character per byte, so positions stay valid
            is_all = len(text) == self._end - self._begin
            reached = self._try_to_read(text, is_whole=is_all and self._is_over)
            if reached is None:
                return
            lookahead = _LOOKAHEAD_BYTES if self._waste_left > 0 else _PEEK_BYTES
            is_cut = reached >= len(text) - _NEAR_END_BYTES and not (is_all and self._is_over)
            if is_cut and is_all and len(text) < lookahead:
                if self._more():
                    return
            elif is_cut and window < lookahead:
                window = min(8 * window, lookahead)
            else:
                self._skip_damaged_event()
                return

    def _try_to_read(self, text: str, *, is_whole: bool) -> int | None:
        """Read the event at the start of a text; if that fails, return how far it could be read."""
        try:
            event, reached = read_event(text, 0)
        except RecursionError:
            reached = 0
        except ValueError as error:
            reached = find_error_position(error, text)
        else:
            if reached < len(text) or is_whole:  # a number at the end of the text may continue after it
                self._add_event(event, reached)
                return None
        self._count_waste(reached)
        return reached

    def _add_event(self, event: Any, size: int) -> None:
        text = self._text(size)
        self._begin += size
        self._is_first = False
        if not text.isascii():
            event, _ = read_event(self._decoded(text), 0)
        if not is_strict(text, event):
            self._is_strict, text = False, b""
        self._add_value(event, text, size)

    def _decoded(self, text: bytes) -> str:
        try:
            return text.decode()
        except UnicodeDecodeError:
            self._damages[Damage.NOT_UTF8] += 1
            return text.decode(errors="replace")

    def _add_value(self, event: Any, text: bytes, size: int) -> None:
        """Pass on an event that takes ``size`` bytes in the file, or count a value that is not an event."""
        if is_document(event):
            self._add_document(event, text, size)
            return
        if isinstance(event, dict) and isinstance(event.get("ph"), str):
            self._count_event(size)
        else:
            self._count_waste()
            self._skip_ahead()
        if not isinstance(event, dict):
            self._num_non_objects += 1
        elif not self._sink.add_event(event, text):
            if has_negative_duration(event):
                self._trace.health.num_negative += 1
                return
            has_times = event_to_nanoseconds({key: event[key] for key in ("ts", "dur") if key in event}, 0)
            self._damages[Damage.LOST if has_times else Damage.TIMELESS] += 1

    def _add_document(self, document: Any, text: bytes, size: int) -> None:
        """Pass on the events of a document that was pasted between events, if it can be read as of the same trace."""
        health, is_list = self._trace.health, isinstance(document, list)
        if not is_list and _identity(document) != _identity(self._trace.header):
            health.has_other_documents = True
            self._count_waste()
            return
        health.num_documents += 1
        events: list[Any] = document if is_list else document["traceEvents"]
        for event, its_text in zip(events, _texts_of(events, text), strict=True):
            self._add_value(event, its_text, len(its_text) or size // len(events))

    def _skip_damaged_event(self) -> None:
        """Go to the apparent start of the next event, and repair the text before it if possible."""
        self._is_strict = False
        self._is_first = True  # whether there was a comma is unknown
        while (match := _NEXT_EVENT.search(self._buffer, self._begin + 1, self._end)) is None:
            if self._end - self._begin >= _LOOKAHEAD_BYTES or not self._more():
                break
        following = (
            match.start() if match else max(self._begin + 1, self._end - _MAX_EVENT_PREFIX_BYTES * (not self._is_over))
        )
        size = following - self._begin
        piece = self._text(size) if size <= _MAX_REPAIRED_BYTES else b""
        self._begin = following
        event, damage = repair_event(piece.decode(errors="replace"))
        self._damages[damage] += 1
        if damage == Damage.LOST:
            self._skip_ahead()
        else:
            self._add_value(event, b"", size)

    # -- after the events --

    def _read_rest(self, is_list: bool) -> bool:
        """Read the fields after the events.

        Return True if there are more events behind them: those of another document, or of one that was written into the
        same file.
        """
        while self._more():
            pass
        rest = self._text().strip(_SPACE)
        if is_list and not rest:
            return False
        is_whole = rest.endswith(b"}") and self._is_over and not is_list
        members = rest.removesuffix(b"}").strip(_SPACE).removeprefix(b",")
        if is_whole and (fields := _strict_fields(members)) is not None:
            self._trace.header |= fields
            return False
        self._is_strict = False
        if self._advance_to_next_document(rest):
            return True
        if members and not is_list:
            self._trace.header |= self._read_fields(members)
        return False

    def _advance_to_next_document(self, rest: bytes) -> bool:
        """Go to the events of a document behind the end of another, if they can be read as of one trace."""
        health = self._trace.health
        start = _EVENTS.search(self._buffer, self._begin, self._end)
        if start is None and rest[:1] == b"[":
            self._begin = self._buffer.index(b"[", self._begin) + 1
        elif start is None:
            later_events = _EVENT_AFTER.search(self._buffer, self._begin, self._end)
            if later_events is None:
                return False
            self._begin = later_events.start()
        else:
            between = b"{" + bytes(self._buffer[self._begin : start.start()]).strip(_SPACE).removeprefix(b",")
            fields, following = _two_headers(between.decode(errors="replace"))
            if _identity(following) != _identity(self._trace.header | fields):
                health.has_other_documents = True
                self._trace.header |= fields
                return False
            self._trace.header = following | self._trace.header | fields
            self._begin = start.end()
        health.num_documents += 1
        self._is_first = True
        return True

    def _report(self, is_closed: bool) -> None:
        self._trace.is_strict, self._trace.num_non_objects = self._is_strict, self._num_non_objects
        self._trace.health.num_not_finite = self._damages[Damage.NUMBERS]
        sentences = {
            self._stream.damage: bool(self._stream.damage),
            NOT_STRICT: not self._is_strict or not is_closed,
            "The fields around the events are not valid JSON.": not self._are_fields_strict,
            "The file ends too early: the closing bracket of its events is missing.": not is_closed,
        }
        self._trace.repairs += [sentence for sentence, is_so in sentences.items() if is_so]
        counts = {
            "Quotes or backslashes were escaped in {} events.": self._damages[Damage.ESCAPES],
            "Commas within {} events were missing or too many.": self._damages[Damage.COMMAS],
            "Bytes that are not UTF-8 were replaced in {} events.": self._damages[Damage.NOT_UTF8],
            "{} pieces that are not a complete event were left out.": self._damages[Damage.LOST],
            "{} bytes among them were skipped, because almost nothing in them could be read.": self._num_skipped,
            "{} entries that are not events were left out.": self._num_non_objects,
            "{} events whose time is not a number were left out.": self._damages[Damage.TIMELESS],
            "{} commas between events were missing or too many.": self._num_comma_errors + self._sink.num_comma_errors,
        }
        self._trace.repairs += [sentence.format(count) for sentence, count in counts.items() if count]


def is_document(value: Any) -> bool:
    """Return whether a value among the events is a list of events, or an object with one, and no event."""
    if isinstance(value, dict) and "ph" not in value:
        value = value.get("traceEvents")
    return isinstance(value, list) and any(isinstance(event, dict) and "ph" in event for event in value)


def _texts_of(events: list[Any], text: bytes) -> list[bytes]:
    """Return the text of each event in that of a document; b"" where that is not strict JSON."""
    with contextlib.suppress(*_NOT_JSON):
        if text[:1] == b"{":
            text = bytes(msgspec.json.decode(text, type=dict[str, msgspec.Raw])["traceEvents"])
        texts = [bytes(raw) for raw in msgspec.json.decode(text, type=list[msgspec.Raw])]
        if len(texts) == len(events):  # a key may come twice
            return texts
    return [b""] * len(events)


def _strict_fields(members: bytes) -> dict[str, Any] | None:
    """Return the members of an object without its braces; None if they are not strict JSON."""
    with contextlib.suppress(*_NOT_JSON):
        return msgspec.json.decode(b"{" + members.strip(_SPACE).rstrip(b",") + b"}", type=dict[str, Any])
    return None


def _two_headers(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields of an object, and those of the object behind it, whose end is missing."""
    try:
        fields, end = decode_leniently(text)
    except (ValueError, RecursionError):
        return {}, {}
    return escape_surrogates(fields), escape_surrogates(read_fields(text[end:].strip().removeprefix("{")))


def _identity(header: dict[str, Any]) -> list[Any]:
    """Return what must be equal in the headers of two documents so that they can be read as one trace."""
    ranks = [header.get(key) for key in ("distributedInfo", "kinetoscope")]
    return [header.get("baseTimeNanoseconds"), *(of.get("rank") if isinstance(of, dict) else None for of in ranks)]


def require_trace_start(name: str, beginning: bytes, damage: str = "") -> None:
    """Raise `TraceFileError` if no trace can start with ``beginning``, white space aside.

    ``damage`` is a sentence on damaged compressed data, if there is any.
    """
    first = beginning.removeprefix(_MARK).lstrip(_SPACE)[:1]
    if not first and damage:
        raise TraceFileError(
            f"Cannot read the trace {name}: nothing of it can be decompressed. {damage} Copy it again."
        )
    if not first:
        raise TraceFileError(f"Cannot read the trace {name}: it is empty. Was the run stopped while it was written?")
    if is_packed(beginning):
        raise TraceFileError(
            f"Cannot read the trace {name}: it is compressed twice. Decompress it once, with gunzip or unzstd."
        )
    if beginning.startswith(_UTF_16):
        raise TraceFileError(
            f"Cannot read the trace {name}: it is UTF-16, and a trace is UTF-8. "
            "Convert it: iconv -f UTF-16 -t UTF-8 IN.json > OUT.json"
        )
    if first not in (b"{", b"["):
        raise build_format_error(name, f"it begins with {beginning[:8]!r} and is not JSON")


def build_format_error(name: str, reason: str) -> TraceFileError:
    """Return the error for a file that is no trace."""
    return TraceFileError(
        f"Cannot read the trace {name}: {reason}. "
        "Pass a Chrome JSON trace, as torch.profiler, Kinetoscope or Composer write it (.json, .json.gz or .json.zst)."
    )
