"""Slack of a loader: the time by which a loop can be faster until it waits for workers, where these were sampled."""

from typing import NamedTuple

import polars as pl

from kinetoscope.analysis.cpu.loop import TrainingLoop
from kinetoscope.analysis.cpu.sampled_lines import find_worker_batches
from kinetoscope.analysis.replay.delayed_batches import DelayedBatches
from kinetoscope.analysis.windows.intervals import IntervalUnion, latest_end_before

_MIN_FETCHES = 4
_MIN_LATE_FETCH_SHARE = 0.25
"""If this share of the batches came late, these show how fast the loader is."""

_MIN_SAMPLES = 20
"""Samples of all workers that show how long they take for their batches; fewer may be noise."""


class LoaderSlack(NamedTuple):
    """Slack of one loader.

    Attributes:
        slack_ns: time by which the batches of a window can be faster; None if unknown.
        is_hidden: True if it is unknown because workers were not sampled, and all of their batches came in time.
    """

    slack_ns: int | None = None
    is_hidden: bool = False


def loader_slack(loop: TrainingLoop, late: DelayedBatches) -> LoaderSlack:
    """Return the slack of the workers of one window's loader.

    For some steps, the loop can be faster than the workers, while it consumes prefetched batches.
    """
    ends, num_workers = late.of_workers["end"].sort(), loop.loader.num_workers
    is_waited_for = len(late.fetches) >= _MIN_LATE_FETCH_SHARE * len(ends)
    if num_workers == 0 or len(ends) < _MIN_FETCHES or is_waited_for:
        return LoaderSlack()
    unknown = LoaderSlack(is_hidden=late.has_workers)
    num_gaps = len(ends) - 1
    num_rounds = num_gaps // (num_workers or len(ends))  # every worker builds one batch per round
    if not num_workers or not num_rounds or len(loop.loader.evaluations):
        return unknown
    first, last = ends[-1 - num_rounds * num_workers], ends[-1]
    making, interval_ns = find_worker_batches(loop.window)
    making = making.with_columns(pl.col("begin", "end").clip(first, last)).filter(pl.col("begin") < pl.col("end"))
    workers = making.sort("begin").partition_by("worker")
    if sum(IntervalUnion(of_worker).total_ns for of_worker in workers) < _MIN_SAMPLES * interval_ns:
        return unknown
    # Batches come in order, so the slowest worker counts. A loop that is ahead of its device may fetch all that workers
    # build, and still have idle time.
    needed_ns = max(_busy_ns(of_worker, num_rounds, interval_ns) for of_worker in workers)
    spare_ns = (last - first) * late.pace - needed_ns
    return LoaderSlack(max(0, round(spare_ns * num_gaps / (num_rounds * num_workers))))


def _busy_ns(making: pl.DataFrame, num_rounds: int, interval_ns: float) -> float:
    """Return the time of a worker for its batch in each of ``num_rounds`` rounds.

    At first, workers build more than that. Samples show how often a worker starts one, except where it builds one batch
    right after the other; the last may be incomplete.
    """
    count_starts_inside = making.filter(pl.col("begin") - latest_end_before() > interval_ns).height
    return IntervalUnion(making).total_ns * min(1.0, num_rounds / max(1, count_starts_inside - 1))
