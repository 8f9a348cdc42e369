"""formats: a Chrome JSON trace as columns. An unpacked stream flows in; blocks of rows flow out, then the header.

A scanner (`chrome_columns.new_scanner`) takes what is ordinary in the text that `chrome_stream` brings. What is odd
comes back as an event, is made ordinary (`chrome_ordinary`), and goes into the same scanner.
"""

import itertools
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from kinetoscope.formats.chrome_columns import LIST_END, ODD, TEXTS, Scanner
from kinetoscope.formats.chrome_ordinary import ordinary_event, strict_text
from kinetoscope.formats.chrome_stream import ChromeStream, Event, Stop
from kinetoscope.formats.chrome_times import event_to_nanoseconds
from kinetoscope.formats.chrome_twin import is_near_event, is_ordinary_event
from kinetoscope.formats.compression import UnpackedStream

_MOST_WAITING = 256  # odd events, for the scanner in Python; the one in C takes each at once
# What the scanner in Python needs to see behind an event in order to know that it ends.
_NEXT = b',{"ph":'
_SENTENCES = {
    "lenient": "{} events that are not strict JSON, or have values of odd types, were read all the same.",
    "not_finite": "{} numbers that are NaN or infinite became null.",
    "no_event": "{} entries that have no phase were left out.",
    "lost": "{} events that are too large or nested too deep were left out.",
}


class ChromeScan:
    """One reading of a trace: its ``header`` and ``repairs``, and the texts that the rows refer to."""

    def __init__(self, scanner: Scanner) -> None:
        self.header: dict[str, Any] = {}
        self.repairs: list[str] = []
        """What was wrong with the file, in sentences."""
        self._scanner = scanner

    def read(self, stream: UnpackedStream, name: str, on_block: Callable[[Any], object]) -> None:
        """Gives the rows of a trace to ``on_block``, block by block.

        Raises `TraceFileError` when the file is empty, binary or no trace.
        """
        taker = _Rows(self._scanner, on_block)
        trace = ChromeStream(stream, name, taker).read()
        taker.end()
        self.header = trace.header
        self.repairs = trace.repairs + [
            sentence.format(taker.counts[kind]) for kind, sentence in _SENTENCES.items() if taker.counts[kind]
        ]

    def texts(self) -> dict[str, list[bytes]]:
        """The texts of each column of texts, by number."""
        return {name: self._scanner.texts(number) for number, name in enumerate(TEXTS)}


class _Rows:
    """Takes the events of a trace into a scanner."""

    def __init__(self, scanner: Scanner, on_block: Callable[[Any], object]) -> None:
        self.counts: Counter[str] = Counter()
        self.num_stray = 0
        self.straighten = scanner.straighten and partial(scanner.straighten, False)
        self._most_waiting = 1 if self.straighten else _MOST_WAITING
        self._not_finite: Counter[str] = Counter()  # of the event in hand
        self._scanner = scanner
        self._on_block = on_block
        self._waiting: list[tuple[bytes, Event]] = []

    def take(self, text: bytearray, start: int, end: int, is_first: bool) -> tuple[int, Stop]:
        self._feed()
        at, why, num_stray = self._scanner.scan(text, start, end, is_first)
        self.num_stray += num_stray
        self._give(is_last=False)
        if why == LIST_END:
            return at + 1, Stop.END
        return at, Stop.ODD if why == ODD else Stop.MORE

    def take_straightened(self, text: bytes, num_not_finite: int) -> bool:
        is_taken = self._scanner.scan(text, 0, len(text), True)[0] == len(text)
        self.counts["lenient"] += is_taken
        self.counts["not_finite"] += num_not_finite * is_taken
        return is_taken

    def take_odd(self, event: Event, text: bytes) -> bool:
        if text and (is_near_event(text) or is_ordinary_event(text)):
            self._waiting.append((text, event))
        elif (made := self._made(event, is_strict=bool(text))) is not None:
            self._waiting.append((made, {}))
        else:
            return False
        if len(self._waiting) >= self._most_waiting:
            self._feed()
        return True

    def _made(self, event: Event, *, is_strict: bool) -> bytes | None:
        """An odd event in words that scanners take; b"" for one that is counted here as left out, None for no time."""
        if not is_strict and (made := self._written_anew(event)):
            return made
        if not event_to_nanoseconds(event, 0):
            return None
        made = ordinary_event(event, self.counts)
        self.counts["lenient"] += made is not None
        return made or b""

    def _written_anew(self, event: Event) -> bytes:
        """An event that is no strict JSON as such; b"" if that is not all that is odd."""
        self._not_finite.clear()
        try:
            made = strict_text(event, self._not_finite)
        except RecursionError:
            return b""
        if not is_near_event(made):
            return b""
        self.counts["lenient"] += 1
        if self._not_finite:
            self.counts += self._not_finite
        return made

    def end(self) -> None:
        """Gives the last rows away."""
        self._feed()
        self._give(is_last=True)

    def _give(self, *, is_last: bool) -> None:
        for block in self._scanner.take(is_last):
            self._on_block(block)

    def _feed(self) -> None:
        """Gives the scanner the events that wait: as many at a time as it takes."""
        events, self._waiting = self._waiting, []
        events = [event for event in events if event[0]]
        while events:
            num_taken = self._num_taken([text for text, _ in events])
            if num_taken < len(events):
                self._feed_anew(events[num_taken][1])
            events = events[num_taken + 1 :]

    def _feed_anew(self, event: Event) -> None:
        """Gives the scanner an event, the text of which it refused, in other words; the one in C is stricter."""
        made = ordinary_event(event, self.counts) if event_to_nanoseconds(event, 0) and event else None
        self.counts["lost"] += made is None or self._num_taken([made]) == 0

    def _num_taken(self, events: list[bytes]) -> int:
        text = b",".join(events)
        taken_to, _, _ = self._scanner.scan(text + _NEXT, 0, len(text) + len(_NEXT), True)
        ends = itertools.accumulate(len(event) + 1 for event in events)
        return sum(end <= taken_to + 1 for end in ends)
