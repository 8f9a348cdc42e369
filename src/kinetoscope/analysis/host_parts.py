"""analysis: the host's ledger of a stretch of steps: what its loop spent the time with, disjoint and complete."""

from collections.abc import Sequence
from typing import TypedDict

from kinetoscope.analysis.host_time import HostTime
from kinetoscope.analysis.steps import StepRow


class HostParts(TypedDict):
    """What the loop's thread did in a step: nanoseconds, disjoint; None is not known. With ``ahead_ns``, by which the
    device's step is longer than the host's, they add up to the step. ``unknown_ns`` is what no evidence covers."""

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


def host_parts(host: HostTime, rows: Sequence[StepRow], begin_ns: int, end_ns: int) -> HostParts:
    """The parts of the time from ``begin_ns``, that of the first of ``rows``, to ``end_ns``, the last one's begin, or
    its end if it is the only one. They add up to that time; ``ahead_ns`` is 0."""
    inner = rows[:-1] if len(rows) > 1 else rows
    known = {name: sum(getattr(row, name) or 0 for row in inner) for name in ("between_ns", "evaluation_ns")}
    if len(rows) == 1:
        known = dict.fromkeys(known, 0)
    return HostParts(
        data_wait_ns=None,
        forward_ns=None,
        backward_ns=None,
        optimizer_ns=None,
        communication_wait_ns=None,
        sync_ns=None,
        gc_ns=None,
        python_ns=None,
        evaluation_ns=known["evaluation_ns"],
        between_ns=known["between_ns"],
        unknown_ns=end_ns - begin_ns - sum(known.values()),
        ahead_ns=0,
    )
