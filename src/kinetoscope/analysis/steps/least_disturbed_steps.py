"""Least disturbed steps of a recording under CPU contention: those with the smallest run-queue delay."""

from collections.abc import Sequence
from math import ceil
from statistics import fmean
from typing import TypedDict

from kinetoscope.analysis.steps.cpu_breakdown import STEP_PARTS
from kinetoscope.analysis.steps.steps import StepRow

_MAX_SHARE, _MIN_CHOSEN_STEPS, _MIN_STEPS = 0.1, 2, 4
"""The tenth of the steps with the smallest run-queue delay, at least two, of at least four steps.

Judgement: with four other busy processes on two cores, 3 of 30 steps had a delay below a tenth, and the next ones a
third.
"""

_MAX_DELAY_RATIO = 0.5
"""The share of run-queue delay in these steps is at most this part of that in all steps. Judgement."""

_PARTS = ("data_wait_ns", *STEP_PARTS)
"""Without the time between steps: the delay of either step may contain that of the pause between both."""


class LeastDisturbedSteps(TypedDict):
    """Means of the least disturbed steps, on the CPU, without the time between steps.

    They are ``num_steps`` of the ``num_known`` steps of all ranks. ``delay_share`` is the share of run-queue delay in
    their time, and ``usual_delay_share`` that of all steps. ``parts`` has nanoseconds by part, the largest first.
    """

    num_steps: int
    num_known: int
    delay_share: float
    usual_delay_share: float
    step_ns: float
    parts: dict[str, float]


def find_least_disturbed_steps(steps: Sequence[StepRow]) -> LeastDisturbedSteps | None:
    """Return the least disturbed steps; None where run-queue delay is unknown, or disturbs all steps alike."""
    known = sorted((row for row in steps if _time_ns(row)), key=_delay_share)
    if len(known) < _MIN_STEPS:
        return None
    chosen = known[: max(_MIN_CHOSEN_STEPS, ceil(_MAX_SHARE * len(known)))]
    delay_share, usual_delay_share = (_mean_delay_share(rows) for rows in (chosen, known))
    if delay_share > _MAX_DELAY_RATIO * usual_delay_share:
        return None
    parts = {name: fmean(getattr(row, name) or 0 for row in chosen) for name in _PARTS}
    return LeastDisturbedSteps(
        num_steps=len(chosen),
        num_known=len(known),
        delay_share=delay_share,
        usual_delay_share=usual_delay_share,
        step_ns=sum(parts.values()),
        parts={name: time_ns for name, time_ns in sorted(parts.items(), key=lambda part: -part[1]) if time_ns > 0},
    )


def _time_ns(row: StepRow) -> int:
    """Return the time from the end of the step before to the end of this one; 0 if unknown."""
    if row.starved_ns is None or row.running_ns is None:
        return 0
    return row.starved_ns + row.running_ns + (row.blocked_ns or 0)


def _delay_share(row: StepRow) -> float:
    return (row.starved_ns or 0) / _time_ns(row)


def _mean_delay_share(rows: Sequence[StepRow]) -> float:
    return sum(row.starved_ns or 0 for row in rows) / sum(map(_time_ns, rows))
