"""Change of the step time between two runs, from their unrecorded steps, which the pulse has."""

import math
from collections.abc import Sequence
from statistics import fmean, median
from typing import NamedTuple

from kinetoscope.analysis.run_report import RunReport

MIN_STEPS = 12
"""With fewer steps of a run the verdict rests on its recorded steps."""

_MAX_BLOCKS, _MAX_MEAN_BLOCKS, _MIN_BLOCK_STEPS = 3, 8, 3
"""Maximum numbers of blocks of the shorter run, for fastest steps and for means; and the minimum of steps per block,
which is the same in both runs."""

_QUANTILE = 1.96
"""A standard normal value is within this with 95 % probability."""

NOISE = 0.08
"""Maximum difference of the fastest steps of two runs of one program, as a natural logarithm. They differed by up to 6
% with 20 busy processes on two cores; see docs/comparing.md."""

FASTEST_NOISE = 0.12
"""The same of the single fastest step of a run, which no rank test supports; see docs/comparing.md."""

MEAN_NOISE = math.log(3.5)
"""The same of means: with two busy processes, medians of two runs of one program differed by a factor of 3."""


class Shift(NamedTuple):
    """A difference of logarithms, with its 95 % confidence interval."""

    log: float
    low: float
    high: float

    def widened(self, by: float) -> "Shift":
        """Return the shift with an interval that is ``by`` wider on each side."""
        return Shift(self.log, self.low - by, self.high + by)


class StepChange(NamedTuple):
    """The typical step of two runs in nanoseconds, the change of its logarithm, and a verdict of the contract.

    ``after_ns / before_ns`` is the change, so that what people read agrees. ``means_ns`` are the means of all steps.
    ``block_steps`` is the number of steps of a block. Its fastest step counts. ``is_of_means`` is True where only
    the means of blocks differ and count: then the recorded steps must agree. ``has_recorded`` says of each run whether
    recorded steps are among its ``num_steps``.
    """

    before_ns: float
    after_ns: float
    means_ns: tuple[float, float]
    shift: Shift
    verdict: str
    block_steps: int
    is_of_means: bool
    num_steps: tuple[int, int]
    has_recorded: tuple[bool, bool] = (False, False)


def compare_steps(before: Sequence[float], after: Sequence[float], threshold: float) -> StepChange | None:
    """Compare the durations of the unrecorded steps of two runs; None with fewer than `MIN_STEPS` in one of them.

    Other processes make most steps longer, but leave some alone. So the fastest steps are compared (see `_fastest`). A
    change that these do not show, as where every second batch comes late, shows in the means of blocks if it is larger
    than the effect of a busy machine.
    """
    if min(len(before), len(after)) < MIN_STEPS:
        return None
    size = _block_steps(before, after, _MAX_BLOCKS)
    minima = [[min(block) for block in _blocks(times, size)] for times in (before, after)]
    fastest = _fastest(*minima)
    mean_size = _block_steps(before, after, _MAX_MEAN_BLOCKS)
    averages = [[fmean(block) for block in _blocks(times, mean_size)] for times in (before, after)]
    means = _shift(*averages)
    found = fastest
    verdict = _sign(fastest)
    if verdict is None and (verdict := _sign(means.widened(MEAN_NOISE))):
        found = means.widened(MEAN_NOISE)
    if verdict is None:
        limit = math.log1p(threshold)
        is_same = all(-limit <= shift.low and shift.high <= limit for shift in (fastest, means))
        verdict = "same" if is_same else "unsure"
    before_ns, after_ns = map(median, minima if found is fastest else averages)
    centre_ns, half_ratio = math.sqrt(before_ns * after_ns), math.exp(found.log / 2)
    return StepChange(
        centre_ns / half_ratio,
        centre_ns * half_ratio,
        means_ns=(fmean(before), fmean(after)),
        shift=found,
        verdict=verdict,
        block_steps=size if found is fastest else mean_size,
        is_of_means=found is not fastest,
        num_steps=(len(before), len(after)),
    )


def compare_with_recorded(
    unrecorded: tuple[Sequence[float], Sequence[float]],
    usual: tuple[Sequence[float], Sequence[float]],
    threshold: float,
) -> StepChange | None:
    """Compare the steps of two runs, where one may have too few unrecorded ones; None if that gives no verdict.

    Recording only makes a step longer. So a run whose ``usual`` steps, recorded ones among them, are faster than the
    unrecorded ones of the other is the faster one.

    Args:
        unrecorded: durations in ns of the unrecorded steps before and after.
        usual: the same of unrecorded and recorded steps together.
        threshold: changes within this share are the ``same``.
    """
    lacks_before, lacks_after = (len(times) < MIN_STEPS for times in unrecorded)
    if not (lacks_before or lacks_after):
        return compare_steps(*unrecorded, threshold)
    if lacks_before and lacks_after:
        return None
    sides = (usual[0], unrecorded[1]) if lacks_before else (unrecorded[0], usual[1])
    change = compare_steps(*sides, threshold)
    if change is None or change.is_of_means or change.verdict != ("slower" if lacks_before else "faster"):
        return None
    return change._replace(has_recorded=(lacks_before, lacks_after))


def explain_few_unrecorded(before: RunReport, after: RunReport) -> str:
    """Return a sentence on runs with nearly all steps recorded, and too few others; "" if there are enough."""
    few = [
        f"{when} {len(report.unrecorded_ns)} ({about['num_recorded']:,} of {about['num_steps']:,} steps were recorded)"
        for when, report in (("before", before), ("after", after))
        if report.usual_ns and len(report.unrecorded_ns) < MIN_STEPS and (about := report.run["all_steps"]) is not None
    ]
    if not few:
        return ""
    return (
        f"A verdict needs {MIN_STEPS} unrecorded steps of each run, after the first ten: {', '.join(few)}. Record "
        "fewer steps (kinetoscope run -n 10), or run longer."
    )


def _sign(shift: Shift) -> str | None:
    return "slower" if shift.low > 0 else "faster" if shift.high < 0 else None


def _fastest(before: Sequence[float], after: Sequence[float]) -> Shift:
    """Return the shift of the fastest steps of blocks, with the intersection of two intervals.

    One is of the rank test, widened by `NOISE`, also around the fastest step of all. The other one is `FASTEST_NOISE`
    around that step, and half of that around the shift: a busy machine may slow a run down for most of its time, so
    that few blocks have a step that it left alone.
    """
    by_rank = _shift(before, after).widened(NOISE)
    of_all = math.log(max(min(after), 1.0) / max(min(before), 1.0))
    low = max(min(by_rank.low, of_all - NOISE), min(of_all - FASTEST_NOISE, by_rank.log - FASTEST_NOISE / 2))
    high = min(max(by_rank.high, of_all + NOISE), max(of_all + FASTEST_NOISE, by_rank.log + FASTEST_NOISE / 2))
    return Shift(by_rank.log, low, high)


def _block_steps(before: Sequence[float], after: Sequence[float], num_blocks: int) -> int:
    """Return the steps of a block in both runs: of more steps, the fastest would be faster."""
    return max(_MIN_BLOCK_STEPS, min(len(before), len(after)) // num_blocks)


def _blocks(times: Sequence[float], size: int) -> list[Sequence[float]]:
    """Return the steps in blocks of ``size``; steps after the last whole one are in that."""
    starts = range(0, len(times) - size + 1, size)
    return [times[start : start + size if start + 2 * size <= len(times) else None] for start in starts]


def _shift(before: Sequence[float], after: Sequence[float]) -> Shift:
    """Return the shift of Hodges and Lehmann, with the interval that belongs to the rank test of Mann and Whitney."""
    logs = [[math.log(max(value, 1.0)) for value in side] for side in (before, after)]
    differences = sorted(later - earlier for earlier in logs[0] for later in logs[1])
    num_pairs, num_values = len(differences), len(before) + len(after)
    spread = math.sqrt(num_pairs * (num_values + 1) / 12)
    index = max(0, math.floor(num_pairs / 2 - _QUANTILE * spread))
    return Shift(median(differences), differences[index], differences[num_pairs - 1 - index])
