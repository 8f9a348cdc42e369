"""Device time of each rank, one row per rank and device."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from operator import itemgetter
from typing import Any

import polars as pl

from kinetoscope.analysis.gpu.idle import idle_time
from kinetoscope.analysis.plain_data import PlainData
from kinetoscope.analysis.steps.time_breakdown import SequenceBreakdown, StepBreakdown, run_breakdown
from kinetoscope.analysis.windows.columns import filter_rows
from kinetoscope.analysis.windows.devices import DeviceTime
from kinetoscope.analysis.windows.intervals import IntervalUnion
from kinetoscope.analysis.windows.kernel_names import may_be_communication
from kinetoscope.analysis.windows.optional_numbers import sum_or_none
from kinetoscope.analysis.windows.window import RankWindow


@dataclass(frozen=True, kw_only=True)
class RankRow(PlainData):
    """One device of one rank, over all recorded windows; a rank without a device has one row.

    Times are nanoseconds. A window runs from the start of its first device event to the end of its last. What is
    unknown is None, as are all device times of a rank without a device.

    Attributes:
        busy_ns: the union of kernels, copies and sets: ``compute_ns + exposed_communication_ns + exposed_copy_ns``.
        communication_is_at_least: True where kernels that count as compute have names like those of communication.
        step_ns: the time of the rank's step; like ``parts``, with the mean of its devices and the same in each of its
            rows.
        parts: the time breakdown of the step.
    """

    rank: int | None
    device: int | None = None
    world_size: int | None = None
    host: str | None = None
    device_name: str | None = None
    clock_bound_ns: int | None = None
    num_steps: int = 0
    window_ns: int | None = None
    busy_ns: int | None = None
    compute_ns: int | None = None
    communication_ns: int | None = None
    communication_is_at_least: bool | None = None
    copy_ns: int | None = None
    exposed_communication_ns: int | None = None
    exposed_copy_ns: int | None = None
    idle_ns: int | None = None
    idle_host_wait_ns: int | None = None
    idle_kernel_wait_ns: int | None = None
    idle_other_ns: int | None = None
    step_ns: float | None = None
    parts: StepBreakdown | None = None


_NOT_ADDED = ("clock_bound_ns", "step_ns")
_TIMES = tuple(field.name for field in fields(RankRow) if field.name.endswith("_ns") and field.name not in _NOT_ADDED)


def rank_rows(window: RankWindow) -> list[RankRow]:
    """Return the rows of one window's rank."""
    about = _rank_facts(window)
    each = zip(window.devices.frames, window.devices.times, strict=True)
    devices = {device: (events, time) for events, time in each if (device := events["device"][0]) is not None}
    if not devices and len(window.device):
        return [RankRow(**about, **_device_times(window.device, window.devices.time))]
    if not devices:
        return [RankRow(**about)]
    return [
        RankRow(**about, device=device, device_name=window.devices.names.get(device), **_device_times(events, time))
        for device, (events, time) in sorted(devices.items(), key=itemgetter(0))
    ]


def combine_rank_rows(rows: Iterable[RankRow]) -> list[RankRow]:
    """Return the rows of all windows, summed by rank and device, in the order of ranks."""
    sums: dict[tuple[int | None, int | None], RankRow] = {}
    for row in rows:
        key = (row.rank, row.device)
        sums[key] = _add_rows(sums[key], row) if key in sums else row
    return sorted(sums.values(), key=lambda row: (row.rank is None, row.rank or 0, row.device or 0))


def add_step_parts(rows: Iterable[RankRow], sequences: Iterable[tuple[int | None, SequenceBreakdown]]) -> list[RankRow]:
    """Return the rows with the time breakdown of a step of their rank.

    Args:
        rows: rows of ranks.
        sequences: rank and parts of each sequence of steps.
    """
    by_rank: defaultdict[int | None, list[SequenceBreakdown]] = defaultdict(list)
    for rank, parts in sequences:
        by_rank[rank].append(parts)
    of_ranks = {rank: run_breakdown(parts) for rank, parts in by_rank.items()}
    unknown = (None, None, "unknown")
    found = [(row, *of_ranks.get(row.rank, unknown)) for row in rows]
    return [replace(row, step_ns=step_ns, parts=parts) for row, step_ns, parts, _ in found]


def _add_rows(one: RankRow, other: RankRow) -> RankRow:
    sums = {name: sum_or_none((getattr(one, name), getattr(other, name))) for name in ("num_steps", *_TIMES)}
    bounds = [bound for bound in (one.clock_bound_ns, other.clock_bound_ns) if bound is not None]
    at_least = [row.communication_is_at_least for row in (one, other) if row.communication_is_at_least is not None]
    others = {"clock_bound_ns": max(bounds, default=None), "communication_is_at_least": max(at_least, default=None)}
    values: dict[str, Any] = one.to_dict() | sums | others
    return RankRow(**values)


def _rank_facts(window: RankWindow) -> dict[str, Any]:
    trace = window.trace
    return {
        "rank": window.rank,
        "world_size": trace.world_size,
        "host": trace.host,
        "clock_bound_ns": trace.clock_bound_ns,
        "num_steps": len(window.steps),
    }


def _device_times(device: pl.DataFrame, time: DeviceTime) -> dict[str, Any]:
    """Return the device times of a rank. Events are in the order of ``begin``."""
    compute_ns, on_kernels_ns, busy_ns = (covered.total_ns for covered in time)
    others = (filter_rows(device[["begin", "end"]], device["kind"] == kind) for kind in ("communication", "copy"))
    communication_ns, copy_ns = (IntervalUnion(spans).total_ns for spans in others)
    window_ns = _last_end(device) - int(device["begin"][0])
    idle = idle_time(device)
    return {
        "window_ns": window_ns,
        "busy_ns": busy_ns,
        "compute_ns": compute_ns,
        "communication_ns": communication_ns,
        "communication_is_at_least": _has_communication_like_kernels(device),
        "copy_ns": copy_ns,
        "exposed_communication_ns": on_kernels_ns - compute_ns,
        "exposed_copy_ns": busy_ns - on_kernels_ns,
        "idle_ns": window_ns - busy_ns,
        "idle_host_wait_ns": idle.host_wait_ns,
        "idle_kernel_wait_ns": idle.kernel_wait_ns,
        "idle_other_ns": idle.other_ns,
    }


def _has_communication_like_kernels(device: pl.DataFrame) -> bool:
    names = device["name"].filter(device["kind"] == "compute").unique()
    return any(map(may_be_communication, names))


def _last_end(device: pl.DataFrame) -> int:
    last: Any = device["end"].max()
    return int(last)
