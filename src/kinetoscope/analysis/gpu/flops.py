"""FLOPs of a window, by call and by kernel, with their time and the time at the device's peak.

Each call of an operator in `FORMULAS` counts, unless it is within another one. Its work is done by the kernels that it
launched, or by itself where there is no device.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import polars as pl

from kinetoscope.analysis.gpu.device_peaks import FULL_FLOAT32, NUM_BYTES, TENSOR_FLOAT32, TYPES, peak_flops_per_s
from kinetoscope.analysis.gpu.flop_formulas import FORMULAS, estimate_work
from kinetoscope.analysis.gpu.matmul_kernels import is_matmul
from kinetoscope.analysis.windows.call_statistics import sum_or_null
from kinetoscope.analysis.windows.columns import drop_null_rows, filter_rows, select_columns
from kinetoscope.analysis.windows.nesting import find_enclosing
from kinetoscope.analysis.windows.window import RankWindow
from kinetoscope.frames.tracks import nest_spans

FLOP_SUMS = ("flops", "timed_flops", "timed_ns", "peak_ns")
"""Columns that are summed over calls, or kernels.

``flops`` as torch counts them; ``timed_flops``, ``timed_ns`` and ``peak_ns`` of those whose time is known: the executed
FLOPs, the time, and the time that the device would need at its peak, NaN where that is unknown.
"""

_WORK_COLUMNS = ("executed_flops", "bytes")


class _Arguments(msgspec.Struct):
    """The arguments of an event whose values are required."""

    values: list[Any] = msgspec.field(name="Concrete Inputs", default_factory=list[Any])


@dataclass(frozen=True)
class WindowWork:
    """The work of a window.

    ``calls`` has the counted calls: ``name``, ``shapes``, ``track``, ``begin``, `FLOP_SUMS` and ``executed_flops``,
    also where no time is known. ``kernels`` has `FLOP_SUMS`, ``bytes``, a lower bound of what was read and written, and
    ``is_matmul``, for each row of the window's ``device``.
    """

    calls: pl.DataFrame
    kernels: pl.DataFrame

    def by_name(self) -> pl.DataFrame:
        """Return the sums of all calls with one name and shapes."""
        return self.calls.group_by("name", "shapes").agg(map(sum_or_null, FLOP_SUMS))


def add_rates(sums: pl.DataFrame) -> pl.DataFrame:
    """Add ``flops_per_s`` and ``mfu``, the share of the device's peak, and drop the sums that they are computed from.

    No device is faster than its peak: where one seems to be, both are null.
    """
    time_ns = pl.when(pl.col("timed_ns") > 0).then("timed_ns")
    rate, share = pl.col("timed_flops") / time_ns * 1e9, (pl.col("peak_ns") / time_ns).fill_nan(None)
    is_possible = (share <= 1).fill_null(True)
    rates = {"flops_per_s": rate, "mfu": share}
    known = {name: pl.when(is_possible).then(value) for name, value in rates.items()}
    return sums.with_columns(**known).drop(FLOP_SUMS[1:])


def estimate_window_work(window: RankWindow) -> WindowWork:
    """Estimate the FLOPs of a window."""
    calls = _counted_calls(window)
    if not calls["shapes"].count():
        return WindowWork(calls.hstack(_null_work(len(calls))), _add_is_matmul(window, _null_work(len(window.device))))
    calls = calls.hstack(_work_of_calls(window, calls))
    if not len(window.device):
        time_ns = pl.when(pl.col("executed_flops").is_not_null()).then(pl.col("end") - pl.col("begin"))
        calls = calls.with_columns(timed_flops="executed_flops", timed_ns=time_ns, peak_ns=pl.lit(None, pl.Float64))
        return WindowWork(calls, _add_is_matmul(window, _null_work(0)))
    runs = _kernel_runs(window, calls)
    return WindowWork(
        _add_kernel_times(calls, runs), _add_is_matmul(window, _share_among_kernels(runs, len(window.device)), runs)
    )


def _add_is_matmul(window: RankWindow, kernels: pl.DataFrame, runs: pl.DataFrame | None = None) -> pl.DataFrame:
    """Add ``is_matmul``: by the name, and all kernels of a counted call none of whose kernels has such a name."""
    device = window.device
    names = [name for name in device["name"].unique() if is_matmul(name)]
    is_named = (device["kind"] == "compute") & device["name"].is_in(names)
    if runs is not None:
        others = runs.filter(~pl.col("name").is_in(names).any().over("call"))["row"]
        is_named = is_named.scatter(others, True)
    return kernels.hstack([is_named.alias("is_matmul")])


def _null_work(num_rows: int) -> pl.DataFrame:
    """Return rows of unknown work."""
    schema = dict.fromkeys((*FLOP_SUMS, "executed_flops", "bytes"), pl.Float64) | {"timed_ns": pl.Int64}
    unknown = [pl.Series(name, [None], dtype=dtype).new_from_index(0, num_rows) for name, dtype in schema.items()]
    return pl.DataFrame(unknown)


def _counted_calls(window: RankWindow) -> pl.DataFrame:
    """Return the calls of operators that are counted, without those inside another one."""
    found = window.cpu.operators_named(*FORMULAS)
    durations = (found["end"] - found["begin"]).alias("dur")
    parents = nest_spans(select_columns(found, "track", ts="begin").hstack([durations]))["parent"]
    found = filter_rows(found, parents.is_null()) if parents.count() else found
    return found[["name", "track", "begin", "end"]].hstack(
        [found[name].cast(pl.String) for name in ("shapes", "types")]
    )


def _work_of_calls(window: RankWindow, calls: pl.DataFrame) -> pl.DataFrame:
    """Return the ``flops``, ``executed_flops``, ``bytes`` and ``dtype`` of each call."""
    keys = ("name", "shapes", "types", "values")
    queries = calls[["name", "shapes", "types"]].hstack([_argument_values(window, calls).alias("values")])
    known = queries.unique()
    schema = {"flops": pl.Float64, "executed_flops": pl.Float64, "bytes": pl.Float64, "dtype": pl.String}
    found = pl.DataFrame([_work_of_call(*row) for row in known.iter_rows()], schema=schema, orient="row")
    found = queries.join(known.hstack(found), on=keys, how="left", nulls_equal=True, maintain_order="left")
    return found[list(schema)]


def _work_of_call(name: str, shapes: str | None, types: str | None, values: str | None) -> tuple[Any, ...]:
    """Return the FLOPs that torch counts, the executed FLOPs, the bytes, and the dtype of the first factor."""
    dtype = TYPES.get(str(_item_at(_decode_list(types), FORMULAS[name].first_factor)))
    work = estimate_work(name, _decode_list(shapes), _decode_list(values))
    if work is None:
        return None, None, None, dtype
    return work.flops, work.executed_flops, None if dtype is None else work.elements * NUM_BYTES[dtype], dtype


def _argument_values(window: RankWindow, calls: pl.DataFrame) -> pl.Series:
    """Return the values of arguments that are no tensors, as JSON, for calls whose formula requires them."""
    names = [name for name, formula in FORMULAS.items() if formula.has_values]
    if not any(name in names for name in drop_null_rows(calls[["name", "shapes"]], "shapes")["name"].unique()):
        return pl.Series("values", [None], dtype=pl.String).new_from_index(0, len(calls))
    queries = calls.select("name", "track", ts="begin")
    spans = window.trace.spans.filter(pl.col("name").is_in(names)).select("name", "track", "ts", "args").collect()
    spans = spans.unique(("name", "track", "ts"), keep="first").drop_nulls("args")
    texts = pl.Series("values", [_encode_values(args) for args in spans["args"]], dtype=pl.String)
    spans = spans.drop("args").with_columns(texts)
    return queries.join(spans, on=["name", "track", "ts"], how="left", maintain_order="left")["values"]


def _encode_values(args: bytes) -> str | None:
    try:
        return msgspec.json.encode(msgspec.json.decode(args, type=_Arguments).values).decode()
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _decode_list(text: str | None) -> list[Any]:
    try:
        return msgspec.json.decode(text or "[]", type=list[Any])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return []


def _item_at(values: Sequence[Any], index: int) -> Any:
    return values[index] if index < len(values) else None


# -- on a device


def _kernel_runs(window: RankWindow, calls: pl.DataFrame) -> pl.DataFrame:
    """Return the kernels of counted calls: their ``row``, and the share that each has of its ``call``, by its time."""
    rows = drop_null_rows(calls.with_row_index("call"), "executed_flops")
    device = window.device[["name", "device", "begin", "end", "launch_track", "launch_begin"]].with_row_index("row")
    device = filter_rows(device, window.device["kind"] == "compute")
    found = find_enclosing(rows[["call", "begin", "end", "track"]], device["launch_track"], device["launch_begin"])
    lengths = (device["end"] - device["begin"]).alias("ns")
    device = drop_null_rows(device[["row", "name", "device"]].hstack([lengths, found["call"]]), "call")
    device = filter_rows(device, device["ns"] > 0)
    device = device.with_columns(share=pl.col("ns") / pl.col("ns").sum().over("call"))
    amounts = rows[["call", "dtype", "flops", *_WORK_COLUMNS]]
    runs = device.join(amounts, on="call", how="left", maintain_order="left")
    return runs.with_columns(_peak_ns(window, runs))


def _peak_ns(window: RankWindow, runs: pl.DataFrame) -> pl.Series:
    """Return the time that each kernel's device would need for its call at its peak."""
    name = pl.col("name")
    is_full = name.str.contains(FULL_FLOAT32) & ~name.str.contains(TENSOR_FLOAT32)
    queries = runs.select("device", "dtype", is_full=is_full.any().over("call"))
    known = queries.unique()
    peaks = [
        peak_flops_per_s(window.devices.names.get(device, ""), dtype or "", is_full_float32=is_full)
        for device, dtype, is_full in known.iter_rows()
    ]
    known = known.with_columns(peak=pl.Series(peaks, dtype=pl.Float64))
    peak = queries.join(known, on=queries.columns, how="left", nulls_equal=True, maintain_order="left")["peak"]
    peak_ns = runs.select(peak_ns=_quantize(pl.col("executed_flops") / peak * 1e9))["peak_ns"]
    return peak_ns.fill_null(float("nan"))


def _quantize(time_ns: pl.Expr) -> pl.Expr:
    """Round times so that their sums are exact and do not depend on the order."""
    return (time_ns * 1024).round() / 1024


def _add_kernel_times(calls: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """Add the time of the kernels of each call; null where none was recorded."""
    times = runs.group_by("call").agg(
        timed_flops=pl.col("executed_flops").first(), timed_ns=pl.col("ns").sum(), peak_ns=pl.col("peak_ns").first()
    )
    joined = calls.with_row_index("call").join(times, on="call", how="left", maintain_order="left")
    return joined[[name for name in joined.columns if name != "call"]]


def _share_among_kernels(runs: pl.DataFrame, num_rows: int) -> pl.DataFrame:
    """Return the share of each row of the window's device in the work of its call."""
    share = pl.col("share")
    shares = runs.select(
        "row",
        flops=(pl.col("flops") * share).round(),
        timed_flops=(pl.col("executed_flops") * share).round(),
        timed_ns="ns",
        peak_ns=_quantize(pl.col("peak_ns") * share),
        bytes=(pl.col("bytes") * share).round(),
    )
    rows = pl.DataFrame({"row": pl.int_range(num_rows, dtype=pl.UInt32, eager=True)})
    return rows.join(shares, on="row", how="left", maintain_order="left")[shares.columns[1:]]
