"""Step time of a run, CPU-limited or GPU-limited, from the rows of steps alone."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kinetoscope.analysis.steps.steps import StepRow

_MIN_RUN_AHEAD_SHARE = 0.01
"""Share of the CPU's time by which the device must end its work for a step later, for a GPU-limited step time.

docs/decisions/022 has the experiments and the rules that failed.
"""

_MAX_GAP_SHARE = 0.005
"""Steps adjoin, as torch's ProfilerStep spans do, if the gaps between them take at most this share of their time.

Judgement.
"""

MIN_TIMED_STEPS = 3
"""With fewer steps, one that took longer than usual is much of the whole."""


@dataclass(frozen=True)
class StepSequence:
    """Steps of one rank that were recorded one after the other, in the order of time."""

    rows: Sequence[StepRow]

    @property
    def counts_last_step(self) -> bool:
        """True if the last step counts: its end is known where steps adjoin, and the step time is CPU-limited.

        With evaluations it does not: one that follows the last step is not recorded.
        """
        return self._are_adjoining and not self.is_on_device and not any(row.all_evaluation_ns for row in self.rows)

    @property
    def timed_rows(self) -> Sequence[StepRow]:
        """The steps in the CPU's time."""
        return self.rows if self.counts_last_step or self.is_single_step else self.rows[:-1]

    @property
    def num_steps(self) -> int:
        """The number of steps in its time: from one start, or end, to the next; a single step counts as one."""
        return len(self.timed_rows)

    @property
    def is_single_step(self) -> bool:
        """True for one step: only its start and its end are known."""
        return len(self.rows) == 1

    @property
    def cpu_ns(self) -> int:
        """The CPU time of its ``num_steps``: to the end of the last step if that counts, else to its start."""
        return self.recorded_ns if self.counts_last_step else self._between_starts_ns

    @property
    def recorded_ns(self) -> int:
        """The time from the first step's start to the last one's end, on the CPU."""
        first, last = self.rows[0], self.rows[-1]
        return last.begin_ns + last.duration_ns - first.begin_ns

    @property
    def device_ns(self) -> int | None:
        """The time from the device's end of the first step to that of the last; None if unknown.

        For a single step it is the time of its kernels.
        """
        if self.is_single_step:
            return _kernels_ns(self.rows[0])
        first, last = (device_end_ns(row) for row in (self.rows[0], self.rows[-1]))
        return last - first if first is not None and last is not None else None

    @property
    def is_on_device(self) -> bool:
        """True if the step time is GPU-limited: the device ends its work after the CPU."""
        if self.device_ns is None:
            return False
        if self.is_single_step:
            return self.device_ns > self.recorded_ns
        return max(row.device_end_after_ns or 0 for row in self.rows) > _MIN_RUN_AHEAD_SHARE * self._between_starts_ns

    @property
    def time_ns(self) -> int:
        """The time of its ``num_steps``."""
        return self.device_ns if self.is_on_device and self.device_ns is not None else self.cpu_ns

    def times_ns(self) -> list[tuple[int, float]]:
        """Return the number and the time of each step, without the evaluation after it.

        The time of an evaluation on the device is unknown: a step next to one is left out, if there are others.
        """
        if self.is_single_step:
            return [(self.rows[0].step, float(self.time_ns))]
        if not self.is_on_device:
            last = [(self.rows[-1].step, float(self.rows[-1].duration_ns))] if self.counts_last_step else []
            return [
                (row.step, float(following.begin_ns - row.begin_ns - (row.evaluation_ns or 0)))
                for row, following in pairwise(self.rows)
            ] + last
        known = [
            (index, row, end_ns) for index, row in enumerate(self.rows) if (end_ns := device_end_ns(row)) is not None
        ]
        times = [
            (
                row.step,
                (end_ns - before_ns) / (index - before),
                any(row.evaluation_ns for row in self.rows[before:index]),
            )
            for (before, _, before_ns), (index, row, end_ns) in pairwise(known)
        ]
        alone = [(step, time_ns) for step, time_ns, has_evaluation in times if not has_evaluation]
        return alone or [(step, time_ns) for step, time_ns, _ in times]

    @property
    def _between_starts_ns(self) -> int:
        """The time from the first step's start to the last one's; to its end for a single step."""
        return self.recorded_ns if self.is_single_step else self.rows[-1].begin_ns - self.rows[0].begin_ns

    @property
    def _are_adjoining(self) -> bool:
        gaps_ns = self._between_starts_ns - sum(row.duration_ns for row in self.rows[:-1])
        return not self.is_single_step and gaps_ns <= _MAX_GAP_SHARE * self._between_starts_ns


def device_end_ns(row: StepRow) -> int | None:
    """Return the time at which the device ended its work for a step, in unix ns; None if unknown."""
    if row.device_end_after_ns is None:
        return None
    return row.begin_ns + row.duration_ns + row.device_end_after_ns


def step_sequences(steps: Iterable[StepRow]) -> list[StepSequence]:
    """Return the sequences of steps that each rank recorded without a pause. The end of a window ends one."""
    found: list[list[StepRow]] = []
    for rows in _by_rank(steps).values():
        is_new = True
        for row in rows:
            if is_new:
                found.append([])
            found[-1].append(row)
            is_new = row.between_ns is None
    return [StepSequence(rows) for rows in found]


def timed_sequences(steps: Iterable[StepRow]) -> list[StepSequence]:
    """Return the sequences that have a step time: single steps only where there are no others."""
    found = step_sequences(steps)
    return [sequence for sequence in found if not sequence.is_single_step] or found


def step_time_ns(steps: Iterable[StepRow]) -> float | None:
    """Return the mean step time in whole nanoseconds; None without steps."""
    timed = timed_sequences(steps)
    num_steps = sum(sequence.num_steps for sequence in timed)
    return float(round(sum(sequence.time_ns for sequence in timed) / num_steps)) if timed else None


def ratio_to_recorded_mean(steps: Sequence[StepRow], step_ns: float) -> float:
    """Return the ratio of a step of ``step_ns`` to the mean of all recorded time.

    The last step of a sequence is not in the step time, since no start follows it, but a replay saves its time too.
    Below 1 it took longer than the others.
    """
    recorded_ns = sum(sequence.recorded_ns for sequence in step_sequences(steps))
    return step_ns * len(steps) / recorded_ns if recorded_ns > 0 else 1.0


def saving_per_step_ns(saved_ns: float, num_steps: int, step_ns: float, share: float) -> float:
    """Return the saving per step if all recorded steps together take ``saved_ns`` less.

    It is never more than a step takes, and no larger a share than of all recorded time.

    Args:
        saved_ns: time saved in all recorded steps.
        num_steps: number of recorded steps.
        step_ns: step time.
        share: the result of `ratio_to_recorded_mean`.
    """
    return min(saved_ns / num_steps * min(1.0, share), step_ns)


def _by_rank(steps: Iterable[StepRow]) -> dict[int | None, list[StepRow]]:
    by_rank: defaultdict[int | None, list[StepRow]] = defaultdict(list)
    for row in sorted(steps, key=lambda row: row.begin_ns):
        by_rank[row.rank].append(row)
    return by_rank


def _kernels_ns(row: StepRow) -> int | None:
    """Return the union of a step's kernels in ns. Copies may belong to the next batch."""
    if row.device_compute_ns is None:
        return None
    return row.device_compute_ns + (row.device_exposed_communication_ns or 0)
