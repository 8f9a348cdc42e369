"""Chrome JSON traces as columns: blocks of rows first, then the header.

A scanner takes well-formed events: strict JSON whose fields have the types of the format. For every event it makes a
row with the phase, the numbers of the texts, the times in nanoseconds as the file counts them, the arguments that
analysis needs, and two columns of bytes: ``args`` as in the file, and ``fields``, an object of those fields that have
no column. Any other event is made well-formed by `normalize_event`, and goes into the same scanner.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from kinetoscope.formats.chrome_event import (
    decode_leniently,
    escape_surrogates,
    event_to_nanoseconds,
    is_well_formed,
    normalize_event,
)
from kinetoscope.formats.chrome_stream import ChromeStream, Event, Stop
from kinetoscope.formats.compression import UnpackedStream
from kinetoscope.formats.health import Health
from kinetoscope.native import native

TEXTS = ("name", "category", "track", "id_text", "shapes", "types", "collective", "dtype", "group")
"""Columns of texts; each text is stored once. Those of arguments hold JSON; ``track`` is ``pid,tid`` in JSON."""

NUMBERS = (
    "ts",
    "dur",
    "id",
    "external_id",
    "correlation",
    "stream",
    "device",
    "bytes",
    "sequence",
    "forward_thread",
    "total_allocated",
    "total_reserved",
    "device_type",
    "address",
    "python_id",
    "python_parent",
    "python_module",
    "elements_in",
    "elements_out",
    "group_size",
    "collective_sequence",
    "batch",
)
"""Columns of integers. ``ts`` and ``dur`` are nanoseconds; ``ts`` counts from the base of the file."""

BYTES = ("args", "fields")

ARGUMENTS: dict[str, tuple[str, ...]] = {
    "external_id": ("External id", "external id"),
    "correlation": ("correlation",),
    "stream": ("stream",),
    "device": ("device", "Device Id"),
    "bytes": ("bytes", "Bytes"),
    "sequence": ("Sequence number",),
    "forward_thread": ("Fwd thread id",),
    "total_allocated": ("Total Allocated",),
    "total_reserved": ("Total Reserved",),
    "device_type": ("Device Type",),
    "address": ("Addr",),
    "python_id": ("Python id",),
    "python_parent": ("Python parent id",),
    "python_module": ("Python module id",),
    "elements_in": ("In msg nelems",),
    "elements_out": ("Out msg nelems",),
    "group_size": ("Group size",),
    "collective_sequence": ("Seq",),
    "batch": ("batch",),
    "shapes": ("Input Dims", "Input dims"),
    "types": ("Input type",),
    "collective": ("Collective name",),
    "dtype": ("dtype",),
    "group": ("Process Group Name",),
}
"""The arguments that have a column, with their keys; the first key that is present counts."""

MAX_DEPTH = 192
"""Values of an ordinary event are not nested more deeply."""

MORE, LIST_END, MALFORMED = range(3)
"""Reasons for the end of a scan: the window ends, the list of events ends, or the next event is not ordinary."""

_SENTENCES = {
    "lenient": "{} events that are not strict JSON, or have values of unusual types, were read nevertheless.",
    "not_finite": "{} numbers that are NaN or infinite became null.",
    "no_event": "{} entries that have no phase were left out.",
    "lost": "{} events that are too large or nested too deep were left out.",
}

_BLOCK_ROWS = 1 << 14
_STRINGS = {"name": "name", "category": "cat", "id_text": "id"}
_COLUMN_FIELDS = frozenset({"ph", "name", "cat", "pid", "tid", "ts", "dur", "id", "args"})
_INTEGER = re.compile(rb"0|-?[1-9][0-9]{0,17}")
_BRACKET_OR_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]')
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Scanner(Protocol):
    """A scanner, which makes rows of well-formed events."""

    def scan(self, window: bytearray | bytes, at: int, end: int, is_first: bool, /) -> tuple[int, int, int]:
        """Scan the events of ``window[at:end]``.

        Args:
            window: the text in memory.
            at: start of the events.
            end: end of the text.
            is_first: no event was scanned before, so no comma is needed.

        Returns:
            The index after the last event or at the bracket that ends the list, the reason of the stop, and the number
            of missing or extra commas.
        """
        ...

    def add(self, event: bytes, /) -> bool:
        """Add a single event; return False if it is not well-formed."""
        ...

    def take(self, is_last: bool, /) -> list[Any]:
        """Return the full blocks of rows, at the end all blocks: each is a list of named Arrow arrays."""
        ...

    def texts(self, column: int, /) -> list[bytes]:
        """Return the texts of ``TEXTS[column]`` so far, by number: the text between the quotes, or JSON."""
        ...


def decode_texts(bodies: Sequence[bytes]) -> list[str]:
    """Decode strings from the JSON between their quotes; see `decode_json_text`."""
    try:
        return msgspec.json.decode(b'["' + b'","'.join(bodies) + b'"]', type=list[str]) if bodies else []
    except (msgspec.DecodeError, UnicodeDecodeError):
        return [decode_json_text(b'"' + body + b'"') for body in bodies]


def decode_json_text(value: bytes) -> Any:
    r"""Decode a JSON value from a scanner.

    A lone surrogate in it becomes text such as ``\ud800``, and an integer of thousands of digits None.
    """
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return escape_surrogates(decode_leniently(value.decode(errors="replace").strip())[0])


class ChromeScan:
    """One pass over a trace: its ``header`` and ``repairs``, and the texts to which the rows refer."""

    def __init__(self, scanner: Scanner) -> None:
        self.header: dict[str, Any] = {}
        self.repairs: list[str] = []
        """Damage of the file, in sentences."""
        self.health = Health()
        self._scanner = scanner

    def read(
        self,
        stream: UnpackedStream,
        name: str,
        on_block: Callable[[Any], object],
        on_bytes: Callable[[int], None] | None = None,
    ) -> None:
        """Pass the rows of a trace to ``on_block``, and the numbers of bytes read to ``on_bytes``.

        Raises `TraceFileError` when the file is empty, binary or no trace.
        """
        taker = _Rows(self._scanner, on_block)
        trace = ChromeStream(stream, name, taker, on_bytes).read()
        taker.emit(is_last=True)
        self.header, self.health = trace.header, trace.health
        self.repairs = trace.repairs + [
            sentence.format(taker.counts[kind]) for kind, sentence in _SENTENCES.items() if taker.counts[kind]
        ]

    def texts(self) -> dict[str, list[bytes]]:
        """Return the texts of each column of texts, by number."""
        return {name: self._scanner.texts(number) for number, name in enumerate(TEXTS)}


class _Rows:
    """A sink that passes the events of a trace to a scanner."""

    def __init__(self, scanner: Scanner, on_block: Callable[[Any], object]) -> None:
        self.counts: Counter[str] = Counter()
        self.num_comma_errors = 0
        self._scanner = scanner
        self._on_block = on_block

    def take(self, text: bytearray, start: int, end: int, is_first: bool) -> tuple[int, Stop]:
        at, why, num_comma_errors = self._scanner.scan(text, start, end, is_first)
        self.num_comma_errors += num_comma_errors
        self.emit(is_last=False)
        if why == LIST_END:
            return at + 1, Stop.END
        return at, Stop.MALFORMED if why == MALFORMED else Stop.MORE

    def add_event(self, event: Event, text: bytes) -> bool:
        is_fine = bool(text) and is_well_formed(event)
        if not event_to_nanoseconds(event, 0):
            return False
        if is_fine and self._scanner.add(text):
            return True
        made = normalize_event(event, self.counts)
        if made is not None:
            self.counts["lenient"] += not is_fine
            self.counts["lost"] += not self._scanner.add(made)
        return True

    def emit(self, *, is_last: bool) -> None:
        """Pass on the full blocks; at the end, all blocks."""
        for block in self._scanner.take(is_last):
            self._on_block(block)


class NativeScanner:
    """The scanner of the native extension."""

    def __init__(self, scanner: Any) -> None:
        self.scan, self.take, self.texts = scanner.scan, scanner.take, scanner.texts

    def add(self, event: bytes, /) -> bool:
        """See `Scanner`."""
        return self.scan(event, 0, len(event), True)[0] == len(event)


def new_scanner() -> Scanner:
    """Return a new scanner."""
    names = tuple(name.encode() for name in (*TEXTS, *NUMBERS, *BYTES))
    return NativeScanner(native.Scanner(names, len(TEXTS), len(NUMBERS), _keys()))


def _keys() -> tuple[tuple[bytes, int, int, bool], ...]:
    """Return each key with its column, its rank among those of the column, and whether the column has texts."""
    return tuple(
        (key.encode(), (TEXTS if name in TEXTS else NUMBERS).index(name), rank, name in TEXTS)
        for name, keys in ARGUMENTS.items()
        for rank, key in enumerate(keys)
    )
