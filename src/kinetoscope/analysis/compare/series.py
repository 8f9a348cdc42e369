"""Series of a run by step, one for each value that can be compared."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import cast

from kinetoscope.analysis.analyze import RunReport
from kinetoscope.analysis.steps.step_time import timed_sequences
from kinetoscope.analysis.steps.steps import StepRow
from kinetoscope.analysis.windows.kernel_names import is_communication
from kinetoscope.analysis.windows.span_names import COMMUNICATION_CALLS

_HOST_PHASES = {
    name: (f"{name}_ns",)
    for name in (
        *("between", "data_wait", "forward", "backward", "optimizer", "sync", "gc", "python"),
        *("communication_wait", "unknown"),
    )
} | {"evaluation": ("evaluation_inside_ns", "evaluation_ns")}
_DEVICE_PHASES = {
    "device_compute": ("device_compute_ns",),
    "device_exposed_communication": ("device_exposed_communication_ns",),
    "device_idle": ("device_idle_ns",),
}
"""The parts of a step that are compared, with the columns of steps that show how much they vary."""

MODULES = ("module", "module on device")
_COMMUNICATION = ("communication_wait", "device_exposed_communication")


@dataclass(frozen=True)
class SeriesKey:
    """Key of a series. ``kind`` is ``step``, ``phase``, ``memory`` or a kind of `StepTimes`.

    ``class_name`` is that of a module; blocks have the same.
    """

    kind: str
    name: str
    shapes: str | None = None
    module: str | None = None
    class_name: str | None = None

    @property
    def is_of_device(self) -> bool:
        """True if it is time of a device."""
        return self.kind in ("operator on device", "module on device", "kernel") or self.name.startswith("device_")

    @property
    def is_communication(self) -> bool:
        """True if it is the time of collectives, in which ranks also wait for each other."""
        if self.kind == "kernel":
            return is_communication(self.name)
        if self.kind == "operator on device":
            return re.search(COMMUNICATION_CALLS, self.name) is not None
        return self.kind == "phase" and self.name in _COMMUNICATION

    @property
    def waits_for_ranks(self) -> bool:
        """True if a late rank changes it for the other ranks, though their steps take as long."""
        return self.is_communication or (self.kind == "phase" and self.name in ("device_idle", "sync"))

    @property
    def is_call(self) -> bool:
        """True for an operator or a kernel."""
        return self.kind in ("operator", "operator on device", "kernel")

    @property
    def is_module(self) -> bool:
        """True for a torch module, or repeated ones."""
        return self.kind in MODULES


STEP, MEAN_STEP = SeriesKey("step", "typical step"), SeriesKey("step", "mean step")
PEAK = SeriesKey("memory", "peak memory")


def step_series(report: RunReport) -> dict[SeriesKey, list[float]]:
    """Return each value by step: nanoseconds of the average rank, or bytes of the rank with most memory.

    A step lasts until the next one starts, or where the device takes longer, until it ends what the next one computes;
    without evaluations between them.
    """
    times = _step_times(report.steps)
    columns = _HOST_PHASES | _DEVICE_PHASES
    series = {SeriesKey("phase", name): _mean_of_ranks(report, fields) for name, fields in columns.items()}
    peaks: defaultdict[int, int] = defaultdict(int)
    for row in report.steps:
        peaks[row.step] = max(peaks[row.step], row.peak_memory_bytes or 0)
    series[PEAK] = [float(peak) for _, peak in sorted(peaks.items())]
    known = {key: values for key, values in series.items() if any(values)}
    return {STEP: times, MEAN_STEP: times} | known | _calls(report)


def span_ns(report: RunReport) -> int:
    """Return the time from the start of the first step to the end of the last, in ns."""
    return max(row.begin_ns + row.duration_ns for row in report.steps) - min(row.begin_ns for row in report.steps)


def waits_ns(report: RunReport) -> float:
    """Return by how much ranks differ in the time of their collectives, in ns per step.

    It depends on the rank that comes last. With one recorded rank it is unknown, and half of that time is assumed.
    """
    for field in ("device_communication_ns", "communication_wait_ns"):
        by_rank: defaultdict[int | None, list[int]] = defaultdict(list)
        for row in report.steps:
            by_rank[row.rank].append(getattr(row, field) or 0)
        means = [fmean(values) for values in by_rank.values()]
        if any(means):
            return max(means) - min(means) if len(means) > 1 else means[0] / 2
    return 0.0


def device_share(report: RunReport) -> float:
    """Return the share of a step in which the device is busy; 0 without a device."""
    busy = _mean_of_ranks(report, ("device_busy_ns",))
    return min(1.0, fmean(busy) / max(1.0, fmean(_step_times(report.steps)))) if busy else 0.0


def sum_over(series: Mapping[SeriesKey, list[float]], field: str) -> dict[SeriesKey, list[float]]:
    """Return the series, summed over a field of their keys: ``shapes`` or ``module``."""
    sums: dict[SeriesKey, list[float]] = {}
    for key, values in series.items():
        kept = replace(key, **{field: None})
        sums[kept] = [sum(pair) for pair in zip(sums[kept], values, strict=True)] if kept in sums else values
    return sums


def _step_times(steps: Iterable[StepRow]) -> list[float]:
    times: defaultdict[int, list[float]] = defaultdict(list)
    for sequence in timed_sequences(steps):
        for step, time_ns in sequence.times_ns():
            times[step].append(time_ns)
    return _means(times)


def _mean_of_ranks(report: RunReport, fields: Sequence[str]) -> list[float]:
    values: defaultdict[int, list[int]] = defaultdict(list)
    for row in report.steps:
        known = [value for field in fields if (value := getattr(row, field)) is not None]
        if known:
            values[row.step].append(sum(known))
    return _means(values)


def phase_parts(report: RunReport) -> dict[SeriesKey, float]:
    """Return what each phase takes of a step: the parts of ``run``, as `kinetoscope summary` shows them."""
    parts = report.run["parts"]
    if parts is None:
        return {}
    host = cast("Mapping[str, float | None]", parts["host"])
    device = cast("Mapping[str, float | None]", parts["device"] or {})
    found = {name: host[f"{name}_ns"] for name in _HOST_PHASES}
    found |= {name: device.get(f"{name.removeprefix('device_')}_ns") for name in _DEVICE_PHASES}
    return {SeriesKey("phase", name): value for name, value in found.items() if value is not None}


def _means(values: Mapping[int, Sequence[float]]) -> list[float]:
    return [fmean(of_step) for _, of_step in sorted(values.items())]


def calls_per_step(report: RunReport) -> dict[tuple[str, str], float]:
    """Return the calls per step of the average rank, by kind and name of operator or kernel."""
    calls: defaultdict[tuple[str, str], float] = defaultdict(float)
    recorded = {row.step for row in report.steps if row.python_ns is not None} or {row.step for row in report.steps}
    share = 1 / (len(recorded) * max(1, len(report.run["ranks"])))
    for row in report.operators:
        calls["operator", row.name] += row.num_calls * share
        calls["operator on device", row.name] += row.num_calls * share
    for row in report.kernels:
        calls["kernel", row.name] += row.num_calls * share
    return dict(calls)


def _calls(report: RunReport) -> dict[SeriesKey, list[float]]:
    """Return the series of operators, kernels and modules in the steps that torch recorded.

    Those too small to be known by step have their mean in each step, so that they are not new in another run.
    """
    recorded = {row.step for row in report.steps if row.python_ns is not None}
    steps = sorted({row.step for row in report.steps})
    indexes = [index for index, step in enumerate(steps) if step in recorded or not recorded]
    share = 1 / (len(steps) * max(1, len(report.run["ranks"])))
    small = [SeriesKey("operator", row.name, row.shapes) for row in report.operators]
    means = dict(zip(small, (row.self_ns * share for row in report.operators), strict=True))
    means |= {SeriesKey("kernel", row.name): row.total_ns * share for row in report.kernels}
    means |= {key: time_ns * share for key, time_ns in _times_of_modules(report).items()}
    classes = {row.name: row.class_name for row in report.modules}
    known = {
        SeriesKey(row.kind, row.name, row.shapes, row.module, classes.get(row.name) if row.kind in MODULES else None): [
            float(row.times_ns[index]) for index in indexes
        ]
        for row in report.by_step
    }
    known_names = {(key.kind, key.name, key.shapes) for key in known}
    return known | {
        key: [mean] * len(indexes) for key, mean in means.items() if (key.kind, key.name, key.shapes) not in known_names
    }


def _times_of_modules(report: RunReport) -> dict[SeriesKey, int]:
    """Return the time of each module without the modules inside, of all ranks, where it is known."""
    found: defaultdict[SeriesKey, int] = defaultdict(int)
    for row in report.modules:
        times = {
            "module": (row.self_cpu_forward_ns, row.self_cpu_backward_ns),
            "module on device": (row.self_device_forward_ns, row.self_device_backward_ns),
        }
        for kind, of_kind in times.items():
            if row.class_name is not None and any(of_kind):
                found[SeriesKey(kind, row.name, class_name=row.class_name)] += sum(time or 0 for time in of_kind)
    return dict(found)
