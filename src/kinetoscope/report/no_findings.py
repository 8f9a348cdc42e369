"""Sentences on a run without findings: the use of its GPUs, and suggestions."""

from collections.abc import Iterable

from kinetoscope.analysis.gpu.kernels import KernelRow
from kinetoscope.analysis.ranks.contention import is_slowed
from kinetoscope.analysis.run_report import RunReport
from kinetoscope.analysis.windows.kernel_names import strip_arguments
from kinetoscope.core.text.wording import format_ms, format_percent, shorten_name
from kinetoscope.report.labels import compute_device_times

_NUM_NAMED = 3
_MAX_NAME_LENGTH = 60
_MIN_IDLE_SHARE = 0.05
_MIN_OPERATOR_SHARE = 0.05

_HIDDEN = (
    "CPU contention may hide faults: their times are those that an idle machine would show. Record again on one that "
    "is less busy."
)
_IDLE = {
    "idle_host_wait_ns": "until the CPU launched the next kernel",
    "idle_kernel_wait_ns": "between launched kernels",
    "idle_other_ns": "unexplained",
}


def describe_no_findings(report: RunReport, *, with_names: bool = True) -> list[str]:
    """Return sentences for a report without findings: idle time, the largest kernels, the reason, and the hints.

    Args:
        report: the report of an analysis.
        with_names: name kernels and operators; the tables of a page and of a terminal do so.
    """
    largest = _describe_largest_kernels(report.kernels) if with_names else ()
    operators = _describe_longest_operators(report) if with_names and not report.is_judged else ()
    facts = [*_describe_idle(report), *largest, *operators]
    if report.is_judged:
        hidden = [_HIDDEN] if is_slowed(report.run["contention"]) else []
        return ["No finding.", *hidden, *facts, *report.run["hints"]]
    why = "parts of the trace are unknown: see the notes" if report.steps else "no steps were recorded"
    return [*facts, f"No findings, since {why}.", *report.run["hints"]]


def _describe_idle(report: RunReport) -> Iterable[str]:
    """Yield a sentence on the idle time of GPUs."""
    devices = compute_device_times(report.ranks)
    if not devices or not devices[0].window_ns:
        return
    mean, is_partial = devices[0], bool(report.why_unjudged)
    if mean.idle_ns < _MIN_IDLE_SHARE * mean.window_ns:
        at_least = "at least " if is_partial else ""
        yield f"GPU busy for {at_least}{format_percent(1 - mean.idle_ns / mean.window_ns)} of the recorded time."
        return
    shares = {part.part: (part.time_ns or 0.0) / mean.idle_ns for part in mean.parts if part.part in _IDLE}
    parts = [
        f"{format_percent(share)} of it {_IDLE[name]}" for name, share in shares.items() if share >= _MIN_IDLE_SHARE
    ]
    idle = format_percent(mean.idle_ns / mean.window_ns)
    if is_partial:  # missing events may have run in the gaps
        yield f"GPU idle for at most {idle} of the recorded time."
        return
    yield f"GPU idle for {idle} of the recorded time: {', '.join(parts)}."


def _describe_largest_kernels(kernels: Iterable[KernelRow]) -> Iterable[str]:
    """Yield a sentence on the kernels and copies with most GPU time."""
    rows = sorted(kernels, key=lambda row: -row.total_ns)
    total_ns = sum(row.total_ns for row in rows)
    named = [
        f"{_shorten_name(row.name)} ({format_percent(row.total_ns / total_ns)})"
        for row in rows[:_NUM_NAMED]
        if row.total_ns
    ]
    if named:
        yield f"Largest kernels and copies by GPU time: {', '.join(named)}."


def _describe_longest_operators(report: RunReport) -> Iterable[str]:
    """Yield a sentence on the operators that take the CPU most of a step; these are right in filtered traces, too."""
    num_steps = sum(row.num_steps for row in report.ranks)
    rows = sorted(report.operators, key=lambda row: -row.self_ns)[:_NUM_NAMED] if num_steps else []
    named = [
        f"{shorten_name(row.name, _MAX_NAME_LENGTH)} ({format_ms(row.self_ns / num_steps)} ms/step)"
        for row in rows
        if row.self_ns >= _MIN_OPERATOR_SHARE * (report.run["step_ns"] or 0.0) * num_steps
    ]
    if named:
        yield f"Longest operators by CPU time: {', '.join(named)}."


def _shorten_name(kernel: str) -> str:
    return shorten_name(strip_arguments(kernel).removeprefix("void ").strip(), _MAX_NAME_LENGTH)
