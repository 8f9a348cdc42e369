"""Rows of torch modules: time forward and backward, FLOPs and memory by qualified name."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import polars as pl

from kinetoscope.analysis.gpu.flops import FLOP_SUMS, WindowWork, add_rates
from kinetoscope.analysis.modules.calls import (
    ACCUMULATION,
    BACKWARD,
    FORWARD,
    OPTIMIZER,
    OUTSIDE,
    RECOMPUTE,
    ModuleCalls,
)
from kinetoscope.analysis.plain_data import PlainData
from kinetoscope.analysis.windows.columns import build_frame
from kinetoscope.analysis.windows.window import RankWindow
from kinetoscope.formats.trace_names import MODULE

_SIDES = {FORWARD: "forward", OPTIMIZER: "forward", OUTSIDE: "forward", BACKWARD: "backward", ACCUMULATION: "backward"}
_TIMES = ("cpu_forward_ns", "cpu_backward_ns", "device_forward_ns", "device_backward_ns")
_MORE = ("communication_ns", "recompute_ns", "allocated_bytes", *FLOP_SUMS)
_SELF = "self_"
_KEYS = ("name", "class_name", "depth")
_SUMS = ("num_calls", *_TIMES, *(_SELF + name for name in _TIMES), *_MORE, "saved_bytes")


@dataclass(frozen=True, kw_only=True)
class ModuleRow(PlainData):
    """All calls of one module of one rank. Times are nanoseconds, memory is bytes.

    Times include the modules inside; those of ``self_`` fields do not. CPU time is that of the threads that call the
    module and that run its backward functions. Device time is that of kernels and copies that they launch, except
    collectives, which are in ``communication_ns``. Activation checkpointing calls a module again in the backward pass:
    ``recompute_ns`` is the device time of that, or the CPU time where there is no device; with a device, its CPU time
    is in ``cpu_backward_ns``. ``allocated_bytes`` is what its calls allocated, ``saved_bytes`` what of this was still
    allocated at their end. ``mfu`` is the share of the device's peak that its FLOPs reach. What was not recorded is
    None.

    Rows with a name in parentheses have the time that belongs to no module; their calls and memory are None.
    """

    rank: int | None
    name: str
    class_name: str | None
    depth: int | None
    num_calls: int | None
    cpu_forward_ns: int | None
    cpu_backward_ns: int | None
    device_forward_ns: int | None
    device_backward_ns: int | None
    self_cpu_forward_ns: int | None
    self_cpu_backward_ns: int | None
    self_device_forward_ns: int | None
    self_device_backward_ns: int | None
    communication_ns: int | None
    recompute_ns: int | None
    flops: float | None
    mfu: float | None
    allocated_bytes: int | None
    saved_bytes: int | None


def sum_modules(found: ModuleCalls, work: WindowWork) -> pl.DataFrame:
    """Return the sums of a window by module, for `join_modules`."""
    parts = [_cpu_parts(found), _device_parts(found), _flop_parts(found, work), _memory_parts(found)]
    parts = pl.concat(parts).drop_nulls("value").group_by("kind", "call", "column").agg(pl.col("value").sum())
    inside = parts.drop_nulls("call")
    own = inside.filter(pl.col("column").is_in(list(_TIMES)))
    own = own.select(pl.col("column").str.replace("^", _SELF), "value", name=found.calls["name"][own["call"]])
    total = inside.join(found.ancestors, on="call").select("column", "value", "name")
    others = parts.filter(pl.col("call").is_null()).select("column", "value", name="kind")
    of_others = [
        others,
        others.filter(pl.col("column").is_in(list(_TIMES))).with_columns(pl.col("column").str.replace("^", _SELF)),
    ]
    sums = pl.concat([own, total, *of_others, _num_calls(found), _saved(found)])
    sums = sums.pivot("column", index="name", values="value", aggregate_function="sum", maintain_order=True)
    missing = [pl.lit(None, dtype=pl.Float64).alias(name) for name in _SUMS if name not in sums.columns]
    sums = sums.with_columns(missing).join(_descriptions(found.window), on="name", how="left")
    is_recorded = {name: name in pl.concat([own, total])["column"] for name in _SUMS}
    zeros = [pl.col(name).fill_null(0) for name in _SUMS if is_recorded.get(name) and name not in FLOP_SUMS]
    order = build_frame(found.calls["name"].unique(maintain_order=True)).with_row_index("order")
    sums = sums.with_columns(zeros).join(order, on="name", how="left").sort("order", "name", nulls_last=True)
    of_modules = ("num_calls", "recompute_ns", "allocated_bytes", "saved_bytes")
    sums = sums.with_columns(pl.when(pl.col("class_name").is_not_null()).then(name).alias(name) for name in of_modules)
    return sums.select(*_KEYS, *_SUMS)


def join_modules(sums: Iterable[tuple[int | None, pl.DataFrame | None]]) -> list[ModuleRow]:
    """Return a row per rank and module, in the order of their first calls.

    Args:
        sums: a rank and the sums of one of its windows, from `sum_modules`.
    """
    by_rank: dict[int | None, list[pl.DataFrame]] = {}
    for rank, frame in sums:
        if frame is not None:
            by_rank.setdefault(rank, []).append(frame)
    return [row for rank, frames in by_rank.items() for row in _rows_of_rank(rank, frames)]


def _rows_of_rank(rank: int | None, frames: Sequence[pl.DataFrame]) -> list[ModuleRow]:
    known = [pl.when(pl.col(name).count() > 0).then(pl.col(name).sum()).alias(name) for name in _SUMS]
    sums = pl.concat(frames, how="vertical_relaxed").group_by(_KEYS, maintain_order=True).agg(known)
    whole = [name for name in _SUMS if name not in FLOP_SUMS]
    rows = (
        add_rates(sums).drop("flops_per_s").with_columns(pl.col(whole).cast(pl.Int64), pl.col("depth").cast(pl.Int64))
    )
    return [ModuleRow(rank=rank, **row) for row in rows.iter_rows(named=True)]


# -- amounts of parts: ``kind``, ``call``, ``column``, ``value``


def _amounts(kind: pl.Series, call: pl.Series, column: pl.Series | str, value: pl.Series) -> pl.DataFrame:
    frame = build_frame(kind.alias("kind"), call.alias("call"), value.cast(pl.Float64).alias("value"))
    return frame.select(
        "kind", "call", (pl.lit(column) if isinstance(column, str) else column).alias("column"), "value"
    )


def _column(kind: pl.Series, side: str) -> pl.Series:
    columns = {each: f"{side}_{direction}_ns" for each, direction in _SIDES.items()}
    return kind.replace_strict(columns | {RECOMPUTE: "recompute_ns"}, return_dtype=pl.String)


def _cpu_parts(found: ModuleCalls) -> pl.DataFrame:
    parts, column = found.parts, _column(found.parts["kind"], "cpu")
    if len(found.window.device):  # recomputation is a part of the backward pass on the CPU
        column = column.replace("recompute_ns", "cpu_backward_ns")
    return _amounts(parts["kind"], parts["call"], column, parts["self_ns"])


def _device_parts(found: ModuleCalls) -> pl.DataFrame:
    device = found.window.device
    parts = found.find_parts(device["launch_track"], device["launch_begin"])
    column = _column(parts["kind"], "device")
    column = build_frame(column.alias("column"), device["kind"]).select(
        pl.when(pl.col("kind") == "communication").then(pl.lit("communication_ns")).otherwise("column").alias("column")
    )["column"]
    return _amounts(parts["kind"], parts["call"], column, device["end"] - device["begin"])


def _flop_parts(found: ModuleCalls, work: WindowWork) -> pl.DataFrame:
    calls = work.calls
    parts = found.find_parts(calls["track"], calls["begin"])
    return pl.concat([_amounts(parts["kind"], parts["call"], name, calls[name]) for name in FLOP_SUMS])


def _memory_parts(found: ModuleCalls) -> pl.DataFrame:
    allocations = _allocations(found).filter(pl.col("bytes") > 0)
    parts = found.find_parts(allocations["track"], allocations["ts"])
    amounts = _amounts(parts["kind"], parts["call"], "allocated_bytes", allocations["bytes"])
    return amounts.filter(pl.col("kind") == FORWARD)


def _allocations(found: ModuleCalls) -> pl.DataFrame:
    """Return the allocations of devices; of the CPU where there are none of a device."""
    allocations = found.window.instants.allocations
    of_device = allocations.drop_nulls("device")
    return of_device if len(of_device) else allocations


# -- amounts of modules: ``column``, ``value``, ``name``


def _num_calls(found: ModuleCalls) -> pl.DataFrame:
    calls = found.calls.filter(~pl.col("is_recomputed"))
    counted = calls.group_by("name", maintain_order=True).len("value")
    return counted.select(pl.lit("num_calls").alias("column"), pl.col("value").cast(pl.Float64), "name")


def _saved(found: ModuleCalls) -> pl.DataFrame:
    """Return what the threads of calls had allocated at their end, less what they had at their start."""
    calls, allocations = found.calls.filter(~pl.col("is_recomputed")), _allocations(found)
    empty = pl.DataFrame(schema={"column": pl.String, "value": pl.Float64, "name": pl.String})
    if not len(allocations) or not len(calls):
        return empty
    held = allocations.select("track", "ts", held=pl.col("bytes").cum_sum().over("track"))
    edges = [calls.select("name", "track", ts=edge).with_row_index("row").sort("ts") for edge in ("begin", "end")]
    at = [
        edge.join_asof(held, on="ts", by="track", strategy="backward", check_sortedness=False)
        .sort("row")["held"]
        .fill_null(0)
        for edge in edges
    ]
    saved = build_frame(calls["name"], (at[1] - at[0]).cast(pl.Float64).alias("value"))
    saved = saved.group_by("name", maintain_order=True).agg(pl.col("value").sum())
    return saved.select(pl.lit("saved_bytes").alias("column"), "value", "name")


def _descriptions(window: RankWindow) -> pl.DataFrame:
    """Return ``class_name`` and ``depth`` of each module by ``name``."""
    args = pl.col("args").cast(pl.String)
    spans = window.trace.spans.filter(pl.col("category") == MODULE).unique("name", keep="first")
    fields = {"class_name": args.str.json_path_match("$.class"), "depth": args.str.json_path_match("$.depth")}
    return spans.select("name", **fields).collect()
