"""States of the loop's thread, by its clocks and by samples: running, blocked, or waiting for a CPU."""

from functools import cached_property
from typing import NamedTuple

import polars as pl

from kinetoscope.analysis.cpu.sampled_lines import IN_TORCH, RUNNING
from kinetoscope.analysis.windows.columns import filter_rows
from kinetoscope.analysis.windows.intervals import IntervalUnion
from kinetoscope.analysis.windows.nesting import interval_index
from kinetoscope.analysis.windows.window import RankWindow
from kinetoscope.formats.trace_names import LATE_LINE, LOOP_CLOCKS

_STATES = ("running_ns", "starved_ns", "blocked_ns")
_CLOCK_ERROR_SHARE, _CLOCK_ERROR_NS = 0.02, 300_000
"""Less than this share of a batch, or than this time in ns, is within the clocks' error, and counts as 0. Judgement."""

_MIN_UNSAMPLED_WAIT_NS = 1_000_000
"""Shortest wait between two operators that counts without samples.

The clocks alone do not show whether the thread waited in an operator, for another thread of torch, or in Python. Two
operators are rarely so far apart, unless the loop waits or computes between them.
"""

_MAX_CLOCK_DIFFERENCE_SHARE = 0.1
"""Where samples and clocks differ by more than this share of the time, the clocks are right."""


class ThreadStates:
    """The readings of the clocks of the loop's thread at the end of each batch of a window."""

    def __init__(self, window: RankWindow) -> None:
        self._window = window

    @cached_property
    def readings(self) -> pl.DataFrame:
        """The intervals between two readings.

        They have ``begin``, ``end``, and ``running_ns``, ``starved_ns`` and ``blocked_ns`` in each; the last two are
        null where the system does not distinguish them.
        """
        counters = self._window.instants.counters
        values = filter_rows(counters[["ts", "series", "value"]], counters["name"] == LOOP_CLOCKS)
        if not len(values):
            return pl.DataFrame(schema=dict.fromkeys(("begin", "end", *_STATES), pl.Int64))
        values = values.with_columns(pl.col("value").clip(0, 1e18).fill_nan(0).round().cast(pl.Int64))
        rows = values.group_by("ts").agg(
            *(pl.col("value").filter(pl.col("series") == name).first().alias(name) for name in _STATES),
            pl.col("value").sum().alias("length"),
        )
        rows = rows.drop_nulls("running_ns").sort("ts").select(pl.col("ts") - pl.col("length"), *_STATES, end="ts")
        starts = pl.max_horizontal("ts", pl.col("end").shift(1))
        return rows.select(starts.alias("begin"), "end", *map(self._zero_below_error, _STATES))

    @staticmethod
    def _zero_below_error(name: str) -> pl.Expr:
        error_ns = pl.max_horizontal(_CLOCK_ERROR_SHARE * (pl.col("end") - pl.col("ts")), _CLOCK_ERROR_NS)
        is_nothing = (pl.col(name) < error_ns) & pl.lit(name != "running_ns")
        return pl.when(is_nothing).then(0).otherwise(name).alias(name)

    def by_step(self) -> dict[str, pl.Series]:
        """Return the time in each state since the reading before a step's end, null without a reading.

        The dict is empty without any reading.
        """
        steps, readings = self._window.steps, self.readings
        if not len(readings):
            return {}
        nexts = steps["begin"].shift(-1).fill_null(2**62)
        rows = steps.select(ended="end", until=nexts).with_row_index("row")
        found = rows.join_asof(
            readings.select(*_STATES, at="end"), left_on="ended", right_on="at", strategy="forward", coalesce=False
        )
        is_of_step = (pl.col("at") <= pl.col("until")).fill_null(False)
        columns = found.sort("row").select(pl.when(is_of_step).then(name).alias(name) for name in _STATES)
        return {name: columns[name] for name in _STATES}

    def starved_share(self, times: pl.Series) -> pl.Series:
        """Return the share of run-queue delay in the time in which the thread was ready, around each of these times."""
        readings = self.readings
        if not len(readings):
            return _zero_shares(len(times))
        share = readings["starved_ns"] / (readings["starved_ns"] + readings["running_ns"])
        return share[interval_index(readings, times)].fill_null(0).fill_nan(0)

    def blocked_share(self, intervals: pl.DataFrame, waits: IntervalUnion) -> pl.Series:
        """Return the blocked share of each interval, evenly, if the thread was blocked for all of ``waits``."""
        readings = self.readings
        begins, ends = readings["begin"], readings["end"]
        blocked = readings["blocked_ns"] - waits.overlap_ns(begins, ends)
        blocked = pl.select(pl.when(blocked >= _CLOCK_ERROR_NS).then(blocked).otherwise(0)).to_series()
        share = (blocked / IntervalUnion(intervals).overlap_ns(begins, ends)).clip(0, 1)
        middles = (intervals["begin"] + intervals["end"]) // 2
        return share[interval_index(readings, middles)].fill_null(0).fill_nan(0)


class IntervalsByState(NamedTuple):
    """Intervals of Python time, each in three pieces, one after the other.

    They are ``blocked``, waiting for a CPU (``starved``), and ``running``. All have ``begin``, ``end`` and the other
    columns of the intervals; ``since`` and ``until`` bound the whole interval.
    """

    blocked: pl.DataFrame
    starved: pl.DataFrame
    running: pl.DataFrame


def split_by_state(
    intervals: pl.DataFrame, states: ThreadStates, samples: pl.DataFrame, waits: IntervalUnion
) -> IntervalsByState:
    """Split intervals into blocked, starved and running pieces.

    Where ``samples`` have states, an interval is blocked for the same share as the samples in all intervals of its
    name; else the clocks decide, if there are readings.

    Args:
        intervals: intervals with ``begin``, ``end`` and ``name``.
        states: readings of the clocks.
        samples: samples of the loop's thread.
        waits: time in which the thread was blocked anyway.
    """
    if not len(samples) and not len(states.readings):
        running = filter_rows(intervals, intervals["begin"] < intervals["end"])
        running = running.hstack([running["begin"].alias("since"), running["end"].alias("until")])
        return IntervalsByState(running.clear(), running.clear(), running)
    lengths = intervals["end"] - intervals["begin"]
    blocked = _blocked_share(intervals, states, samples, waits)
    middles = (intervals["begin"] + intervals["end"]) // 2
    starved = (1 - blocked) * states.starved_share(middles)
    rows = intervals.with_columns(
        since="begin",
        until="end",
        blocked_until=intervals["begin"] + (lengths * blocked).round().cast(pl.Int64),
        runs_from=intervals["begin"] + (lengths * (blocked + starved)).round().cast(pl.Int64),
    )
    pieces = (("begin", "blocked_until"), ("blocked_until", "runs_from"), ("runs_from", "end"))
    columns = [*intervals.columns, "since", "until"]
    found = [
        rows.filter(pl.col(begin) < pl.col(end)).with_columns(begin=begin, end=end)[columns] for begin, end in pieces
    ]
    return IntervalsByState(*found)


def _blocked_share(
    intervals: pl.DataFrame, states: ThreadStates, samples: pl.DataFrame, waits: IntervalUnion
) -> pl.Series:
    known = samples.drop_nulls("state") if len(samples) else samples
    if not len(intervals) or not len(known):
        has_clocks = len(intervals) and states.readings["blocked_ns"].count()
        if not has_clocks:
            return _zero_shares(len(intervals))
        is_long = (intervals["end"] - intervals["begin"] >= _MIN_UNSAMPLED_WAIT_NS) | (len(samples) > 0)
        share = states.blocked_share(filter_rows(intervals, is_long), waits)
        return _zero_shares(len(intervals)).scatter(is_long.arg_true(), share)
    known = known.with_columns(is_blocked=is_waiting())
    within = known.with_columns(intervals["name"][interval_index(intervals, known["at"])])
    within = within.filter(interval_index(intervals, known["at"]).is_not_null())
    of_blocked = pl.col("lasts_ns").filter("is_blocked").sum()
    by_name = within.group_by("name").agg((of_blocked / pl.col("lasts_ns").sum()).alias("share"))
    rows = intervals.select("name").join(by_name, on="name", how="left", nulls_equal=True, maintain_order="left")
    return (rows["share"].fill_null(0) * _clock_correction(states, known)).clip(0, 1)


def _zero_shares(number: int) -> pl.Series:
    """Return a share of 0 for each of ``number`` intervals."""
    return pl.Series([0.0]).new_from_index(0, number)


def _clock_correction(states: ThreadStates, samples: pl.DataFrame) -> float:
    """Return the factor by which sampled blocked time must be multiplied to agree with the clocks.

    To the clocks, a thread is also blocked that waits for others of torch.
    """
    readings = states.readings.drop_nulls("blocked_ns")
    sampled_ns = int(samples.filter(pl.col("is_blocked") | (pl.col("state") == IN_TORCH))["lasts_ns"].sum())
    length_ns = int((readings["end"] - readings["begin"]).sum())
    blocked_ns = int(readings["blocked_ns"].sum())
    all_ns = int(samples.select(pl.col("lasts_ns").sum()).item())
    if not sampled_ns or not length_ns or not all_ns:
        return 1.0
    sampled, clocked = sampled_ns / all_ns, blocked_ns / length_ns
    return clocked / sampled if abs(sampled - clocked) > _MAX_CLOCK_DIFFERENCE_SHARE else 1.0


def is_waiting() -> pl.Expr:
    """Return whether the thread of a sample waited; null where that is unknown."""
    return ~pl.col("state").is_in([RUNNING, LATE_LINE, IN_TORCH])
