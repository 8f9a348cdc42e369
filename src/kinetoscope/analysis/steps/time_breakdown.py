"""Time breakdown of a step on the CPU and on the device; each adds up to the step exactly."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict, cast

import polars as pl

from kinetoscope.analysis.steps.cpu_breakdown import CpuBreakdown, cpu_breakdown
from kinetoscope.analysis.steps.step_time import StepSequence, device_end_ns, step_sequences
from kinetoscope.analysis.steps.steps import StepRow
from kinetoscope.analysis.windows.devices import DeviceTime
from kinetoscope.analysis.windows.window import RankWindow


class DeviceBreakdown(TypedDict):
    """Time of a device in a step by activity: disjoint nanoseconds that add up to the step."""

    compute_ns: float | None
    exposed_communication_ns: float | None
    exposed_copy_ns: float | None
    idle_ns: float | None


class StepBreakdown(TypedDict):
    """The two breakdowns of a step.

    ``device`` is None where the work of a device was not recorded for every step, or is of an unknown kind.
    """

    host: CpuBreakdown
    device: DeviceBreakdown | None


@dataclass(frozen=True)
class SequenceBreakdown:
    """The breakdowns of a sequence of steps of one rank, in whole nanoseconds.

    ``time_ns`` is the time of ``num_steps`` of its ``num_recorded`` steps.
    """

    num_steps: int
    num_recorded: int
    is_single_step: bool
    is_on_device: bool
    time_ns: int
    host: CpuBreakdown
    device: DeviceBreakdown | None

    @property
    def cpu_ns(self) -> float:
        """The CPU time of these steps."""
        return self.time_ns - (self.host["ahead_ns"] or 0)

    @property
    def steps_ns(self) -> float:
        """The time of all its steps; a last one without an end counts as long as the others."""
        return self.time_ns / self.num_steps * self.num_recorded


def step_to_cpu_ratio(parts: Sequence[SequenceBreakdown]) -> float:
    """Return the ratio of the step time to its CPU time; 1 if unknown."""
    timed = [one for one in parts if not one.is_single_step]
    cpu_ns = sum(one.cpu_ns for one in timed)
    return sum(one.time_ns for one in timed) / cpu_ns if cpu_ns > 0 else 1.0


def sequence_breakdowns(window: RankWindow, rows: Sequence[StepRow], *, is_partial: bool) -> list[SequenceBreakdown]:
    """Return the breakdowns of each sequence of steps in a window, without the device's if ``is_partial``."""
    devices = [] if is_partial else window.devices.times
    return [_sequence_breakdown(devices, sequence) for sequence in step_sequences(rows)]


def _sequence_breakdown(devices: Sequence[DeviceTime], sequence: StepSequence) -> SequenceBreakdown:
    first = sequence.rows[0]
    host_end_ns = first.begin_ns + sequence.cpu_ns
    parts = cpu_breakdown(sequence.timed_rows, first.begin_ns, host_end_ns)
    parts["ahead_ns"] = sequence.time_ns - sequence.cpu_ns
    begin_ns = device_end_ns(first) if sequence.is_on_device and not sequence.is_single_step else first.begin_ns
    return SequenceBreakdown(
        num_steps=sequence.num_steps,
        num_recorded=len(sequence.rows),
        is_single_step=sequence.is_single_step,
        is_on_device=sequence.is_on_device,
        time_ns=sequence.time_ns,
        host=parts,
        device=_device_breakdown(devices, begin_ns or 0, sequence),
    )


def _device_breakdown(devices: Sequence[DeviceTime], begin_ns: int, sequence: StepSequence) -> DeviceBreakdown | None:
    """Return the mean over the rank's devices; idle is the rest.

    Work that was in flight before a step alone counts, if it ran during the step. Where the step time is GPU-limited,
    such a step takes as long as its kernels.
    """
    if not devices:
        return None
    if sequence.is_single_step and sequence.is_on_device:
        compute = sequence.rows[0].device_compute_ns or 0
        return _fill_idle(sequence.time_ns, compute, sequence.time_ns - compute, 0)
    end_ns = begin_ns + sequence.time_ns
    of_each = [_busy_times(one, begin_ns, end_ns) for one in devices]
    compute, communication, copy = (sum(column) // len(of_each) for column in zip(*of_each, strict=True))
    return _fill_idle(sequence.time_ns, compute, communication, copy)


def _fill_idle(time_ns: int, compute: int, communication: int, copy: int) -> DeviceBreakdown:
    return DeviceBreakdown(
        compute_ns=compute,
        exposed_communication_ns=communication,
        exposed_copy_ns=copy,
        idle_ns=time_ns - compute - communication - copy,
    )


def _busy_times(device: DeviceTime, begin_ns: int, end_ns: int) -> tuple[int, int, int]:
    """Return the time of computing, of communication without that, and of copies without both, on one device."""
    bounds = pl.Series([begin_ns, end_ns])
    compute, kernels, busy = (int(both[1] - both[0]) for both in (covered.covered_before(bounds) for covered in device))
    return compute, kernels - compute, busy - kernels


# -- the run


def run_breakdown(
    parts: Sequence[SequenceBreakdown], late_wait_ns: float = 0
) -> tuple[float | None, StepBreakdown | None, str]:
    """Return the step time, its breakdown, and its bound, as means over ranks.

    Single steps count where there are no others. ``late_wait_ns`` is the time per step that a rank waits for
    stragglers.
    """
    timed = [one for one in parts if not one.is_single_step] or list(parts)
    if not timed:
        return None, None, "unknown"
    num_steps = sum(one.num_steps for one in timed)
    step_ns = float(round(sum(one.time_ns for one in timed) / num_steps))
    device_breakdowns = [one.device for one in timed if one.device is not None]
    host = cast("CpuBreakdown", _mean([cast("Mapping[str, float | None]", one.host) for one in timed], num_steps))
    device = _mean([cast("Mapping[str, float | None]", one) for one in device_breakdowns], num_steps)
    whole = StepBreakdown(
        host=host, device=cast("DeviceBreakdown", device) if len(device_breakdowns) == len(timed) else None
    )
    on_device_ns = sum(one.time_ns for one in timed if one.is_on_device)
    is_on_device = 2 * on_device_ns > sum(one.time_ns for one in timed)
    return step_ns, whole, classify_bound(whole, step_ns, on_device=is_on_device, late_wait_ns=late_wait_ns)


def _mean(breakdowns: Sequence[Mapping[str, float | None]], num_steps: int) -> dict[str, float | None]:
    """Return the mean parts of a step in whole nanoseconds. Each is rounded with all before it, so that they add up."""
    means: dict[str, float | None] = {}
    whole, before = 0.0, 0
    for name in breakdowns[0] if breakdowns else ():
        known = [value for breakdown in breakdowns if (value := breakdown[name]) is not None]
        whole += sum(known)
        until = round(whole / num_steps)
        means[name] = float(until - before) if known else None
        before = until if known else before
    return means


_BOUNDS = {
    "data_wait_ns": "data",
    "communication_wait_ns": "communication",
    "unknown_ns": "unknown",
}
"""The bound of a step by its largest part; ``host`` for all other parts."""

_MAX_IDLE_SHARE = 0.15
"""Share of a step from which on a GPU is idle too often to bound it.

Where the step time is CPU-limited, exposed communication counts as well.
"""

_MIN_LATE_WAIT_SHARE = 0.5
"""Communication with a larger share of waits for stragglers is bound by those ranks."""


def classify_bound(parts: StepBreakdown, step_ns: float, *, on_device: bool, late_wait_ns: float = 0) -> str:
    """Return the bound of a step: ``data``, ``host``, ``compute``, ``communication``, ``ranks`` or ``unknown``.

    Args:
        parts: the breakdown of the step.
        step_ns: step time.
        on_device: whether the step time is GPU-limited. Then the larger of the device's compute and its exposed
            communication bounds the step, unless the device is often idle; else the largest part of the CPU's time
            does.
        late_wait_ns: time per step that a rank waits for stragglers.
    """
    device = cast("Mapping[str, float | None] | None", parts["device"])
    if on_device and device is not None and (device["idle_ns"] or 0) < _MAX_IDLE_SHARE * step_ns:
        compute_ns, communication_ns = device["compute_ns"] or 0, device["exposed_communication_ns"] or 0
        return _classify_communication(communication_ns, late_wait_ns) if communication_ns > compute_ns else "compute"
    host = {name: value or 0 for name, value in cast("Mapping[str, float | None]", parts["host"]).items()}
    del host["ahead_ns"]
    largest = max(host, key=lambda name: host[name])
    if largest == "sync_ns":
        return "unknown" if device is None else _classify_sync(device, host, step_ns, late_wait_ns)
    found = _BOUNDS.get(largest, "host")
    if found == "communication" and device is None:  # else ranks wait for late ones on their devices
        return _classify_communication(host[largest], late_wait_ns)
    return found


def _classify_sync(
    device: Mapping[str, float | None], host: Mapping[str, float], step_ns: float, late_wait_ns: float
) -> str:
    """Return the bound of a step in which the CPU mostly waits for the device, by the device's time."""
    communication_ns, idle_ns = device["exposed_communication_ns"] or 0, device["idle_ns"] or 0
    is_largest = (device["compute_ns"] or 0) >= max(communication_ns, idle_ns)
    if is_largest and communication_ns + idle_ns < _MAX_IDLE_SHARE * step_ns:
        return "compute"
    if communication_ns >= idle_ns:
        return _classify_communication(communication_ns, late_wait_ns)
    largest = max((name for name in host if name != "sync_ns"), key=lambda name: host[name])
    return _BOUNDS.get(largest, "host")


def _classify_communication(communication_ns: float, late_wait_ns: float) -> str:
    return "ranks" if late_wait_ns > _MIN_LATE_WAIT_SHARE * communication_ns else "communication"
