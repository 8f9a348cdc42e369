"""Numbers of which some are not known: what nobody measured is not 0."""

from collections.abc import Iterable
from typing import TypeVar

_Number = TypeVar("_Number", int, float)


def sum_or_none(values: Iterable[_Number | None]) -> _Number | None:
    """The sum of what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return sum(known[1:], known[0]) if known else None
