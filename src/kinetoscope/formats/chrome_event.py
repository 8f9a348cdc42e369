"""Parsing of single events of Chrome JSON traces, also damaged ones, and conversion of their times.

`read_event` and `repair_event` read text that no strict JSON parser takes. `event_to_nanoseconds` converts the times.
`normalize_event` turns an event with unusual values (a field of another type, a number that is too large, NaN) into
strict JSON that both scanners of `chrome_scan` take; values without a meaning are left out and counted.
"""

import json
import math
import re
from collections import Counter
from decimal import Decimal
from enum import IntEnum
from typing import Any, TypeGuard

import msgspec

MAX_ABS_TIME_NS = 2**62
"""The sum of two times up to this limit fits into 64 bits."""

MAX_DURATION_NS = 4 * 10**18
"""126 years, the largest time of an event: a sum with it fits into 64 bits."""

UNIX_NS = 10**18
"""September 2001: a later time counts from 1970, an earlier one from its file's base."""

MAX_DIGITS = 18
"""Integers of more digits are in no column."""

MAX_FIELDS = 60
"""An ordinary event has at most so many fields without a column."""

_DOUBLES_LOSE_DIGITS_FROM_US = 2**43  # doubles from here on cannot hold nanoseconds
_LENIENT = json.JSONDecoder(strict=False)
_MAX_PARSED_DIGITS = 4300  # `int` takes no more, so that a number cannot hold a process up
_WITHOUT_LONG = json.JSONDecoder(
    strict=False, parse_int=lambda text: int(text) if len(text) <= _MAX_PARSED_DIGITS else None
)
_EXACT = json.JSONDecoder(strict=False, parse_float=Decimal, parse_int=_WITHOUT_LONG.parse_int)

_QUOTES_OF_A_FIELD = 4
_BLANKS = " \t\r"
_STRING_LINE = re.compile(r'([ \t\r]*"[^"\n]*"[ \t\r]*:[ \t\r]*")(.*)("[ \t\r]*(?:,[ \t\r]*)?)')
_ESCAPE_OR_BARE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|["\\]')
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,"]|[^ \t\n\r",:{}\[\]]+', re.DOTALL)

# a string, or a bare word as the value of a member or an item, with what is before it
_WORD_AS_VALUE = re.compile(r'"(?:[^"\\]|\\.)*"|([:\[,]\s*)([^\s",:{}\[\]]+)', re.DOTALL)
_JSON_WORDS = frozenset({"true", "false", "null"})

_MAX_INTEGER = 10**MAX_DIGITS
_TEXT_FIELDS = ("name", "cat")
_ID_FIELDS = ("pid", "tid", "id")
_TIME_FIELDS = ("ts", "dur")
_KNOWN_FIELDS = frozenset({"ph", "args", *_TEXT_FIELDS, *_ID_FIELDS, *_TIME_FIELDS})


def event_to_nanoseconds(event: dict[str, Any], base_ns: int) -> bool:
    """Convert ``ts`` and ``dur`` of one event to nanoseconds in place; return whether they are valid.

    They are invalid if they are not numbers, or if the duration is negative.
    """
    try:
        if "ts" in event:
            event["ts"] = base_ns + to_nanoseconds(event["ts"])
        if "dur" in event:
            event["dur"] = to_nanoseconds(event["dur"])
    except (TypeError, ValueError, OverflowError, ArithmeticError):
        return False
    return not has_negative_duration(event)


def has_negative_duration(event: dict[str, Any]) -> bool:
    """Return whether an event, whose times are nanoseconds or not converted, ends before it begins."""
    duration = event.get("dur", 0)
    return isinstance(duration, int | float | Decimal) and duration < 0


def to_nanoseconds(microseconds: Any) -> int:
    """Convert microseconds to nanoseconds, exactly or rounded; a string may hold the number.

    Raises TypeError, ValueError or ArithmeticError for a value that is not a finite number, or exceeds 126 years.
    """
    if isinstance(microseconds, bool) or not isinstance(microseconds, (int, float, Decimal, str)):
        raise TypeError("A time is a number.")
    number = Decimal(microseconds) if isinstance(microseconds, str) else microseconds
    if not abs(number) * 1000 <= MAX_DURATION_NS:  # also true for NaN
        raise OverflowError("No event is that far away.")
    if isinstance(number, int):
        return number * 1000
    if abs(number) >= _DOUBLES_LOSE_DIGITS_FROM_US:
        return round(Decimal(number) * 1000)
    whole = math.floor(number)
    return whole * 1000 + round((float(number) - whole) * 1000)


class Damage(IntEnum):
    """The repair that an event needed."""

    NOT_UTF8 = 1
    ESCAPES = 2
    """Quotes or backslashes in its strings were not escaped."""
    COMMAS = 3
    """Commas between its fields were missing or too many."""
    TIMELESS = 4
    """Its time is not a number: it is left out."""
    LOST = 5
    """It cannot be read: it is left out."""
    NUMBERS = 6
    """Some of its numbers were none of JSON's, such as inf."""


def read_event(text: str, position: int) -> tuple[Any, int]:
    """Parse the value at ``position`` and return it with its end; see `decode_leniently`. Raises ValueError."""
    event, end = decode_leniently(text, position)
    if isinstance(event, dict) and (_loses_digits(event.get("ts")) or _loses_digits(event.get("dur"))):
        exact, _ = _EXACT.raw_decode(text, position)
        event.update((key, exact[key]) for key in _TIME_FIELDS if key in exact)
    return event, end


def decode_leniently(text: str, position: int = 0) -> tuple[Any, int]:
    """Parse the JSON value at ``position`` and return it with its end.

    It may contain control characters and NaN. Integers of thousands of digits become None. Raises ValueError.
    """
    try:
        return _LENIENT.raw_decode(text, position)
    except json.JSONDecodeError:
        raise
    except ValueError:
        return _WITHOUT_LONG.raw_decode(text, position)


def _loses_digits(number: object) -> bool:
    return isinstance(number, float) and abs(number) >= _DOUBLES_LOSE_DIGITS_FROM_US


def find_error_position(error: ValueError, text: str) -> int:
    """Return the index in ``text`` at which `read_event` failed."""
    if isinstance(error, json.JSONDecodeError) and not error.msg.startswith("Unterminated string"):
        return error.pos
    return len(text)


def is_strict(text: bytes, event: Any) -> bool:
    """Return whether every parser takes the text of ``event``, as `read_event` read it."""
    try:
        text.decode()
        msgspec.json.decode(text, type=msgspec.Raw)
        json.dumps(event, ensure_ascii=False, default=str).encode()  # no string holds half of a character
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True


def repair_event(piece: str) -> tuple[Any, Damage]:
    """Parse a damaged event: escape its strings, if each line has one field, as Kineto writes it.

    If that is not enough, its commas are corrected. If that fails too, the result is `Damage.LOST`.
    """
    text = _repair_lines(piece)
    for damage, correct in ((Damage.ESCAPES, _correct_numbers), (Damage.NUMBERS, _repair_commas), (Damage.COMMAS, str)):
        try:
            return read_event(text, 0)[0], damage
        except (ValueError, RecursionError):
            text = correct(text)
    return None, Damage.LOST


def _correct_numbers(text: str) -> str:
    """Return the text with each number that JSON lacks (``.5``, ``0x1p3``, ``inf``) as the one it means, or null."""
    return _WORD_AS_VALUE.sub(lambda match: match[1] + _number_or_null(match[2]) if match[2] else match[0], text)


def _number_or_null(word: str) -> str:
    if word in _JSON_WORDS:
        return word
    for parse in (int, float, float.fromhex):
        try:
            number = parse(word)
        except (ValueError, OverflowError):
            continue
        return repr(number) if math.isfinite(number) else "null"
    return "null"


def _repair_commas(text: str) -> str:
    """Return the text with commas between members of lists and objects, and nowhere else."""
    tokens = [token for token in _TOKEN.findall(text) if token != ","]
    return "".join(
        token if before in "{[:" or token in "}]:" else "," + token
        for before, token in zip([":", *tokens], tokens, strict=False)
    )


def _repair_lines(text: str) -> str:
    lines = text.split("\n")
    return "\n".join(
        [_repair_line(line) if line.count('"') > _QUOTES_OF_A_FIELD or "\\" in line else line for line in lines]
    )


def _repair_line(line: str) -> str:
    match = _STRING_LINE.fullmatch(line)
    if match is None or _is_field(line):
        return line
    return match[1] + _ESCAPE_OR_BARE.sub(_escape, match[2]) + match[3]


def _is_field(line: str) -> bool:
    try:
        _LENIENT.decode("{" + line.strip(_BLANKS).removesuffix(",") + "}")
    except (ValueError, RecursionError):
        return False
    return True


def _escape(match: re.Match[str]) -> str:
    return match[0] if len(match[0]) > 1 else "\\" + match[0]


def read_fields(fields: str) -> dict[str, Any]:
    """Parse the members of an object whose braces are missing in ``fields``; empty if that fails."""
    for candidate in (fields, _repair_lines(fields)):
        try:
            return _LENIENT.decode("{" + candidate.strip().strip(",") + "}")
        except (ValueError, RecursionError):
            continue
    return {}


def escape_surrogates(value: Any) -> Any:
    """Return a JSON value in which each lone surrogate, half of a character that UTF-8 cannot hold, is text."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode(errors="backslashreplace").decode()
    if isinstance(value, list):
        return [escape_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {escape_surrogates(key): escape_surrogates(item) for key, item in value.items()}
    return value


def is_well_formed(event: dict[str, Any]) -> bool:
    """Return whether the fields of an event, with times as in the file, have the types that the format demands."""
    return (
        _is_phase(event.get("ph"))
        and all(type(event[name]) is str for name in _TEXT_FIELDS if name in event)
        and all(_is_id(event[name]) for name in _ID_FIELDS if name in event)
        and all(type(event[name]) in (int, float, Decimal) for name in _TIME_FIELDS if name in event)
        and isinstance(event.get("args", {}), dict)
        and len(event.keys() - _KNOWN_FIELDS) <= MAX_FIELDS
    )


def _is_phase(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 1 and " " <= value < "\x7f" and value not in '"\\'


def _is_id(value: Any) -> TypeGuard[int | str]:
    return type(value) is str or (type(value) is int and abs(value) < _MAX_INTEGER)


def normalize_event(event: dict[str, Any], counts: Counter[str]) -> bytes | None:
    """Return the event as strict JSON for scanners; None if impossible, with the reason counted.

    Its times are nanoseconds, as from `event_to_nanoseconds`.
    """
    if not _is_phase(event.get("ph")):
        counts["no_event"] += 1
        return None
    fields = _column_fields(event)
    others = [(key, value) for key, value in event.items() if key not in _KNOWN_FIELDS]
    fields |= dict(others[: MAX_FIELDS - 1])
    if len(others) >= MAX_FIELDS:
        fields["other_fields"] = dict(others[MAX_FIELDS - 1 :])
    try:
        return _encode(fields, counts)
    except RecursionError:
        counts["lost"] += 1
        return None


def _encode(fields: dict[str, Any], counts: Counter[str]) -> bytes:
    try:
        text = msgspec.json.encode(fields)
    except (UnicodeError, OverflowError):
        text = b"null"
    # msgspec silently writes NaN as null: check every null.
    return msgspec.json.encode(_plain(fields, counts)) if b"null" in text else text


def _column_fields(event: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that have columns, with the types that scanners take."""
    fields: dict[str, Any] = {"ph": event["ph"]}
    for name in _TEXT_FIELDS:
        if event.get(name) is not None:
            fields[name] = _as_text(event[name])
    for name in _ID_FIELDS:
        if event.get(name) is not None:
            fields[name] = _as_id(event[name])
    for name in _TIME_FIELDS:
        if name in event:
            fields[name] = _microseconds(event[name])
    if event.get("args") is not None:
        fields["args"] = event["args"] if isinstance(event["args"], dict) else {"args": event["args"]}
    return fields


def _as_text(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ",".join(value)  # as the format has several categories
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _as_id(value: Any) -> int | str:
    if (
        isinstance(value, float | Decimal)
        and math.isfinite(value)
        and value == int(value)
        and abs(value) < _MAX_INTEGER
    ):
        return int(value)
    return value if _is_id(value) else json.dumps(value, default=str)


def _microseconds(time_ns: int) -> msgspec.Raw:
    whole, rest = divmod(abs(time_ns), 1000)
    return msgspec.Raw(f"{'-' * (time_ns < 0)}{whole}.{rest:03}".encode())


def _plain(value: Any, counts: Counter[str]) -> Any:
    """Return the value without parts that strict JSON or UTF-8 cannot hold."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_plain(key, counts): _plain(item, counts) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, counts) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        counts["not_finite"] += 1
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return msgspec.Raw(str(value).encode())
    return value
