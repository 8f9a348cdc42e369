"""Locations of stalls: spans and source lines with most of their time."""

import polars as pl

from kinetoscope.analysis.cpu.sampled_lines import is_line_certain
from kinetoscope.analysis.findings.evidence.window import WindowEvidence
from kinetoscope.analysis.findings.finding import MAX_NAMED, Where

MIN_NAMED_SHARE = 0.05
"""Spans and lines with less of the time are not named."""


def split_samples(window: WindowEvidence) -> pl.DataFrame:
    """Return the samples of a window; a line that is in every sample is moved from ``line`` to ``every_sample``."""
    is_in_every = pl.col("line").is_in(list(window.lines_in_every_sample)).fill_null(False)
    return window.sampled.with_columns(
        line=pl.when(~is_in_every).then("line"), every_sample=pl.when(is_in_every).then("line")
    )


def locate(
    stalls: pl.DataFrame, sampled: pl.DataFrame, *, with_steps: bool = False, lines_by: str = "total_ns"
) -> Where:
    """Return the location of stalls. Sampled lines are closer to it than those where recorded functions start.

    Args:
        stalls: the stalls.
        sampled: samples in them, from `split_samples`.
        with_steps: include the steps.
        lines_by: the column that orders lines of stalls.
    """
    steps = tuple(stalls["step"].drop_nulls().unique().sort().to_list()) if with_steps else ()
    lines = find_sampled_lines(sampled) or _largest(stalls, "line", lines_by)
    return Where(steps=steps, spans=_largest(stalls, "name"), lines=lines)


def find_sampled_lines(sampled: pl.DataFrame) -> tuple[str, ...]:
    """Return the lines with most of the time, without those that may be noise."""
    if not len(sampled):
        return ()
    hits = sampled.drop_nulls("line").group_by("line").agg(pl.col("num_samples").sum(), pl.col("step").n_unique())
    num_steps = sampled["step"].n_unique()
    certain = [line for line, num_samples, steps in hits.iter_rows() if is_line_certain(num_samples, steps, num_steps)]
    return _largest(sampled.with_columns(line=pl.when(pl.col("line").is_in(certain)).then("line")), "line")


def _largest(stalls: pl.DataFrame, column: str, weight: str = "total_ns") -> tuple[str, ...]:
    """Return the names, or lines, with most of the weight, and more than a small share of it."""
    if not stalls[column].count():
        return ()
    by_name = stalls.drop_nulls(column).group_by(column).agg(pl.col(weight).sum())
    by_name = by_name.filter(pl.col(weight) >= MIN_NAMED_SHARE * pl.lit(stalls[weight].sum()))
    return tuple(by_name.sort(weight, column, descending=[True, False])[column].head(MAX_NAMED).to_list())
