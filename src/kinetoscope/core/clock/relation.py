"""Relation of one clock to another, computed from measurements."""

from dataclasses import dataclass, field
from typing import Any

from kinetoscope.core.clock.clock import Anchor

# The assumed drift of two clocks that were compared only once: NTP slews by at most 500 ppm, quartz is far better.
_MAX_DRIFT_PPM = 200


@dataclass(frozen=True, slots=True)
class Measurement:
    """An offset: rank 0's clock showed ``offset_ns`` more than this one at ``monotonic_ns``.

    The error is at most ``bound_ns``.
    """

    monotonic_ns: int
    offset_ns: int
    bound_ns: int


@dataclass(frozen=True, slots=True)
class ClockRelation:
    """The relation of this clock to rank 0's, from its first and its latest measurement.

    ``reference`` is a moment on rank 0's clock, with its unix time. With ``is_same``, both ranks share one clock.
    """

    first: Measurement
    latest: Measurement
    reference: Anchor
    is_same: bool = field(default=False)

    @property
    def drift_ppm(self) -> float | None:
        """Rank 0's rate minus this clock's, in ppm; None if there is only one measurement."""
        if self.is_same:
            return 0.0
        return (self.latest.offset_ns - self.first.offset_ns) * 1e6 / self._elapsed_ns if self._elapsed_ns > 0 else None

    def offset_ns(self, monotonic_ns: int) -> int:
        """Return the lead of rank 0's clock when this one shows ``monotonic_ns``, in ns."""
        if self._elapsed_ns <= 0:
            return self.first.offset_ns
        since_ns = monotonic_ns - self.first.monotonic_ns
        return self.first.offset_ns + (self.latest.offset_ns - self.first.offset_ns) * since_ns // self._elapsed_ns

    def bound_ns(self, monotonic_ns: int) -> int:
        """Return the error bound of `offset_ns` in ns, which grows outside of the two measurements."""
        if self.is_same:
            return 0
        largest = max(self.first.bound_ns, self.latest.bound_ns)
        outside_ns = max(self.first.monotonic_ns - monotonic_ns, monotonic_ns - self.latest.monotonic_ns, 0)
        if self._elapsed_ns <= 0:
            return largest + outside_ns * _MAX_DRIFT_PPM // 10**6
        return largest + outside_ns * (self.first.bound_ns + self.latest.bound_ns) // self._elapsed_ns

    def description(self, begin_ns: int, end_ns: int) -> dict[str, Any]:
        """Return the relation for a trace of a window: offset in its middle, drift, largest bound.

        Args:
            begin_ns: start of the window on this clock.
            end_ns: end of the window on this clock.
        """
        return {
            "same_clock": self.is_same,
            "offset_ns": self.offset_ns((begin_ns + end_ns) // 2),
            "drift_ppm": self.drift_ppm,
            "bound_ns": max(self.bound_ns(begin_ns), self.bound_ns(end_ns)),
            **encode_relation(self),
        }

    def with_latest(self, latest: Measurement) -> "ClockRelation":
        """Return a copy with a newer measurement."""
        return ClockRelation(self.first, latest, self.reference, self.is_same)

    @property
    def _elapsed_ns(self) -> int:
        return self.latest.monotonic_ns - self.first.monotonic_ns


def same_clock(reference: Anchor) -> ClockRelation:
    """Return the relation of a process that shares rank 0's clock."""
    now = Measurement(reference.monotonic_ns, 0, 0)
    return ClockRelation(now, now, reference, is_same=True)


def encode_relation(relation: ClockRelation) -> dict[str, Any]:
    """Return a relation as plain numbers, for a store."""
    moments = (relation.first, relation.latest)
    return {
        "measurements": [[moment.monotonic_ns, moment.offset_ns, moment.bound_ns] for moment in moments],
        "reference": [relation.reference.monotonic_ns, relation.reference.unix_ns, relation.reference.bound_ns],
        "same_clock": relation.is_same,
    }


def decode_relation(fields: dict[str, Any]) -> ClockRelation:
    """Return the inverse of `encode_relation`. Raises KeyError, TypeError or ValueError for anything else."""
    first, latest = (Measurement(*map(int, numbers)) for numbers in fields["measurements"])
    return ClockRelation(first, latest, Anchor(*map(int, fields["reference"])), bool(fields["same_clock"]))
