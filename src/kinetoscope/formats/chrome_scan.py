"""formats: a Chrome JSON trace as columns. An unpacked stream flows in; blocks of rows flow out, then the header.

A scanner (`new_scanner`) takes what is ordinary in the text that `chrome_stream` brings. What is odd
comes back as an event, is made ordinary (`chrome_ordinary`), and goes into the same scanner.
"""

import contextlib
import os
from collections import Counter
from collections.abc import Callable
from typing import Any

from kinetoscope.formats.chrome_columns import ARGUMENTS, BYTES, LIST_END, NUMBERS, ODD, TEXTS, Scanner
from kinetoscope.formats.chrome_ordinary import is_ordinary, ordinary_event
from kinetoscope.formats.chrome_stream import ChromeStream, Event, Stop
from kinetoscope.formats.chrome_times import event_to_nanoseconds
from kinetoscope.formats.chrome_twin import TwinScanner
from kinetoscope.formats.compression import UnpackedStream

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

    def read(
        self,
        stream: UnpackedStream,
        name: str,
        on_block: Callable[[Any], object],
        on_bytes: Callable[[int], None] | None = None,
    ) -> None:
        """Gives the rows of a trace to ``on_block``, block by block; ``on_bytes`` is told the bytes of the file read.

        Raises `TraceFileError` when the file is empty, binary or no trace.
        """
        taker = _Rows(self._scanner, on_block)
        trace = ChromeStream(stream, name, taker, on_bytes).read()
        taker.give(is_last=True)
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
        self._scanner = scanner
        self._on_block = on_block

    def take(self, text: bytearray, start: int, end: int, is_first: bool) -> tuple[int, Stop]:
        at, why, num_stray = self._scanner.scan(text, start, end, is_first)
        self.num_stray += num_stray
        self.give(is_last=False)
        if why == LIST_END:
            return at + 1, Stop.END
        return at, Stop.ODD if why == ODD else Stop.MORE

    def take_odd(self, event: Event, text: bytes) -> bool:
        is_fine = bool(text) and is_ordinary(event)
        if not event_to_nanoseconds(event, 0):
            return False
        if is_fine and self._scanner.add(text):
            return True
        made = ordinary_event(event, self.counts)
        if made is not None:
            self.counts["lenient"] += not is_fine
            self.counts["lost"] += not self._scanner.add(made)
        return True

    def give(self, *, is_last: bool) -> None:
        """Gives the blocks away that are full; at the end, all."""
        for block in self._scanner.take(is_last):
            self._on_block(block)


class NativeScanner:
    """The scanner in C. Raises ImportError at construction where that was not built."""

    def __init__(self) -> None:
        from kinetoscope import _native

        scanner = _native.Scanner(_names(), len(TEXTS), len(NUMBERS), _keys())
        self.scan, self.take, self.texts = scanner.scan, scanner.take, scanner.texts

    def add(self, event: bytes, /) -> bool:
        """See `Scanner`."""
        return self.scan(event, 0, len(event), True)[0] == len(event)


def new_scanner() -> Scanner:
    """The scanner in C; the one in Python where that was not built, or if ``KINETOSCOPE_PURE=1``."""
    if os.environ.get("KINETOSCOPE_PURE", "0") in ("", "0"):
        with contextlib.suppress(ImportError):
            return NativeScanner()
    return TwinScanner()


def _names() -> tuple[bytes, ...]:
    return tuple(name.encode() for name in (*TEXTS, *NUMBERS, *BYTES))


def _keys() -> tuple[tuple[bytes, int, int, bool], ...]:
    """Each key with its column, its rank among those of the column, and whether the column is one of texts."""
    return tuple(
        (key.encode(), (TEXTS if name in TEXTS else NUMBERS).index(name), rank, name in TEXTS)
        for name, keys in ARGUMENTS.items()
        for rank, key in enumerate(keys)
    )
