"""analysis: how long a step would take with something changed."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinetoscope.analysis.replay.replay import Change

if TYPE_CHECKING:
    from kinetoscope.analysis.analyze import RunReport


@dataclass(frozen=True, kw_only=True)
class WhatIf:
    """A step as it was, and as it would be ``without`` some causes, with operators or kernels ``faster``, and with
    the ranks ``on_time``; or without the fault of a finding, of which ``fix`` is the number. What is not known is
    None."""

    without: tuple[str, ...]
    faster: tuple[tuple[str, float], ...]
    on_time: tuple[int, ...]
    fix: int | None
    step_ns: float | None
    step_after_ns: float | None
    saving_ns_per_step: float | None


def what_if(report: "RunReport", change: Change) -> WhatIf:
    """The step of a run with a change."""
    return _what_if(report, change, report.saving_ns_per_step(change), None)


def what_if_fixed(report: "RunReport", number: int) -> WhatIf:
    """The step of a run without the fault of the finding of this number. Raises SettingsError if there is none."""
    return _what_if(report, Change(), report.saving_of_fix(number), number)


def _what_if(report: "RunReport", change: Change, saving_ns: float | None, fix: int | None) -> WhatIf:
    step_ns = report.run["step_ns"]
    return WhatIf(
        without=tuple(sorted(change.without)),
        faster=tuple(change.faster.items()),
        on_time=tuple(sorted(change.on_time)),
        fix=fix,
        step_ns=step_ns,
        step_after_ns=step_ns - saving_ns if step_ns is not None and saving_ns is not None else None,
        saving_ns_per_step=saving_ns,
    )
