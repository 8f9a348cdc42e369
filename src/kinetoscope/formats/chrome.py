"""Chrome JSON traces of any shape, read and written as events with integer nanoseconds.

Outside of ``formats/chrome*.py`` nothing is in microseconds: ``ts`` is absolute unix nanoseconds and ``dur``
nanoseconds. Format: "Trace Event Format" (Google), with ``baseTimeNanoseconds`` as Kineto writes it.
"""

import contextlib
import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from types import TracebackType
from typing import Any, BinaryIO, Self, cast

import msgspec

from kinetoscope.errors import TraceFileError
from kinetoscope.formats.chrome_event import (
    MAX_ABS_TIME_NS,
    UNIX_NS,
    escape_surrogates,
    event_to_nanoseconds,
    has_negative_duration,
)
from kinetoscope.formats.chrome_stream import (
    NOT_STRICT,
    Event,
    OneByOne,
    build_format_error,
    is_document,
    require_trace_start,
    stream_chrome,
)
from kinetoscope.formats.compression import read_unpacked
from kinetoscope.formats.health import Health, are_timeless, has_lost_time

SUFFIXES = (".json", ".json.gz", ".json.zst")
"""The suffixes of traces."""

_BASE_FIELD = "baseTimeNanoseconds"
_HEADER_EVENT = "kinetoscope_header"  # in a bare list, the metadata event that holds the header
_DOUBLES_LOSE_DIGITS_FROM_US = 2**42  # a double is exact to half a nanosecond here, but not after times 1000
_CHUNK_BYTES = 1 << 20
# A string that ends in a backslash. Perfetto's scanner mistakes the quote after it for an escaped one and loses the
# whole trace, unless the last backslash is written as \u005c.
_BACKSLASH_AT_END = re.compile(rb'(?<!\\)((?:\\\\)*)\\\\"')


@dataclass(slots=True)
class ChromeTrace:
    """One trace file in memory. ``header`` has all fields beside the events; it is empty for a bare list."""

    path: str
    header: dict[str, Any]
    base_ns: int
    events: list[Event]
    has_clock: bool
    repairs: list[str] = field(default_factory=list)
    health: Health = field(default_factory=Health)

    @property
    def notes(self) -> list[str]:
        """Sentences on all that was repaired or left out."""
        return [*self.repairs, *self.health.repairs]


class _Times(msgspec.Struct):
    ts: Decimal | None = None
    dur: Decimal | None = None


def read_chrome(path: str | os.PathLike[str]) -> ChromeTrace:
    """Read a Chrome JSON file: object or list, plain or gzip, whole or damaged.

    Every event keeps all its fields; ``ts`` and ``dur`` become integers of nanoseconds, ``ts`` since 1970. Of a damaged
    file every complete event is read, and ``repairs`` lists the repairs. Raises `TraceFileError` when the file is
    empty, binary or no trace.
    """
    name = os.fspath(path)
    content, packing_damage = _read_content(name)
    try:
        document: Any = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return collect_chrome(name)
    if any(map(is_document, _split(name, document)[1])):
        return collect_chrome(name)
    trace = _whole(name, document, content)
    if packing_damage:
        trace.repairs.insert(0, packing_damage)
    return _finalize(trace)


def collect_chrome(path: str | os.PathLike[str]) -> ChromeTrace:
    """Read a trace event by event, so that only the events are in memory."""
    sink = _Collecting()
    name = os.fspath(path)
    streamed = stream_chrome(name, sink)
    if not sink.events and (NOT_STRICT in streamed.repairs or sink.num_comma_errors):
        raise build_empty_error(name)
    if (sink.events or streamed.num_non_objects) and not any(map(has_phase, sink.events)):
        raise build_no_events_error(name)
    return _finalize(ChromeTrace(name, streamed.header, 0, sink.events, False, streamed.repairs, streamed.health))


def _finalize(trace: ChromeTrace) -> ChromeTrace:
    """Return the trace with the header and the clock from its events, without events that lost their time."""
    _pop_header_event(trace)
    _drop_timeless(trace)
    _find_clock(trace)
    return trace


def _drop_timeless(trace: ChromeTrace) -> None:
    at_zero = [number for number, event in enumerate(trace.events, 1) if has_lost_time(event)]
    if not at_zero:
        return
    timed = (event for event in trace.events if "ts" in event and event.get("ph") != "M")
    earliest_ns = min((event["ts"] for event in timed if not has_lost_time(event)), default=None)
    if are_timeless(len(at_zero), earliest_ns):
        trace.health.num_timeless, trace.health.first_timeless = len(at_zero), at_zero[0]
        trace.events = [event for event in trace.events if not has_lost_time(event)]


def read_header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the fields before the events of a Chrome JSON file; the rest of the file is not read.

    For Kinetoscope's bare lists it is the header in the first metadata events.

    Raises `TraceFileError` when the file is empty, binary or no trace.
    """
    header: dict[str, Any] = {}
    sink = _FirstMetadata()
    with contextlib.suppress(_EnoughError):
        stream_chrome(path, sink, header.update)
    return header_in(sink.events) | header


def _whole(name: str, document: Any, content: bytes) -> ChromeTrace:
    """Return a trace whose JSON is valid, its times in nanoseconds since its base."""
    header, events = _split(name, document)
    repairs: list[str] = []
    trace = ChromeTrace(name, header, 0, _only_dicts(events, repairs), False, repairs)
    _restore_digits(trace.events, content)
    _to_nanoseconds(trace)
    return trace


def build_empty_error(name: str) -> TraceFileError:
    """Return the error for a file that is so damaged that no event is left."""
    return build_format_error(name, "it is damaged, and no complete event is left in it")


def build_no_events_error(name: str) -> TraceFileError:
    """Return the error for a file whose list has no events in it."""
    return build_format_error(name, 'it has no event: nothing in its list has a phase ("ph")')


def has_phase(event: Event) -> bool:
    """Return whether an object is an event: its phase is one letter."""
    phase = event.get("ph")
    return isinstance(phase, str) and len(phase) == 1 and phase.isascii()


def require_event(path: str | os.PathLike[str]) -> None:
    """Raise `TraceFileError` if a file is no trace.

    It is read up to its first event; an empty list of events is a trace.
    """
    name, sink = os.fspath(path), _FirstEvent()
    try:
        streamed = stream_chrome(name, sink)
    except _EnoughError:
        return
    if NOT_STRICT in streamed.repairs:
        raise build_empty_error(name)
    if sink.num_entries or streamed.num_non_objects:
        raise build_no_events_error(name)


class _Collecting(OneByOne):
    """Takes all events from the lenient reader."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def add_event(self, event: Event, text: bytes) -> bool:
        if not event_to_nanoseconds(event, 0):
            return False
        self.events.append(event)
        return True


class _EnoughError(Exception):
    """The search has ended."""


class _FirstEvent(OneByOne):
    """Stops at the first event."""

    num_entries = 0

    def add_event(self, event: Event, text: bytes) -> bool:
        if has_phase(event):
            raise _EnoughError
        self.num_entries += 1
        return True


class _FirstMetadata(_Collecting):
    """Takes the first metadata events of a list, up to a header."""

    def add_event(self, event: Event, text: bytes) -> bool:
        if event.get("ph") != "M":
            raise _EnoughError
        super().add_event(event, text)
        if event.get("name") == _HEADER_EVENT:
            raise _EnoughError
        return True


def _pop_header_event(trace: ChromeTrace) -> None:
    metadata = [event for event in trace.events if event.get("ph") == "M"]
    trace.header = header_in(metadata) | trace.header
    if any(event.get("name") == _HEADER_EVENT for event in metadata):
        trace.events = [event for event in trace.events if (event.get("ph"), event.get("name")) != ("M", _HEADER_EVENT)]


def header_in(metadata: Sequence[Event]) -> dict[str, Any]:
    """Return the header that Kinetoscope's bare lists have in a metadata event; empty for any other list."""
    found = next((event for event in metadata if event.get("name") == _HEADER_EVENT), {})
    args = found.get("args")
    return escape_surrogates(args) if isinstance(args, dict) else {}


def _read_content(name: str) -> tuple[bytes, str]:
    try:
        content, damage = read_unpacked(name)
    except OSError as error:
        raise TraceFileError(f"Cannot read the trace {name}: {error.strerror}. Check the path.") from error
    require_trace_start(name, content.lstrip()[:8], damage)
    return content, damage


def _split(name: str, document: Any) -> tuple[dict[str, Any], list[Any]]:
    if isinstance(document, list):
        return {}, document
    if not isinstance(document, dict) or not isinstance(document.get("traceEvents"), list):
        raise build_format_error(name, 'it has no list "traceEvents"')
    return {key: value for key, value in document.items() if key != "traceEvents"}, document["traceEvents"]


def _only_dicts(events: list[Any], repairs: list[str]) -> list[Event]:
    kept = [event for event in events if isinstance(event, dict)]
    if len(kept) < len(events):
        repairs.append(f"{len(events) - len(kept)} entries that are not events were left out.")
    return kept


def _restore_digits(events: list[Event], content: bytes) -> None:
    """Read large time stamps again, as decimals: absolute microseconds with a fraction do not fit into a double."""
    if not any(type(ts := event.get("ts")) is float and abs(ts) >= _DOUBLES_LOSE_DIGITS_FROM_US for event in events):
        return
    is_list = content.lstrip()[:1] == b"["
    try:
        times = msgspec.json.decode(content, type=list[_Times] if is_list else dict[str, msgspec.Raw])
        if isinstance(times, dict):
            times = msgspec.json.decode(times["traceEvents"], type=list[_Times])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return  # some fields have unexpected types: the rounded numbers must do
    for event, exact in zip(events, cast("list[_Times]", times), strict=True):
        event |= {key: value for key in ("ts", "dur") if (value := getattr(exact, key)) is not None}


def _find_clock(trace: ChromeTrace) -> None:
    """Make times count from 1970, if the file has a base."""
    trace.base_ns = find_base_ns(trace.header, trace.events)
    timed = [event for event in trace.events if "ts" in event]
    trace.has_clock = trace.base_ns > 0 or any(event["ts"] > UNIX_NS and event.get("ph") != "M" for event in timed)
    for event in timed if trace.base_ns else ():
        event["ts"] += trace.base_ns


def find_base_ns(header: Mapping[str, Any], events: Iterable[Event]) -> int:
    """Return the base of a file's time stamps in unix nanoseconds; 0 if it has none.

    It is in the header or the first metadata event. A base in the far future, which no clock shows, does not count.
    """
    base = header.get(_BASE_FIELD) or _base_in_first_metadata(events)
    try:
        base_ns = int(base) if isinstance(base, (int, float, str)) else 0
    except (ValueError, OverflowError):
        return 0
    return base_ns if 0 <= base_ns <= MAX_ABS_TIME_NS else 0


def _base_in_first_metadata(events: Iterable[Event]) -> Any:
    first = next((event for event in events if event.get("ph") == "M"), {})
    args = first.get("args")
    return args.get(_BASE_FIELD) if isinstance(args, dict) else None


def _to_nanoseconds(trace: ChromeTrace) -> None:
    """Convert ``ts`` and ``dur`` of every event to nanoseconds; leaves out events whose time is not a number."""
    refused = [event for event in trace.events if not event_to_nanoseconds(event, 0)]
    trace.health.num_negative = sum(map(has_negative_duration, refused))
    if num_malformed := len(refused) - trace.health.num_negative:
        trace.repairs.append(f"{num_malformed} events whose time is not a number were left out.")
    ids = {id(event) for event in refused}
    kept = [event for event in trace.events if id(event) not in ids] if refused else trace.events
    trace.events = kept


class ChromeWriter:
    r"""A writer of a Chrome JSON object, one line per event, to a binary stream.

    Args:
        stream: the stream.
        base_ns: the zero of time stamps, in unix nanoseconds.
        header: the fields beside the events.
        as_list: write a bare list, as Composer does; the header is in a first event of process ``rank``, which viewers
            ignore.
        rank: the process of that event.

    Values that JSON lacks are converted: lone surrogates become text such as ``\ud800``, numpy scalars become numbers,
    anything else its ``str``. NaN and infinities become null and are named under ``not_finite``. In a counter, whose
    args must all be numbers for Perfetto, such a series is left out of the args and named in a field beside them.
    """

    def __init__(
        self, stream: BinaryIO, *, base_ns: int, header: Mapping[str, Any], as_list: bool = False, rank: int = 0
    ) -> None:
        self._stream = stream
        self._rank = rank
        self._base_ns = base_ns
        self._header = {"schemaVersion": 1, "displayTimeUnit": "ms"} | dict(header) | {_BASE_FIELD: base_ns}
        self._separator = b"\n"
        self._as_list = as_list

    def __enter__(self) -> Self:
        if self._as_list:
            self._stream.write(b"[")
            # Composer's merger and others leave out events without pid and tid.
            self.write([{"ph": "M", "name": _HEADER_EVENT, "pid": self._rank, "tid": 1, "args": self._header}])
            return self
        fields = (encode_json(key) + b": " + encode_json(value) for key, value in self._header.items())
        self._stream.write(b"{\n" + b",\n".join(fields) + b',\n"traceEvents": [')
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._stream.write(b"\n]\n" if self._as_list else b"\n]\n}\n")

    def write(self, events: Iterable[Event]) -> None:
        """Add events, whose ``ts`` (unix) and ``dur`` are integers of nanoseconds."""
        chunk = bytearray()
        for event in events:
            chunk += self._separator
            chunk += encode_event(event, self._base_ns)
            self._separator = b",\n"
            if len(chunk) >= _CHUNK_BYTES:
                self._stream.write(chunk)
                chunk = bytearray()
        self._stream.write(chunk)

    def write_lines(self, lines: bytes | bytearray | memoryview) -> None:
        """Add events that are text already, each after a comma and a line break."""
        if len(lines):
            self._stream.write(lines if self._separator == b",\n" else memoryview(lines)[1:])
            self._separator = b",\n"

    @property
    def base_ns(self) -> int:
        """The base of time stamps in the file, in unix nanoseconds."""
        return self._base_ns


def encode_event(event: Event, base_ns: int) -> bytes:
    """Encode an event whose ``ts`` and ``dur`` are nanoseconds; in the text ``ts`` counts from ``base_ns``."""
    timed = event.copy()
    if "ts" in timed:
        timed["ts"] = _microseconds(timed["ts"] - base_ns)
    if "dur" in timed:
        timed["dur"] = _microseconds(timed["dur"])
    return _escape_for_perfetto(_encode(timed))


def _encode(event: Event) -> bytes:
    try:
        line = _ENCODER.encode(event)
    except _NOT_ENCODABLE:
        return _ENCODER.encode(_make_plain(event))
    # msgspec silently writes NaN as null: check every null.
    return _ENCODER.encode(_make_plain(event)) if b"null" in line else line


def _escape_for_perfetto(line: bytes) -> bytes:
    """Return the line without strings that Perfetto cannot read."""
    return _BACKSLASH_AT_END.sub(rb'\1\\u005c"', line) if b'\\\\"' in line else line


def encode_json(value: Any) -> bytes:
    """Encode any value as JSON that every parser can read; NaN and infinities become null."""
    try:
        return _ENCODER.encode(value)
    except _NOT_ENCODABLE:
        return _ENCODER.encode(_Plain().convert(value, ""))


def encode_text(text: str | int) -> bytes:
    """Encode a string or an integer as `ChromeWriter` writes it into an event."""
    return _escape_for_perfetto(encode_json(text))


def encode_line(event: Event) -> bytes:
    """Encode an event whose times are in microseconds already."""
    return _escape_for_perfetto(encode_json(event))


def _microseconds(duration_ns: int) -> msgspec.Raw:
    sign, (whole, rest) = "-" * (duration_ns < 0), divmod(abs(duration_ns), 1000)
    return msgspec.Raw(f"{sign}{whole}.{rest:03}".encode())


def _make_plain(event: Event) -> Event:
    plain = _Plain()
    args = plain.convert(event.get("args"), "")
    rest = {plain.text(key): plain.convert(value, str(key)) for key, value in event.items() if key != "args"}
    if "args" in event:
        rest["args"] = args
    return _flag(rest, plain.not_finite) if plain.not_finite else rest


def _flag(event: Event, not_finite: dict[str, str]) -> Event:
    args = event.get("args")
    if event.get("ph") != "C" and isinstance(args, dict):
        return event | {"args": args | {"not_finite": not_finite}}
    if isinstance(args, dict):
        event["args"] = {key: value for key, value in args.items() if key not in not_finite}
    return event | {"not_finite": not_finite}


class _Plain:
    """A converter of values to plain JSON types, which collects the paths of NaN and infinite ones."""

    def __init__(self) -> None:
        self.not_finite: dict[str, str] = {}

    def convert(self, value: Any, path: str) -> Any:
        """Return the converted value at ``path`` in the event, such as ``args.loss[2]``."""
        if value is None or isinstance(value, (bool, int, msgspec.Raw)):
            return value
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else self._record_not_finite(value, path)
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(key): self.convert(item, _join(path, key)) for key, item in value.items()}
        if isinstance(value, (list, tuple, set, frozenset)):
            return [self.convert(item, f"{path}[{index}]") for index, item in enumerate(value)]
        return self.convert(_plain_object(value), path)

    def text(self, value: Any) -> str:
        """Return the value as text that UTF-8 can hold."""
        return str(value).encode(errors="backslashreplace").decode()

    def _record_not_finite(self, value: float, path: str) -> None:
        self.not_finite[self.text(path)] = json.dumps(float(value))


def _join(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


def _plain_object(value: Any) -> Any:
    """Return a number from a numpy or torch scalar; the ``str`` of anything else."""
    try:
        item = value.item()
    except (AttributeError, TypeError, ValueError, RuntimeError):
        return str(value)
    return item if isinstance(item, (bool, int, float, str)) else str(value)


_ENCODER = msgspec.json.Encoder(enc_hook=_plain_object)
_NOT_ENCODABLE = (TypeError, ValueError, OverflowError, RecursionError)
