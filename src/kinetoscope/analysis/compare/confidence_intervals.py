"""analysis: how far two runs differ in one thing, and how far runs of one program differ by chance.

docs/comparing.md has the reasons.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from kinetoscope.analysis.compare.series import SeriesKey
from kinetoscope.analysis.compare.typical_values import Estimate, joint_degrees_of_freedom, student_quantile

_CONFIDENCE = 0.95
_DEGREES_OF_FREEDOM = 5
"""Degrees of freedom of what runs differ by, which is known from few numbers."""

_MACHINE_STATE_NS, _VARIANCE_OF_STATES = 10_000_000_000, 5
"""For how long a machine stays about as busy as it is, and how many times the variance of their steps short recordings
differ by because each knows one such state only."""

_MIN_SIGMA, _MIN_NAMES = 0.005, 3
_MAD_TO_SIGMA = 1.4826
"""From the median distance of normally distributed values to their standard deviation."""

_MAX_CALLS_DIFFERENCE = 0.1
"""What is called as often in a step, up to this part, is the same work."""

_MAX_LOG = 20.0

Calls = Mapping[tuple[str, str], float]
"""How often something is called in a step, by its kind and name."""


@dataclass(frozen=True)
class Change:
    """One thing, measured in two runs. A value below ``least`` counts as that."""

    key: SeriesKey
    before: Estimate
    after: Estimate
    least: float

    @property
    def log(self) -> float:
        """The logarithm of how many times as much it is after as before."""
        return math.log(self._scale(self.after) / self._scale(self.before))

    @property
    def errors(self) -> list[tuple[float, int]]:
        """The variance of ``log`` that comes from each run's steps, with its degrees of freedom."""
        sides = (self.before, self.after)
        return [((side.error / self._scale(side)) ** 2, side.degrees_of_freedom) for side in sides]

    @property
    def larger(self) -> float:
        """The larger one of both values."""
        return max(self._scale(self.before), self._scale(self.after))

    def _scale(self, side: Estimate) -> float:
        return max(side.value, self.least)


@dataclass(frozen=True)
class Noise:
    """Difference of two runs of one program by noise, as logarithms.

    ``shift`` is common to all operators, ``residual_sigma`` their deviation from it, and ``sigma`` their deviation from
    no change at all.
    """

    shift: float = 0.0
    residual_sigma: float = _MIN_SIGMA
    sigma: float = _MIN_SIGMA


def estimate_noise(changes: Sequence[Change], calls: Sequence[Calls]) -> Noise:
    """What the operators and kernels among these changes tell: most of them are what they were before. Those that are
    called more or less often in a step are not, by the ``calls`` of both runs, and tell nothing if there are others.

    All shapes of a name count as one.
    """
    by_name: defaultdict[tuple[str, str], list[Change]] = defaultdict(list)
    for change in changes:
        if change.key.is_call and not change.key.is_communication:
            by_name[change.key.kind, change.key.name].append(change)
    alike = [of_name for name, of_name in by_name.items() if _have_equal_calls(*(side.get(name) for side in calls))]
    names = alike if len(alike) >= _MIN_NAMES else [*by_name.values()]
    if len(names) < _MIN_NAMES:
        return Noise()
    logs = [median(change.log for change in of_name) for of_name in names]
    errors = [median(sum(error for error, _ in change.errors) for change in of_name) for of_name in names]
    shift, error = median(logs), median(errors)
    return Noise(abs(shift), _sigma([log - shift for log in logs], error), _sigma(logs, error))


def _have_equal_calls(before: float | None, after: float | None) -> bool:
    """Whether something is called about as often; also where that is not known."""
    return before is None or after is None or abs(before - after) <= _MAX_CALLS_DIFFERENCE * max(before, after)


def _sigma(logs: Sequence[float], error: float) -> float:
    """The standard deviation of logarithms around zero, less what the steps' own error makes of it."""
    variance = (_MAD_TO_SIGMA * median(map(abs, logs))) ** 2 - error
    return math.sqrt(max(variance, _MIN_SIGMA**2))


@dataclass(frozen=True)
class Intervals:
    """Makes the intervals of all changes together. ``span_ns`` is how long the shorter run was recorded,
    ``device_share`` the part of its steps in which the device was busy, and ``waits_ns`` by how much ranks differ in
    the time of collectives: the next time another rank may come last."""

    num_rows: int
    span_ns: float
    host: Noise
    device: Noise
    device_share: float = 0.0
    waits_ns: float = 0.0

    def half_width(self, change: Change, times_longer: float = 1.0) -> float:
        """How far the true logarithm may be from the change's; after ``times_longer``, if both runs were longer."""
        sigma, shift = self._noise_of(change.key)
        if change.key.waits_for_ranks:
            sigma = math.hypot(sigma, self.waits_ns / change.larger)
        states = max(1.0, self.span_ns * times_longer / _MACHINE_STATE_NS)
        times = (1 + _VARIANCE_OF_STATES / states) / times_longer
        parts = [(error * times, degrees_of_freedom) for error, degrees_of_freedom in change.errors] + [
            (sigma**2, _DEGREES_OF_FREEDOM)
        ]
        variance = sum(variance for variance, _ in parts)
        quantile = student_quantile((1 - _CONFIDENCE) / 2 / self.num_rows, joint_degrees_of_freedom(*parts))
        return min(_MAX_LOG, quantile * math.sqrt(variance) + shift)

    def _noise_of(self, key: SeriesKey) -> tuple[float, float]:
        """How far two recordings differ in this by chance, and the shift that operators have in common. Where a step,
        or a wait for the device, takes as long as the device does, it is as steady."""
        if key.kind == "memory":
            return _MIN_SIGMA, 0.0
        if key.is_call and not key.is_communication:
            noise = self.device if key.is_of_device else self.host
            return noise.residual_sigma, noise.shift
        waits = key.kind == "step" or key.name == "sync"
        share = 1.0 if key.is_of_device else self.device_share if waits else 0.0
        return math.hypot(share * self.device.sigma, (1 - share) * self.host.sigma), 0.0
