"""Steps of traces that name none: from one optimizer step to the next, or from one fetch of a batch to the next."""

from collections.abc import Iterable
from typing import NamedTuple

import polars as pl

OPTIMIZER_STEP = r"^Optimizer\.step#"
_MIN_INTERVALS = 3
_REGULAR_FACTOR, _MIN_REGULAR_SHARE = 1.5, 0.8
"""Intervals are regular if this share of them is within this factor of their median."""

_NUMBER_AT_END = r"[ #_]?\d+$"
_NUM_CANDIDATES = 3


class InferredSteps(NamedTuple):
    """Steps with ``begin``, ``end`` and ``track``, and the name of the spans between them."""

    steps: pl.DataFrame
    name: str


def infer_steps(host: pl.DataFrame, fetch: str) -> InferredSteps | None:
    """Return the intervals between optimizer steps, or else between fetches; None where these are not regular.

    Args:
        host: spans of threads, with ``name``, ``begin``, ``end`` and ``track``.
        fetch: regular expression of the names of fetches.
    """
    for pattern, side in ((OPTIMIZER_STEP, "end"), (fetch, "begin")):
        spans = host.filter(pl.col("name").str.contains(pattern).fill_null(False))
        groups = spans.group_by("name", "track").agg(
            pl.len(), pl.col(side).sort().alias("times"), at=pl.col(side).max()
        )
        for name, track, _, times, _ in groups.sort("len", "at", descending=True).head(1).iter_rows():
            if _are_regular(pl.Series(times).diff().drop_nulls()):
                steps = pl.DataFrame({"begin": times[:-1], "end": times[1:]})
                return InferredSteps(steps.with_columns(track=pl.lit(track, pl.UInt32)), name)
    return None


def _are_regular(intervals: pl.Series) -> bool:
    if len(intervals) < _MIN_INTERVALS:
        return False
    ratio = intervals / intervals.median()
    num_regular = sum(ratio.is_between(1 / _REGULAR_FACTOR, _REGULAR_FACTOR).to_list())
    return num_regular >= _MIN_REGULAR_SHARE * len(intervals)


def step_candidates(windows: Iterable[pl.DataFrame]) -> tuple[str, ...]:
    """Return names of spans that recur in windows, without numbers at their ends, those with most time first."""
    found: dict[str, int] = {}
    for named in windows:
        spans = named.select(pl.col("name").str.replace(_NUMBER_AT_END, ""), time=pl.col("end") - pl.col("begin"))
        totals = spans.group_by("name").agg(pl.len(), pl.col("time").sum()).filter(pl.col("len") >= _MIN_INTERVALS)
        for name, _, time_ns in totals.iter_rows():
            if name:
                found[name] = found.get(name, 0) + time_ns
    return tuple(sorted(found, key=lambda name: (-found[name], name))[:_NUM_CANDIDATES])
