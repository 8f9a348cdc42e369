"""All steps of a run, from its pulses: durations, changes, and whether recorded steps are like the others."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from math import ceil, sqrt
from statistics import fmean, median
from typing import NamedTuple, TypedDict

from kinetoscope.analysis.steps.periods import find_period, format_ordinal
from kinetoscope.analysis.steps.step_time import step_sequences
from kinetoscope.analysis.steps.steps import StepRow
from kinetoscope.analysis.windows.optional_numbers import sum_or_none
from kinetoscope.core.text.wording import format_percent
from kinetoscope.pulse.layout import Phase
from kinetoscope.pulse.pulses import Pulse, StepsRow, group_rows

_MAX_PIECES = 256
"""Largest number of pieces in a plot of all steps."""

_MIN_STEPS_OF_CHANGE = 100
"""A change of the step time requires this number of steps."""

_WARMUP_STEPS, _WARMUP_SHARE = 10, 0.01
"""First steps that do not count for a change: this number, or this share of all if that is more. Judgement."""

_MAX_SAVING_NS = 10_000_000_000
"""Steps so long after a recorded one may lack the CPU time that saves its trace."""

_MIN_PIECES, _MIN_SHARE_OF_PIECES = 8, 0.03
"""Pieces on each side of a change: this number, or this share of all if that is more. Judgement."""

_MIN_CHANGE, _MIN_STANDARD_ERRORS, _MIN_SHARE_BEYOND = 0.05, 6.0, 0.75
"""A change has this share of the step time, so many standard errors, and this share of pieces. Judgement."""

_MAX_DEVIATIONS = 4.0
"""Pieces further from the median by so many deviations are winsorized: one slow step is no change."""

_STD_PER_MEDIAN_DEVIATION = 1.4826
"""The standard deviation of a normal distribution with a median deviation of 1."""

_SUMS = ("duration_ns", "num_steps")
_MIN_ABNORMAL_CHANGE, _MIN_ABNORMAL_ERRORS = 0.1, 3.0
"""Recorded steps are abnormal if they differ from the others by this share, and by so many standard errors."""

_MIN_LONG_STEP_RATIO, _MIN_PERIODIC_SHARE = 1.1, 0.02
"""A step is long beyond this ratio to the median. Periodic long steps matter from this share of the run's time on."""

_MIN_UNRECORDED_STEPS = 20
"""The spread of the other steps requires this number of them."""


class Piece(TypedDict):
    """Consecutive steps: ``num_steps`` from ``step`` to ``last_step``, ``num_recorded`` of them recorded.

    ``mean_ns`` is their mean duration, ``max_duration_ns`` that of the slowest. ``evaluation_ns`` and ``checkpoint_ns``
    are the times of these phases in all of them, None if they were not watched. In a plot of all steps the piece is
    ``width`` wide. ``attempt`` is the number of the restart attempt.
    """

    step: int
    last_step: int
    num_steps: int
    num_recorded: int
    mean_ns: float
    max_duration_ns: int
    evaluation_ns: int | None
    checkpoint_ns: int | None
    width: int
    attempt: int


class AllSteps(TypedDict):
    """Facts about all steps of a run, in CPU time.

    ``num_recorded`` counts those in this report. ``mean_ns`` is of all ranks; ``max_duration_ns`` is the duration of
    the slowest step, ``slowest_step`` its number and ``slowest_rank`` its rank; ``slowest_phase`` is the phase with
    most of it, and with most of its excess over other steps, None if there is none or it is unknown. From the step
    ``changed_at`` on, the step time differs by the share ``change``, -0.1 being a tenth less; None without a change.
    Steps that were recorded, or that ran while their trace was saved, do not count there: they take longer.

    ``recorded_ns`` and ``unrecorded_ns`` are the median durations of steps that were recorded and of others.
    Evaluations do not count, nor the first step after a window, when ranks wait for others that close theirs. They are
    None where too few steps are known one by one. ``recorded_change`` is the relative excess of recorded steps, None if
    unknown; ``is_abnormal`` is true if it is so large that the report may not hold for the other steps. ``pieces`` are
    those of the first rank, in this attempt and in earlier ones, which the other fields leave out.
    """

    num_steps: int
    num_recorded: int
    mean_ns: float
    max_duration_ns: int
    slowest_step: int
    slowest_rank: int
    slowest_phase: str | None
    changed_at: int | None
    change: float | None
    recorded_ns: float | None
    unrecorded_ns: float | None
    recorded_change: float | None
    is_abnormal: bool
    pieces: list[Piece]


def summarize_all_steps(
    pulses: Sequence[Pulse], steps: Sequence[StepRow], num_recorded: int, earlier: Sequence[Pulse] = ()
) -> AllSteps | None:
    """Summarize all steps of a run from its pulses; None if these have no rows.

    Args:
        pulses: the pulse of each rank.
        steps: the recorded steps.
        num_recorded: number of recorded steps.
        earlier: the pulse of the first rank in each earlier restart attempt, for the plot.
    """
    pulses = [pulse for pulse in pulses if pulse.rows]
    if not pulses:
        return None
    first = pulses[0]
    of_slowest, slowest = max(
        ((pulse, row) for pulse in pulses for row in pulse.rows), key=lambda found: found[1].max_duration_ns
    )
    recorded = _RecordedSteps(steps, first.header.process.ranks.rank)
    size = _piece_size([row for pulse in (*earlier, first) for row in pulse.rows])
    unrecorded = _RecordedSteps((), 0)
    pieces = [piece for pulse in earlier for piece in _build_pieces(pulse.rows, unrecorded, size, _attempt_of(pulse))]
    pieces += _build_pieces(first.rows, recorded, size, _attempt_of(first))
    usual = [row for row in first.rows if not recorded.may_slow(row)]
    changed = _find_change(_build_pieces(usual, recorded, _piece_size(usual), 0))
    recorded_change, is_abnormal = _compare_recorded(first.rows, recorded)
    recorded_ns, unrecorded_ns = _median_times_ns(pulses, steps)
    total_ns, count = (sum(getattr(row, name) for pulse in pulses for row in pulse.rows) for name in _SUMS)
    return {
        "num_steps": max(pulse.header.num_steps for pulse in pulses),
        "num_recorded": num_recorded,
        "mean_ns": total_ns / count,
        "max_duration_ns": slowest.max_duration_ns,
        "slowest_step": slowest.slowest_step,
        "slowest_rank": of_slowest.header.process.ranks.rank,
        "slowest_phase": _slow_phase(slowest, of_slowest.rows),
        "changed_at": changed.step if changed else None,
        "change": changed.ratio - 1 if changed else None,
        "recorded_ns": recorded_ns,
        "unrecorded_ns": unrecorded_ns,
        "recorded_change": recorded_change,
        "is_abnormal": is_abnormal,
        "pieces": pieces,
    }


def _slow_phase(slowest: StepsRow, rows: Sequence[StepsRow]) -> str | None:
    """Return the phase that made this step slow; None for a block of older steps, whose phases are summed."""
    if slowest.num_steps > 1:
        return None
    for phase in Phase:
        took_ns = slowest.by_phase[phase]
        if phase is not Phase.OTHER and took_ns is not None and took_ns > slowest.duration_ns / 2:
            known = [(time_ns, row) for row in rows if (time_ns := row.by_phase[phase]) is not None]
            count = sum(row.num_steps for _, row in known)
            longer_ns = slowest.duration_ns - sum(row.duration_ns for _, row in known) / count
            more_ns = took_ns - sum(time_ns for time_ns, _ in known) / count
            return phase.name.lower() if more_ns > longer_ns / 2 else None
    return None


def describe_abnormal_recording(about: AllSteps, what: str = "It rests on recorded steps, which") -> str:
    """Return a sentence on recorded steps that differ from the others; "" if they do not."""
    change = about["recorded_change"]
    if not about["is_abnormal"] or change is None:
        return ""
    if change >= 1:
        return f"{what} took {1 + change:,.1f} times as long as the others."
    return f"{what} took {format_percent(abs(change))} {'longer' if change > 0 else 'less'} than the others."


class _RecordedSteps:
    """Times of the recorded steps of a rank, in order."""

    def __init__(self, steps: Sequence[StepRow], rank: int) -> None:
        rows = sorted((row.begin_ns, row.begin_ns + row.duration_ns) for row in steps if row.rank in (rank, None))
        self._begins, self._ends = [begin for begin, _ in rows], [end for _, end in rows]
        self._window_ends = sorted(row.begin_ns + row.duration_ns for row in steps if row.between_ns is None)
        self.middles: list[int] = [(begin + end) // 2 for begin, end in rows]

    def has(self, row: StepsRow) -> bool:
        """Return whether the step of this row was recorded. In a pulse a step includes the wait for its batch."""
        index = bisect_right(self.middles, row.begin_ns)
        return index < len(self.middles) and self.middles[index] < row.begin_ns + row.duration_ns

    def is_first_after(self, row: StepsRow) -> bool:
        """Return whether the step follows a window of any rank: ranks wait there for others that close theirs."""
        if self.has(row):
            return False
        index = bisect_right(self._window_ends, row.begin_ns + row.duration_ns // 2) - 1
        return index >= 0 and row.begin_ns - row.duration_ns // 2 < self._window_ends[index]

    def may_slow(self, row: StepsRow) -> bool:
        """Return whether recording may have slowed down this row: it has, or soon follows, recorded steps."""
        index = bisect_right(self._begins, row.begin_ns + row.duration_ns) - 1
        return index >= 0 and row.begin_ns < self._ends[index] + _MAX_SAVING_NS


def _attempt_of(pulse: Pulse) -> int:
    return pulse.header.process.attempt.restart


def _piece_size(rows: Sequence[StepsRow]) -> int:
    """Return the number of steps of a piece."""
    return ceil(sum(row.num_steps for row in rows) / _MAX_PIECES)


def _build_pieces(rows: Sequence[StepsRow], recorded: _RecordedSteps, size: int, attempt: int) -> list[Piece]:
    groups = group_rows(rows, size)
    pieces = [_build_piece(group, size, attempt) for group in groups]
    begins = [group[0].begin_ns for group in groups]
    for middle in recorded.middles:
        if (found := bisect_right(begins, middle) - 1) >= 0:
            pieces[found]["num_recorded"] += 1
    return pieces


def _build_piece(rows: Sequence[StepsRow], size: int, attempt: int) -> Piece:
    first, last, num_steps = rows[0], rows[-1], sum(row.num_steps for row in rows)
    return {
        "step": first.step,
        "last_step": last.step + last.num_steps - 1,
        "num_steps": num_steps,
        "num_recorded": 0,
        "mean_ns": sum(row.duration_ns for row in rows) / num_steps,
        "max_duration_ns": max(row.max_duration_ns for row in rows),
        "evaluation_ns": sum_or_none(row.by_phase[Phase.EVALUATION] for row in rows),
        "checkpoint_ns": sum_or_none(row.by_phase[Phase.CHECKPOINT] for row in rows),
        "width": max(1, round(num_steps / size)),
        "attempt": attempt,
    }


# -- changes of the step time


class _ChangePoint(NamedTuple):
    step: int
    ratio: float


def _find_change(pieces: Sequence[Piece]) -> _ChangePoint | None:
    """Return the step from which on the step time changed; None without a certain change.

    The pieces are split where that divides them best. A few slow steps at the start are a warm-up, and single slow ones
    no change.
    """
    num_steps = sum(piece["num_steps"] for piece in pieces)
    if num_steps < _MIN_STEPS_OF_CHANGE:
        return None
    first = pieces[0]["step"] + max(_WARMUP_STEPS, ceil(_WARMUP_SHARE * num_steps))
    # each piece counts ``width`` times
    pieces = [piece for piece in pieces for _ in range(piece["width"]) if piece["last_step"] >= first]
    means = _winsorize([piece["mean_ns"] for piece in pieces])
    min_pieces = max(_MIN_PIECES, ceil(_MIN_SHARE_OF_PIECES * len(pieces)))
    index = max(
        range(min_pieces, len(pieces) - min_pieces + 1), key=lambda index: _between_variance(means, index), default=None
    )
    if index is None:
        return None
    before, after = means[:index], means[index:]
    ratio = median(after) / median(before) if median(before) else 1.0
    noise = sqrt(max(_variance(before), _variance(after)) * (1 / len(before) + 1 / len(after)))
    is_sure = abs(fmean(after) - fmean(before)) >= _MIN_STANDARD_ERRORS * noise and _are_separated(before, after)
    return _ChangePoint(pieces[index]["step"], ratio) if is_sure and abs(ratio - 1) >= _MIN_CHANGE else None


def _winsorize(values: Sequence[float]) -> list[float]:
    """Winsorize the values at `_MAX_DEVIATIONS` around their median."""
    center = median(values) if values else 0.0
    max_distance = (
        _MAX_DEVIATIONS * _STD_PER_MEDIAN_DEVIATION * median([abs(value - center) for value in values] or [0.0])
    )
    return [min(max(value, center - max_distance), center + max_distance) for value in values]


def _between_variance(values: Sequence[float], index: int) -> float:
    """Return the variance between the values before an index and those from it on, times the square of their number."""
    before, after = values[:index], values[index:]
    return (fmean(after) - fmean(before)) ** 2 * len(before) * len(after)


def _are_separated(before: Sequence[float], after: Sequence[float]) -> bool:
    """Return whether most of each side is beyond the other side's median: not where slow and fast steps alternate."""
    sign = 1 if median(after) > median(before) else -1
    is_beyond = [sign * value > sign * median(before) for value in after]
    is_below = [sign * value < sign * median(after) for value in before]
    return all(sum(side) >= _MIN_SHARE_BEYOND * len(side) for side in (is_beyond, is_below))


def _variance(values: Sequence[float]) -> float:
    mean = fmean(values)
    return fmean((value - mean) ** 2 for value in values)


# -- recorded steps compared with the others


def _compare_recorded(rows: Sequence[StepsRow], recorded: _RecordedSteps) -> tuple[float | None, bool]:
    """Return the relative excess of recorded steps over others, and whether it is beyond noise.

    It is None once recorded steps are in a block with others.
    """
    alone = [row for row in rows if row.num_steps == 1]
    recorded_times = [row.duration_ns for row in alone if recorded.has(row)]
    if not recorded_times or len(recorded_times) < len(recorded.middles):
        return None, False
    recorded_total_ns = sum(recorded_times)
    others = [row for row in rows if row.num_steps > 1 or not (recorded.has(row) or recorded.is_first_after(row))]
    count = sum(row.num_steps for row in others)
    others_ns = sum(row.duration_ns for row in others) / max(1, count)
    if count < _MIN_UNRECORDED_STEPS or not others_ns:
        return None, False
    variance = max(0.0, sum(row.squares for row in others) / count - others_ns**2)
    change = recorded_total_ns / len(recorded_times) / others_ns - 1
    error_ns = sqrt(variance * (1 / len(recorded_times) + 1 / count))
    is_abnormal = abs(change) >= _MIN_ABNORMAL_CHANGE and abs(change) * others_ns >= _MIN_ABNORMAL_ERRORS * error_ns
    return change, is_abnormal


def _median_times_ns(pulses: Sequence[Pulse], steps: Sequence[StepRow]) -> tuple[float | None, float | None]:
    """Return the median durations of recorded and of unrecorded steps, of all ranks."""
    recorded, unrecorded = _select_single_rows(pulses, steps)
    enough = len(unrecorded) >= _MIN_UNRECORDED_STEPS
    return (
        float(median(row.duration_ns for row in recorded)) if recorded else None,
        float(median(row.duration_ns for row in unrecorded)) if enough else None,
    )


def fetch_ratio(pulses: Sequence[Pulse], steps: Sequence[StepRow]) -> float | None:
    """Return the median time to fetch a batch in unrecorded steps, over that in recorded ones; None if unknown."""
    recorded, unrecorded = (
        [wait_ns for row in rows if (wait_ns := row.by_phase[Phase.DATA_WAIT])]
        for rows in _select_single_rows(pulses, steps)
    )
    return median(unrecorded) / median(recorded) if recorded and len(unrecorded) >= _MIN_UNRECORDED_STEPS else None


def _select_single_rows(pulses: Sequence[Pulse], steps: Sequence[StepRow]) -> tuple[list[StepsRow], list[StepsRow]]:
    """Return the rows of single steps without an evaluation, of all ranks: recorded ones, and usual unrecorded ones."""
    recorded: list[StepsRow] = []
    unrecorded: list[StepsRow] = []
    for pulse in pulses:
        of_rank = _RecordedSteps(steps, pulse.header.process.ranks.rank)
        rows = (row for row in pulse.rows if row.num_steps == 1 and not row.by_phase[Phase.EVALUATION])
        recorded += [row for row in rows if of_rank.has(row)]
        unrecorded += _select_usual_rows(pulse, steps)
    return recorded, unrecorded


def build_period_notes(pulses: Sequence[Pulse], steps: Sequence[StepRow]) -> list[str]:
    """Return a sentence if windows are shorter than the period in which the loop's steps are long."""
    longest = max((len(sequence.rows) for sequence in step_sequences(steps)), default=0)
    rows = _select_usual_rows(pulses[0], steps) if pulses and longest else []
    if len(rows) < _MIN_UNRECORDED_STEPS:
        return []
    usual_ns = median(row.duration_ns for row in rows)
    extra_ns = {row.step: max(0.0, row.duration_ns - _MIN_LONG_STEP_RATIO * usual_ns) for row in rows}
    period = find_period(extra_ns, rows[-1].step - rows[0].step + 1)
    share = sum(extra_ns.values()) / sum(row.duration_ns for row in rows)
    if period is None or period <= longest or share < _MIN_PERIODIC_SHARE:
        return []
    return [
        f"Every {format_ordinal(period)} step takes longer than the others, and windows of {longest} steps are shorter "
        f"than that: their steps and findings are not typical of the loop. Record {2 * period} steps or more."
    ]


def usual_times_ns(pulses: Sequence[Pulse], steps: Sequence[StepRow], *, with_recorded: bool) -> list[float]:
    """Return the duration of each usual step in order, the mean over ranks: of unrecorded ones, or of all."""
    by_step: defaultdict[int, list[int]] = defaultdict(list)
    for pulse in pulses:
        for row in _select_usual_rows(pulse, steps, with_recorded=with_recorded):
            by_step[row.step].append(row.duration_ns)
    return [fmean(times) for _, times in sorted(by_step.items())]


def _select_usual_rows(pulse: Pulse, steps: Sequence[StepRow], *, with_recorded: bool = False) -> list[StepsRow]:
    """Return the rows of single steps without the warm-up, evaluations and the first after a window."""
    recorded = _RecordedSteps(steps, pulse.header.process.ranks.rank)
    rows = [row for row in pulse.rows if row.num_steps == 1 and not row.by_phase[Phase.EVALUATION]]
    rows = [row for row in rows if row.step >= _WARMUP_STEPS and not recorded.is_first_after(row)]
    return [row for row in rows if with_recorded or not recorded.has(row)]
