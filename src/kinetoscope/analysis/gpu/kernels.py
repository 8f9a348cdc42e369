"""Kernels and copies by name, on all devices."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import polars as pl

from kinetoscope.analysis.gpu.flops import FLOP_SUMS, WindowWork, add_rates
from kinetoscope.analysis.gpu.matmul_kernels import uses_tensor_cores
from kinetoscope.analysis.plain_data import PlainData
from kinetoscope.analysis.windows.call_statistics import add_quantiles, combine_call_sums, sum_calls
from kinetoscope.analysis.windows.window import RankWindow

_KEY = ("name", "kind")
_SUMS = ("bytes", *FLOP_SUMS)


@dataclass(frozen=True, kw_only=True)
class KernelRow(PlainData):
    """All runs of one kernel, or copies of one kind, on all devices. Times are nanoseconds.

    ``kind`` is ``compute``, ``communication`` or ``copy``. ``flops`` is the number of floating-point operations, of
    runs whose operator's shapes give it, None if none do: kernels of one call of an operator share its work by their
    time. ``flops_per_s`` is the rate of these runs, and ``mfu`` the share of the device's peak. ``bytes``
    is what copies moved, and a lower bound of what those runs read and wrote; None where that is unknown.
    ``uses_tensor_cores`` is whether a compute kernel uses matrix units, as far as its name shows; else None.
    """

    name: str
    kind: str
    num_calls: int
    total_ns: int
    self_ns: int
    mean_ns: float
    p50_ns: int
    p95_ns: int
    max_ns: int
    flops: float | None = None
    flops_per_s: float | None = None
    mfu: float | None = None
    bytes: float | None = None
    uses_tensor_cores: bool | None = None


class TensorCores(TypedDict):
    """Use of tensor cores, as shares of the time of compute kernels.

    ``tensor_core_share`` is a lower bound: some names do not show it; None where none does. ``tensor_core_coverage`` is
    the share of kernels whose names show it; None without compute kernels.
    """

    tensor_core_share: float | None
    tensor_core_coverage: float | None


def kernel_sums(window: RankWindow, work: WindowWork) -> pl.DataFrame:
    """Sum up the device events of one window by name, for `kernel_rows`."""
    runs = window.device.select("name", "kind", "bytes", dur=pl.col("end") - pl.col("begin"))
    runs = runs.hstack(work.kernels.select(*FLOP_SUMS, least_bytes="bytes"))
    return sum_calls(runs.with_columns(bytes=pl.coalesce(pl.col("bytes").cast(pl.Float64), "least_bytes")), _KEY, _SUMS)


def combine_kernel_sums(sums: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Combine the sums of several windows as those of one."""
    return combine_call_sums(sums, _KEY, _SUMS)


def kernel_rows(sums: pl.DataFrame) -> list[KernelRow]:
    """Return a row per kernel, the largest total time first."""
    rows = add_rates(add_quantiles(sums)).with_columns(self_ns="total_ns")
    rows = rows.sort("total_ns", "name", "kind", descending=[True, False, False])
    return [KernelRow(**row, uses_tensor_cores=_uses_tensor_cores(row)) for row in rows.iter_rows(named=True)]


def tensor_core_usage(rows: Sequence[KernelRow]) -> TensorCores:
    """Return the use of tensor cores by all kernels, from their names."""
    computing = [row for row in rows if row.kind == "compute"]
    whole_ns = sum(row.total_ns for row in computing)
    classified_ns = sum(row.total_ns for row in computing if row.uses_tensor_cores is not None)
    used_ns = sum(row.total_ns for row in computing if row.uses_tensor_cores)
    return TensorCores(
        tensor_core_share=used_ns / whole_ns if classified_ns else None,
        tensor_core_coverage=classified_ns / whole_ns if whole_ns else None,
    )


def _uses_tensor_cores(row: dict[str, Any]) -> bool | None:
    return uses_tensor_cores(row["name"]) if row["kind"] == "compute" else None
