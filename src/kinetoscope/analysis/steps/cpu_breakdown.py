"""CPU time breakdown of consecutive steps."""

from collections.abc import Sequence
from typing import TypedDict

from kinetoscope.analysis.steps.steps import StepRow
from kinetoscope.analysis.windows.optional_numbers import sum_or_none


class CpuBreakdown(TypedDict):
    """Time of the loop's thread in a step by activity: disjoint nanoseconds, None if unknown.

    They add up to the step with ``ahead_ns``, by which the device's step time is longer than the CPU's. ``unknown_ns``
    is time without evidence.
    """

    data_wait_ns: float | None
    forward_ns: float | None
    backward_ns: float | None
    optimizer_ns: float | None
    communication_wait_ns: float | None
    sync_ns: float | None
    gc_ns: float | None
    python_ns: float | None
    evaluation_ns: float | None
    between_ns: float | None
    unknown_ns: float | None
    ahead_ns: float | None


STEP_PARTS = (
    "forward_ns",
    "backward_ns",
    "optimizer_ns",
    "communication_wait_ns",
    "sync_ns",
    "gc_ns",
    "python_ns",
    "unknown_ns",
)
"""The parts of a step's CPU time that a row of steps has, except for the wait for data."""


def cpu_breakdown(rows: Sequence[StepRow], begin_ns: int, end_ns: int) -> CpuBreakdown:
    """Return the parts of the time from ``begin_ns``, that of the first of ``rows``, to ``end_ns``, after the last.

    They add up to that time; ``ahead_ns`` is 0.
    """
    parts = {name: sum_or_none(getattr(row, name) for row in rows) for name in STEP_PARTS}
    between_ns = sum_or_none(row.between_ns for row in rows)
    evaluation_ns = sum_or_none(ns for row in rows for ns in (row.evaluation_inside_ns, row.evaluation_ns))
    others_ns = sum(known for known in (*parts.values(), between_ns, evaluation_ns) if known is not None)
    has_data_wait = any(row.data_wait_ns is not None for row in rows)
    return CpuBreakdown(
        data_wait_ns=end_ns - begin_ns - others_ns if has_data_wait else None,
        evaluation_ns=evaluation_ns,
        between_ns=between_ns,
        ahead_ns=0,
        **parts,
    )
