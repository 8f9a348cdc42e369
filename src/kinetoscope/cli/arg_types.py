"""Types of numeric arguments, with range checks."""

from argparse import ArgumentTypeError

_MAX_INT = 2**31 - 1
_MAX_PORT = 65535
_MAX_SECONDS = 1_000_000_000
_MAX_MINUTES = 10_000_000
_MAX_NUMBERS = 1_000_000


def parse_whole_number(text: str) -> int:
    """Return an integer from 0, such as a rank or a restart attempt."""
    if not _is_whole_number(text):
        raise ArgumentTypeError(f"cannot read {_quote(text)}; write a whole number from 0 to {_MAX_INT:,}")
    return int(text)


def parse_positive_int(text: str) -> int:
    """Return an integer from 1."""
    if not _is_whole_number(text) or not int(text):
        raise ArgumentTypeError(f"cannot read {_quote(text)}; write a whole number from 1 to {_MAX_INT:,}")
    return int(text)


def parse_port(text: str) -> int:
    """Return a port number; 0 stands for a free port."""
    if not _is_whole_number(text, _MAX_PORT):
        raise ArgumentTypeError(f"cannot read the port {_quote(text)}; write a number up to {_MAX_PORT}")
    return int(text)


def parse_seconds(text: str) -> float:
    """Return a duration in seconds, 0 or more."""
    number = _parse_float(text)
    if number is None or not 0 <= number <= _MAX_SECONDS:
        raise ArgumentTypeError(f"cannot read the seconds {_quote(text)}; write a number from 0 on, as in 30 or 0.5")
    return number


def parse_positive_seconds(text: str) -> float:
    """Return a duration in seconds, above 0."""
    return _parse_positive(text, "seconds", _MAX_SECONDS)


def parse_positive_minutes(text: str) -> float:
    """Return a duration in minutes, above 0."""
    return _parse_positive(text, "minutes", _MAX_MINUTES)


def _parse_positive(text: str, unit: str, maximum: int) -> float:
    number = _parse_float(text)
    if number is None or not 0 < number <= maximum:
        raise ArgumentTypeError(f"cannot read the {unit} {_quote(text)}; write a number above 0, up to {maximum:,}")
    return number


def parse_numbers(text: str) -> list[int]:
    """Return the numbers of a list or range such as ``3``, ``0,2`` or ``10-14``."""
    found: list[int] = []
    for part in text.split(","):
        ends = part.split("-", 1)
        if not all(map(_is_whole_number, ends)) or int(ends[-1]) - int(ends[0]) + len(found) > _MAX_NUMBERS:
            raise ArgumentTypeError(f"cannot read the numbers {_quote(text)}; write them as in 3, 0,2 or 10-14")
        found += range(int(ends[0]), int(ends[-1]) + 1)
    if not found:
        raise ArgumentTypeError(f"empty range {_quote(text)}; write the smaller number first, as in 10-14")
    return found


def parse_ranks(text: str) -> frozenset[int]:
    """Return the ranks of a list such as ``0,4-7``."""
    try:
        return frozenset(parse_numbers(text))
    except ArgumentTypeError:
        raise ArgumentTypeError(f"cannot read the ranks {_quote(text)}; write them as in 0,4-7") from None


def _is_whole_number(text: str, largest: int = _MAX_INT) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= len(str(largest)) and int(text) <= largest


def _parse_float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _quote(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:40]}...")
