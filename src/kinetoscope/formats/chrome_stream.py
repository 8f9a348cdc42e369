"""formats: Chrome JSON as it comes. A file flows in piece by piece; its events flow, as text, into whoever takes them.

Memory stays flat, whatever the size of the file. What its taker does not take is written anew, event by event, or,
where it is no JSON, mended or left out as `chrome_repair` does.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, BinaryIO, Protocol

import msgspec

from kinetoscope.errors import TraceFileError
from kinetoscope.formats.chrome import Event, event_to_nanoseconds
from kinetoscope.formats.chrome_repair import mend, next_event, read_event, read_fields
from kinetoscope.formats.compression import UnpackedStream

_PIECE_BYTES = 1 << 18  # what fits the processor's cache
_LARGEST_EVENT_BYTES = 1 << 26  # what is longer is taken for damage: a quote that nobody closed
_LOOK_AHEAD_BYTES = 1 << 20  # how far the end of a damaged event is looked for, before it is given up
_EVENTS = re.compile(rb'(?<!\\)"traceEvents"\s*:\s*\[')
_SPACE = b" \t\r\n"
_NOT_STRICT = "The JSON is not valid as it stands; each event was read by itself."


class Stop(IntEnum):
    """Why a taker went no further."""

    MORE = 0
    """The text ends, maybe within an event."""
    END = 1
    """The list of events is closed."""
    ODD = 2
    """Here is something that it does not take."""


class EventTaker(Protocol):
    """Takes events as text."""

    def take(self, text: bytearray, start: int, end: int) -> tuple[int, Stop]:
        """Takes whole events from ``start`` on, and what separates them; returns where it stopped, and why."""
        ...

    def take_odd(self, event: Event) -> bool:
        """Takes an event that `take` did not, its times in nanoseconds since the file's base; False if it will not."""
        ...


@dataclass(slots=True)
class StreamedTrace:
    """What a file holds beside its events, and what was wrong with it."""

    header: dict[str, Any] = field(default_factory=dict)
    repairs: list[str] = field(default_factory=list)
    is_strict: bool = True
    """Whether its events are JSON as they stand."""


def stream_chrome(
    path: str | os.PathLike[str],
    taker: EventTaker,
    on_header: Callable[[dict[str, Any]], None] | None = None,
    on_bytes: Callable[[int], None] | None = None,
) -> StreamedTrace:
    """Gives the events of a Chrome JSON file to ``taker``, in their order.

    ``on_header`` is called with the fields before the events, once they are known; ``on_bytes`` now and then with
    the bytes of the file that were read since. Raises `TraceFileError` when the file is empty, binary or no trace.
    """
    name = os.fspath(path)
    try:
        file = open(name, "rb", buffering=0)  # noqa: SIM115 - closed below
    except OSError as error:
        raise _unreadable(name, error) from error
    with file:
        return _Reading(name, file, taker, on_bytes).read(on_header)


def _unreadable(name: str, error: OSError) -> TraceFileError:
    return TraceFileError(f"Cannot read the trace {name}: {error.strerror}. Check the path.")


class _Reading:
    """One pass over a file: the piece of it that is in memory, and what was wrong so far."""

    def __init__(self, name: str, file: BinaryIO, taker: EventTaker, on_bytes: Callable[[int], None] | None) -> None:
        self._name = name
        self._file = file
        self._stream = self._unpacked()
        self._taker = taker
        self._on_bytes = on_bytes
        self._told_bytes = 0
        self._buffer = bytearray(_PIECE_BYTES)
        self._begin = self._end = 0
        self._is_over = False
        self._trace = StreamedTrace()
        self._is_strict = True
        self._num_taken = self._num_mended = self._num_lost = self._num_strangers = self._num_timeless = 0

    def _unpacked(self) -> UnpackedStream:
        try:
            return UnpackedStream(self._file, self._name)
        except OSError as error:
            raise _unreadable(self._name, error) from error

    def read(self, on_header: Callable[[dict[str, Any]], None] | None) -> StreamedTrace:
        is_list = self._find_events()
        if on_header is not None:
            on_header(self._trace.header)
        is_closed = self._read_events()
        if is_closed:
            self._read_rest(is_list)
        self._report(is_closed)
        return self._trace

    # -- the piece in memory --

    def _more(self) -> bool:
        """Reads on; False at the end of the file, or when no more fits."""
        if self._is_over or self._end - self._begin >= _LARGEST_EVENT_BYTES:
            return False
        self._buffer[: self._end - self._begin] = self._buffer[self._begin : self._end]
        self._begin, self._end = 0, self._end - self._begin
        if self._end == len(self._buffer):
            self._buffer += bytes(len(self._buffer))
        with memoryview(self._buffer) as view, view[self._end :] as room:
            try:
                num_read = self._stream.readinto(room)
            except OSError as error:
                raise _unreadable(self._name, error) from error
        self._end += num_read
        self._is_over = num_read == 0
        self._tell()
        return num_read > 0

    def _tell(self) -> None:
        if self._on_bytes is not None:
            position = self._file.tell()
            self._on_bytes(position - self._told_bytes)
            self._told_bytes = position

    def _text(self, most_bytes: int | None = None) -> bytes:
        end = self._end if most_bytes is None else min(self._end, self._begin + most_bytes)
        return bytes(self._buffer[self._begin : end])

    def _skip_space(self) -> bytes:
        """Goes to the first byte that is no white space, and gives it; b"" at the end."""
        while True:
            text = self._text()
            kept = text.lstrip(_SPACE)
            self._begin += len(text) - len(kept)
            if kept or not self._more():
                return kept[:1]

    # -- before the events --

    def _find_events(self) -> bool:
        """Goes to the first event, and reads the header before it; whether the trace is a bare list."""
        first = self._skip_space()
        if first == b"\xef":
            self._begin += 3
            first = self._skip_space()
        if not first:
            raise TraceFileError(
                f"Cannot read the trace {self._name}: it is empty. Was the run stopped while it was written?"
            )
        if first not in (b"{", b"["):
            raise self._not_a_trace(f"it begins with {self._text(8)!r} and is not JSON")
        if first == b"[":
            self._begin += 1
            return True
        while (match := _EVENTS.search(self._buffer, self._begin, self._end)) is None:
            if not self._more():
                raise self._not_a_trace('it has no list "traceEvents"')
        self._trace.header = self._read_fields(bytes(self._buffer[self._begin + 1 : match.start()]))
        self._begin = match.end()
        return False

    def _read_fields(self, text: bytes) -> dict[str, Any]:
        try:
            return msgspec.json.decode(b"{" + text.strip().rstrip(b",") + b"}", type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._is_strict = False
            return read_fields(text.decode(errors="replace"))

    def _not_a_trace(self, reason: str) -> TraceFileError:
        return TraceFileError(
            f"Cannot read the trace {self._name}: {reason}. "
            "Pass a Chrome JSON trace, as torch.profiler, Kinetoscope or Composer write it (.json or .json.gz)."
        )

    # -- the events --

    def _read_events(self) -> bool:
        """Gives all events away; whether their list is closed."""
        while True:
            self._begin, stop = self._taker.take(self._buffer, self._begin, self._end)
            if stop == Stop.END:
                return True
            if stop == Stop.ODD:
                self._read_odd()
            elif not self._more():
                if self._begin == self._end:
                    return False
                self._give_up_event()

    def _read_odd(self) -> None:
        """Reads one event that was not taken."""
        window = 1 << 12
        while True:
            try:
                # One character for each byte, so that its end can be found again.
                _, size = read_event(self._text(window).decode("latin-1"), 0)
            except (ValueError, RecursionError):
                if window < self._end - self._begin and window < _LOOK_AHEAD_BYTES:
                    window *= 8
                elif self._end - self._begin >= _LOOK_AHEAD_BYTES or not self._more():
                    return self._give_up_event()
                continue
            if size < min(window, self._end - self._begin) or not self._more():
                break  # a number that reaches the end of what is read may go on
        text = self._text(size)
        self._begin += size
        return self._take_odd(text)

    def _take_odd(self, text: bytes) -> None:
        event, _ = read_event(text.decode(errors="replace"), 0)
        try:
            msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._is_strict = False
        self._take_value(event)

    def _take_value(self, event: Any) -> None:
        if not isinstance(event, dict):
            self._num_strangers += 1
        elif not event_to_nanoseconds(event, 0):
            self._num_timeless += 1
        elif not self._taker.take_odd(event):
            self._num_lost += 1
        else:
            self._num_taken += 1

    def _give_up_event(self) -> None:
        """Goes to where the next event seems to begin, and mends what lies before it, if it can be."""
        self._is_strict = False
        while True:
            text = self._text().decode("latin-1")
            following = next_event(text, 1)
            if following < len(text) or len(text) >= _LOOK_AHEAD_BYTES or not self._more():
                break
        piece = self._text(following)
        self._begin += following
        mended = mend(piece.decode(errors="replace")) if len(piece) <= _LOOK_AHEAD_BYTES else []
        self._num_mended += len(mended)
        self._num_lost += not mended
        for event in mended:
            self._take_value(event)

    # -- behind the events --

    def _read_rest(self, is_list: bool) -> None:
        while self._more():
            pass
        rest = self._text().strip(_SPACE)
        if is_list:
            self._is_strict = self._is_strict and not rest
            return
        if not rest.endswith(b"}") or not self._is_over:
            self._is_strict = False
        members = rest.removesuffix(b"}").strip(_SPACE).removeprefix(b",")
        if members:
            self._trace.header |= self._read_fields(members)

    def _report(self, is_closed: bool) -> None:
        repairs, self._trace.is_strict = self._trace.repairs, self._is_strict
        if self._stream.damage:
            repairs.append(self._stream.damage)
        if not self._is_strict or not is_closed:
            repairs.append(_NOT_STRICT)
        if not is_closed:
            repairs.append("The file ends too early: the closing bracket of its events is missing.")
        if self._num_mended:
            repairs.append(f"Quotes or backslashes were escaped in {self._num_mended} events.")
        if self._num_lost:
            repairs.append(f"{self._num_lost} pieces that are no complete event were left out.")
        if self._num_strangers:
            repairs.append(f"{self._num_strangers} entries that are not events were left out.")
        if self._num_timeless:
            repairs.append(f"{self._num_timeless} events whose time is not a number were left out.")
