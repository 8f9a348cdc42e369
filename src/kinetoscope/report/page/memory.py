"""Memory of each device over time by category, and the live allocations at the peak."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from kinetoscope.analysis.cpu.loop import TrainingLoop
from kinetoscope.analysis.memory.memory_categories import CATEGORIES, memory_allocations
from kinetoscope.analysis.memory.memory_growth import allocating_operators
from kinetoscope.analysis.run_report import RunReport
from kinetoscope.analysis.steps.steps import StepRow
from kinetoscope.analysis.windows.nesting import interval_index
from kinetoscope.analysis.windows.source_lines import source_lines
from kinetoscope.analysis.windows.window import RankWindow
from kinetoscope.analysis.windows.window_reader import read_windows
from kinetoscope.pages.page_data import Allocation, MemoryOverTime, StepEnd
from kinetoscope.report.page.columns import encode_deltas, encode_numbers
from kinetoscope.report.page.downsampling import select_extremes
from kinetoscope.report.page.rank_traces import RankTrace

ALLOCATED = "allocated"
"""Category of all memory, where a trace does not record which memory was freed."""

_MAX_SAMPLES = 100_000  # in all graphs
_MIN_SAMPLES = 200
_MAX_SAMPLES_PER_WINDOW = 4000
_MAX_ALLOCATIONS = 200
_KEYS = ("category", "name", "line", "step")


@dataclass(frozen=True)
class _Part:
    """Memory of one device in one window: ``sizes`` has ``ts`` and a column of bytes per category."""

    sizes: pl.DataFrame
    peak_bytes: int
    alive: list[Allocation]


class MemoryBuilder:
    """Builder of graphs of memory from the windows of ranks."""

    def __init__(self, step_name: str | None = None) -> None:
        self._step_name = step_name
        self._parts: dict[tuple[int | None, str], list[_Part]] = {}

    def add(self, part: RankTrace) -> None:
        """Add a window."""
        for window in read_windows(part.trace, self._step_name) if _has_memory(part) else ():
            pieces = memory_allocations(window, TrainingLoop(window))
            for events in window.instants.allocations.drop_nulls("total").partition_by("device", maintain_order=True):
                device = events["device"][0]
                of_device = pieces.filter(pl.col("device").eq_missing(device))
                found = _build_part(window, events, of_device)
                key = part.rank, label_memory_device(device)
                self._parts.setdefault(key, []).append(
                    replace(found, sizes=part.shift_to_common_clock(found.sizes, "ts"))
                )

    def find_start_ns(self) -> int | None:
        """Return the time of the first sample; None without samples."""
        firsts: list[Any] = [part.sizes["ts"].min() for parts in self._parts.values() for part in parts]
        return min((first for first in firsts if first is not None), default=None)

    def build(self, origin_ns: int, report: RunReport) -> list[MemoryOverTime]:
        """Return the graphs, with times relative to ``origin_ns``, and the peaks of ``report`` where it has them."""
        max_samples = max(_MIN_SAMPLES, _MAX_SAMPLES // max(1, len(self._parts)))
        keys = sorted(self._parts, key=lambda key: (key[0] is None, key[0] or 0, key[1]))
        peaks = {(row.rank, label_memory_device(row.device)): row.peak_bytes for row in report.memory}
        found = []
        for rank, device in keys:
            steps = [row for row in report.steps if row.rank == rank]
            graph = _build_graph(rank, device, self._parts[rank, device], origin_ns, max_samples, steps)
            found.append(replace(graph, peak_bytes=peaks.get((rank, device), graph.peak_bytes)))
        return found


def label_memory_device(device: int | None) -> str:
    """Return the label of a device's memory; that of the CPU belongs to no device."""
    return "CPU" if device is None else f"device {device}"


def _has_memory(part: RankTrace) -> bool:
    found = part.trace.instants.filter((pl.col("name") == "[memory]") & pl.col("total_allocated").is_not_null())
    return bool(found.select(pl.len()).collect().item())


def _build_part(window: RankWindow, events: pl.DataFrame, pieces: pl.DataFrame) -> _Part:
    """Return the memory of one device from its ``events`` and its ``pieces``."""
    sizes = _compute_sizes(events, pieces)
    total = sizes.drop("ts").sum_horizontal()
    peak_row = total.arg_max() or 0
    return _Part(
        sizes=sizes[select_extremes(total, _MAX_SAMPLES_PER_WINDOW)],
        peak_bytes=int(total[peak_row]),
        alive=_find_live_allocations(window, events, pieces, peak_row),
    )


def _compute_sizes(events: pl.DataFrame, pieces: pl.DataFrame) -> pl.DataFrame:
    """Return the live bytes after each event of a device, a column per category."""
    if not len(pieces):
        return events.select("ts", pl.col("total").clip(0).alias(ALLOCATED))
    rows = pl.col("row").fill_null(0)
    changes = pl.concat(
        [
            pieces.select("category", row=rows, change="bytes"),
            pieces.drop_nulls("end_row").select("category", row="end_row", change=-pl.col("bytes")),
        ]
    )
    changes = changes.group_by("category", "row").agg(pl.col("change").sum())
    sizes = events.select("ts").with_row_index("row")
    for category in CATEGORIES:
        of_category = changes.filter(pl.col("category") == category).select("row", pl.col("change").alias(category))
        if len(of_category):
            sizes = sizes.join(of_category, on="row", how="left", maintain_order="left")
            sizes = sizes.with_columns(pl.col(category).fill_null(0).cum_sum().clip(0))
    return sizes.drop("row")


def _find_live_allocations(
    window: RankWindow, events: pl.DataFrame, pieces: pl.DataFrame, row: int
) -> list[Allocation]:
    """Return the live allocations after an event of a device by source, the largest first."""
    is_alive = (pl.col("row").fill_null(0) <= row) & (pl.col("end_row") > row).fill_null(True)
    alive = pieces.filter(is_alive)
    indices = alive["row"].fill_null(0)
    allocated_at = events.select("ts", "track")[indices] if len(alive) else events.select("ts", "track").clear()
    is_old = alive["row"].is_null()
    steps = window.steps["step"].gather(interval_index(window.steps, allocated_at["ts"])) if len(window.steps) else None
    alive = alive.with_columns(
        name=allocating_operators(window, allocated_at).fill_null(""),
        line=source_lines(window, allocated_at),
        step=pl.lit(None, dtype=pl.Int64) if steps is None else steps,
    )
    known = [pl.when(~pl.lit(is_old)).then(name).alias(name) for name in ("name", "line", "step")]
    alive = alive.with_columns(known).with_columns(pl.col("name").fill_null(""))
    sums = alive.group_by(_KEYS).agg(pl.col("bytes").sum(), pl.len().alias("count"))
    sums = sums.sort("bytes", *_KEYS, descending=[True, *(False for _ in _KEYS)])
    return [
        Allocation(**dict(zip(_KEYS, values, strict=True)), size_bytes=size_bytes, num_allocations=count)
        for *values, size_bytes, count in sums.head(_MAX_ALLOCATIONS).iter_rows()
    ]


def _build_graph(
    rank: int | None, device: str, parts: list[_Part], origin_ns: int, max_samples: int, steps: list[StepRow]
) -> MemoryOverTime:
    sizes = pl.concat([part.sizes for part in parts], how="diagonal").sort("ts").fill_null(0)
    sizes = sizes[select_extremes(sizes.drop("ts").sum_horizontal(), max_samples)]
    categories = [name for name in (*CATEGORIES, ALLOCATED) if name in sizes.columns]
    totals = sizes.drop("ts").sum_horizontal()
    return MemoryOverTime(
        rank=rank,
        device=device,
        categories=categories,
        times=encode_deltas(sizes["ts"] - origin_ns),
        sizes=[encode_numbers(sizes[name]) for name in categories],
        totals=encode_numbers(totals),
        peak=totals.arg_max() or 0,
        peak_bytes=max(part.peak_bytes for part in parts),
        alive_at_peak=max(parts, key=lambda part: part.peak_bytes).alive,
        step_ends=_build_step_ends(sizes["ts"].to_list(), totals.to_list(), steps, origin_ns),
    )


def _build_step_ends(
    sample_times: Sequence[int], totals: Sequence[int], steps: Sequence[StepRow], origin_ns: int
) -> list[StepEnd]:
    """Return the live bytes at the end of each step that overlaps the recorded time."""
    ends = sorted((row.begin_ns + row.duration_ns, row.begin_ns, row.step) for row in steps)
    return [
        StepEnd(step=step, time=end_ns - origin_ns, size_bytes=totals[bisect_right(sample_times, end_ns) - 1])
        for end_ns, begin_ns, step in ends
        if sample_times and end_ns >= sample_times[0] and begin_ns <= sample_times[-1]
    ]
