"""formats: the microseconds of Chrome JSON. Numbers as they stand in a file flow in; nanoseconds flow out."""

import math
from decimal import Decimal
from typing import Any

DOUBLES_LOSE_DIGITS_FROM_US = 2**43
"""From here on a double of microseconds does not tell nanoseconds apart."""

FURTHEST_NS = 2**62
"""A sum of two times within it fits into 64 bits."""

_MOST_NS = 4 * 10**18  # 126 years: whatever is added to it fits 64 bits


def nanoseconds(microseconds: int | float | Decimal) -> int:
    """Microseconds as nanoseconds, exactly, or to the next even one.

    Raises ValueError for what is no finite number, and for more than 146 years.
    """
    if isinstance(microseconds, int):
        result = microseconds * 1000
    elif abs(microseconds) < DOUBLES_LOSE_DIGITS_FROM_US:
        number = float(microseconds)
        whole = math.floor(number)
        result = whole * 1000 + round((number - whole) * 1000)
    elif abs(microseconds) > FURTHEST_NS:  # also what is infinite
        raise ValueError("The time is out of range.")
    else:
        result = round(Decimal(microseconds) * 1000)
    if abs(result) > FURTHEST_NS:
        raise ValueError("The time is out of range.")
    return result


def event_to_nanoseconds(event: dict[str, Any], base_ns: int) -> bool:
    """Turns ``ts`` and ``dur`` of one event, as it is written, into nanoseconds; False if they are no numbers."""
    try:
        if "ts" in event:
            event["ts"] = base_ns + _nanoseconds(event["ts"])
        if "dur" in event:
            event["dur"] = _nanoseconds(event["dur"])
    except (TypeError, ValueError, OverflowError, ArithmeticError):
        return False
    return True


def _nanoseconds(microseconds: Any) -> int:
    """The same of anything that stands for a number; a string may."""
    if isinstance(microseconds, bool) or not isinstance(microseconds, (int, float, Decimal, str)):
        raise TypeError("A time is a number.")
    result = nanoseconds(Decimal(microseconds) if isinstance(microseconds, str) else microseconds)
    if abs(result) > _MOST_NS:
        raise OverflowError("No event is that far away.")
    return result
