"""Verdicts on variants, from the typical steps of interleaved starts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

from kinetoscope.analysis.compare.typical_values import student_quantile
from kinetoscope.formats.experiments import MIN_CHANGE, Verdict

NUM_BLOCKS = 6
"""Number of blocks of steps in a start; see `compute_typical_step_ns`."""

CONFIDENCE = 0.95
"""Confidence level of all intervals of an experiment together."""
MIN_SIGMA = 0.003
"""Smallest standard deviation assumed of a start's step time: few starts may agree by chance."""

_MAX_FREEDOM = 60


def compute_typical_step_ns(times_ns: Sequence[float]) -> float:
    """Return the median over blocks of the mean step of each block.

    Blocks contain what recurs within some steps, such as the batches of a slow worker; the median leaves out blocks in
    which another process took the cores.
    """
    num_blocks = max(1, min(NUM_BLOCKS, len(times_ns)))
    edges = [len(times_ns) * index // num_blocks for index in range(num_blocks + 1)]
    return median(fmean(times_ns[edges[index] : edges[index + 1]]) for index in range(num_blocks))


@dataclass(frozen=True)
class Rounds:
    """Typical steps in nanoseconds: of both unmodified starts of each round, and of a variant by the round's number."""

    unmodified: Sequence[tuple[float, float]]

    def differences(self, by_round: dict[int, float]) -> list[float]:
        """Return the logarithmic change of a variant in each of its rounds."""
        return [math.log(after / self._center(number)) for number, after in by_round.items()]

    def same_differences(self) -> list[float]:
        """Return the logarithmic difference of the two unmodified starts of each round."""
        return [math.log(second / first) for first, second in self.unmodified]

    def _center(self, number: int) -> float:
        first, second = self.unmodified[number]
        return math.sqrt(first * second)


@dataclass(frozen=True)
class Judged:
    """The relative change of a variant, its interval, a verdict and the reason of that."""

    change: float
    interval: tuple[float, float]
    verdict: Verdict
    reason: str

    @property
    def width(self) -> float:
        """The width of the interval, as a share of the unmodified step."""
        return self.interval[1] - self.interval[0]


def estimate_noise(rounds: Rounds) -> float | None:
    """Return the standard deviation of a start's logarithmic step time, by the pairs of unmodified starts."""
    differences = rounds.same_differences()
    return math.sqrt(fmean(one**2 for one in differences) / 2) if differences else None


def judge(rounds: Rounds, variants: Sequence[dict[int, float]], num_rows: int | None = None) -> list[Judged | None]:
    """Return the verdict on each variant, None for one without at least two rounds.

    The standard deviation of a start is pooled over the pairs of unmodified starts and over all variants, since a few
    rounds estimate it badly; a variant that varies more counts with its own. Intervals hold with 95 % confidence for
    ``num_rows`` rows together (Bonferroni).
    """
    differences = [rounds.differences(by_round) for by_round in variants]
    variance, freedom = _pool_variance(rounds, differences)
    tail = (1 - CONFIDENCE) / 2 / max(1, num_rows or len(variants))
    return [None if len(one) < 2 else _judge_one(one, variance, freedom, tail) for one in differences]


def _pool_variance(rounds: Rounds, differences: Sequence[Sequence[float]]) -> tuple[float, int]:
    """Return the variance of one start, and its degrees of freedom.

    The difference of two starts has twice that variance; a variant's difference from the mean of two has one and a half
    times. A round's unmodified starts are shared by its variants, so their residuals count once a round.
    """
    same = rounds.same_differences()
    total, freedom = sum(one**2 for one in same) / 2, len(same)
    several = [one for one in differences if len(one) >= 2]
    if several:
        total += sum((len(one) - 1) * stdev(one) ** 2 / 1.5 for one in several)
        freedom += sum(len(one) - 1 for one in several)
    return max(total / max(1, freedom), MIN_SIGMA**2), max(1, min(_MAX_FREEDOM, freedom))


def _judge_one(differences: Sequence[float], variance: float, freedom: int, tail: float) -> Judged:
    center = fmean(differences)
    own_variance = stdev(differences) ** 2
    half = student_quantile(tail, freedom) * math.sqrt(max(own_variance, 1.5 * variance) / len(differences))
    low, high = math.expm1(center - half), math.expm1(center + half)
    verdict, reason = _classify(low, high)
    return Judged(math.expm1(center), (low, high), verdict, reason)


def _classify(low: float, high: float) -> tuple[Verdict, str]:
    limit = f"{MIN_CHANGE:.0%}".replace("%", " %")
    if low >= -MIN_CHANGE and high <= MIN_CHANGE:
        return "same", f"the interval is within ±{limit}"
    if high < 0:
        return "faster", "the interval is below 0"
    if low > 0:
        return "slower", "the interval is above 0"
    return "unsure", f"the interval contains 0 and is wider than ±{limit}"
