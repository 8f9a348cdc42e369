"""formats: the microseconds of Chrome JSON. Numbers as they stand in a file flow in; nanoseconds flow out."""

import math
from decimal import Decimal
from typing import Any

FURTHEST_NS = 2**62
"""A sum of two times within it fits into 64 bits."""

_DOUBLES_LOSE_DIGITS_FROM_US = 2**43  # from here on they do not tell nanoseconds apart
MOST_NS = 4 * 10**18
"""126 years: whatever is added to it fits 64 bits. No event is further away from what its time counts from."""


def event_to_nanoseconds(event: dict[str, Any], base_ns: int) -> bool:
    """Turns ``ts`` and ``dur`` of one event, as it is written, into nanoseconds; False if they are no numbers."""
    try:
        if "ts" in event:
            event["ts"] = base_ns + nanoseconds(event["ts"])
        if "dur" in event:
            event["dur"] = nanoseconds(event["dur"])
    except (TypeError, ValueError, OverflowError, ArithmeticError):
        return False
    return True


def nanoseconds(microseconds: Any) -> int:
    """Microseconds as nanoseconds, exactly, or to the next even one; a string may stand for a number.

    Raises TypeError, ValueError or ArithmeticError for what is no finite number, or more than 126 years.
    """
    if isinstance(microseconds, bool) or not isinstance(microseconds, (int, float, Decimal, str)):
        raise TypeError("A time is a number.")
    number = Decimal(microseconds) if isinstance(microseconds, str) else microseconds
    if not abs(number) * 1000 <= MOST_NS:  # also what is no number
        raise OverflowError("No event is that far away.")
    if isinstance(number, int):
        return number * 1000
    if abs(number) >= _DOUBLES_LOSE_DIGITS_FROM_US:
        return round(Decimal(number) * 1000)
    whole = math.floor(number)
    return whole * 1000 + round((float(number) - whole) * 1000)
