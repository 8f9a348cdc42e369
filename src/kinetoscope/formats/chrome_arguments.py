"""formats: the arguments of many events at once, for the scanner in Python. Texts flow in; a list for each key, out.

Events of one file have few keys. A type with just those is decoded several times as fast as one with all that have a
column, so it is made of the keys that came so far, and made anew when another comes.
"""

import contextlib
import re
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Annotated, Any

import msgspec

from kinetoscope.formats.chrome_columns import ARGUMENTS, MOST_DIGITS, TEXTS

COLUMN_OF = {key: column for column, keys in ARGUMENTS.items() for key in keys}
"""The column of each key that has one; of the keys of one column, the first that an event has counts."""

_MOST_KEYS = 64  # of one file; where there are more, all are looked for that have a column
_LARGEST = 10**MOST_DIGITS
_INTEGER = re.compile(rb"-?[0-9]{1,18}")
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_MEMBERS_OF_MANY = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
# Whatever else stands where a number should is none; a number that no column holds makes the decoder refuse.
_Number = Annotated[int, msgspec.Meta(gt=-_LARGEST, lt=_LARGEST)] | str | float | bool | list | dict | None


class Arguments:
    """Decodes the arguments of the events of one file."""

    def __init__(self) -> None:
        self._keys: set[str] = set()
        self._decoder = _decoder([], is_strict=True)
        self._getters: dict[str, attrgetter[Any]] = {}

    def columns(self, texts: Sequence[Any]) -> Iterator[tuple[str, list[Any]]]:
        """For each key that any event has and that has a column, its values: bytes of JSON, or integers, or None.

        ``texts`` are JSON objects. Keys of one column follow one another, those that count less first. Raises
        `msgspec.ValidationError` if a text is something else.
        """
        decoded = self._decode(b"[" + b",".join(texts) + b"]")
        for key, getter in self._getters.items():
            values = list(map(getter, decoded))
            if values.count(None) < len(values):
                yield key, values if COLUMN_OF[key] in TEXTS else _integers(values)

    def _decode(self, text: bytes) -> list[Any]:
        for _ in range(2):
            with contextlib.suppress(msgspec.ValidationError):
                return self._decoder.decode(text)
            self._learn(set().union(*_MEMBERS_OF_MANY.decode(text)))
        return [self._decode_one(it) for it in _MEMBERS_OF_MANY.decode(text)]

    def _learn(self, keys: set[str]) -> None:
        """Knows more keys from now on."""
        self._keys |= keys
        is_strict = len(self._keys) <= _MOST_KEYS and all(map(_may_be_a_name, self._keys))
        known = [key for key in reversed(COLUMN_OF) if key in self._keys or not is_strict]
        others = [key for key in self._keys if key not in COLUMN_OF] if is_strict else []
        self._decoder = _decoder([*known, *others], is_strict=is_strict)
        self._getters = {key: attrgetter(f"k{number}") for number, key in enumerate(known)}

    def _decode_one(self, members: dict[str, msgspec.Raw]) -> Any:
        """The arguments of one event, among which is a number that no column holds."""
        kept = {key: it for key, it in members.items() if _fits(key, bytes(it))}
        return self._decoder.decode(msgspec.json.encode([kept]))[0]


def _decoder(keys: Sequence[str], *, is_strict: bool) -> Any:
    fields = [(f"k{number}", _type_of(key), None) for number, key in enumerate(keys)]
    rename = {f"k{number}": key for number, key in enumerate(keys)}
    return msgspec.json.Decoder(
        list[msgspec.defstruct("Arguments", fields, rename=rename, gc=False, forbid_unknown_fields=is_strict)]
    )


def _may_be_a_name(key: str) -> bool:
    """Whether msgspec takes a key for a field of a type."""
    return key.isprintable() and '"' not in key and "\\" not in key


def _type_of(key: str) -> Any:
    return msgspec.Raw if COLUMN_OF.get(key, TEXTS[0]) in TEXTS else _Number


def _fits(key: str, value: bytes) -> bool:
    column = COLUMN_OF.get(key)
    return column is not None and (column in TEXTS or _INTEGER.fullmatch(value) is not None)


def _integers(values: list[Any]) -> list[int | None]:
    if set(map(type, values)) <= {int, type(None)}:
        return values
    return [it if type(it) is int else None for it in values]
