"""Activity of the loop's thread per step of a simulated run, and the part that its trace shows."""

from collections.abc import Iterable
from typing import Any

from trainsim.engine import CLOSURE, HostSpan, Window
from trainsim.intervals import Interval, clip, gaps, length_ns, less_ns, union
from trainsim.settings import Settings

PHASES = ("forward", "backward", "optimizer")


def intervals_of(spans: Iterable[HostSpan]) -> list[Interval]:
    """When spans began and ended."""
    return [(span.begin_ns, span.end_ns) for span in spans]


def cpu_row(
    step: HostSpan,
    before_ns: int,
    spans: list[HostSpan],
    outside: list[HostSpan],
    window: Window,
    settings: Settings,
) -> dict[str, Any]:
    """Return the parts of a step: disjoint, and the first one takes shared time. The fetch may be before the step."""
    before = clip(intervals_of(span for span in outside if span.phase == "data"), before_ns, step.begin_ns)
    row: dict[str, Any] = {}
    taken: list[Interval] = []
    for name, intervals in _parts_of(step, spans, window, settings):
        row[name] = row.get(name, 0) + less_ns(intervals, taken)
        taken += intervals
    if not settings.has_torch:
        row |= dict.fromkeys(("communication_wait_ns", "sync_ns", "python_ns"))
        row |= {f"{phase}_ns": None for phase in PHASES if phase not in settings.markers}
    return row | {"data_wait_ns": row["data_wait_ns"] + length_ns(before)}


def _parts_of(
    step: HostSpan, spans: list[HostSpan], window: Window, settings: Settings
) -> Iterable[tuple[str, list[Interval]]]:
    """Return the parts of a step that a trace shows; the first one takes shared time."""
    waits = [wait for wait in window.waits if step.begin_ns <= wait.begin_ns < step.end_ns]
    of_wait = {
        kind: [(w.begin_ns, w.end_ns) for w in waits if w.kind == kind] for kind in ("backward", "communication")
    }
    marked = {phase: intervals_of(s for s in spans if s.name == phase and s.category == "marker") for phase in PHASES}
    is_named = {phase: phase in settings.markers for phase in PHASES}
    on_loop = [span for span in spans if span.thread == "loop"]
    yield "gc_ns", intervals_of(span for span in spans if span.category == "gc")
    yield "data_wait_ns", intervals_of(span for span in spans if span.phase == "data")
    if settings.has_torch:
        calls = intervals_of(span for span in on_loop if span.name.startswith("c10d::"))
        yield "communication_wait_ns", calls + of_wait["communication"]
        yield "sync_ns", intervals_of(span for span in spans if span.has_blocked)
    by_torch = settings.has_torch and not is_named["backward"]
    yield "backward_ns", _of_phase(spans, "backward") + of_wait["backward"] if by_torch else marked["backward"]
    yield "forward_ns", marked["forward"]
    by_torch = settings.has_torch and not is_named["optimizer"]
    optimizer = _of_phase(spans, "optimizer") if by_torch else marked["optimizer"]
    closures = _closures(spans) if settings.has_torch and not is_named["forward"] else []
    yield "optimizer_ns", _less(optimizer, closures)
    if settings.has_torch:
        yield "forward_ns", [] if is_named["forward"] else _of_phase(spans, "forward")
        busy = intervals_of(
            span for span in on_loop if span.category in ("cpu_op", "cuda_runtime") or span.phase == "data"
        )
        yield "python_ns", _outside(step, [*busy, *of_wait["backward"], *of_wait["communication"]])
    yield "unknown_ns", [(step.begin_ns, step.end_ns)]


def _closures(spans: list[HostSpan]) -> list[Interval]:
    """Where closures are called: from the first operator of their forward pass to the last of their backward pass."""
    return [
        (min(begin_ns for begin_ns, _ in inside), max(end_ns for _, end_ns in inside))
        for closure in spans
        if closure.category == CLOSURE
        for inside in [
            clip(_of_phase(spans, "forward") + _of_phase(spans, "backward"), closure.begin_ns, closure.end_ns)
        ]
    ]


def _less(intervals: list[Interval], others: list[Interval]) -> list[Interval]:
    """Return the parts of the intervals that none of the others covers."""
    return [
        piece
        for begin_ns, end_ns in intervals
        for piece in gaps([(begin_ns, begin_ns), *union(clip(others, begin_ns, end_ns)), (end_ns, end_ns)])
    ]


def _of_phase(spans: Iterable[HostSpan], phase: str) -> list[Interval]:
    return intervals_of(span for span in spans if span.phase == phase)


def _outside(step: HostSpan, busy: list[Interval]) -> list[Interval]:
    """Return the intervals of a step that none of these covers."""
    first, last = (step.begin_ns, step.begin_ns), (step.end_ns, step.end_ns)
    return gaps([first, *union(clip(busy, step.begin_ns, step.end_ns)), last])
