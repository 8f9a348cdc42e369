"""formats: the microseconds of Chrome JSON. Numbers as they stand in a file flow in; nanoseconds flow out."""

import math
from decimal import Decimal

DOUBLES_LOSE_DIGITS_FROM_US = 2**43
"""From here on a double of microseconds does not tell nanoseconds apart."""

FURTHEST_NS = 2**62
"""A sum of two times within it fits into 64 bits."""


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
