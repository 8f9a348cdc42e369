"""Periods of faults: the n of a fault that recurs in every n-th step."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median

from kinetoscope.analysis.windows.window import MIN_STEPS

_MAIN_SHARE = 0.7
"""The longest steps with this share of a fault's time show how long an occurrence takes. Judgement."""

_MIN_SHARE_OF_MAIN = 0.5
"""A step with a smaller share of the shortest of those is no occurrence. Judgement."""

_MIN_OCCURRENCES = 3
"""A period requires so many occurrences: two have only one distance."""

_MIN_REGULAR_SHARE = 0.7
"""Share of the distances, and of the expected occurrences, that must fit a period. Judgement."""


def find_period(times: Mapping[int, float], num_steps: int) -> int | None:
    """Return n if a fault recurs in every n-th step, 1 if in nearly every one, else None.

    A fault occurs in the steps with at least half the time of the shortest of the few steps that together have most of
    its time. Nearly all distances between these are multiples of the usual one, and there are as many of them as a
    recording of this length would have.

    Args:
        times: time of the fault by step.
        num_steps: number of recorded steps; None is returned for fewer than `MIN_STEPS`.
    """
    if not sum(times.values()):
        return None
    min_time = _MIN_SHARE_OF_MAIN * _shortest_main_time(times)
    return find_period_of_steps(sorted(step for step, time in times.items() if time >= min_time), num_steps)


def find_period_of_steps(steps: Sequence[int], num_steps: int) -> int | None:
    """Return n if a fault in these ordered ``steps`` of ``num_steps`` recurs in every n-th step, else None."""
    if num_steps < MIN_STEPS or len(steps) < _MIN_OCCURRENCES:
        return None
    distances = [other - one for one, other in pairwise(steps)]
    usual = max(1, round(median(distances)))
    is_regular = sum(distance % usual == 0 for distance in distances) >= _MIN_REGULAR_SHARE * len(distances)
    return usual if is_regular and len(steps) >= _MIN_REGULAR_SHARE * (num_steps // usual) else None


def format_ordinal(number: int) -> str:
    """Return a number as in ``every 3rd step``."""
    unfinished_notice = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{unfinished_notice}"


def format_period(period: int | None) -> str:
    """Return ``every n-th step``; "" for every step, and where the period is unknown."""
    return "" if period is None or period == 1 else f"every {format_ordinal(period)} step"


def format_frequency(num_times: int, num_steps: int, period: int | None) -> str:
    """Return the steps in which a fault occurs, as ``every 3rd step`` or ``7 of 10 steps``."""
    if num_times == num_steps:
        return "every step"
    return format_period(period) or f"{num_times:,} of {num_steps:,} steps"


def _shortest_main_time(times: Mapping[int, float]) -> float:
    """Return the shortest of the longest times that together have `_MAIN_SHARE` of all."""
    rest = _MAIN_SHARE * sum(times.values())
    for time in sorted(times.values(), reverse=True):
        rest -= time
        if rest <= 0:
            return time
    return 0.0
