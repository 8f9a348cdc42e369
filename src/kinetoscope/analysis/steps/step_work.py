"""FLOPs of each step, their rate, and the covered share of matmul time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypedDict

import polars as pl

from kinetoscope.analysis.gpu.flops import WindowWork
from kinetoscope.analysis.windows.call_statistics import sum_or_null
from kinetoscope.analysis.windows.columns import build_frame, drop_null_rows, filter_rows, null_unless
from kinetoscope.analysis.windows.intervals import zeros
from kinetoscope.analysis.windows.nesting import interval_index
from kinetoscope.analysis.windows.window import RankWindow
from kinetoscope.core.text.wording import format_percent

MIN_COVERAGE = 0.8
"""With known FLOPs for a smaller share of the time of matmul kernels, there are no rates."""

_BEYOND_PEAK = (
    "FLOP/s and MFU are unknown: by the shapes in the trace, a step computes more than its devices can, so the "
    "shapes are not those of what ran."
)
_SUMS = ("flops", "executed_flops", "peak_ns", "matmul_ns", "covered_ns")


class ComputeRates(TypedDict):
    """FLOPs and their rate for one rank, on average; None if unknown.

    ``mfu_coverage`` is the share of the time of matmul kernels with known FLOPs; None without such kernels.
    """

    flops_per_step: float | None
    flops_per_s: float | None
    mfu: float | None
    mfu_coverage: float | None


def work_by_step(window: RankWindow, work: WindowWork) -> pl.DataFrame:
    """Return the work of each step of the window.

    Returns:
        A row per step with ``flops``, as torch counts them, ``executed_flops``, and ``peak_ns``, the time at the
            device's peak, all null unless known for each counted call; ``matmul_ns``, the time of matmul kernels, and
            ``covered_ns``, that of those with known FLOPs.
    """
    calls = work.calls[["flops", "executed_flops", "peak_ns"]].hstack(
        [interval_index(window.steps, work.calls["begin"])]
    )
    calls = drop_null_rows(calls, "index")
    if calls["flops"].has_nulls():
        calls = calls.filter(pl.col("flops").is_not_null().all().over("index"))
    sums = calls.group_by("index").agg(pl.col("flops", "executed_flops").sum(), sum_or_null("peak_ns"))
    index = pl.int_range(len(window.steps), eager=True).cast(sums.schema["index"])
    found = index.alias("index").to_frame().join(sums, on="index", how="left", maintain_order="left")
    products = _matmul_times(window, work).group_by("index").agg(pl.col("matmul_ns", "covered_ns").sum())
    found = found.join(products, on="index", how="left", maintain_order="left")
    return found.select(*_SUMS[:3], pl.col(_SUMS[3:]).fill_null(0))


def _matmul_times(window: RankWindow, work: WindowWork) -> pl.DataFrame:
    """Return the ns of each matmul kernel that was launched in a step, with the step's ``index``."""
    device, timed_ns = window.device, work.kernels["timed_ns"]
    lengths = (device["end"] - device["begin"]).alias("matmul_ns")
    covered = lengths.zip_with(timed_ns.is_not_null(), zeros(len(lengths))) if timed_ns.has_nulls() else lengths
    kernels = build_frame(lengths, covered.alias("covered_ns"), interval_index(window.steps, device["launch_begin"]))
    return drop_null_rows(filter_rows(kernels, work.kernels["is_matmul"]), "index")


def step_rates(sums: pl.DataFrame, lengths_ns: pl.Series, num_devices: int) -> pl.DataFrame:
    """Return ``flops``, ``flops_per_s``, ``mfu`` and ``mfu_coverage`` of each step.

    With a device, the first three are null where too little of the time of its matmuls is covered.
    """
    coverage = pl.when(pl.col("matmul_ns") > 0).then(pl.col("covered_ns") / pl.col("matmul_ns"))
    is_reliable = (coverage >= MIN_COVERAGE).fill_null(num_devices == 0)
    length_ns = null_unless(lengths_ns, lengths_ns != 0).cast(pl.Float64)
    rates = {
        "flops": pl.col("flops").cast(pl.Int64, strict=False),
        "flops_per_s": pl.col("executed_flops") / length_ns * 1e9,
        "mfu": (pl.col("peak_ns") / length_ns / max(1, num_devices)).fill_nan(None),
    }
    is_reliable &= (rates["mfu"] <= 1).fill_null(True)  # no device is faster than its peak
    reliable = [pl.when(is_reliable).then(rate).alias(name) for name, rate in rates.items()]
    return sums.select(*reliable, coverage.alias("mfu_coverage"))


@dataclass(frozen=True)
class WorkSums:
    """Sums of the work of steps, ``num_steps`` with known work; ``peak_ns`` is per device."""

    num_steps: int = 0
    has_device: bool = False
    flops: float = 0.0
    executed_flops: float = 0.0
    peak_ns: float = 0.0
    matmul_ns: int = 0
    covered_ns: int = 0

    @classmethod
    def of(cls, sums: pl.DataFrame, is_recorded: pl.Series, num_devices: int) -> "WorkSums":
        """Return the sums of the steps that torch recorded."""
        rows = filter_rows(sums, is_recorded)
        known = drop_null_rows(rows, "executed_flops").select(
            "flops", "executed_flops", pl.col("peak_ns").fill_null(float("nan"))
        )
        flops, executed_flops, peak_ns = (float(known[name].sum()) for name in ("flops", "executed_flops", "peak_ns"))
        products = (int(rows[name].sum()) for name in ("matmul_ns", "covered_ns"))
        return cls(len(known), num_devices > 0, flops, executed_flops, peak_ns / max(1, num_devices), *products)


def compute_rates(parts: Iterable[WorkSums], step_ns: float | None) -> ComputeRates:
    """Return the FLOPs of a step of ``step_ns`` on one rank, and their rate."""
    parts = list(parts)
    coverage = _coverage(parts)
    has_device = any(part.has_device for part in parts)
    num_steps = sum(part.num_steps for part in parts)
    is_reliable = coverage >= MIN_COVERAGE if coverage is not None else not has_device
    if not num_steps or not step_ns or not is_reliable:
        return ComputeRates(flops_per_step=None, flops_per_s=None, mfu=None, mfu_coverage=coverage)
    flops, executed_flops, peak_ns = (
        sum(getattr(part, name) for part in parts) for name in ("flops", "executed_flops", "peak_ns")
    )
    mfu = peak_ns / num_steps / step_ns
    if _is_beyond_peak(parts, step_ns):
        return ComputeRates(flops_per_step=None, flops_per_s=None, mfu=None, mfu_coverage=coverage)
    return ComputeRates(
        flops_per_step=flops / num_steps,
        flops_per_s=executed_flops / num_steps / step_ns * 1e9,
        mfu=mfu if mfu <= 1 else None,  # it may be NaN
        mfu_coverage=coverage,
    )


def _is_beyond_peak(parts: Sequence[WorkSums], step_ns: float | None) -> bool:
    """Return whether devices seem to have computed more than they can: then the FLOPs are wrong."""
    num_steps = sum(part.num_steps for part in parts)
    return bool(num_steps and step_ns) and sum(part.peak_ns for part in parts) > num_steps * (step_ns or 0.0)


def _coverage(parts: Sequence[WorkSums]) -> float | None:
    matmul_ns = sum(part.matmul_ns for part in parts)
    return sum(part.covered_ns for part in parts) / matmul_ns if matmul_ns else None


def build_rate_notes(parts: Sequence[WorkSums], step_ns: float | None) -> list[str]:
    """Return a sentence on missing FLOP/s: shapes of too few matmuls are known, or they are wrong."""
    coverage = _coverage(parts)
    if coverage is None or coverage >= MIN_COVERAGE:
        return [_BEYOND_PEAK] if _is_beyond_peak(parts, step_ns) else []
    if not coverage:
        return []
    return [
        f"FLOP/s and MFU are unknown: only {format_percent(coverage, 1)} of the time of matmul, convolution and "
        "attention kernels was launched by operators with recorded shapes. CUDA graphs, compiled code, or convolutions "
        "without arguments launched the rest."
    ]
