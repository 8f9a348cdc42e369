"""Sums of optional numbers: an unknown number is not 0."""

from collections.abc import Iterable
from typing import TypeVar

_Number = TypeVar("_Number", int, float)


def sum_or_none(values: Iterable[_Number | None]) -> _Number | None:
    """Return the sum of the known values; None if all are None."""
    known = [value for value in values if value is not None]
    return sum(known[1:], known[0]) if known else None
