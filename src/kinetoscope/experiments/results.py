"""Comparison of the parameters that two starts of a program have after their last step."""

import math
from collections.abc import Sequence

from kinetoscope.autoinstrument.trial_files import ParameterSummary, RankResult
from kinetoscope.formats.experiments import Results

TOLERANCE = 0.01
"""Largest difference within tolerance, as a share of the distance that the parameters moved in the compared steps."""


def compare_results(
    first: Sequence[RankResult], second: Sequence[RankResult], variant: Sequence[RankResult] | None
) -> tuple[Results | None, str]:
    """Compare a variant with two unmodified starts, shard by shard; return the reason, too.

    None if something was not measured.
    """
    same = _compute_largest_difference(first, second)
    if variant is None or same is None:
        return None, "not compared"
    if same > 0:
        return "not_reproducible", "two unmodified starts differ"
    difference = _compute_largest_difference(first, variant)
    if difference is None:
        return None, "not compared"
    if difference == 0:
        return "equal", "parameters are bitwise equal"
    percent = f"{100 * difference:.2g} % of the distance that parameters moved"
    if difference <= TOLERANCE:
        return "within_tolerance", f"parameters differ by {percent}"
    return "different", f"parameters differ by {percent}; random augmentation in workers counts too"


def _compute_largest_difference(one: Sequence[RankResult], other: Sequence[RankResult]) -> float | None:
    pairs = list(zip(one, other, strict=False))
    if not pairs or len(one) != len(other):
        return None
    differences = [_compute_difference(first.parameters, second.parameters) for first, second in pairs]
    known = [difference for difference in differences if difference is not None]
    return max(known) if len(known) == len(differences) else None


def _compute_difference(one: ParameterSummary | None, other: ParameterSummary | None) -> float | None:
    """Return the norm of the difference over the norm of the movement; 0 only for equal bytes."""
    if one is None or other is None:
        return None
    if one.digest == other.digest:
        return 0.0
    if [len(values) for values in one.last] != [len(values) for values in other.last]:
        return math.inf
    distance = _compute_distance(one.last, other.last)
    moved = _compute_distance(one.first, one.last)
    smallest = math.ulp(0.0)
    return max(distance / moved, smallest) if 0 < moved < math.inf else math.inf


def _compute_distance(one: Sequence[Sequence[float | None]], other: Sequence[Sequence[float | None]]) -> float:
    """Return the Euclidean distance; infinity if a value is not finite."""
    pairs = zip((value for row in one for value in row), (value for row in other for value in row), strict=True)
    total = 0.0
    for first, second in pairs:
        if first is None or second is None:
            return math.inf
        total += (first - second) ** 2
    return math.sqrt(total)
