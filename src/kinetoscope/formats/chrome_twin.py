"""formats: the scanner in Python. It does what `src/native/scan.c` does where that was not built, and judges it.

Events are decoded by the thousand: as many as a window holds between two places where one event surely ends.
"""

import contextlib
import math
import re
from collections.abc import Sequence
from decimal import Decimal
from itertools import repeat
from operator import attrgetter
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

_BLANKS = re.compile(rb"[ \t\n\r]*")
_SEPARATORS = re.compile(rb"[ \t\n\r,]*")
_BETWEEN = re.compile(rb'\}[ \t\n\r]*,[ \t\n\r]*(?=\{[ \t\n\r]*"(?:ph|name|cat|pid|tid|ts|id|args|s)")')
_PLACE_OF_FAULT = re.compile(r"\(byte (\d+)\)")
_BRACKET_OR_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]')
_INTEGER = re.compile(rb"-?[0-9]{1,18}")
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

_EVENTS = msgspec.json.Decoder(list[_Event])
_RAW_EVENTS = msgspec.json.Decoder(list[msgspec.Raw])
_EXACT_TIMES = msgspec.json.Decoder(list[_Times])
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARGUMENTS = msgspec.json.Decoder(list[_Args])
_OF_EVENT = [attrgetter(name) for name in _Event.__struct_fields__]
_OF_ARGUMENTS = {key: attrgetter(f"k{number}") for number, key in enumerate(_KEYS)}


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
            at = _end_of(_BLANKS, window, at, end)
            begin = _end_of(_SEPARATORS, window, at, end)
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
                chunk.decode()  # msgspec does not look at the bytes that it skips
                return begin + self._take_chunk(chunk)
            except _FAULTS as fault:
                limit = begin + _place_of(fault, chunk)
        return begin

    def _take_chunk(self, chunk: bytes) -> int:
        """Takes events of a JSON list up to the first odd one; returns how many bytes they are."""
        try:
            rows = _Rows(_EVENTS.decode(chunk))
            rows.restore_digits(chunk)
        except msgspec.ValidationError:
            return self._take_one_by_one(chunk)
        if not rows.are_ordinary():
            return self._take_one_by_one(chunk)
        self._add(rows)
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
            rows = _Rows(events)
            rows.fields = fields
            self._add(rows)
        return end - 1

    def _add(self, rows: "_Rows") -> None:
        columns = Columns(phase=list(map(ord, rows.ph)))
        columns["name"] = list(map(self._numbers["name"].__getitem__, rows.name))
        columns["category"] = list(map(self._numbers["category"].__getitem__, rows.cat))
        columns["track"] = list(map(self._numbers["track"].__getitem__, zip(rows.pid, rows.tid, strict=True)))
        columns["ts"] = _times(rows.ts)
        columns["dur"] = _times(rows.dur)
        if not _is_empty(rows.id):
            columns["id"] = [it if type(it) is int else None for it in rows.id]
            text_ids = [it if type(it) is str else "" for it in rows.id]
            columns["id_text"] = list(map(self._numbers["id_text"].__getitem__, text_ids))
        columns["args"] = rows.args
        self._add_arguments(columns)
        if any(rows.fields):
            columns["fields"] = rows.fields
        self._blocks.append(columns)

    def _add_arguments(self, columns: Columns) -> None:
        given = [it or b"{}" for it in columns["args"]]
        decoded = _read_arguments(given)
        for key in reversed(_KEYS):  # the first key of a column counts
            column, values = _KEYS[key], list(map(_OF_ARGUMENTS[key], decoded))
            if _is_empty(values):
                continue
            if column in TEXTS:
                self._add_texts(columns, column, values)
            else:
                _add_numbers(columns, column, values)

    def _add_texts(self, columns: Columns, column: str, values: Sequence[Any]) -> None:
        numbers = self._numbers[column]
        before = columns.get(column) or [0] * len(values)
        columns[column] = [old if it is _UNSET else numbers[bytes(it)] for it, old in zip(values, before, strict=True)]


class _Rows:
    """Events as one list per field."""

    def __init__(self, events: list[_Event]) -> None:
        columns = (list(map(field, events)) for field in _OF_EVENT)
        self.ph, self.name, self.cat, self.pid, self.tid, self.ts, self.dur, self.id, self.s, self.bp, args = columns
        self.args = [None if it is _UNSET else bytes(it) for it in args]
        self.fields: list[bytes | None] = [None] * len(self.args)
        if not (_is_empty(self.s) and _is_empty(self.bp)):
            self.fields = [
                None if s is _UNSET and bp is _UNSET else _flags(s, bp) for s, bp in zip(self.s, self.bp, strict=True)
            ]

    def restore_digits(self, text: bytes) -> None:
        """Reads times again, from the list that the events came from, if doubles are too short for them."""
        if _keep_digits(self.ts) and _keep_digits(self.dur):
            return
        exact = _EXACT_TIMES.decode(text)
        self.ts = [it.ts if type(old) is float else old for it, old in zip(exact, self.ts, strict=True)]
        self.dur = [it.dur if type(old) is float else old for it, old in zip(exact, self.dur, strict=True)]

    def are_ordinary(self) -> bool:
        """Whether all of them may become rows as they are."""
        texts = [it for it in self.args if it is not None]
        return (
            all(map(_is_phase, set(self.ph)))
            and all(map(_is_place, {*self.pid, *self.tid, *self.id}))
            and all(map(_is_in_range, [it for it in (*self.ts, *self.dur) if type(it) is not float]))
            and all(map(bytes.startswith, texts, repeat(b"{")))
            and (max(map(len, texts), default=0) < _SHALLOW_BYTES or all(map(_is_shallow, texts)))
        )


def _read_arguments(given: list[bytes]) -> list[Any]:
    try:
        return _ARGUMENTS.decode(b"[" + b",".join(given) + b"]")
    except msgspec.ValidationError:  # a number that no double holds
        return [_read_arguments_of_one(it) for it in given]


def _read_arguments_of_one(given: bytes) -> Any:
    members = {key: it for key, it in _FIELDS.decode(given).items() if key in _KEYS}
    with contextlib.suppress(msgspec.ValidationError):
        return msgspec.json.decode(msgspec.json.encode(members), type=_Args)
    plain = {key: it for key, it in members.items() if _KEYS[key] in TEXTS or _INTEGER.fullmatch(bytes(it))}
    return msgspec.json.decode(msgspec.json.encode(plain), type=_Args)


def _is_empty(values: Sequence[Any]) -> bool:
    return values.count(_UNSET) == len(values)


def _keep_digits(times: Sequence[Any]) -> bool:
    """Whether all doubles among the times tell nanoseconds apart."""
    doubles = [it for it in times if type(it) is float]
    return (
        min(doubles, default=0) > -DOUBLES_LOSE_DIGITS_FROM_US and max(doubles, default=0) < DOUBLES_LOSE_DIGITS_FROM_US
    )


def _add_numbers(columns: Columns, column: str, values: Sequence[Any]) -> None:
    before = columns.get(column) or [None] * len(values)
    columns[column] = [
        it if type(it) is int and -_LARGEST < it < _LARGEST else old for it, old in zip(values, before, strict=True)
    ]


def _times(microseconds: Sequence[Any]) -> list[int | None]:
    floor = math.floor
    return [  # as `nanoseconds` does it, here for speed: a double that comes so far keeps its digits
        (whole := floor(it)) * 1000 + round((it - whole) * 1000)
        if type(it) is float
        else None
        if it is _UNSET
        else nanoseconds(it)
        for it in microseconds
    ]


def _flags(s: Any, bp: Any) -> bytes | None:
    """The two fields without a column that Kineto writes, as an object."""
    given = {key: it for key, it in (("s", s), ("bp", bp)) if it is not _UNSET}
    return msgspec.json.encode(given) if given else None


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
        rows = _Rows([event])
        rows.restore_digits(b"[" + body + b"]")
    except msgspec.ValidationError:
        return None
    others = {key: value for key, value in given.items() if key not in _OWN_FIELDS}
    if len(others) > MOST_FIELDS or not rows.are_ordinary() or not all(map(_is_shallow, map(bytes, others.values()))):
        return None
    event.ts, event.dur = cast("float", rows.ts[0]), cast("float", rows.dur[0])
    return event, msgspec.json.encode(others) if others else None


def _is_phase(phase: str) -> bool:
    return len(phase) == 1 and " " <= phase < "\x7f" and phase not in '"\\'


def _is_place(value: int | str | _Unset) -> bool:
    return type(value) is not int or -_LARGEST < value < _LARGEST


def _is_in_range(time: int | Decimal | _Unset) -> bool:
    return time is _UNSET or abs(cast("Decimal", time)) * 1000 <= FURTHEST_NS


def _is_shallow(text: bytes) -> bool:
    if len(text) < _SHALLOW_BYTES or text.count(b"{") + text.count(b"[") < DEEPEST:
        return True
    depth = deepest = 0
    for match in _BRACKET_OR_STRING.finditer(text):
        depth += {0x7B: 1, 0x5B: 1, 0x7D: -1, 0x5D: -1}.get(text[match.start()], 0)
        deepest = max(deepest, depth)
    return deepest <= DEEPEST


def _end_of(pattern: re.Pattern[bytes], window: bytearray | bytes, at: int, end: int) -> int:
    match = pattern.match(window, at, end)
    return match.end() if match else at


def _end_of_an_event(window: bytearray | bytes, begin: int, limit: int) -> int:
    """The last place before ``limit`` that looks like the end of an event; ``begin`` if there is none."""
    for start, stop in ((limit - _TAIL_BYTES, limit), (begin, min(limit, begin + 4 * _TAIL_BYTES))):
        if found := list(_BETWEEN.finditer(window, max(begin, start), stop)):
            return found[-1].start() + 1
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
