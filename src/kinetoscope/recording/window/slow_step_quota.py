"""Quota of outlier steps that are kept: at most 20 per hour, and periodic ones only once."""

from collections import deque
from dataclasses import dataclass

MAX_PER_HOUR = 20
_HOUR_NS = 3_600_000_000_000
_MAX_REMEMBERED_STEPS = 64
_MIN_REGULAR_STEPS, _MAX_OTHERS_BETWEEN = 4, 2
_MIN_PERIOD_STEPS = 5
_MAX_MISSED_PERIODS = 20
MAX_CONSECUTIVE = 3


@dataclass(slots=True)
class _KeptStep:
    """Outlier step that was kept in the last hour."""

    at_ns: int
    step: int
    phase: int
    every: int | None


class SlowStepQuota:
    """Decide which outlier steps are kept. Steps are passed in order.

    A fourth outlier step of the same phase that comes as many steps after the third as that after the second and the
    first is periodic, and so are later ones, also if some are missed. All of them count once in the quota of an hour,
    and the next is kept in the next hour. Of consecutive outlier steps of one phase, the first three are kept.
    """

    def __init__(self) -> None:
        self._earlier_steps: dict[int, deque[int]] = {}
        self._kept: deque[_KeptStep] = deque()
        self._regular: dict[tuple[int, int], int] = {}  # the last step of each phase and period
        self._num_consecutive = 0

    def admit(self, step: int, phase: int, now_ns: int) -> tuple[bool, int | None]:
        """Decide on one outlier step.

        Args:
            step: its number.
            phase: the phase that was slow.
            now_ns: the time, in nanoseconds.

        Returns:
            Whether the step is kept, and its period in steps if it is periodic, else None.
        """
        earlier_steps = self._earlier_steps.setdefault(phase, deque(maxlen=_MAX_REMEMBERED_STEPS))
        self._num_consecutive = self._num_consecutive + 1 if earlier_steps and earlier_steps[-1] == step - 1 else 1
        every = self._find_known_period(step, phase) or _find_new_period(earlier_steps, step)
        if every is not None:
            self._regular[phase, every] = step
        earlier_steps.append(step)
        while self._kept and now_ns - self._kept[0].at_ns >= _HOUR_NS:
            self._kept.popleft()
        if every is None:
            is_kept = self._num_consecutive <= MAX_CONSECUTIVE
        else:
            is_kept = not any(kept.phase == phase and kept.every == every for kept in self._kept)
            self._merge_regular(step, phase, every)
        is_kept = is_kept and self._count_used() < MAX_PER_HOUR
        if is_kept:
            self._kept.append(_KeptStep(now_ns, step, phase, every))
        return is_kept, every

    def _find_known_period(self, step: int, phase: int) -> int | None:
        """Return the period of such a step that is known already. Some may have been missed since the last one."""
        for (known_phase, every), last in self._regular.items():
            if known_phase == phase and (step - last) % every == 0 and step - last <= _MAX_MISSED_PERIODS * every:
                return every
        return None

    def _merge_regular(self, step: int, phase: int, every: int) -> None:
        """Count kept steps of this phase and period as one."""
        for kept in self._kept:
            if kept.phase == phase and (step - kept.step) % every == 0:
                kept.every = every

    def _count_used(self) -> int:
        """Return the number of kept steps, with each period counted once."""
        regular = {(kept.phase, kept.every) for kept in self._kept if kept.every is not None}
        return len(regular) + sum(kept.every is None for kept in self._kept)


def _find_new_period(earlier_steps: deque[int], step: int) -> int | None:
    """Return the period of such steps, in steps; None if they are not periodic."""
    steps = set(earlier_steps)
    for other in reversed(earlier_steps):
        period = step - other
        before = [step - period * times for times in range(1, _MIN_REGULAR_STEPS)]
        if period >= _MIN_PERIOD_STEPS and steps.issuperset(before):
            num_others = sum(before[-1] < each for each in earlier_steps) - (_MIN_REGULAR_STEPS - 2)
            return period if num_others <= _MAX_OTHERS_BETWEEN else None
    return None
