"""formats: a Chrome JSON trace as columns. An unpacked stream flows in; blocks of rows flow out, then the header.

The stream goes through one window of a few megabytes. A scanner (`chrome_columns.new_scanner`) takes what is ordinary
in it, `chrome_patience` the rest; neither sees more than the window.
"""

import contextlib
import itertools
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from kinetoscope.errors import TraceFileError
from kinetoscope.formats.chrome_columns import LIST_END, MORE, ODD, TEXTS, Scanner
from kinetoscope.formats.chrome_patience import Patience
from kinetoscope.formats.chrome_repair import read_fields
from kinetoscope.formats.compression import UnpackedStream

_WINDOW_BYTES = 1 << 22
_LARGEST_WINDOW_BYTES = 1 << 26  # an event, or a header, of more bytes is none
_MOST_STARTS = 16
_EVENTS = re.compile(rb'"traceEvents"[ \t\n\r]*:[ \t\n\r]*\[')
_BLANKS = re.compile(rb"[ \t\n\r\xef\xbb\xbf]*")
_SEPARATORS = re.compile(rb"[ \t\n\r,]*")
_NEXT_EVENT = re.compile(rb'\{[ \t\n\r]*"(?:ph|name|cat|pid|tid|ts|id|args)"[ \t\n\r]*:')
_LONGEST_BEGINNING = 256
_NO_END = "The file ends too early: the closing bracket of its events is missing."
# What the scanner in Python needs to see behind an event in order to know that it ends.
_NEXT = b',{"ph":'


class ChromeScan:
    """One reading of a trace. `blocks` yields its rows; afterwards ``header`` and ``repairs`` are complete."""

    def __init__(self, stream: UnpackedStream, name: str, scanner: Scanner) -> None:
        self.header: dict[str, Any] = {}
        self._name = name
        self._stream = stream
        self._scanner = scanner
        self._window = _Window(stream)
        self._patience = Patience()
        self._repairs: list[str] = []
        self._is_first = True
        self._is_list = False
        self._is_lost = False

    @property
    def repairs(self) -> list[str]:
        """What was wrong with the file, in sentences."""
        damage = [self._stream.damage] if self._stream.damage else []
        return damage + self._repairs + self._patience.repairs()

    def blocks(self) -> Iterator[Any]:
        """The rows, block by block. Raises `TraceFileError` when the file is empty, binary or no trace."""
        self._find_events()
        while not self._scan():
            yield from self._scanner.take(False)
        yield from self._scanner.take(True)
        if not self._is_list:
            self._read_tail()

    def texts(self) -> dict[str, list[bytes]]:
        """The texts of each column of texts, by number."""
        return {name: self._scanner.texts(number) for number, name in enumerate(TEXTS)}

    def _scan(self) -> bool:
        """Goes through what the window holds, and fills it again; returns whether the list of events has ended."""
        window = self._window
        if self._is_lost:
            return not self._find_next_event()
        at, why, num_stray = self._scanner.scan(window.buffer, window.at, window.filled, self._is_first)
        self._is_first = self._is_first and not window.buffer[window.at : at].strip()
        self._patience.counts["stray"] += num_stray
        window.at = at
        if why == LIST_END:
            window.at += 1
            return True
        if why == MORE and not window.is_last:
            return not self._go_on()
        if why == ODD or _SEPARATORS.fullmatch(window.buffer, window.at, window.filled) is None:
            return not (self._read_patiently(is_stuck=False) or self._go_on())
        self._repairs.append(_NO_END)
        return True

    def _go_on(self) -> bool:
        """Brings more into the window, or gives up what keeps it from going on; False at the end of the file."""
        window = self._window
        if window.refill():
            return True
        separators = _SEPARATORS.match(window.buffer, window.at, window.filled)
        if separators is not None and separators.end() == window.filled and not window.is_last:
            window.at = window.filled - 1  # a comma, or the last of very many blanks
            return True
        return self._read_patiently(is_stuck=True)

    def _find_next_event(self) -> bool:
        """Goes on to what looks like the beginning of an event; False at the end of the file."""
        window = self._window
        match = _NEXT_EVENT.search(window.buffer, window.at, window.filled)
        if match is not None:
            window.at, self._is_lost = match.start(), False
            return True
        window.at = max(window.at, window.filled - _LONGEST_BEGINNING)
        if window.refill():
            return True
        self._repairs.append(_NO_END)
        return False

    def _read_patiently(self, *, is_stuck: bool) -> bool:
        """Reads odd events; returns whether that brought it on."""
        window = self._window
        read = self._patience.read(
            window.buffer,
            window.at,
            window.filled,
            is_first=self._is_first,
            is_last=window.is_last,
            is_stuck=is_stuck,
        )
        self._feed(read.events)
        is_on = read.at > window.at
        # Where something was lost, nobody knows whether a comma was.
        window.at, self._is_first, self._is_lost = read.at, read.is_first or read.is_lost, read.is_lost
        return is_on

    def _feed(self, events: list[list[bytes]]) -> None:
        """Gives the scanner events: as many at a time as it takes, the first version of each that it does."""
        first = 0
        while first < len(events):
            first += self._num_taken([versions[0] for versions in events[first:]])
            if first < len(events):
                is_taken = any(self._num_taken([version]) for version in events[first][1:])
                self._patience.counts["lost"] += not is_taken
                first += 1

    def _num_taken(self, events: list[bytes]) -> int:
        text = b",".join(events)
        taken_to, _, _ = self._scanner.scan(text + _NEXT, 0, len(text) + len(_NEXT), True)
        ends = itertools.accumulate(len(event) + 1 for event in events)
        return sum(end <= taken_to + 1 for end in ends)

    # -- around the events --

    def _find_events(self) -> None:
        window = self._window
        for _ in range(_LARGEST_WINDOW_BYTES // _WINDOW_BYTES):  # so many blanks, and there is no trace behind them
            window.refill()
            window.skip(_BLANKS)
            if window.at < window.filled:
                break
        start = bytes(window.buffer[window.at : min(window.filled, window.at + 8)])
        if not start:
            raise TraceFileError(
                f"Cannot read the trace {self._name}: it is empty. Was the run stopped while it was written?"
            )
        if start[:1] == b"[":
            self._is_list = True
            window.at += 1
        elif start[:1] == b"{":
            self._read_head()
        else:
            raise not_a_trace(self._name, f"it begins with {start!r} and is not JSON")

    def _read_head(self) -> None:
        window = self._window
        while (begin := self._start_of_events()) is None:
            if not window.refill():
                raise not_a_trace(self._name, 'it has no list "traceEvents"')
        window.at = begin

    def _start_of_events(self) -> int | None:
        """Where the list of events begins in the window; takes in the fields before it."""
        window = self._window
        matches = list(itertools.islice(_EVENTS.finditer(window.buffer, window.at, window.filled), _MOST_STARTS))
        for match in matches:
            fields = bytes(window.buffer[window.at + 1 : match.start()])
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                self.header = msgspec.json.decode(b"{" + fields + b'"":0}', type=dict[str, Any])
                del self.header[""]
                return match.end()
        if not matches or (len(matches) < _MOST_STARTS and not window.is_full):
            return None
        first = matches[0]
        self.header = self._read_fields(bytes(window.buffer[window.at + 1 : first.start()]))
        return first.end()

    def _read_tail(self) -> None:
        """The fields behind the events."""
        window = self._window
        while window.refill():
            pass
        fields = bytes(window.buffer[window.at : window.filled]).strip(b", \t\n\r")
        if fields == b"}":
            return
        try:
            self.header |= msgspec.json.decode(b"{" + fields, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self.header |= self._read_fields(fields.removesuffix(b"}"))

    def _read_fields(self, fields: bytes) -> dict[str, Any]:
        self._repairs.append("The fields around the events are not valid JSON as they stand.")
        try:
            return read_fields(fields.decode(errors="replace"))
        except RecursionError:
            return {}


def not_a_trace(name: str, reason: str) -> TraceFileError:
    """The error for a file that is something else."""
    return TraceFileError(
        f"Cannot read the trace {name}: {reason}. "
        "Pass a Chrome JSON trace, as torch.profiler, Kinetoscope or Composer write it (.json, .json.gz or .json.zst)."
    )


class _Window:
    """The part of a stream that is in memory: ``buffer[at:filled]`` is what has not been dealt with."""

    def __init__(self, stream: UnpackedStream) -> None:
        self.buffer = bytearray(_WINDOW_BYTES)
        self.at = 0
        self.filled = 0
        self.is_last = False
        self._stream = stream

    @property
    def is_full(self) -> bool:
        """Whether nothing more can come in."""
        return self.is_last or (self.at == 0 and self.filled == _LARGEST_WINDOW_BYTES)

    def skip(self, pattern: re.Pattern[bytes]) -> None:
        match = pattern.match(self.buffer, self.at, self.filled)
        self.at = match.end() if match else self.at

    def refill(self) -> bool:
        """Drops what was dealt with and reads on, into a larger window if need be; False if nothing more comes."""
        if self.is_full:
            return False
        rest = self.filled - self.at
        if rest > len(self.buffer) // 2:
            self._move_into(bytearray(min(_LARGEST_WINDOW_BYTES, 4 * len(self.buffer))), rest)
        elif self.at > 0:
            self._move_into(self.buffer, rest)
        with memoryview(self.buffer) as view:
            num_read = self._stream.readinto(view[self.filled :])
        self.filled += num_read
        self.is_last = self.filled < len(self.buffer)
        return num_read > 0

    def _move_into(self, buffer: bytearray, rest: int) -> None:
        with memoryview(self.buffer) as old, memoryview(buffer) as new:
            new[:rest] = old[self.at : self.filled]
        self.buffer, self.at, self.filled = buffer, 0, rest
