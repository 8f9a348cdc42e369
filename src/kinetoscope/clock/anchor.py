"""clock: anchors. One moment read on two clocks; with two anchors, any nanosecond between them is unix time."""

from dataclasses import dataclass

from kinetoscope.clock.clock import Clock

# NTP slews a clock by at most 500 ppm. A larger drift between two anchors is a step, and unix time cannot be trusted.
_STEP_TOLERANCE_NS = 1_000_000
_LARGEST_SLEW = 1 / 1000


@dataclass(frozen=True, slots=True)
class Anchor:
    """One moment on two clocks: ``unix_ns`` was read between two monotonic readings ``2 * bound_ns`` apart."""

    monotonic_ns: int
    unix_ns: int
    bound_ns: int = 0


def take_anchor(clock: Clock, tries: int = 5) -> Anchor:
    """Reads both clocks ``tries`` times and keeps the pair that was read closest together."""
    return min((_read_pair(clock) for _ in range(tries)), key=lambda anchor: anchor.bound_ns)


def _read_pair(clock: Clock) -> Anchor:
    before, unix, after = clock.monotonic_ns(), clock.unix_ns(), clock.monotonic_ns()
    return Anchor((before + after) // 2, unix, (after - before + 1) // 2)


@dataclass(frozen=True, slots=True)
class ClockLine:
    """The straight line through the anchors at the start and the end of a window.

    Where unix time was stepped in between, the line follows the monotonic clock from the start anchor instead:
    durations stay true, and the step is left out.
    """

    start: Anchor
    end: Anchor

    @property
    def stepped(self) -> bool:
        """Whether unix time jumped between the anchors."""
        elapsed = self.end.monotonic_ns - self.start.monotonic_ns
        return abs(self._drift_ns()) > _STEP_TOLERANCE_NS + elapsed * _LARGEST_SLEW

    @property
    def slope_ns(self) -> tuple[int, int]:
        """By how many nanoseconds unix time moves away from the monotonic clock, and within how many."""
        elapsed = self.end.monotonic_ns - self.start.monotonic_ns
        return (0, 1) if elapsed <= 0 or self.stepped else (self._drift_ns(), elapsed)

    def unix_ns(self, monotonic_ns: int) -> int:
        """The unix time of a monotonic nanosecond."""
        since_start = monotonic_ns - self.start.monotonic_ns
        drift, elapsed = self.slope_ns
        return self.start.unix_ns + since_start + drift * since_start // elapsed

    def _drift_ns(self) -> int:
        """How far unix time moved away from the monotonic clock between the anchors."""
        monotonic = self.end.monotonic_ns - self.start.monotonic_ns
        return self.end.unix_ns - self.start.unix_ns - monotonic
