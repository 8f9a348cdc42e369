"""Repeated blocks of a model: modules whose names differ in numbers only."""

import re
from collections.abc import Iterable, Sequence

_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")
_MIN_RANGE, _MAX_PIECES = 3, 4


def find_pattern(name: str) -> str:
    """Return a name with ``#`` for each number, which repeated blocks share."""
    return _NUMBER.sub("#", name)


def format_range(names: Sequence[str]) -> str:
    """Return names of one pattern as one: ``layers.0-31.mlp``, ``layers.0-6,8-31.mlp``."""
    numbers = list(zip(*(map(int, _NUMBER.findall(name)) for name in names), strict=True))
    pieces = iter([_format_numbers(sorted(set(each))) for each in numbers])
    return _NUMBER.sub(lambda _: next(pieces), names[0])


def _format_numbers(numbers: Sequence[int]) -> str:
    pieces = [piece for run in _find_runs(numbers) for piece in _format_run(run)]
    return ",".join(pieces[:_MAX_PIECES]) + ",..." * (len(pieces) > _MAX_PIECES)


def _format_run(run: Sequence[int]) -> Iterable[str]:
    return [f"{run[0]}-{run[-1]}"] if len(run) >= _MIN_RANGE else map(str, run)


def _find_runs(numbers: Sequence[int]) -> list[list[int]]:
    """Return numbers in order as runs that follow each other."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs
