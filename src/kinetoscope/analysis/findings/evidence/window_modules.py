"""Costs of faults in one window by torch module."""

from collections.abc import Mapping

import polars as pl

from kinetoscope.analysis.findings.fault_graph import COPY_OR_MEMSET, MAX_SMALL_KERNEL_NS, MIN_SMALL_KERNELS
from kinetoscope.analysis.gpu.idle import find_launch_waits
from kinetoscope.analysis.modules.calls import ModuleCalls
from kinetoscope.analysis.modules.costs import share_moments, share_spans
from kinetoscope.analysis.windows.columns import add_constant_column, constant_column, drop_null_rows
from kinetoscope.analysis.windows.devices import DeviceTime
from kinetoscope.analysis.windows.intervals import IntervalUnion
from kinetoscope.analysis.windows.kernel_names import COPY_TO_DEVICE
from kinetoscope.analysis.windows.schemas import MODULE_COSTS
from kinetoscope.analysis.windows.window import RankWindow

EXPOSED_COPIES, KERNELS, LAUNCHES, SMALL_KERNELS = "exposed_copies", "kernels", "launches", "small_kernels"
"""Kinds of costs besides stalls: exposed copies to the device; kernels, by name; CPU time while the device waits for a
launch, without stalls; and CPU time before each launch in a run of small kernels."""

_SCHEMA = pl.Schema({"kind": pl.String, **MODULE_COSTS})
_WORK = ("small", "item", "loop", "python", "double")
"""Stalls in which the CPU works for the next launch. In all others it waits, or is interrupted."""


def find_module_costs(calls: ModuleCalls | None, stalls: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Return the costs of each ``kind`` by ``module``, as `schemas.MODULE_COSTS`; none if no modules were recorded.

    Args:
        calls: the calls of modules.
        stalls: the result of `find_stall_spans`. Each of their kinds is a kind of cost.
    """
    if calls is None:
        return _SCHEMA.to_frame()
    found = {kind: share_spans(calls, spans) for kind, spans in stalls.items()}
    if len(calls.window.device):
        found |= _share_device_costs(calls, stalls)
    costs = (costs.with_columns(kind=pl.lit(kind)).select(_SCHEMA.names()) for kind, costs in found.items())
    return pl.concat([_SCHEMA.to_frame(), *costs])


def _share_device_costs(calls: ModuleCalls, stalls: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    window, devices = calls.window, calls.window.devices
    waits = IntervalUnion(*(spans for kind, spans in stalls.items() if kind not in _WORK))
    small = _subtract(_find_runs_of_small_kernels(window), waits)
    launches = pl.concat([find_launch_waits(device) for device in devices.frames])
    copies = [_find_exposed_copies(*device) for device in zip(devices.frames, devices.times, strict=True)]
    kernels = window.device.filter(pl.col("kind") == "compute")
    return {
        SMALL_KERNELS: share_spans(calls, small),
        LAUNCHES: share_spans(calls, _subtract(launches, IntervalUnion(small, *stalls.values()))),
        EXPOSED_COPIES: share_moments(calls, pl.concat(copies)),
        KERNELS: share_moments(calls, _at_launches(kernels, kernels["end"] - kernels["begin"], kernels["name"])),
    }


def _find_exposed_copies(device: pl.DataFrame, time: DeviceTime) -> pl.DataFrame:
    copies = device.filter(pl.col("name").cast(pl.String).str.contains(COPY_TO_DEVICE))
    exposed_ns = copies["end"] - copies["begin"] - time.kernels.overlap_ns(copies["begin"], copies["end"])
    return _at_launches(copies, exposed_ns, constant_column("name", None, pl.String, len(copies)))


def _at_launches(events: pl.DataFrame, amounts: pl.Series, names: pl.Series) -> pl.DataFrame:
    """Return the launches of device events as moments for `share_moments`."""
    amount, name = amounts.cast(pl.Int64).alias("amount"), names.cast(pl.String).alias("name")
    return events.select(track="launch_track", ts="launch_begin").hstack([amount, name])


def _subtract(spans: pl.DataFrame, others: IntervalUnion) -> pl.DataFrame:
    """Return the parts of spans of threads outside of ``others``."""
    parts = [
        add_constant_column(IntervalUnion(of_track).difference(others).pieces, "track", of_track["track"][0], pl.UInt32)
        for of_track in spans.partition_by("track")
    ]
    return pl.concat([spans.clear(), *(part.select(spans.columns) for part in parts)])


def _find_runs_of_small_kernels(window: RankWindow) -> pl.DataFrame:
    """Return the time before the launch of each kernel in a run of small ones, as `FaultGraph` finds them."""
    events = drop_null_rows(window.device, "launch_track", "launch_begin")
    is_kernel = ~pl.col("name").cast(pl.String).str.contains(COPY_OR_MEMSET)
    launches = events.group_by("launch_track", "launch_begin").agg(
        takes_ns=(pl.col("end") - pl.col("begin")).sum(), is_kernel=is_kernel.all()
    )
    launches = launches.sort("launch_track", "launch_begin")
    launches = launches.with_columns(begin=pl.col("launch_begin").shift(1).over("launch_track"))
    cpu_ns = pl.col("launch_begin") - pl.col("begin")
    is_small = (pl.col("takes_ns") < pl.min_horizontal(cpu_ns, MAX_SMALL_KERNEL_NS)) & pl.col("is_kernel")
    launches = launches.with_columns(is_small=is_small.fill_null(False))
    run = pl.struct("launch_track", "is_small").rle_id()
    launches = launches.filter(pl.col("is_small") & (pl.len().over(run) >= MIN_SMALL_KERNELS))
    return launches.select("begin", end="launch_begin", track="launch_track")
