"""formats: odd events made ordinary. Events of any kind flow in; strict JSON that every scanner takes flows out.

Values of odd types, numbers too large, fields without number: what has a meaning gets it, what has none is left out and
counted.
"""

import json
import math
from collections import Counter
from decimal import Decimal
from typing import Any, TypeGuard

import msgspec

from kinetoscope.formats.chrome_columns import MOST_DIGITS, MOST_FIELDS

_LARGEST = 10**MOST_DIGITS
_TEXT_FIELDS = ("name", "cat")
_PLACE_FIELDS = ("pid", "tid", "id")
_TIME_FIELDS = ("ts", "dur")
_KNOWN_FIELDS = frozenset({"ph", "args", *_TEXT_FIELDS, *_PLACE_FIELDS, *_TIME_FIELDS})


def is_ordinary(event: dict[str, Any]) -> bool:
    """Whether the fields of an event, its times as they stand in the file, are of the types that the format says."""
    return (
        _is_phase(event.get("ph"))
        and all(type(event[name]) is str for name in _TEXT_FIELDS if name in event)
        and all(_is_place(event[name]) for name in _PLACE_FIELDS if name in event)
        and all(type(event[name]) in (int, float, Decimal) for name in _TIME_FIELDS if name in event)
        and isinstance(event.get("args", {}), dict)
        and len(event.keys() - _KNOWN_FIELDS) <= MOST_FIELDS
    )


def _is_phase(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 1 and " " <= value < "\x7f" and value not in '"\\'


def _is_place(value: Any) -> TypeGuard[int | str]:
    return type(value) is str or (type(value) is int and abs(value) < _LARGEST)


def ordinary_event(event: dict[str, Any], counts: Counter[str]) -> bytes | None:
    """The event as strict JSON that scanners take; None, and a count of the reason, if it cannot be one.

    Its times are nanoseconds, as `chrome_times.event_to_nanoseconds` leaves them.
    """
    if not _is_phase(event.get("ph")):
        counts["no_event"] += 1
        return None
    fields = _own_fields(event)
    others = [(key, value) for key, value in event.items() if key not in _KNOWN_FIELDS]
    fields |= dict(others[: MOST_FIELDS - 1])
    if len(others) >= MOST_FIELDS:
        fields["other_fields"] = dict(others[MOST_FIELDS - 1 :])
    try:
        return msgspec.json.encode(_plain(fields, counts))
    except RecursionError:
        counts["lost"] += 1
        return None


def _own_fields(event: dict[str, Any]) -> dict[str, Any]:
    """The fields that have columns, each of the type that scanners take."""
    fields: dict[str, Any] = {"ph": event["ph"]}
    for name in _TEXT_FIELDS:
        if event.get(name) is not None:
            fields[name] = _as_text(event[name])
    for name in _PLACE_FIELDS:
        if event.get(name) is not None:
            fields[name] = _as_place(event[name])
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


def _as_place(value: Any) -> int | str:
    if isinstance(value, float | Decimal) and math.isfinite(value) and value == int(value) and abs(value) < _LARGEST:
        return int(value)
    return value if _is_place(value) else json.dumps(value, default=str)


def _microseconds(time_ns: int) -> msgspec.Raw:
    whole, rest = divmod(abs(time_ns), 1000)
    return msgspec.Raw(f"{'-' * (time_ns < 0)}{whole}.{rest:03}".encode())


def _plain(value: Any, counts: Counter[str]) -> Any:
    """The value without what strict JSON or UTF-8 does not have."""
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
