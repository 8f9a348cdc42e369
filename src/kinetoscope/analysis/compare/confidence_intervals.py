"""Confidence intervals of changes between two runs, including the noise between runs of one program.

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
"""Degrees of freedom of the noise between runs, which is estimated from few numbers."""

_MACHINE_STATE_NS, _VARIANCE_OF_STATES = 10_000_000_000, 5
"""Duration of a constant load of a machine; and the factor by which short recordings, which contain
one such state only, differ more than the variance of their steps (docs/comparing.md)."""

_MIN_SIGMA, _MIN_NAMES = 0.005, 3
_MAD_TO_SIGMA = 1.4826
"""Ratio of the standard deviation to the median absolute deviation of normally distributed values."""

_MAX_CALLS_DIFFERENCE = 0.1
"""Numbers of calls per step that differ by at most this share are equal."""

_MAX_LOG = 20.0

Calls = Mapping[tuple[str, str], float]
"""Calls per step, by kind and name."""


@dataclass(frozen=True)
class Change:
    """Change of one value between two runs. Values below ``min_value`` count as ``min_value``."""

    key: SeriesKey
    before: Estimate
    after: Estimate
    min_value: float

    @property
    def log(self) -> float:
        """The natural logarithm of the ratio of after to before."""
        return math.log(self._scale(self.after) / self._scale(self.before))

    @property
    def errors(self) -> list[tuple[float, int]]:
        """The variance of ``log`` from the steps of each run, with its degrees of freedom."""
        sides = (self.before, self.after)
        return [((side.error / self._scale(side)) ** 2, side.degrees_of_freedom) for side in sides]

    @property
    def larger(self) -> float:
        """The larger one of both values."""
        return max(self._scale(self.before), self._scale(self.after))

    def _scale(self, side: Estimate) -> float:
        return max(side.value, self.min_value)


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
    """Estimate the noise between two runs from the operators and kernels among their changes, without any from modules.

    Most of them are unchanged, so their common shift and their spread are noise. All shapes of a name count as one. If
    its number of calls per step differs, its work has changed: it counts only if fewer than three other names exist.

    Args:
        changes: changes of host values, or of device values.
        calls: calls per step of both runs, by kind and name.
    """
    by_name: defaultdict[tuple[str, str], list[Change]] = defaultdict(list)
    operators = [change for change in changes if change.key.is_call]
    for change in operators or [change for change in changes if change.key.is_module]:
        if not change.key.is_communication:
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
    """Return whether two numbers of calls per step are about equal, or one of them is unknown."""
    return before is None or after is None or abs(before - after) <= _MAX_CALLS_DIFFERENCE * max(before, after)


def _sigma(logs: Sequence[float], error: float) -> float:
    """Return the standard deviation of logarithms around zero, without the variance ``error`` of the steps."""
    variance = (_MAD_TO_SIGMA * median(map(abs, logs))) ** 2 - error
    return math.sqrt(max(variance, _MIN_SIGMA**2))


@dataclass(frozen=True)
class Intervals:
    """Simultaneous confidence intervals of all changes.

    Attributes:
        num_rows: number of intervals that hold together (Bonferroni).
        span_ns: duration of the shorter recording.
        host: noise of operators on the CPU.
        device: noise of kernels.
        device_share: share of a step in which the device is busy.
        waits_ns: difference between ranks in the time of collectives; in the next run another rank may come last.
    """

    num_rows: int
    span_ns: float
    host: Noise
    device: Noise
    device_share: float = 0.0
    waits_ns: float = 0.0

    def half_width(self, change: Change, times_longer: float = 1.0) -> float:
        """Return half the width of the interval of a change, as a logarithm.

        Args:
            change: the change.
            times_longer: the factor by which both recordings would be longer.
        """
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
        """Return the standard deviation of noise of a value, and the shift common to operators and modules.

        A step, or a wait for the device, that takes as long as the device does varies only as the device does.
        """
        if key.kind == "memory":
            return _MIN_SIGMA, 0.0
        if (key.is_call or key.is_module) and not key.is_communication:
            noise = self.device if key.is_of_device else self.host
            return noise.residual_sigma, noise.shift
        waits = key.kind == "step" or key.name == "sync"
        share = 1.0 if key.is_of_device else self.device_share if waits else 0.0
        return math.hypot(share * self.device.sigma, (1 - share) * self.host.sigma), 0.0
