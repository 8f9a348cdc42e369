"""formats: the scanner in Python. It does what `src/native/scan.c` does where that was not built, and judges it.

Events are decoded by the thousand: as many as a window holds between two places where one event surely ends.
"""

import math
import re
from decimal import Decimal
from typing import Any, cast

import msgspec

from kinetoscope.formats.chrome_columns import (
    ARGUMENTS,
    DEEPEST,
    LIST_END,
    MORE,
    MOST_DIGITS,
    MOST_FIELDS,
    ODD,
    TEXTS,
    Columns,
)
from kinetoscope.formats.chrome_times import DOUBLES_LOSE_DIGITS_FROM_US, FURTHEST_NS, nanoseconds

_SEPARATORS = re.compile(rb"[ \t\n\r,]*")
_BETWEEN = re.compile(rb'\}[ \t\n\r]*,[ \t\n\r]*(?=\{[ \t\n\r]*"(?:ph|name|cat|pid|tid|ts|id|args|s)")')
_PLACE_OF_FAULT = re.compile(r"\(byte (\d+)\)")
_BRACKET_OR_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]')
_CLOSING_BRACKET = ord("]")
_STRINGS = ("name", "category", "id_text")
_TAIL_BYTES = 1 << 16  # how far from the end of a window the last event is looked for
_LARGEST = 10**MOST_DIGITS
_SHALLOW_BYTES = 2 * DEEPEST  # shorter arguments cannot be nested too deep
_FAULTS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_UNSET = msgspec.UNSET
_Unset = msgspec.UnsetType


class _Event(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    ph: str
    name: str = ""
    cat: str = ""
    pid: int | str | _Unset = _UNSET
    tid: int | str | _Unset = _UNSET
    ts: int | float | _Unset = _UNSET
    dur: int | float | _Unset = _UNSET
    id: int | str | _Unset = _UNSET
    s: str | _Unset = _UNSET
    bp: str | _Unset = _UNSET
    args: msgspec.Raw | _Unset = _UNSET


class _Times(msgspec.Struct, gc=False):
    ts: Decimal | _Unset = _UNSET
    dur: Decimal | _Unset = _UNSET


_OWN_FIELDS = frozenset(_Event.__struct_fields__) - {"s", "bp"}
_KEYS = {key: column for column, keys in ARGUMENTS.items() for key in keys}
_Args = msgspec.defstruct(
    "_Args",
    [
        (f"k{number}", msgspec.Raw | _Unset if column in TEXTS else Any, _UNSET)
        for number, column in enumerate(_KEYS.values())
    ],
    rename={f"k{number}": key for number, key in enumerate(_KEYS)},
    gc=False,
)
_ATTRIBUTES = {key: f"k{number}" for number, key in enumerate(_KEYS)}

_EVENTS = msgspec.json.Decoder(list[_Event])
_RAW_EVENTS = msgspec.json.Decoder(list[msgspec.Raw])
_EXACT_TIMES = msgspec.json.Decoder(list[_Times])
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARGUMENTS = msgspec.json.Decoder(list[_Args])


class _Numbering(dict[Any, int]):
    """Gives each new key the next number."""

    def __missing__(self, key: Any) -> int:
        self[key] = number = len(self)
        return number


class TwinScanner:
    """See `chrome_columns.Scanner`."""

    def __init__(self) -> None:
        self._numbers: dict[str, _Numbering] = {name: _Numbering() for name in TEXTS}
        for name, numbers in self._numbers.items():
            numbers["" if name in _STRINGS else b""]  # number 0 stands for none
        self._blocks: list[Columns] = []

    def scan(self, window: bytearray | bytes, at: int, end: int, is_first: bool) -> tuple[int, int, int]:
        num_stray = 0
        while True:
            separators = _SEPARATORS.match(window, at, end)
            assert separators is not None
            begin = separators.end()
            if begin == end:
                return at, MORE, num_stray
            num_commas = window.count(b",", at, begin)
            if window[begin] == _CLOSING_BRACKET:
                return begin, LIST_END, num_stray + num_commas
            taken_to = self._take_some(window, begin, end)
            if taken_to == begin:
                return at, ODD, num_stray
            num_stray += abs(num_commas - (not is_first))
            at, is_first = taken_to, False

    def take(self, is_last: bool) -> list[Columns]:
        blocks, self._blocks = self._blocks, []
        return blocks

    def texts(self, column: int) -> list[bytes]:
        name = TEXTS[column]
        if name in _STRINGS:
            return [msgspec.json.encode(text)[1:-1] for text in self._numbers[name]]
        if name == "track":
            return [_track_text(*key) if key else b"" for key in self._numbers[name]]
        return list(self._numbers[name])

    def _take_some(self, window: bytearray | bytes, begin: int, end: int) -> int:
        """Takes events from ``begin`` on; returns where they end, which is ``begin`` if the first is odd."""
        limit = end
        while (stop := _end_of_an_event(window, begin, limit)) > begin:
            chunk = b"[" + bytes(window[begin:stop]) + b"]"
            try:
                chunk.isascii() or chunk.decode()
                return begin + self._take_chunk(chunk)
            except _FAULTS as fault:
                limit = begin + _place_of(fault, chunk)
        return begin

    def _take_chunk(self, chunk: bytes) -> int:
        """Takes events of a JSON list up to the first odd one; returns how many bytes they are."""
        try:
            events = _EVENTS.decode(chunk)
        except msgspec.ValidationError:
            return self._take_one_by_one(chunk)
        if any(map(_loses_digits, events)):
            try:
                _restore_digits(events, _EXACT_TIMES.decode(chunk))
            except msgspec.ValidationError:
                return self._take_one_by_one(chunk)
        if not all(map(_is_ordinary, events)):
            return self._take_one_by_one(chunk)
        self._add(events, list(map(_flags, events)), chunk)
        return len(chunk) - 2

    def _take_one_by_one(self, chunk: bytes) -> int:
        events: list[_Event] = []
        fields: list[bytes | None] = []
        end = 1
        for raw in _RAW_EVENTS.decode(chunk):
            body = bytes(raw)
            if (read := _read_one(body)) is None:
                break
            events.append(read[0])
            fields.append(read[1])
            end = chunk.index(body, end) + len(body)
        if events:
            self._add(events, fields, chunk)
        return end - 1

    def _add(self, events: list[_Event], fields: list[bytes | None], chunk: bytes) -> None:
        columns = Columns(phase=[ord(it.ph) for it in events])
        columns["name"] = list(map(self._numbers["name"].__getitem__, [it.name for it in events]))
        columns["category"] = list(map(self._numbers["category"].__getitem__, [it.cat for it in events]))
        columns["track"] = list(map(self._numbers["track"].__getitem__, [(it.pid, it.tid) for it in events]))
        columns["ts"] = [_time(it.ts) for it in events]
        columns["dur"] = [_time(it.dur) for it in events]
        ids = [it.id for it in events]
        if any(it is not _UNSET for it in ids):
            columns["id"] = [it if type(it) is int else None for it in ids]
            text_ids = [it if type(it) is str else "" for it in ids]
            columns["id_text"] = list(map(self._numbers["id_text"].__getitem__, text_ids))
        self._add_arguments(columns, events, chunk)
        if any(fields):
            columns["fields"] = fields
        self._blocks.append(columns)

    def _add_arguments(self, columns: Columns, events: list[_Event], chunk: bytes) -> None:
        given = [it.args for it in events]
        columns["args"] = [None if it is _UNSET else bytes(cast("msgspec.Raw", it)) for it in given]
        keys = [key for key in _KEYS if b'"' + key.encode() + b'"' in chunk or b"\\u" in chunk]
        if not keys:
            return
        joined = b",".join([b"{}" if it is None else it for it in columns["args"]])
        decoded = _ARGUMENTS.decode(b"[" + joined + b"]")
        for key in reversed(keys):  # the first key of a column counts
            values = [getattr(it, _ATTRIBUTES[key]) for it in decoded]
            column = _KEYS[key]
            if column in TEXTS:
                self._add_texts(columns, column, values)
            else:
                _add_numbers(columns, column, values)

    def _add_texts(self, columns: Columns, column: str, values: list[Any]) -> None:
        numbers = self._numbers[column]
        before = columns.get(column) or [0] * len(values)
        columns[column] = [
            old if it is _UNSET else numbers[bytes(it)] for it, old in zip(values, before, strict=True)
        ]


def _add_numbers(columns: Columns, column: str, values: list[Any]) -> None:
    before = columns.get(column) or [None] * len(values)
    columns[column] = [
        it if type(it) is int and -_LARGEST < it < _LARGEST else old for it, old in zip(values, before, strict=True)
    ]


def _time(microseconds: int | float | Decimal | _Unset) -> int | None:
    if type(microseconds) is float:  # the same as `nanoseconds`, here for speed: nothing is out of range any more
        whole = math.floor(microseconds)
        return whole * 1000 + round((microseconds - whole) * 1000)
    return None if microseconds is _UNSET else nanoseconds(cast("int | Decimal", microseconds))


def _flags(event: _Event) -> bytes | None:
    """The two fields without a column that Kineto writes, as an object."""
    if event.s is _UNSET and event.bp is _UNSET:
        return None
    return msgspec.json.encode({key: it for key in ("s", "bp") if (it := getattr(event, key)) is not _UNSET})


def is_ordinary_event(text: str) -> bool:
    """Whether the scanner takes an event as it stands."""
    try:
        return _read_one(text.encode()) is not None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False


def _read_one(body: bytes) -> tuple[_Event, bytes | None] | None:
    """An event and its fields without a column; None if it is odd."""
    try:
        given = _FIELDS.decode(body)
        own = {key: value for key, value in given.items() if key in _OWN_FIELDS}
        event = msgspec.json.decode(msgspec.json.encode(own), type=_Event)
        if _loses_digits(event):
            _restore_digits([event], [msgspec.json.decode(body, type=_Times)])
    except msgspec.ValidationError:
        return None
    others = {key: value for key, value in given.items() if key not in _OWN_FIELDS}
    if len(others) > MOST_FIELDS or not _is_ordinary(event) or not all(map(_is_shallow, others.values())):
        return None
    return event, msgspec.json.encode(others) if others else None


def _is_ordinary(event: _Event) -> bool:
    phase, args = event.ph, event.args
    return (
        len(phase) == 1
        and " " <= phase < "\x7f"
        and phase not in '"\\'
        and _is_place(event.pid)
        and _is_place(event.tid)
        and _is_place(event.id)
        and _is_in_range(event.ts)
        and _is_in_range(event.dur)
        and (args is _UNSET or (bytes(cast("msgspec.Raw", args))[:1] == b"{" and _is_shallow(args)))
    )


def _is_place(value: int | str | _Unset) -> bool:
    return type(value) is not int or -_LARGEST < value < _LARGEST


def _is_in_range(time: int | float | Decimal | _Unset) -> bool:
    if type(time) is float and -DOUBLES_LOSE_DIGITS_FROM_US < time < DOUBLES_LOSE_DIGITS_FROM_US:
        return True
    return time is _UNSET or abs(cast("Decimal", time)) * 1000 <= FURTHEST_NS


def _loses_digits(event: _Event) -> bool:
    for time in (event.ts, event.dur):
        if type(time) is float and not -DOUBLES_LOSE_DIGITS_FROM_US < time < DOUBLES_LOSE_DIGITS_FROM_US:
            return True
    return False


def _restore_digits(events: list[_Event], exact: list[_Times]) -> None:
    for event, times in zip(events, exact, strict=True):
        for name in ("ts", "dur"):
            if type(getattr(event, name)) is float:
                setattr(event, name, getattr(times, name))


def _is_shallow(value: Any) -> bool:
    text = bytes(value)
    if len(text) < _SHALLOW_BYTES or text.count(b"{") + text.count(b"[") < DEEPEST:
        return True
    depth = deepest = 0
    for match in _BRACKET_OR_STRING.finditer(text):
        depth += {0x7B: 1, 0x5B: 1, 0x7D: -1, 0x5D: -1}.get(text[match.start()], 0)
        deepest = max(deepest, depth)
    return deepest <= DEEPEST


def _end_of_an_event(window: bytearray | bytes, begin: int, limit: int) -> int:
    """The last place before ``limit`` that looks like the end of an event; ``begin`` if there is none."""
    for start in (max(begin, limit - _TAIL_BYTES), begin):
        last = None
        for last in _BETWEEN.finditer(window, start, limit):
            pass
        if last is not None:
            return last.start() + 1
    return begin


def _place_of(fault: Exception, chunk: bytes) -> int:
    """Where in ``chunk`` the fault is; its middle if that is not known."""
    if isinstance(fault, UnicodeDecodeError):
        return max(0, fault.start - 1)
    found = _PLACE_OF_FAULT.search(str(fault))
    place = int(found[1]) - 1 if found else len(chunk) // 2
    return min(place, len(chunk) - 3)


def _track_text(pid: int | str | _Unset, tid: int | str | _Unset) -> bytes:
    return b",".join(b"null" if it is _UNSET else msgspec.json.encode(it) for it in (pid, tid))
