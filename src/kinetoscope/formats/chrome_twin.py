"""formats: the scanner in Python. It does what `src/native/scan.c` does where that was not built, and judges it.

Events are decoded by the thousand: as many as fit between two places where one event surely ends. Python touches each
event as little as it can: what is done is done to whole columns.
"""

import contextlib
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, Any

import msgspec

from kinetoscope.formats.chrome_arguments import COLUMN_OF, Arguments
from kinetoscope.formats.chrome_columns import (
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
_CLOSING_BRACKET = ord("]")
_STRINGS = ("name", "category", "id_text")
_TAIL_BYTES = 1 << 16  # how far from the end of a window the last event is looked for
_LARGEST = 10**MOST_DIGITS
_MOST_BYTES = 1 << 20  # decoded at a time: what does not leave the processor's cache
_FEWEST_BYTES = 1 << 12
_BLOCK_ROWS = 1 << 16
_NO_ARGS = b"{}"
_SHALLOW_BYTES = 2 * DEEPEST  # shorter arguments cannot be nested too deep
_FAULTS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_NONE: Any = None  # where a struct has a type that a field of JSON must have


class _Event(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """Any event whose fields are of the types that the format says; None: it does not have that field."""

    ph: str
    name: str = ""
    cat: str = ""
    pid: int | str = _NONE
    tid: int | str = _NONE
    ts: int | float = _NONE
    dur: int | float = _NONE
    id: int | str = _NONE
    args: msgspec.Raw = _NONE
    s: str = _NONE
    bp: str = _NONE


_Place = Annotated[int, msgspec.Meta(gt=-_LARGEST, lt=_LARGEST)] | str
_NearTime = (
    Annotated[int, msgspec.Meta(ge=-(FURTHEST_NS // 1000), le=FURTHEST_NS // 1000)]
    | Annotated[float, msgspec.Meta(gt=-float(DOUBLES_LOSE_DIGITS_FROM_US), lt=float(DOUBLES_LOSE_DIGITS_FROM_US))]
)


class _NearEvent(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """An event whose numbers are ordinary, and whose times doubles hold to the nanosecond."""

    ph: Annotated[str, msgspec.Meta(min_length=1, max_length=1)]
    name: str = ""
    cat: str = ""
    pid: _Place = _NONE
    tid: _Place = _NONE
    ts: _NearTime = _NONE
    dur: _NearTime = _NONE
    id: _Place = _NONE
    s: str = _NONE
    bp: str = _NONE
    args: msgspec.Raw = _NONE


class _Times(msgspec.Struct, gc=False):
    ts: Decimal = _NONE
    dur: Decimal = _NONE


_OWN_FIELDS = frozenset(_Event.__struct_fields__) - {"s", "bp"}
_EVENTS = msgspec.json.Decoder(list[_Event])
_NEAR_EVENTS = msgspec.json.Decoder(list[_NearEvent])
_NEAR_EVENT = msgspec.json.Decoder(_NearEvent)
_RAW_EVENTS = msgspec.json.Decoder(list[msgspec.Raw])
_EXACT_TIMES = msgspec.json.Decoder(list[_Times])
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class _Numbering(dict[Any, int]):
    """Gives each new key the next number."""

    def __missing__(self, key: Any) -> int:
        self[key] = number = len(self)
        return number


class TwinScanner:
    """See `chrome_columns.Scanner`."""

    straighten = None

    def __init__(self) -> None:
        self._numbers: dict[str, _Numbering] = {name: _Numbering() for name in TEXTS}
        for name, numbers in self._numbers.items():
            numbers["" if name in _STRINGS else b""]  # number 0 stands for none
        self._arguments = Arguments()
        self._are_near = True
        self._most_bytes = _MOST_BYTES
        self._block = _Block()
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
            taken_to = self._take_some(window, begin, min(end, begin + _MOST_BYTES)) or self._take_some(
                window, begin, end
            )
            if taken_to is None:
                return at, ODD, num_stray
            num_stray += abs(num_commas - (not is_first))
            at, is_first = taken_to, False

    def take(self, is_last: bool) -> list[Columns]:
        if self._block.num_rows and (is_last or self._block.num_rows >= _BLOCK_ROWS):
            self._end_block()
        blocks, self._blocks = self._blocks, []
        return blocks

    def texts(self, column: int) -> list[bytes]:
        name = TEXTS[column]
        if name in _STRINGS:
            return [msgspec.json.encode(text)[1:-1] for text in self._numbers[name]]
        if name == "track":
            return [_track_text(*key) if key else b"" for key in self._numbers[name]]
        return list(self._numbers[name])

    def _take_some(self, window: bytearray | bytes, begin: int, end: int) -> int | None:
        """Takes events from ``begin`` on; returns where they end, or None if the first is odd."""
        limit = min(end, begin + self._most_bytes)
        if (stop := _end_of_an_event(window, begin, limit)) == begin:
            stop = _end_of_an_event(window, begin, end)
        while stop > begin:
            with memoryview(window) as view:
                chunk = b"".join((b"[", view[begin:stop], b"]"))
            try:
                num_bytes = self._take_chunk(chunk)
            except _FAULTS as fault:
                self._expect_less()
                stop = _end_of_an_event(window, begin, begin + _place_of(fault, chunk))
            else:
                if num_bytes < len(chunk) - 2:
                    self._expect_less()
                elif stop - begin > self._most_bytes // 2:
                    self._most_bytes = min(_MOST_BYTES, 2 * self._most_bytes)
                return begin + num_bytes if num_bytes else None
        return None

    def _expect_less(self) -> None:
        """Where much is broken, little is to be decoded in vain."""
        self._most_bytes = max(_FEWEST_BYTES, self._most_bytes // 2)

    def _take_chunk(self, chunk: bytes) -> int:
        """Takes events of a JSON list up to the first odd one; returns how many bytes they are."""
        if not chunk.isascii():
            chunk.decode()  # msgspec does not look at the bytes that it skips
        try:
            rows = self._decode(chunk)
            if rows.are_ordinary():
                self._add(rows)
                return len(chunk) - 2
        except msgspec.ValidationError:
            pass
        return self._take_one_by_one(chunk)

    def _decode(self, chunk: bytes) -> "_Rows":
        """The events of a list, where all are of the right types."""
        if self._are_near:
            with contextlib.suppress(msgspec.ValidationError):
                return _Rows(_NEAR_EVENTS.decode(chunk), are_near=True)
        rows = _Rows(_EVENTS.decode(chunk))
        rows.restore_digits(chunk)
        self._are_near = False  # so are those of the rest of the file, if its times are large
        return rows

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
        columns = Columns(phase=list("".join(rows.ph).encode()))
        columns["args"] = rows.args
        self._add_arguments(columns)
        columns["name"] = list(map(self._numbers["name"].__getitem__, rows.name))
        columns["category"] = list(map(self._numbers["category"].__getitem__, rows.cat))
        columns["track"] = list(map(self._numbers["track"].__getitem__, zip(rows.pid, rows.tid, strict=True)))
        self._add_ids(columns, rows.id)
        if rows.are_near:
            columns["ts_us"], columns["dur_us"] = rows.ts, rows.dur
        else:
            columns["ts"], columns["dur"] = _times(rows.ts), _times(rows.dur)
        if not _is_empty(rows.fields):
            columns["fields"] = rows.fields
        if not self._block.takes(columns):
            self._end_block()
        self._block.add(columns)

    def _add_ids(self, columns: Columns, ids: list[Any]) -> None:
        types = set(map(type, ids))
        if str in types:
            texts = [it if type(it) is str else "" for it in ids]
            columns["id_text"] = list(map(self._numbers["id_text"].__getitem__, texts))
            ids = [it if type(it) is int else None for it in ids]
        if int in types:
            columns["id"] = ids

    def _add_arguments(self, columns: Columns) -> None:
        args = columns["args"]
        given = args if args.count(None) == 0 else [_NO_ARGS if it is None else it for it in args]
        for key, values in self._arguments.columns(given):
            column = COLUMN_OF[key]
            if column in TEXTS:
                numbers = self._numbers[column]
                values = [0 if it is None else numbers[bytes(it)] for it in values]
            if (before := columns.get(column)) is not None:
                values = [old if it in (None, 0) else it for it, old in zip(values, before, strict=True)]
            columns[column] = values

    def _end_block(self) -> None:
        self._blocks.append(self._block.columns)
        self._block = _Block()


class _Block:
    """Rows that become one block."""

    def __init__(self) -> None:
        self.columns = Columns()
        self.num_rows = 0

    def takes(self, columns: Columns) -> bool:
        """Whether times are written there as they are here."""
        return not self.num_rows or ("ts" in columns) == ("ts" in self.columns)

    def add(self, columns: Columns) -> None:
        """Adds rows; those that lack a column have nothing there."""
        num_more = len(columns["phase"])
        for name in columns.keys() - self.columns.keys():
            self.columns[name] = [_nothing_in(name)] * self.num_rows
        for name, mine in self.columns.items():
            mine += columns[name] if name in columns else [_nothing_in(name)] * num_more
        self.num_rows += num_more


def _nothing_in(column: str) -> int | None:
    return 0 if column in TEXTS else None


class _Rows:
    """Events as one list per field."""

    def __init__(self, events: Sequence[Any], *, are_near: bool = False) -> None:
        self.are_near = are_near
        self.ph: list[str] = [it.ph for it in events]
        self.name: list[str] = [it.name for it in events]
        self.cat: list[str] = [it.cat for it in events]
        self.pid: list[Any] = [it.pid for it in events]
        self.tid: list[Any] = [it.tid for it in events]
        self.ts: list[Any] = [it.ts for it in events]
        self.dur: list[Any] = [it.dur for it in events]
        self.id: list[Any] = [it.id for it in events]
        self.args: list[bytes | None] = [None if (raw := it.args) is None else bytes(raw) for it in events]
        self.fields: list[bytes | None] = [
            None if it.s is None and it.bp is None else _flags(it.s, it.bp) for it in events
        ]

    def restore_digits(self, text: bytes) -> None:
        """Reads times again, from the list that the events came from, if doubles are too short for them."""
        if _keep_digits(self.ts) and _keep_digits(self.dur):
            return
        exact = _EXACT_TIMES.decode(text)
        self.ts = [it.ts if type(old) is float else old for it, old in zip(exact, self.ts, strict=True)]
        self.dur = [it.dur if type(old) is float else old for it, old in zip(exact, self.dur, strict=True)]

    def are_ordinary(self) -> bool:
        """Whether all of them may become rows as they are, if their args are objects."""
        return (
            _are_phases(self.ph)
            and all(map(_is_shallow, [it for it in self.args if it is not None and len(it) >= _SHALLOW_BYTES]))
            and (self.are_near or (self._are_places() and all(map(_is_in_range, (*self.ts, *self.dur)))))
        )

    def _are_places(self) -> bool:
        return all(map(_is_place, {*self.pid, *self.tid, *self.id}))


def _is_empty(values: Sequence[Any]) -> bool:
    return values.count(None) == len(values)


def _keep_digits(times: Sequence[Any]) -> bool:
    """Whether all doubles among the times tell nanoseconds apart."""
    doubles = [it for it in times if type(it) is float]
    return (
        min(doubles, default=0) > -DOUBLES_LOSE_DIGITS_FROM_US and max(doubles, default=0) < DOUBLES_LOSE_DIGITS_FROM_US
    )


def _times(microseconds: Sequence[Any]) -> list[int | None]:
    return [None if it is None else nanoseconds(it) for it in microseconds]


def _flags(s: str | None, bp: str | None) -> bytes:
    """The two fields without a column that Kineto writes, as an object."""
    return msgspec.json.encode({key: it for key, it in (("s", s), ("bp", bp)) if it is not None})


def is_near_event(text: bytes) -> bool:
    """Whether the scanner surely takes an event, looked at quickly; most of those that it takes."""
    try:
        event = _NEAR_EVENT.decode(text)
    except _FAULTS:
        return False
    args = b"{}" if event.args is None else bytes(event.args)
    return text.isascii() and len(text) < _SHALLOW_BYTES and args[:1] == b"{" and _are_phases([event.ph])


def is_ordinary_event(text: bytes) -> bool:
    """Whether the scanner takes an event as it stands."""
    try:
        return _read_one(text) is not None
    except _FAULTS:
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
    are_args = event.args is None or bytes(event.args).startswith(b"{")
    are_shallow = all(map(_is_shallow, map(bytes, others.values())))
    if len(others) > MOST_FIELDS or not are_args or not are_shallow or not rows.are_ordinary():
        return None
    event.ts, event.dur = rows.ts[0], rows.dur[0]
    return event, msgspec.json.encode(others) if others else None


def _are_phases(phases: Sequence[str]) -> bool:
    text = "".join(phases)
    is_printed = text.isascii() and text.isprintable() and '"' not in text and "\\" not in text
    return is_printed and set(map(len, phases)) <= {1}


def _is_place(value: int | str | None) -> bool:
    return type(value) is not int or -_LARGEST < value < _LARGEST


def _is_in_range(time: int | float | Decimal | None) -> bool:
    return type(time) is float or time is None or abs(time) * 1000 <= FURTHEST_NS


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


def _track_text(pid: int | str | None, tid: int | str | None) -> bytes:
    return b",".join(b"null" if it is None else msgspec.json.encode(it) for it in (pid, tid))
