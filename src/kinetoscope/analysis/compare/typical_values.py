"""Typical values of series of steps, with their standard errors."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from statistics import fmean, stdev

_TRIMMED_SHARE = 0.2
"""Share of the steps that is left out at each end: a busy machine makes some steps much longer than others."""

_MIN_COMMON_SHARE = 0.8
"""Values that are not zero in fewer of the steps have no typical value other than zero, so their mean counts."""

_NUM_BLOCKS = 8
_MAX_DEGREES_OF_FREEDOM = 200


@dataclass(frozen=True)
class Estimate:
    """A typical ``value``, its standard ``error``, and the degrees of freedom of the error."""

    value: float
    error: float
    degrees_of_freedom: int


def estimate(values: Sequence[float], *, is_mean: bool = False) -> Estimate:
    """Estimate the typical value of at least two steps, by their trimmed mean.

    Values that are zero in many steps, and those with ``is_mean``, are not trimmed. Consecutive steps are correlated,
    so the error comes from the means of eight blocks of steps. Where values are trimmed, the blocks are of winsorized
    values (Tukey and McLaughlin, 1963).
    """
    is_rare = sum(value > 0 for value in values) < _MIN_COMMON_SHARE * len(values)
    num_trimmed = 0 if is_mean or is_rare else int(_TRIMMED_SHARE * len(values))
    ordered = sorted(values)
    kept = ordered[num_trimmed : len(values) - num_trimmed]
    winsorized = [min(max(value, kept[0]), kept[-1]) for value in values]
    blocks = _block_means(winsorized)
    error = stdev(blocks) / math.sqrt(len(blocks)) * len(values) / len(kept)
    return Estimate(fmean(kept), error, len(blocks) - 1)


def _block_means(values: Sequence[float]) -> list[float]:
    num_blocks = min(_NUM_BLOCKS, len(values))
    edges = [len(values) * index // num_blocks for index in range(num_blocks + 1)]
    return [fmean(values[begin:end]) for begin, end in pairwise(edges)]


def joint_degrees_of_freedom(*variances: tuple[float, float]) -> int:
    """Return the degrees of freedom of a sum of variances, rounded down (Welch and Satterthwaite).

    Args:
        variances: pairs of a variance and its degrees of freedom.
    """
    whole = sum(variance for variance, _ in variances)
    parts = sum(variance**2 / degrees_of_freedom for variance, degrees_of_freedom in variances)
    return max(1, min(_MAX_DEGREES_OF_FREEDOM, int(whole**2 / parts))) if parts else _MAX_DEGREES_OF_FREEDOM


@cache
def student_quantile(tail: float, degrees_of_freedom: int) -> float:
    """Return the quantile that Student's t exceeds with probability ``tail``.

    Found by bisection: for whole degrees of freedom the probability is a finite sum (Abramowitz and Stegun, 26.7.3 and
    26.7.4).
    """
    low, high = 0.0, math.pi / 2
    for _ in range(50):
        angle = (low + high) / 2
        if _probability_within(angle, degrees_of_freedom) < 1 - 2 * tail:
            low = angle
        else:
            high = angle
    return math.tan(low) * math.sqrt(degrees_of_freedom)


def _probability_within(angle: float, degrees_of_freedom: int) -> float:
    """Return the probability that t is within plus and minus ``tan(angle) * sqrt(degrees_of_freedom)``."""
    parity = degrees_of_freedom % 2
    term, total = math.cos(angle) ** parity, 0.0
    for power in range(parity, degrees_of_freedom - 1, 2):
        if power > 1:
            term *= (power - 1) / power * math.cos(angle) ** 2
        total += term
    inner = math.sin(angle) * total
    return 2 / math.pi * (angle + inner) if parity else inner
