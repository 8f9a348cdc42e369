"""formats: events that no scanner takes. Bytes of a window flow in; ordinary events, as bytes of strict JSON, flow out.

Broken strings, values of odd types, numbers too large, stray pieces: what has a meaning gets it, what has none is left
out and counted. Work is bounded whatever the bytes are.
"""

import json
import re
from collections import Counter
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

import msgspec

from kinetoscope.formats.chrome_columns import MOST_DIGITS, MOST_FIELDS
from kinetoscope.formats.chrome_repair import mend
from kinetoscope.formats.chrome_times import nanoseconds
from kinetoscope.formats.chrome_twin import is_ordinary_event


def _exact(number: str) -> Decimal | float:
    try:
        return Decimal(number)
    except InvalidOperation:  # the exponent has no end
        return float(number)


_EXACT = json.JSONDecoder(strict=False, parse_float=_exact)
_SEPARATORS = re.compile(r"[\s,]*")
_NEXT_EVENT = re.compile(r'\{\s*"(?:ph|name|cat|pid|tid|ts|id|args)"\s*:')
_SLICES_BYTES = (1 << 16, 1 << 20, 1 << 26)
_MOST_MENDED = 1 << 16  # characters of a piece that is looked at for quotes to escape
_MOST_WORK = 2  # characters read in vain, as a multiple of those that are dealt with
_WORK_AT_FIRST = 1 << 24
_LEAST_WORK = 400  # what a failure costs, as the number of characters that could be read meanwhile
_NEAR_THE_END = 16
_DEEP = 1 << 16  # characters that could be read in the time in which brackets turn out to be too deep
_LARGEST = 10**MOST_DIGITS
_TEXT_FIELDS = ("name", "cat")
_PLACE_FIELDS = ("pid", "tid", "id")
_TIME_FIELDS = ("ts", "dur")


class Patience:
    """Reads odd events, and counts what it had to do."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._work_left = _WORK_AT_FIRST

    def read(self, window: bytearray, at: int, end: int, *, is_first: bool, is_last: bool, is_stuck: bool) -> "Read":
        """Reads at least one event from ``at`` on, if there is one, and some of those behind it.

        ``is_last``: nothing comes behind the window; ``is_stuck``: it holds as much as it ever will. An event that
        the end of the window cuts is left for the next one, unless ``is_last``.
        """
        for slice_bytes in _SLICES_BYTES:
            stop = min(end, at + slice_bytes)
            text = bytes(window[at:stop]).decode(errors="surrogateescape")
            reading = _Reading(self.counts, text, is_first, self._work_left, is_whole=is_last and stop == end)
            reading.run()
            if reading.consumed or stop == end:
                return self._finish(reading, at, is_stuck)
        raise AssertionError("The largest slice holds the largest window.")

    def _finish(self, reading: "_Reading", at: int, is_stuck: bool) -> "Read":
        if not reading.consumed and is_stuck:
            reading.give_up(0)
        num_bytes = len(reading.text[: reading.consumed].encode(errors="surrogateescape"))
        self._work_left += _MOST_WORK * num_bytes - reading.work
        return Read(reading.events, at + num_bytes, reading.is_first, reading.is_lost)

    def repairs(self) -> list[str]:
        """What was done, in sentences."""
        return [sentence.format(self.counts[kind]) for kind, sentence in _SENTENCES.items() if self.counts[kind]]


class Read(NamedTuple):
    """What came of one reading: events, where it stopped, whether no event came yet, and whether it lost its way: then
    what follows is not looked at before the next place that looks like the beginning of an event.

    Each event is what a scanner may be given, in this order, until it takes one.
    """

    events: list[list[bytes]]
    at: int
    is_first: bool
    is_lost: bool


_SENTENCES = {
    "lenient": "{} events that are not strict JSON, or have values of odd types, were read all the same.",
    "mended": "Quotes or backslashes were escaped in {} events.",
    "not_finite": "{} numbers that are NaN or infinite became null.",
    "utf8": "Bytes that are not UTF-8 were replaced in {} events.",
    "stray": "{} commas between events were missing or too many.",
    "lost": "{} pieces that are no complete event were left out.",
    "no_event": "{} entries that are not events were left out.",
    "no_time": "{} events whose time is not a number were left out.",
}


class _Reading:
    """One pass over a piece of text. ``consumed`` is where the last event that was dealt with ends."""

    def __init__(self, counts: Counter[str], text: str, is_first: bool, work_left: int, *, is_whole: bool) -> None:
        self.events: list[list[bytes]] = []
        self.consumed = 0
        self.is_first = is_first
        self._counts = counts
        self.text = text
        self._is_whole = is_whole
        self.is_lost = False
        self.work = 0
        self._work_left = work_left

    def run(self) -> None:
        position, num_stray = self._next(0)
        while position < len(self.text) and self.text[position] != "]":
            end = self._read_at(position)
            if end is None:
                return
            self._counts["stray"] += num_stray
            self.consumed, self.is_first = end, False
            if self.is_lost:
                return
            position, num_stray = self._next(end)

    def give_up(self, position: int) -> int:
        """Leaves out what stands from ``position`` on: it is larger than any event may be, or no JSON."""
        self._counts["lost"] += 1
        self.is_lost = True
        self.consumed = len(self.text)
        return self.consumed

    def _next(self, position: int) -> tuple[int, int]:
        """Where the next event begins, and how many commas before it are missing or too many."""
        match = _SEPARATORS.match(self.text, position)
        end = match.end() if match else position
        num_commas = self.text.count(",", position, end)
        is_value = end < len(self.text) and self.text[end] != "]"
        return end, abs(num_commas - (is_value and not self.is_first))

    def _read_at(self, position: int) -> int | None:
        """Reads one event; returns its end, or None if the text may end within it."""
        try:
            event, end = _EXACT.raw_decode(self.text, position)
        except json.JSONDecodeError as error:
            return self._recover(position, error)
        except (RecursionError, ValueError, ArithmeticError):  # too deep, or a number of too many digits
            return self._recover(position, None)
        if not isinstance(event, dict):
            return self._leave_out(end)
        self._add(event, self.text[position:end], "lenient")
        return end

    def _recover(self, position: int, error: json.JSONDecodeError | None) -> int | None:
        """Goes on at the next event, and takes what can be mended of this one."""
        is_unterminated = error is not None and error.msg.startswith("Unterminated string")
        reached = position + _DEEP if error is None else len(self.text) if is_unterminated else error.pos
        self.work += max(_LEAST_WORK, reached - position)
        if reached >= len(self.text) - _NEAR_THE_END and not self._is_whole:
            return None
        following = _NEXT_EVENT.search(self.text, position + 1) if self.work < self._work_left else None
        if following is None and not self._is_whole:
            return self.give_up(position)
        end = following.start() if following else len(self.text)
        self._mend(self.text[position:end])
        return end

    def _leave_out(self, end: int) -> int | None:
        """Goes on at the next event behind an entry that is none, whatever stands between."""
        if end == len(self.text) and not self._is_whole:
            return None  # a number may go on
        following = _NEXT_EVENT.search(self.text, end)
        if following is None and not self._is_whole:
            return self.give_up(end)
        self._counts["no_event"] += 1
        closing = self.text.find("]", end) if following is None else following.start()
        return max(end, closing if closing >= 0 else len(self.text))

    def _mend(self, piece: str) -> None:
        mended = mend(piece) if len(piece) <= _MOST_MENDED else []
        for event in mended:
            self._add(event, piece, "mended")
        self._counts["lost"] += not mended

    def _add(self, event: Any, piece: str, kind: str) -> None:
        if not piece.isascii() and any("\udc80" <= character <= "\udcff" for character in piece):
            self._counts["utf8"] += 1
            event = _replace_strange_bytes(event)
        made = ordinary(event, self._counts)
        if made is not None:
            is_ordinary = kind == "lenient" and is_ordinary_event(piece)
            self._counts[kind] += not is_ordinary
            self.events.append([piece.encode(), made] if is_ordinary else [made])


def ordinary(event: Any, counts: Counter[str]) -> bytes | None:
    """The event as strict JSON that scanners take; None, and a count of the reason, if it cannot be one."""
    phase = event.get("ph") if isinstance(event, dict) else None
    if not isinstance(phase, str) or len(phase) != 1 or not " " <= phase < "\x7f" or phase in '"\\':
        counts["no_event"] += 1
        return None
    try:
        fields = _own_fields(event)
    except (TypeError, ValueError, ArithmeticError):
        counts["no_time"] += 1
        return None
    others = [(key, value) for key, value in event.items() if key not in fields and key not in _KNOWN_FIELDS]
    fields |= dict(others[: MOST_FIELDS - 1])
    if len(others) >= MOST_FIELDS:
        fields["other_fields"] = dict(others[MOST_FIELDS - 1 :])
    try:
        return _encode(fields, counts)
    except RecursionError:
        counts["lost"] += 1
        return None


_KNOWN_FIELDS = frozenset({"ph", "args", *_TEXT_FIELDS, *_PLACE_FIELDS, *_TIME_FIELDS})


def _own_fields(event: dict[str, Any]) -> dict[str, Any]:
    """The fields that have columns, each of the type that scanners take; raises for times that are none."""
    fields: dict[str, Any] = {"ph": event["ph"]}
    for name in _TEXT_FIELDS:
        if event.get(name) is not None:
            fields[name] = _as_text(event[name])
    for name in _PLACE_FIELDS:
        if event.get(name) is not None:
            fields[name] = _as_place(event[name])
    for name in _TIME_FIELDS:
        if name in event:
            fields[name] = _Time(_as_nanoseconds(event[name]))
    if event.get("args") is not None:
        fields["args"] = event["args"] if isinstance(event["args"], dict) else {"args": event["args"]}
    return fields


class _Time(int):
    """Nanoseconds, to be written as microseconds."""


def _as_text(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ",".join(value)  # as the format has several categories
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _as_place(value: Any) -> int | str:
    if isinstance(value, Decimal) and value == value.to_integral_value() and abs(value) < _LARGEST:
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LARGEST:
        return value
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _as_nanoseconds(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal, str)):
        raise TypeError("A time is a number.")
    return nanoseconds(Decimal(value) if isinstance(value, str) else value)


def _encode(fields: dict[str, Any], counts: Counter[str]) -> bytes:
    members = [
        _dump(name, counts) + b":" + (_time_text(value) if isinstance(value, _Time) else _dump(value, counts))
        for name, value in fields.items()
    ]
    return b"{" + b",".join(members) + b"}"


def _time_text(time: _Time) -> bytes:
    whole, rest = divmod(abs(time), 1000)
    return f"{'-' * (time < 0)}{whole}.{rest:03}".encode()


def _dump(value: Any, counts: Counter[str]) -> bytes:
    return msgspec.json.encode(_plain(value, counts))


def _plain(value: Any, counts: Counter[str]) -> Any:
    """The value without what strict JSON or UTF-8 does not have."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_plain(key, counts): _plain(item, counts) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, counts) for item in value]
    if isinstance(value, float):  # NaN or infinite: all other numbers with a point are Decimals
        counts["not_finite"] += 1
        return None
    return value if isinstance(value, bool) or value is None else msgspec.Raw(str(value).encode())  # a number as it was


def _replace_strange_bytes(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="surrogateescape").decode(errors="replace") if _has_escaped_bytes(value) else value
    if isinstance(value, dict):
        return {_replace_strange_bytes(key): _replace_strange_bytes(item) for key, item in value.items()}
    return [_replace_strange_bytes(item) for item in value] if isinstance(value, list) else value


def _has_escaped_bytes(text: str) -> bool:
    """Whether there are bytes in it that are not UTF-8, and nothing else that is no character."""
    try:
        text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return False
    return not text.isascii()
