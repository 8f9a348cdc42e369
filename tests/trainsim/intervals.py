"""Intervals of time, as pairs of begin and end: joined, taken away from one another, and measured."""

import itertools
from collections.abc import Iterable, Sequence

Interval = tuple[int, int]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the same time as intervals that neither touch nor overlap, in order."""
    joined: list[Interval] = []
    for begin_ns, end_ns in sorted(intervals):
        if joined and begin_ns <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end_ns))
        elif end_ns > begin_ns:
            joined.append((begin_ns, end_ns))
    return joined


def length_ns(intervals: Iterable[Interval]) -> int:
    """Return the total length of intervals; shared time counts once."""
    return sum(end_ns - begin_ns for begin_ns, end_ns in union(intervals))


def less_ns(intervals: Iterable[Interval], others: Iterable[Interval]) -> int:
    """Return the length of the intervals outside of the others."""
    intervals, others = list(intervals), list(others)
    return length_ns([*intervals, *others]) - length_ns(others)


def clip(intervals: Iterable[Interval], begin_ns: int, end_ns: int) -> list[Interval]:
    """Return the part of the intervals between two times."""
    clipped = ((max(begin, begin_ns), min(end, end_ns)) for begin, end in intervals)
    return [(begin, end) for begin, end in clipped if end > begin]


def gaps(joined: Sequence[Interval]) -> list[Interval]:
    """Return the gaps between the intervals of a union."""
    return [(before[1], after[0]) for before, after in itertools.pairwise(joined)]
