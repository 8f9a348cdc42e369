"""analysis: where the time of each step went, on the host and on the device. One row per rank and step."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import polars as pl

from kinetoscope.analysis.host_ledger import HostLedger, known_where, recorded_by_torch
from kinetoscope.analysis.host_time import HostTime
from kinetoscope.analysis.intervals import Coverage, newly_covered_ns
from kinetoscope.analysis.memory import peaks
from kinetoscope.analysis.step_work import step_rates
from kinetoscope.analysis.window import RankWindow, place_in


@dataclass(frozen=True, kw_only=True)
class StepRow:
    """One step of one rank. Times are nanoseconds, memory bytes; what is not known is None.

    What the host did shares nothing (`HostLedger`): from ``data_wait_ns`` as far as it is within the step, to
    ``unknown_ns``, which no evidence covers, it adds up to ``duration_ns`` with ``evaluation_inside_ns``.
    A device event belongs to the step in which its launch began. ``evaluation_ns`` is between a step and the next one,
    ``evaluation_inside_ns`` within the step. ``device_end_after_ns`` is how long after the step's end on the host the
    device ended what the step computes there, negative if before. ``flops`` is the number of floating-point operations
    that torch counts for operators that began in the step, None unless shapes give it for all of them. ``flops_per_s``
    and ``mfu``, the share of the device's peak, are of the time from the step's first device event to the next step's
    first; of the last step, and where there is no device, of ``duration_ns``, or of what its kernels take, if that is
    more. ``mfu_coverage`` is the share of the time of kernels that compute products which operators with known shapes
    launched; below 80 % nothing else is told. ``running_ns``, ``blocked_ns`` and ``starved_ns`` (ready, but without a
    processor) are what the loop's thread did from the end of the step before to the end of this one.
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

    def to_dict(self) -> dict[str, Any]:
        """The row as plain data."""
        return asdict(self)


def uneven_share(steps: Sequence[StepRow]) -> float:
    """Which part of all steps a rank has not recorded, at most."""
    by_rank: defaultdict[int | None, set[int]] = defaultdict(set)
    for row in steps:
        by_rank[row.rank].add(row.step)
    fewest, all_steps = min(map(len, by_rank.values()), default=0), set[int]().union(*by_rank.values())
    return 1 - fewest / len(all_steps) if all_steps else 0.0


def step_rows(window: RankWindow, host: HostTime, work: pl.DataFrame) -> list[StepRow]:
    """The rows of one window, in the order of time. ``work`` is what `work_by_step` found."""
    if not len(window.steps):
        return []
    steps = _Steps(window, host)
    found = HostLedger(host).columns() | steps.device() | {"peak_memory_bytes": peaks(window)} | steps.flops(work)
    found |= host.states.by_step()
    columns = {name: column.to_list() for name, column in found.items() if column is not None}
    return [
        StepRow(
            rank=window.rank,
            step=number,
            begin_ns=begin_ns,
            duration_ns=end_ns - begin_ns,
            **{name: column[place] for name, column in columns.items()},
        )
        for place, (number, begin_ns, end_ns) in enumerate(window.steps.select("step", "begin", "end").iter_rows())
    ]


class _Steps:
    """Works out the columns of a window's steps, each in one pass over the spans it needs."""

    def __init__(self, window: RankWindow, host: HostTime) -> None:
        self._window = window
        self._begins, self._ends = window.steps["begin"], window.steps["end"]
        self._is_recorded = recorded_by_torch(host)

    def device(self) -> dict[str, pl.Series | None]:
        """What the device did for each step: the events that were launched in it."""
        window = self._window
        if not len(window.device):
            return {}
        events = self._launched
        kernels, kind = events.filter(pl.col("kind") != "copy"), pl.col("kind")
        counted = events.group_by("place").agg(
            (kind != "copy").sum().cast(pl.Int64).alias("num_kernels"),
            pl.struct("launch_begin", "launch_track").n_unique().cast(pl.Int64).alias("num_launches"),
        )
        num_kernels, num_launches = (self._placed(counted, name) for name in ("num_kernels", "num_launches"))
        compute = self._unions(events.filter(kind == "compute"))
        firsts, until = self._on_device
        return {
            "device_busy_ns": self._unions(events),
            "device_compute_ns": compute,
            "device_communication_ns": self._unions(events.filter(kind == "communication")),
            "device_exposed_communication_ns": self._unions(kernels) - compute,
            "device_idle_ns": until - firsts - Coverage(window.device).within(firsts, until),
            "num_launches": num_launches,
            "num_kernels": num_kernels,
            "device_end_after_ns": self._device_ends - self._ends,
        }

    def flops(self, work: pl.DataFrame) -> dict[str, pl.Series | None]:
        """What operators computed in each step, and how fast."""
        rates = step_rates(work, self._lengths_ns(), num_devices(self._window))
        return {column.name: self._if_recorded(column) for column in rates}

    def _lengths_ns(self) -> pl.Series:
        """From each step's first device event to the next one's; the last one's are as long as its host or its kernels
        take, whichever is more."""
        durations = self._ends - self._begins
        if not len(self._window.device):
            return durations
        firsts, until = self._on_device
        kernels = self._unions(self._launched.filter(pl.col("kind") != "copy"))
        rows = pl.DataFrame({"apart": until - firsts, "alone": pl.DataFrame([durations, kernels]).max_horizontal()})
        is_last = pl.int_range(pl.len()) == pl.len() - 1
        return rows.select(pl.when(is_last).then("alone").otherwise("apart").alias("length"))["length"]

    @cached_property
    def _launched(self) -> pl.DataFrame:
        """The device events that were launched in a step, with its ``place``."""
        device = self._window.device.select("begin", "end", "kind", "launch_begin", "launch_track")
        return device.with_columns(place=place_in(self._window.steps, device["launch_begin"])).drop_nulls("place")

    @cached_property
    def _on_device(self) -> tuple[pl.Series, pl.Series]:
        """When each step's first device event began, and the next one's, or when the last one ended."""
        begins = self._launched.group_by("place").agg(pl.col("begin").min())
        firsts = self._placed(begins, "begin", missing=None)
        return firsts, firsts.shift(-1).backward_fill().fill_null(self._window.device["end"].max())

    @property
    def _device_ends(self) -> pl.Series:
        """When the last of each step's computing kernels ended, or of all its events if it has none; null for none."""
        end, is_compute = pl.col("end"), pl.col("kind") == "compute"
        ends = self._launched.group_by("place").agg(pl.coalesce(end.filter(is_compute).max(), end.max()).alias("end"))
        return self._placed(ends, "end", missing=None)

    def _unions(self, events: pl.DataFrame) -> pl.Series:
        """The length of the union of each step's events."""
        sums = events.group_by("place", maintain_order=True).agg(newly_covered_ns().sum().alias("covered"))
        return self._placed(sums, "covered")

    def _placed(self, values: pl.DataFrame, name: str, missing: int | None = 0) -> pl.Series:
        """A value for each step, of rows with its ``place``."""
        rows = self._window.steps.select(place=pl.int_range(len(self._begins)).cast(values["place"].dtype))
        placed = rows.join(values, on="place", how="left", maintain_order="left")[name]
        return placed if missing is None else placed.fill_null(missing)

    def _if_recorded(self, values: pl.Series) -> pl.Series:
        """The values, null for steps that torch did not record."""
        return known_where(values, self._is_recorded)


def num_devices(window: RankWindow) -> int:
    """How many devices did something in the window."""
    return max(1, window.device["device"].drop_nulls().n_unique()) if len(window.device) else 0
