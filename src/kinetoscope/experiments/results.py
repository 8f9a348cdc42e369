"""Comparison of the parameters that two starts of a program have after their last step."""

import math
from collections.abc import Sequence

from kinetoscope.autoinstrument.trial_files import ParameterSummary, RankResult
from kinetoscope.formats.experiments import Results

TOLERANCE = 0.01
"""Largest difference within tolerance, as a share of the distance that the parameters moved in the compared steps."""

_MIN_PERCENT = 0.0001
"""Smaller differences are shown as less than this."""

_UNSAMPLED = "parameters differ, but not in the sampled values (up to 1024 per tensor)"


def compare_results(
    first: Sequence[RankResult],
    second: Sequence[RankResult],
    variant: Sequence[RankResult] | None,
    *,
    may_augment: bool = False,
) -> tuple[Results | None, str]:
    """Compare a variant with two unmodified starts, shard by shard; return the reason, too.

    ``may_augment``: workers of a loader may make other random samples. None if something was not measured.
    """
    same, compared = _find_largest_difference(first, second), _find_largest_difference(first, variant or ())
    if same is None or variant is None:
        return None, "not compared"
    if same[0] > 0:
        return "not_reproducible", "two unmodified starts differ"
    if compared is None:
        return None, "not compared"
    difference, reason = compared
    if difference == 0:
        return "equal", reason
    if difference <= TOLERANCE:
        return "within_tolerance", reason
    return "different", f"{reason}, possibly from random augmentation in the workers" if may_augment else reason


def _find_largest_difference(one: Sequence[RankResult], other: Sequence[RankResult]) -> tuple[float, str] | None:
    pairs = list(zip(one, other, strict=False))
    if not pairs or len(one) != len(other):
        return None
    differences = [_compute_difference(first.parameters, second.parameters) for first, second in pairs]
    known = [difference for difference in differences if difference is not None]
    return max(known) if len(known) == len(differences) else None


def _compute_difference(one: ParameterSummary | None, other: ParameterSummary | None) -> tuple[float, str] | None:
    """Return the norm of the difference over the norm of the movement, and a sentence; 0 only for equal bytes."""
    if one is None or other is None:
        return None
    if one.digest == other.digest:
        return 0.0, "parameters are bitwise equal"
    if [len(values) for values in one.last] != [len(values) for values in other.last]:
        return math.inf, "parameters have other sizes"
    distance, moved = _compute_distance(one.last, other.last), _compute_distance(one.first, one.last)
    if not math.isfinite(distance + moved):
        return math.inf, "parameters differ, and some are not finite"
    ratio = max(distance / moved, math.ulp(0.0)) if moved else math.inf
    if not distance:
        return ratio, _UNSAMPLED
    if math.isinf(ratio):
        return ratio, "parameters differ, and no sampled value moved without the variant"
    return ratio, f"parameters differ by {_format_percent(ratio)} of the distance that they moved"


def _format_percent(share: float) -> str:
    percent = 100 * share
    if percent < _MIN_PERCENT:
        return f"less than {_MIN_PERCENT:g} %"
    return f"{percent:,.0f} %" if percent >= 10 else f"{percent:.2g} %"


def _compute_distance(one: Sequence[Sequence[float | None]], other: Sequence[Sequence[float | None]]) -> float:
    """Return the Euclidean distance; infinity if a value is not finite."""
    pairs = zip((value for row in one for value in row), (value for row in other for value in row), strict=True)
    total = 0.0
    for first, second in pairs:
        if first is None or second is None:
            return math.inf
        total += (first - second) ** 2
    return math.sqrt(total)
