"""Source lines that called operators and launched kernels, where stacks were recorded."""

import polars as pl

from kinetoscope.analysis.cpu.operators import operator_calls
from kinetoscope.analysis.windows.source_lines import source_lines
from kinetoscope.analysis.windows.window import RankWindow
from kinetoscope.analysis.windows.window_reader import read_windows
from kinetoscope.pages.page_data import CallingLine
from kinetoscope.report.page.rank_spans import PYTHON
from kinetoscope.report.page.rank_traces import RankTrace

OPERATOR = "operator"
_MAX_LINES = 5000
_KEYS = ("kind", "name", "line")


class CallingLinesBuilder:
    """Builder of sums of calls by source line, from the windows of ranks."""

    def __init__(self, step_name: str | None = None) -> None:
        self._step_name = step_name
        self._sums: list[pl.DataFrame] = []

    def add(self, part: RankTrace, spans: pl.DataFrame) -> None:
        """Add a window; ``spans`` are all of its spans."""
        if PYTHON not in spans["category"]:
            return
        for window in read_windows(part.trace, self._step_name):
            self._sums += [
                _sum_by_line(calls) for calls in (_find_operators(window), _find_kernels(window)) if len(calls)
            ]

    def build(self) -> list[CallingLine]:
        """Return the sums by source line, the largest self time first."""
        if not self._sums:
            return []
        totals = pl.col("num_calls", "total_ns", "self_ns").sum()
        rows = pl.concat(self._sums).group_by(_KEYS).agg(totals, pl.col("max_ns").max())
        rows = rows.with_columns(mean_ns=pl.col("total_ns") / pl.col("num_calls"))
        rows = rows.sort("self_ns", *_KEYS, descending=[True, False, False, False], nulls_last=True).head(_MAX_LINES)
        return [CallingLine(**row) for row in rows.iter_rows(named=True)]


def _find_operators(window: RankWindow) -> pl.DataFrame:
    calls = operator_calls(window)
    lines = source_lines(window, calls.select("track", ts="begin"))
    return calls.select("name", "dur", "self_ns", kind=pl.lit(OPERATOR)).with_columns(lines)


def _find_kernels(window: RankWindow) -> pl.DataFrame:
    kernels = window.device.drop_nulls("launch_begin")
    lines = source_lines(window, kernels.select(track="launch_track", ts="launch_begin"))
    dur = pl.col("end") - pl.col("begin")
    return kernels.select("name", "kind", dur=dur, self_ns=dur).with_columns(lines)


def _sum_by_line(calls: pl.DataFrame) -> pl.DataFrame:
    texts = [pl.col(name).cast(pl.String) for name in _KEYS]
    dur = pl.col("dur")
    return (
        calls.with_columns(texts)
        .group_by(_KEYS)
        .agg(
            pl.len().cast(pl.Int64).alias("num_calls"),
            dur.sum().alias("total_ns"),
            pl.col("self_ns").sum(),
            dur.max().alias("max_ns"),
        )
    )
