"""Steps of a loop: spans of their names, or else the time between spans that recur regularly."""

import re
from collections.abc import Iterable
from typing import NamedTuple

import polars as pl

from kinetoscope.analysis.windows.columns import filter_rows
from kinetoscope.analysis.windows.nesting import find_outermost
from kinetoscope.analysis.windows.span_names import FETCH, NUMBER, OPTIMIZER_STEP
from kinetoscope.formats.trace_names import BATCH, STEP

_MIN_INTERVALS = 3
"""Spans that recur less often are no steps. Judgement."""

_REGULAR_FACTOR, _MIN_REGULAR_SHARE = 1.5, 0.8
"""Intervals are regular if this share of them is within this factor of their median."""

_NUMBER_AT_END = r"[ #_]?\d+$"
_NUM_CANDIDATES = 3
"""Number of names that are suggested for `--step`."""


def find_steps(cpu_spans: pl.DataFrame, step_name: str | None = None) -> pl.DataFrame:
    """Return the steps of the loop, as `STEPS` has them.

    Steps are the outermost spans called ``step_name``, or else ``event/batch``, or else ``ProfilerStep#n``, on the
    thread with most of them. Their number is that of the batch, or of the name; without either, they are counted.
    """
    cpu_spans = cpu_spans[["name", "batch", "begin", "end", "track"]]
    found = cpu_spans.clear()
    for is_step in _step_rules(step_name):
        if len(found := filter_rows(cpu_spans, cpu_spans.select(is_step).to_series())):
            break
    number = pl.coalesce("batch", pl.col("name").str.extract(NUMBER).cast(pl.Int64, strict=False))
    if found["track"].n_unique() > 1:
        busiest = found.group_by("track").len().sort("len", "track", descending=[True, False])["track"].first()
        found = found.filter(pl.col("track") == busiest) if busiest is not None else found
    found = find_outermost(found)
    order = pl.int_range(pl.len(), dtype=pl.Int64)
    return found.select(
        pl.coalesce(number, order).alias("step"), "begin", "end", "track", is_batch=pl.col("name") == BATCH
    )


def _step_rules(step_name: str | None) -> list[pl.Expr]:
    name = pl.col("name")
    if step_name is not None:
        return [name == step_name, name.str.contains(f"^{re.escape(step_name)}{NUMBER}")]
    return [name == BATCH, name.str.contains(f"^{STEP}{NUMBER}")]


class InferredSteps(NamedTuple):
    """Steps with ``begin``, ``end`` and ``track``, and the name of the spans between them."""

    steps: pl.DataFrame
    name: str


def infer_steps(cpu_spans: pl.DataFrame) -> InferredSteps | None:
    """Return the intervals between optimizer steps, or else between fetches; None where these are not regular."""
    for pattern, side in ((OPTIMIZER_STEP, "end"), (FETCH, "begin")):
        spans = cpu_spans.filter(pl.col("name").str.contains(pattern).fill_null(False))
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


def suggest_step_names(windows: Iterable[pl.DataFrame]) -> tuple[str, ...]:
    """Return names of spans that recur in windows, without numbers at their ends, those with most time first."""
    found: dict[str, int] = {}
    for named in windows:
        spans = named.select(pl.col("name").str.replace(_NUMBER_AT_END, ""), time=pl.col("end") - pl.col("begin"))
        totals = spans.group_by("name").agg(pl.len(), pl.col("time").sum()).filter(pl.col("len") >= _MIN_INTERVALS)
        for name, _, time_ns in totals.iter_rows():
            if name:
                found[name] = found.get(name, 0) + time_ns
    return tuple(sorted(found, key=lambda name: (-found[name], name))[:_NUM_CANDIDATES])
