"""Our numbers for a trace, in the terms and units of HolisticTraceAnalysis."""

from pathlib import Path
from typing import Any

import polars as pl

import kinetoscope
from kinetoscope.analysis.ranks.ranks import RankRow
from kinetoscope.analysis.windows.window_reader import read_windows

_LAUNCHES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMemcpyAsync", "cudaMemsetAsync")
_KERNEL_WAIT_NS = 30_000


def our_numbers(path: Path) -> dict[str, Any]:
    """Return the same as `hta_numbers`, of a trace of one device that is as HTA reads it."""
    trace = kinetoscope.load(path, cache=False)
    report = kinetoscope.analyze(trace)
    (row,), (window,) = report.ranks, read_windows(trace)
    return {
        "temporal": {
            "idle": _us(row.idle_ns),
            "compute": _us(row.compute_ns),
            "other": _us(row.busy_ns - row.compute_ns),
            "window": _us(row.window_ns),
        },
        "overlap_percent": _overlap(row),
        "idle": _idle(window.device),
        "launches": _launches(window.device),
        "kinds": {
            "compute": _us(row.compute_ns),
            "communication": _us(row.communication_ns),
            "copy": _us(row.copy_ns),
            "exposed communication": _us(row.exposed_communication_ns),
            "exposed copy": _us(row.exposed_copy_ns),
        },
        "kernels": {
            row.name: [_us(row.total_ns), _us(row.max_ns), round(row.mean_ns / 1000, 3)] for row in report.kernels
        },
    }


def kinds_of_hta(sums: dict[str, int]) -> dict[str, int]:
    """HTA's sums of time by what ran at once, added up as our rows are."""

    def with_all(*wanted: str, but: tuple[str, ...] = ()) -> int:
        parts = {key: set(key.split(" overlapping ")) for key in sums}
        return sum(sums[key] for key, ran in parts.items() if ran >= set(wanted) and not ran & set(but))

    return {
        "compute": with_all("COMPUTATION"),
        "communication": with_all("COMMUNICATION"),
        "copy": with_all("MEMORY"),
        "exposed communication": with_all("COMMUNICATION", but=("COMPUTATION",)),
        "exposed copy": with_all("MEMORY", but=("COMPUTATION", "COMMUNICATION")),
    }


def _us(time_ns: int | None) -> int:
    return (time_ns or 0) // 1000


def _overlap(row: RankRow) -> float | None:
    if not row.communication_ns:
        return None
    return round(100 * (row.communication_ns - row.exposed_communication_ns) / row.communication_ns, 2)


def _idle(device: pl.DataFrame) -> dict[str, int]:
    """Return idle time by stream and reason, by HTA's rule: a whole gap is the CPU's if its end was launched after its
    start."""
    gaps = device.select("stream", "launch_begin", "begin", before=pl.col("end").shift(1).over("stream")).drop_nulls(
        "before"
    )
    gap_ns, is_host = pl.col("begin") - pl.col("before"), pl.col("launch_begin") > pl.col("before")
    is_short = gap_ns < _KERNEL_WAIT_NS
    reason = pl.when(is_host).then(pl.lit("host_wait")).when(is_short).then(pl.lit("kernel_wait"))
    sums = gaps.group_by("stream", reason.otherwise(pl.lit("other")).alias("reason")).agg(gap_ns.sum().alias("time"))
    found = {f"{row['stream']} {row['reason']}": _us(row["time"]) for row in sums.iter_rows(named=True)}
    return {key: time for key, time in sorted(found.items()) if time}


def _launches(device: pl.DataFrame) -> dict[str, int]:
    launched = device.filter(pl.col("launch_name").is_in(_LAUNCHES))
    delay = (pl.col("begin") - pl.col("launch_end")).clip(0)
    sums = launched.select(
        cpu_duration=(pl.col("launch_end") - pl.col("launch_begin")).sum(),
        gpu_duration=(pl.col("end") - pl.col("begin")).sum(),
        launch_delay=delay.sum(),
    )
    return {"num": len(launched)} | {name: _us(value) for name, value in sums.row(0, named=True).items()}
