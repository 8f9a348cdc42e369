"""Predicted step times of a run after a change."""

from dataclasses import dataclass

from kinetoscope.analysis.replay.replay import Change
from kinetoscope.analysis.run_report import RunReport


@dataclass(frozen=True, kw_only=True)
class WhatIf:
    """The recorded step time, and the predicted one with a change; None if unknown.

    The change is ``without`` some causes, with operators or kernels ``faster``, and with the ranks ``on_time``; or
    without the fault of the finding with the number ``fix``.
    """

    without: tuple[str, ...]
    faster: tuple[tuple[str, float], ...]
    on_time: tuple[int, ...]
    fix: int | None
    step_ns: float | None
    step_after_ns: float | None
    saving_ns_per_step: float | None


def what_if(report: RunReport, change: Change) -> WhatIf:
    """Predict how long a step of a run would take with a change, by a replay of the run."""
    return _what_if(report, change, report.saving_ns_per_step(change), None)


def what_if_fixed(report: RunReport, number: int) -> WhatIf:
    """Predict how long a step of a run would take without the fault of a finding.

    Raises:
        SettingsError: if no finding has the number.
    """
    return _what_if(report, Change(), report.saving_of_fix(number), number)


def _what_if(report: RunReport, change: Change, saving_ns: float | None, fix: int | None) -> WhatIf:
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
