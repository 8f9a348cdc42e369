"""Sentences on a run without findings: the use of its GPUs, and suggestions."""

from collections.abc import Iterable

from kinetoscope.analysis.ranks.contention import is_slowed
from kinetoscope.analysis.run_report import RunReport
from kinetoscope.core.text.wording import format_percent
from kinetoscope.report.labels import compute_device_times

_MIN_IDLE_SHARE = 0.05

_HIDDEN = (
    "CPU contention may hide faults: their times are those that an idle machine would show. Record again on one that "
    "is less busy."
)
_IDLE = {
    "idle_host_wait_ns": "until the CPU launched the next kernel",
    "idle_kernel_wait_ns": "between launched kernels",
    "idle_other_ns": "unexplained",
}


def describe_no_findings(report: RunReport) -> list[str]:
    """Return sentences for a report without findings: idle time, the reason, and the hints."""
    facts = _describe_idle(report)
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
