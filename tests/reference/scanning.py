"""A reference for the scanner of `kinetoscope.formats.chrome_scan`: each event becomes a row by itself."""

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import msgspec
import polars as pl

from kinetoscope.formats.chrome_event import to_nanoseconds
from kinetoscope.formats.chrome_scan import ARGUMENTS, LIST_END, MALFORMED, MAX_DEPTH, MORE, NUMBERS, TEXTS
from kinetoscope.formats.chrome_stream import CLOSING_BRACKET, skip_separators

BLOCK_ROWS = 1 << 14
STRINGS = {"name": "name", "category": "cat", "id_text": "id"}
FIELDS_WITH_COLUMN = frozenset({"ph", "name", "cat", "pid", "tid", "ts", "dur", "id", "args"})
INTEGER = re.compile(rb"0|-?[1-9][0-9]{0,17}")
BRACKET_OR_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]')
DTYPES = {"phase": pl.UInt8} | dict.fromkeys(TEXTS, pl.UInt32) | dict.fromkeys(NUMBERS, pl.Int64)
DTYPES |= dict.fromkeys(("args", "fields"), pl.Binary)
MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class ReferenceScanner:
    """Accepts no text: `ChromeStream` reads every event, and passes it to `add`; see `Scanner`."""

    def __init__(self) -> None:
        self._numbers: dict[str, dict[bytes, int]] = {name: {b"": 0} for name in TEXTS}  # number 0 stands for none
        self._rows: list[dict[str, Any]] = []

    def scan(self, window: bytearray | bytes, at: int, end: int, is_first: bool) -> tuple[int, int, int]:
        begin = skip_separators(window, at, end)
        if begin == end:
            return at, MORE, 0
        if window[begin] != CLOSING_BRACKET:
            return at, MALFORMED, 0
        return begin, LIST_END, window.count(b",", at, begin)

    def add(self, event: bytes) -> bool:
        given = _members(event)
        args = _members(given.get("args", b"{}"))
        others = {key: value for key, value in given.items() if key not in FIELDS_WITH_COLUMN}
        if any(map(_is_too_deep, (*args.values(), *others.values()))):
            return False
        texts = dict([*_texts(given), *_argument_texts(args)])
        row = {name: self._numbers[name].setdefault(text, len(self._numbers[name])) for name, text in texts.items()}
        row |= {"phase": ord(msgspec.json.decode(given["ph"])), "args": given.get("args")}
        row |= {name: to_nanoseconds(Decimal(given[name].decode())) for name in ("ts", "dur") if name in given}
        if others:
            row["fields"] = msgspec.json.encode({key: msgspec.Raw(value) for key, value in others.items()})
        self._rows.append(row | dict(_argument_numbers(args)) | _id_number(given))
        return True

    def take(self, is_last: bool) -> list[list[pl.Series]]:
        if not self._rows or (len(self._rows) < BLOCK_ROWS and not is_last):
            return []
        rows, self._rows = self._rows, []
        names = set().union(*rows)
        columns = {name: [row.get(name, 0 if name in TEXTS else None) for row in rows] for name in names}
        return [[pl.Series(name, columns[name], dtype=dtype) for name, dtype in DTYPES.items() if name in names]]

    def texts(self, column: int) -> list[bytes]:
        return list(self._numbers[TEXTS[column]])


def _members(text: bytes) -> dict[str, bytes]:
    return {key: bytes(value) for key, value in MEMBERS.decode(text).items()}


def _texts(given: dict[str, bytes]) -> Iterator[tuple[str, bytes]]:
    for name, field in STRINGS.items():
        if given.get(field, b"").startswith(b'"'):
            yield name, given[field][1:-1]
    yield "track", given.get("pid", b"null") + b"," + given.get("tid", b"null")


def _id_number(given: dict[str, bytes]) -> dict[str, int]:
    return {"id": int(given["id"])} if "id" in given and not given["id"].startswith(b'"') else {}


def _argument_texts(args: dict[str, bytes]) -> Iterator[tuple[str, bytes]]:
    for name, keys in ARGUMENTS.items():
        if name in TEXTS and (values := [args[key] for key in keys if key in args]):
            yield name, values[0]


def _argument_numbers(args: dict[str, bytes]) -> Iterator[tuple[str, int]]:
    for name, keys in ARGUMENTS.items():
        values = [args[key] for key in keys if key in args and INTEGER.fullmatch(args[key])]
        if name not in TEXTS and values:
            yield name, int(values[0])


def _is_too_deep(text: bytes) -> bool:
    """Return whether brackets in JSON are nested more deeply than `DEEPEST`."""
    if text.count(b"[") + text.count(b"{") <= MAX_DEPTH:
        return False
    depth = deepest = 0
    for match in BRACKET_OR_STRING.finditer(text):
        depth += {b"{": 1, b"[": 1, b"}": -1, b"]": -1}.get(match[0], 0)
        deepest = max(deepest, depth)
    return deepest > MAX_DEPTH
