"""analysis: how long a step would take with something changed."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinetoscope.analysis.replay.replay import Change

if TYPE_CHECKING:
    from kinetoscope.analysis.analyze import RunReport


@dataclass(frozen=True, kw_only=True)
class WhatIf:
    """A step as it was, and as it would be ``without`` some causes, with operators or kernels ``faster``, and with the
    rank ``on_time``. What is not known is None."""

    without: tuple[str, ...]
    faster: tuple[tuple[str, float], ...]
    on_time: int | None
    step_ns: float | None
    step_after_ns: float | None
    saving_ns_per_step: float | None


def what_if(report: "RunReport", change: Change) -> WhatIf:
    """The step of a run with a change."""
    step_ns = report.run["step_ns"]
    saving_ns = report.saving_ns_per_step(change)
    return WhatIf(
        without=tuple(sorted(change.without)),
        faster=tuple(change.faster.items()),
        on_time=change.on_time,
        step_ns=step_ns,
        step_after_ns=step_ns - saving_ns if step_ns is not None and saving_ns is not None else None,
        saving_ns_per_step=saving_ns,
    )
