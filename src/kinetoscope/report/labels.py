"""Labels of the numbers of a run, shared by terminals, pages and notebooks."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import cast

from kinetoscope.analysis.ranks.ranks import RankRow
from kinetoscope.analysis.run_report import RunFacts
from kinetoscope.analysis.steps.time_breakdown import StepBreakdown
from kinetoscope.pages.page_data import BreakdownPart, DeviceTimes

_Parts = Mapping[str, float | None]

UNKNOWN = "unknown"

SIDE_LABELS = {"host": "CPU", "device": "GPU"}
"""The sides of a step, each with its time breakdown."""

HOST_PART_LABELS = {
    "data_wait_ns": "waiting for data",
    "forward_ns": "forward",
    "backward_ns": "backward",
    "optimizer_ns": "optimizer",
    "communication_wait_ns": "waiting for communication",
    "sync_ns": "host-device sync",
    "gc_ns": "GC pauses",
    "python_ns": "Python overhead",
    "evaluation_ns": "evaluation",
    "between_ns": "between steps",
    "unknown_ns": UNKNOWN,
    "ahead_ns": "CPU run-ahead",
}
"""Parts of the CPU's time breakdown, in the order in which they are shown."""

CPU_FELL_BEHIND = "CPU fell behind"
"""Label of a negative ``ahead_ns``: the CPU took longer than the GPU, which still had earlier work to do."""

DEVICE_PART_LABELS = {
    "compute_ns": "compute",
    "exposed_communication_ns": "exposed communication",
    "exposed_copy_ns": "exposed copy",
    "idle_ns": "idle",
}
"""Parts of the GPU's time breakdown."""

PART_COLOURS = {
    "data_wait_ns": "#e69f00",
    "forward_ns": "#0072b2",
    "backward_ns": "#009e73",
    "optimizer_ns": "#cc79a7",
    "communication_wait_ns": "#d55e00",
    "gc_ns": "#8c564b",
    "python_ns": "#8a8f98",
    "evaluation_ns": "#f0e442",
    "between_ns": "#56b4e9",
    "compute_ns": "#0072b2",
    "exposed_communication_ns": "#d55e00",
    "exposed_copy_ns": "#56b4e9",
    "sync_ns": "#6b7486",
    "unknown_ns": "#a9afb9",
    "ahead_ns": "#c9cdd4",
    "idle_ns": "#c9cdd4",
}
"""Colours of parts where no style sheet applies: those of web/src/style.css that suit light and dark."""

_DEVICE_TIME_LABELS = {
    "compute_ns": "compute",
    "exposed_communication_ns": "exposed communication",
    "exposed_copy_ns": "exposed copy",
    "idle_host_wait_ns": "idle: waiting for launches",
    "idle_kernel_wait_ns": "idle between kernels",
    "idle_other_ns": "idle, unexplained",
}
"""Uses of a GPU in its windows: they add up to these."""

_DEVICE_TOTALS = ("window_ns", "busy_ns", "communication_ns", "idle_ns")

_BOUND_LABELS = {
    "data": "input-bound",
    "host": "CPU-bound",
    "compute": "compute-bound (GPU)",
    "communication": "communication-bound",
    "ranks": "limited by a straggler",
}
_PHASES = ("data_wait_ns", "forward_ns", "backward_ns", "optimizer_ns")

VERDICT_LABELS = {
    "faster": "faster",
    "slower": "slower",
    "same": "no significant change",
    "unsure": "inconclusive",
    "new": "added",
    "gone": "removed",
    "failed": "failed",
    "not_applied": "not applicable",
}
RESULT_LABELS = {
    "equal": "equal",
    "within_tolerance": "within tolerance",
    "different": "different",
    "not_reproducible": "not reproducible",
}
"""Labels of verdicts of `kinetoscope try`, and of its comparison of results."""

_FACTOR_THRESHOLD = 10


def label_bound(run: RunFacts) -> str | None:
    """Return the limit of the step time as a term such as ``input-bound``; None if unknown."""
    return _BOUND_LABELS.get(run["bound_by"])


def compute_share_of_step(time_ns: float | None, run: RunFacts, kind: str = "") -> float | None:
    """Return a time as a share of the step; None if one of both is unknown.

    For slow steps (``kind``) the step is the mean of all steps, recorded or not.
    """
    step_ns = run["all_steps"]["mean_ns"] if kind == "slow_steps" and run["all_steps"] else run["step_ns"]
    return None if time_ns is None or not step_ns else time_ns / step_ns


def build_host_breakdown(parts: StepBreakdown, step_ns: float) -> list[BreakdownPart]:
    """Return all parts of the CPU's time breakdown, also those that take no time."""
    return _build_breakdown(cast("_Parts", parts["host"]), HOST_PART_LABELS, step_ns)


def build_device_breakdown(parts: StepBreakdown, step_ns: float) -> list[BreakdownPart] | None:
    """Return all parts of the GPU's time breakdown; None if it is unknown."""
    return (
        None
        if parts["device"] is None
        else _build_breakdown(cast("_Parts", parts["device"]), DEVICE_PART_LABELS, step_ns)
    )


def _build_breakdown(parts: _Parts, labels: Mapping[str, str], step_ns: float) -> list[BreakdownPart]:
    return [build_breakdown_part(part, label, parts.get(part), step_ns) for part, label in labels.items()]


def build_breakdown_part(part: str, label: str, time_ns: float | None, whole_ns: float) -> BreakdownPart:
    """Return one part of a whole, with its share."""
    return BreakdownPart(
        part=part,
        label=CPU_FELL_BEHIND if part == "ahead_ns" and (time_ns or 0) < 0 else label,
        time_ns=time_ns,
        share=None if time_ns is None or not whole_ns else time_ns / whole_ns,
        is_phase=part in _PHASES,
    )


def find_limiting_side(run: RunFacts) -> str | None:
    """Return the side whose breakdown explains the step time: ``device`` or ``host``; None without a breakdown."""
    parts = run["parts"]
    if parts is None:
        return None
    return "device" if parts["device"] is not None and run["bound_by"] in ("compute", "communication") else "host"


def label_device(rank: int | None, device: int | None) -> str:
    """Return a device as ``device 1 of rank 0``, without unknown numbers."""
    named = [f"device {device}"] * (device is not None) + [f"rank {rank}"] * (rank is not None)
    return " of ".join(named) or "one of them"


def compute_device_times(rows: Sequence[RankRow]) -> list[DeviceTimes]:
    """Return the mean times of all devices, then the times of each; empty without a device."""
    known = [row for row in rows if row.window_ns is not None]
    if not known:
        return []
    times = [{name: getattr(row, name) or 0 for name in (*_DEVICE_TOTALS, *_DEVICE_TIME_LABELS)} for row in known]
    mean = {name: fmean(values[name] for values in times) for name in times[0]}
    shares = [share for row in known if (share := _compute_busy_share(row)) is not None]
    each = [
        _build_device_times(row, values, _compute_busy_share(row)) for row, values in zip(known, times, strict=True)
    ]
    return [_build_device_times(None, mean, fmean(shares) if shares else None), *each]


def _compute_busy_share(row: RankRow) -> float | None:
    """Return the busy share of a device; None if unknown."""
    return row.busy_ns / row.window_ns if row.busy_ns is not None and row.window_ns else None


def _build_device_times(row: RankRow | None, times: Mapping[str, float], busy_share: float | None) -> DeviceTimes:
    return DeviceTimes(
        rank=row and row.rank,
        device=row and row.device,
        is_mean=row is None,
        busy_share=busy_share,
        parts=[
            build_breakdown_part(name, label, times[name], times["window_ns"])
            for name, label in _DEVICE_TIME_LABELS.items()
        ],
        **{name: times[name] for name in _DEVICE_TOTALS},
    )


def format_change(change: float) -> str:
    """Return a relative change with its sign, or as a factor: ``-29.4 %``, ``12.4x``."""
    return f"{1 + change:.3g}x" if change >= _FACTOR_THRESHOLD else f"{100 * change:+.1f} %"


def format_interval(interval: tuple[float, float]) -> str:
    """Return an interval of relative changes, both in percent or both as factors: ``-99.7 to +63,100.0 %``."""
    low, high = interval
    if low >= _FACTOR_THRESHOLD:
        return f"{format_change(low)} to {format_change(high)}"
    return f"{100 * low:+,.1f} to {100 * high:+,.1f} %"
