"""formats: what of a Chrome JSON trace becomes columns. Both scanners, the one in C and its twin, go by this list.

A scanner takes ordinary events: strict JSON, whose fields are of the types that the format says. For every event there
is a row with its phase, the numbers of its texts, its times in nanoseconds as the file counts them, the arguments
that analysis needs, and two columns of bytes: ``args`` as they stand in the file, and ``fields``, an object of those
fields that have no column.
"""

import json
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

TEXTS = ("name", "category", "track", "id_text", "shapes", "types", "collective", "dtype", "group")
"""Columns of texts, each of which is kept once. Those of arguments hold JSON; ``track`` is ``pid,tid`` in JSON."""

NUM_OWN_TEXTS = 4
NUM_OWN_NUMBERS = 3

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
"""The arguments that have a column, by the keys under which they are found; the first key that is there counts."""

MOST_DIGITS = 18
"""Integers of more digits are in no column."""

MOST_FIELDS = 60
"""An ordinary event has no more fields without a column."""

DEEPEST = 192
"""Values with more brackets around each other are in no ordinary event."""

MORE, LIST_END, ODD = range(3)
"""Why a scan stopped: the window ends, the list of events does, or the next event is no ordinary one."""


class Scanner(Protocol):
    """Makes rows of ordinary events."""

    def scan(self, window: bytearray | bytes, at: int, end: int, is_first: bool, /) -> tuple[int, int, int]:
        """Takes the events of ``window[at:end]`` as far as it can.

        Returns where it stopped (behind the last event taken, or at the bracket that ends the list), why, and how
        many commas were too many or missing. ``is_first``: there was no event before, so none needs a comma.
        """
        ...

    def add(self, event: bytes, /) -> bool:
        """Takes one event, alone; False if it is no ordinary one."""
        ...

    def take(self, is_last: bool, /) -> list[Any]:
        """The blocks of rows that are full, or, at the end, all: each is `Columns`, or a list of Arrow arrays."""
        ...

    def texts(self, column: int, /) -> list[bytes]:
        """The texts of ``TEXTS[column]`` so far, by number: what stood between the quotes, or JSON."""
        ...


class Columns(dict[str, list[Any]]):
    """A block of rows as lists; columns that no row has may be missing."""


def decode_texts(bodies: Sequence[bytes]) -> list[str]:
    """What stands between the quotes of JSON strings, as strings. What UTF-8 cannot hold is written by its number."""
    try:
        return msgspec.json.decode(b'["' + b'","'.join(bodies) + b'"]', type=list[str]) if bodies else []
    except (msgspec.DecodeError, UnicodeDecodeError):
        return [decode_json_text(b'"' + body + b'"') for body in bodies]


def decode_json_text(value: bytes) -> Any:
    """Any JSON value of a scanner's; a lone surrogate in it becomes text such as ``\\ud800``."""
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _without_surrogates(json.loads(value.decode(errors="replace"), strict=False))


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return value
