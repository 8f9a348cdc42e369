"""Rows of steps: where the time of each step of each rank went, on the CPU and on the device."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from kinetoscope.analysis.cpu.loop import TrainingLoop
from kinetoscope.analysis.memory.memory import peak_memory_by_step
from kinetoscope.analysis.plain_data import PlainData
from kinetoscope.analysis.steps.cpu_time_by_step import CpuTimeByStep, are_recorded_by_torch
from kinetoscope.analysis.steps.step_work import step_rates
from kinetoscope.analysis.windows.columns import drop_null_rows, null_unless
from kinetoscope.analysis.windows.intervals import union_ns
from kinetoscope.analysis.windows.nesting import interval_index
from kinetoscope.analysis.windows.window import RankWindow


@dataclass(frozen=True, kw_only=True)
class StepRow(PlainData):
    """One step of one rank. Times are nanoseconds, memory bytes; None is unknown.

    The CPU times are disjoint (`CpuTimeByStep`): from ``data_wait_ns`` as far as it is within the step, to
    ``unknown_ns``, which has no evidence, they add up to ``duration_ns`` with ``evaluation_inside_ns``. A device event
    belongs to the step in which its launch began. ``evaluation_ns`` is between a step and the next one,
    ``evaluation_inside_ns`` within the step. ``device_end_after_ns`` is how long after the step's end on the CPU the
    device ended its work for it, negative if before.

    ``flops`` is the number of floating-point operations that torch counts for operators that began in the step, None
    unless shapes give it for all of them. ``flops_per_s`` and ``mfu``, the share of the device's peak, are of the time
    from the step's first device event to the next step's first; of the last step, and where there is no device, of
    ``duration_ns``, or of the time of its kernels, if that is more. ``mfu_coverage`` is the share of the time of matmul
    kernels that operators with known shapes launched; below 80 % there are no rates. ``running_ns``, ``blocked_ns`` and
    ``starved_ns`` (run-queue delay) are of the loop's thread, from the end of the step before to the end of this one.
    """

    rank: int | None
    step: int
    begin_ns: int
    duration_ns: int
    between_ns: int | None = None
    evaluation_ns: int | None = None
    data_wait_ns: int | None = None
    forward_ns: int | None = None
    backward_ns: int | None = None
    optimizer_ns: int | None = None
    sync_ns: int | None = None
    gc_ns: int | None = None
    python_ns: int | None = None
    communication_wait_ns: int | None = None
    unknown_ns: int | None = None
    device_busy_ns: int | None = None
    device_compute_ns: int | None = None
    device_communication_ns: int | None = None
    device_exposed_communication_ns: int | None = None
    device_idle_ns: int | None = None
    num_launches: int | None = None
    num_kernels: int | None = None
    peak_memory_bytes: int | None = None
    evaluation_inside_ns: int | None = None
    device_end_after_ns: int | None = None
    flops: int | None = None
    flops_per_s: float | None = None
    mfu: float | None = None
    mfu_coverage: float | None = None
    running_ns: int | None = None
    blocked_ns: int | None = None
    starved_ns: int | None = None

    @property
    def all_evaluation_ns(self) -> int:
        """Evaluation within the step and after it."""
        return (self.evaluation_inside_ns or 0) + (self.evaluation_ns or 0)


def missing_share(steps: Sequence[StepRow]) -> float:
    """Return the largest share of all steps that a rank has not recorded."""
    by_rank: defaultdict[int | None, set[int]] = defaultdict(set)
    for row in steps:
        by_rank[row.rank].add(row.step)
    fewest, all_steps = min(map(len, by_rank.values()), default=0), set[int]().union(*by_rank.values())
    return 1 - fewest / len(all_steps) if all_steps else 0.0


def step_rows(window: RankWindow, loop: TrainingLoop, work: pl.DataFrame) -> list[StepRow]:
    """Return the rows of one window, in the order of time.

    Args:
        window: a window of one rank.
        loop: its loop.
        work: the result of `work_by_step`.
    """
    if not len(window.steps):
        return []
    steps = _StepColumns(window, loop)
    found = (
        CpuTimeByStep(loop).columns()
        | steps.device()
        | {"peak_memory_bytes": peak_memory_by_step(window)}
        | steps.flops(work)
    )
    found |= loop.python_time.states.by_step()
    columns = {name: column.to_list() for name, column in found.items() if column is not None}
    return [
        StepRow(
            rank=window.rank,
            step=number,
            begin_ns=begin_ns,
            duration_ns=end_ns - begin_ns,
            **{name: column[index] for name, column in columns.items()},
        )
        for index, (number, begin_ns, end_ns) in enumerate(window.steps[["step", "begin", "end"]].iter_rows())
    ]


class _StepColumns:
    """Builder of the columns of a window's steps, each in one pass over its spans."""

    def __init__(self, window: RankWindow, loop: TrainingLoop) -> None:
        self._window = window
        self._begins, self._ends = window.steps["begin"], window.steps["end"]
        self._is_recorded = are_recorded_by_torch(loop)

    def device(self) -> dict[str, pl.Series | None]:
        """Return the times of the device events that were launched in each step."""
        window = self._window
        if not len(window.device):
            return {}
        found, (firsts, until) = self._launched, self._on_device
        return {
            "device_busy_ns": found["busy"],
            "device_compute_ns": found["compute"],
            "device_communication_ns": found["communication"],
            "device_exposed_communication_ns": found["kernels"] - found["compute"],
            "device_idle_ns": until - firsts - window.devices.time.busy.overlap_ns(firsts, until),
            "num_launches": found["num_launches"],
            "num_kernels": found["num_kernels"],
            "device_end_after_ns": found["last_end"] - self._ends,
        }

    def flops(self, work: pl.DataFrame) -> dict[str, pl.Series | None]:
        """Return the FLOPs of each step, and their rate."""
        rates = step_rates(work, self._device_lengths_ns(), num_devices(self._window))
        return {column.name: self._null_unless_recorded(column) for column in rates}

    def _device_lengths_ns(self) -> pl.Series:
        """Return the time from each step's first device event to the next one's.

        The last step's is that of its CPU or of its kernels, whichever is longer.
        """
        durations = self._ends - self._begins
        if not len(self._window.device):
            return durations
        firsts, until = self._on_device
        alone = pl.DataFrame([durations, self._launched["kernels"]]).max_horizontal()
        rows = pl.DataFrame({"apart": until - firsts, "alone": alone})
        is_last = pl.int_range(pl.len()) == pl.len() - 1
        return rows.select(pl.when(is_last).then("alone").otherwise("apart").alias("length"))["length"]

    @cached_property
    def _launched(self) -> pl.DataFrame:
        """A row per step on the device events that were launched in it.

        ``busy``, ``compute``, ``communication`` and ``kernels`` are unions in ns, ``num_kernels`` and ``num_launches``
        are counts. ``first_begin`` is the first event's start, and ``last_end`` the end of the last compute kernel, or
        of all events without one; both are null without events.
        """
        device = self._window.device[["begin", "end", "kind", "launch_begin", "launch_track"]]
        indices = interval_index(self._window.steps, device["launch_begin"])
        events = drop_null_rows(device.hstack([indices]), "index")
        end, kind = pl.col("end"), pl.col("kind")
        taken = {"busy": pl.lit(True), "compute": kind == "compute", "communication": kind == "communication"}
        taken["kernels"] = kind != "copy"
        sums = events.group_by("index").agg(
            **{name: union_ns(is_wanted) for name, is_wanted in taken.items()},
            num_kernels=(kind != "copy").sum().cast(pl.Int64),
            num_launches=pl.struct("launch_begin", "launch_track").n_unique().cast(pl.Int64),
            first_begin=pl.col("begin").min(),
            last_end=pl.coalesce(end.filter(kind == "compute").max(), end.max()),
        )
        steps = self._window.steps.select(index=pl.int_range(pl.len(), dtype=pl.UInt32))
        found = steps.join(sums, on="index", how="left", maintain_order="left")
        return found.with_columns(pl.col(*taken, "num_kernels", "num_launches").fill_null(0))

    @cached_property
    def _on_device(self) -> tuple[pl.Series, pl.Series]:
        """The start of each step's first device event, and of the next one's, or the end of the last event."""
        first, last_end = pl.col("first_begin"), self._window.device["end"].max()
        found = self._launched.select(first, until=first.shift(-1).backward_fill().fill_null(last_end))
        return found["first_begin"], found["until"]

    def _null_unless_recorded(self, values: pl.Series) -> pl.Series:
        """Return the values, null for steps that torch did not record."""
        return null_unless(values, self._is_recorded)


def num_devices(window: RankWindow) -> int:
    """Return the number of devices with events in the window."""
    return max(1, drop_null_rows(window.device[["device"]], "device")["device"].n_unique()) if len(window.device) else 0
