"""formats: events that no strict parser takes. Text that may be damaged flows in; what it means flows out.

Numbers stay as they were written: this file knows nothing of units.
"""

import json
import re
from decimal import Decimal
from enum import IntEnum
from typing import Any

import msgspec

_LENIENT = json.JSONDecoder(strict=False)
_EXACT = json.JSONDecoder(strict=False, parse_float=Decimal)
_TIMES = ("ts", "dur")
_DOUBLES_LOSE_DIGITS_FROM = 2**43

_QUOTES_OF_A_FIELD = 4
_BLANKS = " \t\r"
_STRING_LINE = re.compile(r'([ \t\r]*"[^"\n]*"[ \t\r]*:[ \t\r]*")(.*)("[ \t\r]*(?:,[ \t\r]*)?)')
_ESCAPE_OR_BARE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|["\\]')
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,"]|[^ \t\n\r",:{}\[\]]+', re.DOTALL)


class Damage(IntEnum):
    """What had to be done to an event so that it could be read."""

    NOT_UTF8 = 1
    ESCAPES = 2
    """Quotes or backslashes in its strings were not escaped."""
    COMMAS = 3
    """Commas between its fields were missing or too many."""
    TIMELESS = 4
    """Its time is not a number: it is left out."""
    LOST = 5
    """It cannot be read: it is left out."""


def read_event(text: str, position: int) -> tuple[Any, int]:
    """The value at ``position``, and where it ends; control characters and NaN may be in it. Raises ValueError."""
    event, end = _LENIENT.raw_decode(text, position)
    if isinstance(event, dict) and (_loses_digits(event.get("ts")) or _loses_digits(event.get("dur"))):
        exact, _ = _EXACT.raw_decode(text, position)
        event.update((key, exact[key]) for key in _TIMES if key in exact)
    return event, end


def _loses_digits(number: object) -> bool:
    return isinstance(number, float) and abs(number) >= _DOUBLES_LOSE_DIGITS_FROM


def reach_of(error: ValueError, text: str) -> int:
    """How far into ``text`` `read_event` came before it failed."""
    if isinstance(error, json.JSONDecodeError) and not error.msg.startswith("Unterminated string"):
        return error.pos
    return len(text)


def is_strict(text: bytes, event: Any) -> bool:
    """Whether every parser takes the text, which `read_event` read as ``event``."""
    try:
        text.decode()
        msgspec.json.decode(text, type=msgspec.Raw)
        json.dumps(event, ensure_ascii=False, default=str).encode()  # no string holds half of a character
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True


def mend(piece: str) -> tuple[Any, Damage]:
    """The event in ``piece`` once its strings are escaped, where a line holds one field, as Kineto writes it.

    If that is not enough, its commas are put where they belong. It may still be `Damage.LOST`.
    """
    text = "\n".join(map(_mend_line, piece.split("\n")))
    for damage in (Damage.ESCAPES, Damage.COMMAS):
        try:
            return read_event(text, 0)[0], damage
        except (ValueError, RecursionError):
            text = _mend_commas(text)
    return None, Damage.LOST


def _mend_commas(text: str) -> str:
    """The text with commas between the members of lists and objects, and nowhere else."""
    tokens = [token for token in _TOKEN.findall(text) if token != ","]
    return "".join(
        token if before in "{[:" or token in "}]:" else "," + token
        for before, token in zip([":", *tokens], tokens, strict=False)
    )


def _mend_line(line: str) -> str:
    if line.count('"') <= _QUOTES_OF_A_FIELD and "\\" not in line:
        return line
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
    """The members of an object, without its braces, as far as they can be read: all of them or none."""
    for candidate in (fields, "\n".join(map(_mend_line, fields.split("\n")))):
        try:
            return _LENIENT.decode("{" + candidate.strip().strip(",") + "}")
        except (ValueError, RecursionError):
            continue
    return {}
