"""formats: events that no strict parser takes. Text that may be damaged flows in; what it means flows out.

Numbers stay as they were written: this file knows nothing of units.
"""

import json
import re
from decimal import Decimal
from typing import Any

_LENIENT = json.JSONDecoder(strict=False)
_EXACT = json.JSONDecoder(strict=False, parse_float=Decimal)
_TIMES = ("ts", "dur")
_DOUBLES_LOSE_DIGITS_FROM = 2**43

_QUOTES_OF_A_FIELD = 4
_STRING_LINE = re.compile(r'(\s*"[^"\n]*"\s*:\s*")(.*)("\s*(?:,\s*)?)')
_ESCAPE_OR_BARE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|["\\]')


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


def mend(piece: str) -> list[Any]:
    """The event in ``piece`` once its strings are escaped, where a line holds one field, as Kineto writes it.

    An empty list if it is still none.
    """
    try:
        return [read_event("\n".join(map(_mend_line, piece.splitlines())), 0)[0]]
    except (ValueError, RecursionError):
        return []


def _mend_line(line: str) -> str:
    if line.count('"') <= _QUOTES_OF_A_FIELD and "\\" not in line:
        return line
    match = _STRING_LINE.fullmatch(line)
    if match is None or _is_field(line):
        return line
    return match[1] + _ESCAPE_OR_BARE.sub(_escape, match[2]) + match[3]


def _is_field(line: str) -> bool:
    try:
        _LENIENT.decode("{" + line.strip().removesuffix(",") + "}")
    except ValueError:
        return False
    return True


def _escape(match: re.Match[str]) -> str:
    return match[0] if len(match[0]) > 1 else "\\" + match[0]


def read_fields(fields: str) -> dict[str, Any]:
    """The members of an object, without its braces, as far as they can be read: all of them or none."""
    for candidate in (fields, "\n".join(map(_mend_line, fields.splitlines()))):
        try:
            return _LENIENT.decode("{" + candidate.strip().strip(",") + "}")
        except (ValueError, RecursionError):
            continue
    return {}
