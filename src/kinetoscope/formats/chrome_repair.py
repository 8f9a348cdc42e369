"""formats: damaged Chrome JSON. Bytes that no strict parser takes flow in; every complete event flows out.

Numbers stay as they were written: this file knows nothing of units.
"""

import json
import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

_LENIENT = json.JSONDecoder(strict=False)
_EXACT = json.JSONDecoder(strict=False, parse_float=Decimal)
_TIMES = ("ts", "dur")
_DOUBLES_LOSE_DIGITS_FROM = 2**43

_EVENTS = re.compile(r'"traceEvents"\s*:\s*\[')
_SEPARATORS = re.compile(r"[\s,]*")
_NEXT_EVENT = re.compile(r'\{\s*"(?:ph|name|cat|pid|tid|ts|args)"\s*:')
_STRING_LINE = re.compile(r'(\s*"[^"\n]*"\s*:\s*")(.*)("\s*(?:,\s*)?)')
_ESCAPE_OR_BARE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|["\\]')


@dataclass(slots=True)
class Salvage:
    """What could be saved of a damaged file: its fields beside the events, its events, and what was done."""

    header: dict[str, Any] = field(default_factory=dict)
    events: list[Any] = field(default_factory=list)
    repairs: list[str] = field(default_factory=list)


def salvage(content: bytes) -> Salvage | None:
    """Every complete event of a damaged trace; None if there is nothing in it that looks like a list of events.

    Copes with an end that is missing, stray commas, control characters, bare NaN and Infinity, invalid UTF-8,
    and, where a line holds one field as Kineto writes it, with quotes and backslashes that nobody escaped.
    """
    text = content.decode(errors="replace")
    if (start := _start_of_events(text)) is None:
        return None
    result = Salvage(repairs=["The JSON is not valid as it stands; each event was read by itself."])
    if "\N{REPLACEMENT CHARACTER}" in text:
        result.repairs.append("Bytes that are not UTF-8 were replaced.")
    end = _collect_events(text, start, result)
    result.header = _read_header(text, start, end)
    return result


def _start_of_events(text: str) -> int | None:
    if text.lstrip().startswith("["):
        return text.index("[") + 1
    match = _EVENTS.search(text)
    return match.end() if match else None


def _collect_events(text: str, start: int, result: Salvage) -> int:
    """Adds the events from ``start`` on to ``result``; returns where their list ends."""
    num_mended = num_lost = 0
    position = _skip(text, start)
    while position < len(text) and text[position] != "]":
        following = None
        try:
            event, following = read_event(text, position)
            result.events.append(event)
        except (ValueError, RecursionError):
            following = next_event(text, position + 1)
            mended = mend(text[position:following])
            result.events += mended
            num_mended += len(mended)
            num_lost += not mended
        position = _skip(text, following)
    if position >= len(text):
        result.repairs.append("The file ends too early: the closing bracket of its events is missing.")
    _report(result, num_mended, num_lost)
    return position


def _report(result: Salvage, num_mended: int, num_lost: int) -> None:
    if num_mended:
        result.repairs.append(f"Quotes or backslashes were escaped in {num_mended} events.")
    if num_lost:
        result.repairs.append(f"{num_lost} pieces that are no complete event were left out.")


def _skip(text: str, position: int) -> int:
    match = _SEPARATORS.match(text, position)
    return match.end() if match else position


def next_event(text: str, position: int) -> int:
    """Where the next event seems to begin, from ``position`` on; the end of the text if there is none."""
    match = _NEXT_EVENT.search(text, position)
    return match.start() if match else len(text)


def read_event(text: str, position: int) -> tuple[Any, int]:
    """The value at ``position``, and where it ends; control characters and NaN may be in it. Raises ValueError."""
    event, end = _LENIENT.raw_decode(text, position)
    if isinstance(event, dict) and any(_loses_digits(event.get(key)) for key in _TIMES):
        exact, _ = _EXACT.raw_decode(text, position)
        event.update((key, exact[key]) for key in _TIMES if key in exact)
    return event, end


def _loses_digits(number: object) -> bool:
    return isinstance(number, float) and abs(number) >= _DOUBLES_LOSE_DIGITS_FROM


def mend(piece: str) -> list[Any]:
    """The event in ``piece`` once its strings are escaped; an empty list if it is still none."""
    try:
        return [read_event("\n".join(map(_mend_line, piece.splitlines())), 0)[0]]
    except (ValueError, RecursionError):
        return []


def _mend_line(line: str) -> str:
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


def _read_header(text: str, start: int, end: int) -> dict[str, Any]:
    """The fields before and after the events; those that cannot be read are left out."""
    if text.lstrip().startswith("["):
        return {}
    before = text[: text.rindex('"traceEvents"', 0, start)].lstrip()[1:]
    after = text[end + 1 :].rstrip().removesuffix("}")
    return read_fields(before) | read_fields(after)


def read_fields(fields: str) -> dict[str, Any]:
    """The members of an object, without its braces, as far as they can be read: all of them or none."""
    for candidate in (fields, "\n".join(map(_mend_line, fields.splitlines()))):
        try:
            return _LENIENT.decode("{" + candidate.strip().strip(",") + "}")
        except ValueError:
            continue
    return {}
