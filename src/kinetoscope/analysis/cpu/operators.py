"""Operators by name and shape, with the device time of the kernels that they launched."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from kinetoscope.analysis.gpu.flop_formulas import FORMULAS
from kinetoscope.analysis.gpu.flops import FLOP_SUMS, WindowWork, add_rates
from kinetoscope.analysis.plain_data import PlainData
from kinetoscope.analysis.windows.call_statistics import add_quantiles_by_name, combine_call_sums, sum_calls
from kinetoscope.analysis.windows.columns import (
    build_frame,
    constant_column,
    drop_null_rows,
    filter_rows,
    select_columns,
    sort_rows,
)
from kinetoscope.analysis.windows.intervals import zeros
from kinetoscope.analysis.windows.span_names import ANNOTATIONS, OPERATORS, RUNTIME_CALLS
from kinetoscope.analysis.windows.window import RankWindow
from kinetoscope.frames.tracks import nest_spans

_KEY = ("name", "shapes")
_SUMS = ("self_ns", "device_ns")
_IS_NESTED = pl.col("category").is_in([*OPERATORS, *RUNTIME_CALLS, *ANNOTATIONS])


@dataclass(frozen=True, kw_only=True)
class OperatorRow(PlainData):
    """All calls of one operator with one set of shapes, on all ranks. Times are nanoseconds.

    ``self_ns`` is the time not spent in operators, annotations and runtime calls within it. ``device_ns`` is that of
    kernels and copies that its thread launched within it, None where there is no device, or no launch was recorded. A
    call ends with the operator around it, if not before. ``flops`` is the number of floating-point operations that
    torch counts for it, None where shapes do not give it; ``flops_per_s`` is the rate in the time of its kernels, or in
    its self time where there is no device; ``mfu`` is the share of the device's peak. ``name_p50_ns`` and
    ``name_p95_ns`` are of all calls of the operator, whatever their shapes.
    """

    name: str
    shapes: str | None
    num_calls: int
    total_ns: int
    self_ns: int
    mean_ns: float
    p50_ns: int
    p95_ns: int
    max_ns: int
    name_p50_ns: int
    name_p95_ns: int
    device_ns: int | None = None
    flops: float | None = None
    flops_per_s: float | None = None
    mfu: float | None = None


def operator_calls(window: RankWindow) -> pl.DataFrame:
    """Return a row per call of an operator.

    Returns:
        A frame with ``name``, ``shapes``, ``track``, ``begin``, ``dur``, ``self_ns``, ``device_ns``, and
            ``self_device_ns``, the part of it that no operator within the call launched.
    """
    cpu_spans = window.cpu_spans
    calls = select_columns(cpu_spans, "shapes", "track", ts="begin").hstack(
        [window.cpu.labels.alias("name"), (cpu_spans["end"] - cpu_spans["begin"]).alias("dur"), window.cpu.is_operator]
    )
    calls = filter_rows(calls, cpu_spans.select(_IS_NESTED).to_series())
    measured = nest_spans(calls, clip=True)
    found = select_columns(calls, "name", "shapes", "track", begin="ts").hstack(
        measured[["dur", "self_ns"]].get_columns()
    )
    if window.device["launch_begin"].count():  # without runtime calls nothing shows which operator launched what
        device_ns = _device_ns(calls, window.device)
        own_ns = device_ns - _device_ns_of_callees(device_ns, calls["is_operator"], measured["parent"])
    else:
        device_ns = own_ns = constant_column("device_ns", None, pl.Int64, len(calls))
    return filter_rows(found.hstack([device_ns, own_ns.alias("self_device_ns")]), calls["is_operator"])


def _device_ns_of_callees(device_ns: pl.Series, is_operator: pl.Series, parents: pl.Series) -> pl.Series:
    """Return the device time launched by the operators within each call, counted for the innermost call around them."""
    called = build_frame(_calling_operators(parents, is_operator).alias("caller"), device_ns.alias("called_ns"))
    called = drop_null_rows(filter_rows(called, is_operator & (device_ns > 0)), "caller")
    called = called.group_by("caller").agg(pl.col("called_ns").sum())
    return zeros(len(device_ns)).scatter(called["caller"], called["called_ns"])


def _calling_operators(parents: pl.Series, is_operator: pl.Series) -> pl.Series:
    """Return the row of the innermost operator around each call, beyond annotations; null for none."""
    rows = pl.int_range(len(parents), dtype=pl.UInt32, eager=True)
    while len(others := rows.filter(~is_operator[parents])):  # not of those without a parent
        parents = parents.scatter(others, parents[parents[others]])
    return parents.cast(pl.UInt32)


def operator_sums(calls: pl.DataFrame, work: WindowWork) -> pl.DataFrame:
    """Sum up the operators of one window by name and shape, for `operator_rows`."""
    sums = sum_calls(calls, _KEY, _SUMS).with_columns(pl.col(_KEY).cast(pl.String))
    return sums.join(work.by_name(), on=_KEY, how="left", nulls_equal=True)


def combine_operator_sums(sums: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Combine the sums of several windows as those of one."""
    return combine_call_sums(sums, _KEY, (*_SUMS, *FLOP_SUMS))


def operator_rows(sums: pl.DataFrame) -> list[OperatorRow]:
    """Return a row per operator and shape, the largest self time first."""
    rows = add_rates(add_quantiles_by_name(sums)).sort("self_ns", "name", "shapes", descending=[True, False, False])
    return [OperatorRow(**row) for row in rows.iter_rows(named=True)]


def build_flop_notes(rows: Sequence[OperatorRow]) -> list[str]:
    """Return a sentence on how to record shapes if they are missing for all operators with FLOPs."""
    counted = [row for row in rows if row.name in FORMULAS]
    if not counted or any(row.shapes is not None for row in counted):
        return []
    return ["FLOPs are unknown, because operator shapes were not recorded: record_shapes=True records them."]


def _device_ns(calls: pl.DataFrame, device: pl.DataFrame) -> pl.Series:
    """Return the device time that each call launched: that of its thread until its end, less that until its start."""
    spent = (device["end"] - device["begin"]).alias("spent")
    launched = select_columns(device, track="launch_track", time="launch_begin").hstack([spent])
    launched = sort_rows(drop_null_rows(launched, "time"), "time").with_columns(pl.col("spent").cum_sum().over("track"))
    begins = calls["ts"]
    times = (pl.concat([begins, begins + calls["dur"]]) - 1).alias("time")
    queries = build_frame(pl.concat([calls["track"]] * 2), times).with_row_index("row").sort("time")
    found = queries.join_asof(launched, on="time", by="track", strategy="backward", check_sortedness=False)
    spent = found.sort("row")["spent"].fill_null(0)
    return (spent[len(calls) :] - spent[: len(calls)]).alias("device_ns")
