"""Sentences on a run without findings: what its devices do, and what may be worth a try."""

from collections.abc import Iterable

from kinetoscope.analysis.kernel_names import own_name
from kinetoscope.analysis.kernels import KernelRow
from kinetoscope.analysis.run_report import RunReport
from kinetoscope.report.words import device_times
from kinetoscope.texts.wording import in_percent, shortened

_NUM_NAMED = 3
_MAX_NAME_LENGTH = 60
_MIN_IDLE_SHARE = 0.05

_IDLE = {
    "idle_host_wait_ns": "until the CPU launched the next kernel",
    "idle_kernel_wait_ns": "between launched kernels",
    "idle_other_ns": "unexplained",
}


def no_findings(report: RunReport, *, with_names: bool = True) -> list[str]:
    """Return sentences for a report without findings: the reason, idle time, the largest kernels, and the hints.

    Args:
        with_names: name kernels, which a page does elsewhere, where it can redact them.
    """
    largest = _largest(report.kernels) if with_names else ()
    return [_first(report), *_idle(report), *largest, *report.run["hints"]]


def _first(report: RunReport) -> str:
    if report.is_judged:
        return "No finding."
    if not report.steps:
        return "No findings, since no steps were recorded."
    return "No findings, since parts of the trace are unknown: see the notes."


def _idle(report: RunReport) -> Iterable[str]:
    devices = device_times(report.ranks)
    if not devices or not devices[0].window_ns:
        return
    mean = devices[0]
    if mean.idle_ns < _MIN_IDLE_SHARE * mean.window_ns:
        yield f"GPU busy for {in_percent(1 - mean.idle_ns / mean.window_ns)} of the recorded time."
        return
    shares = {part.part: (part.time_ns or 0.0) / mean.idle_ns for part in mean.parts if part.part in _IDLE}
    parts = [f"{in_percent(share)} of it {_IDLE[name]}" for name, share in shares.items() if share >= _MIN_IDLE_SHARE]
    yield f"GPU idle for {in_percent(mean.idle_ns / mean.window_ns)} of the recorded time: {', '.join(parts)}."


def _largest(kernels: Iterable[KernelRow]) -> Iterable[str]:
    rows = sorted(kernels, key=lambda row: -row.total_ns)
    total_ns = sum(row.total_ns for row in rows)
    named = [
        f"{_short_name(row.name)} ({in_percent(row.total_ns / total_ns)})" for row in rows[:_NUM_NAMED] if row.total_ns
    ]
    if named:
        yield f"Largest kernels and copies by GPU time: {', '.join(named)}."


def _short_name(kernel: str) -> str:
    return shortened(own_name(kernel).removeprefix("void ").strip(), _MAX_NAME_LENGTH)
