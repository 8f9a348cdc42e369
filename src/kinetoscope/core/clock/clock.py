"""Clocks in nanoseconds, their relation to unix time, and the base of a run's traces."""

import os
import sys
import time
from dataclasses import dataclass
from typing import Protocol

from kinetoscope.core.clock.proc import StatField, read_stat


class Clock(Protocol):
    """A clock that never goes back, and unix time. Both in integer nanoseconds."""

    def monotonic_ns(self) -> int:
        """Nanoseconds on CLOCK_MONOTONIC: since some moment before this process began."""
        ...

    def unix_ns(self) -> int:
        """Nanoseconds since 1970 (UTC) by the system's clock, which may be stepped at any time."""
        ...


class SystemClock:
    """The machine's own clock."""

    # Python's functions without methods around them: a span reads the clock twice, and calls cost time.
    monotonic_ns = staticmethod(time.monotonic_ns)
    unix_ns = staticmethod(time.time_ns)


GRID_NS = 2**51
"""26 days: bases are multiples of it."""

_EXACT_NS = 2**42 * 1000  # a double holds so many microseconds to half a nanosecond
# NTP slews a clock by at most 500 ppm. A larger drift between two anchors is a step, and unix time cannot be trusted.
_STEP_TOLERANCE_NS = 1_000_000
_MAX_SLEW = 1 / 1000


@dataclass(frozen=True, slots=True)
class Anchor:
    """One moment on two clocks: ``unix_ns`` was read between two monotonic readings ``2 * bound_ns`` apart."""

    monotonic_ns: int
    unix_ns: int
    bound_ns: int = 0


def read_anchor(clock: Clock, tries: int = 5) -> Anchor:
    """Read both clocks ``tries`` times and return the pair that was read closest together."""
    return min((_read_pair(clock) for _ in range(tries)), key=lambda anchor: anchor.bound_ns)


def _read_pair(clock: Clock) -> Anchor:
    before, unix, after = clock.monotonic_ns(), clock.unix_ns(), clock.monotonic_ns()
    return Anchor((before + after) // 2, unix, (after - before + 1) // 2)


@dataclass(frozen=True, slots=True)
class ClockLine:
    """The straight line through the anchors at the start and the end of a window.

    If unix time was stepped in between, the line follows the monotonic clock from the start anchor instead: durations
    stay true, and the step is ignored.
    """

    start: Anchor
    end: Anchor

    @property
    def stepped(self) -> bool:
        """True if unix time jumped between the anchors."""
        elapsed = self.end.monotonic_ns - self.start.monotonic_ns
        return abs(self._drift_ns()) > _STEP_TOLERANCE_NS + elapsed * _MAX_SLEW

    @property
    def slope_ns(self) -> tuple[int, int]:
        """The drift of unix time against the monotonic clock, and the time over which it adds up, in nanoseconds."""
        elapsed = self.end.monotonic_ns - self.start.monotonic_ns
        return (0, 1) if elapsed <= 0 or self.stepped else (self._drift_ns(), elapsed)

    def unix_ns(self, monotonic_ns: int) -> int:
        """Return the unix time of a monotonic nanosecond."""
        since_start = monotonic_ns - self.start.monotonic_ns
        drift, elapsed = self.slope_ns
        return self.start.unix_ns + since_start + drift * since_start // elapsed

    def _drift_ns(self) -> int:
        """Return the drift of unix time against the monotonic clock between the anchors."""
        monotonic = self.end.monotonic_ns - self.start.monotonic_ns
        return self.end.unix_ns - self.start.unix_ns - monotonic


def choose_base_ns(earliest_ns: int, *known_ns: int) -> int:
    """Return the zero of a trace's times: a multiple of ``GRID_NS`` before ``earliest_ns``.

    It is the earliest of the bases ``known_ns`` (the process's, or those of merged files) from which a double holds the
    trace's times exactly; if there is none, the last multiple before the first event.
    """
    fitting = (base for base in known_ns if base % GRID_NS == 0 and 0 <= earliest_ns - base < _EXACT_NS)
    return min(fitting, default=earliest_ns // GRID_NS * GRID_NS)


def process_base_ns() -> int:
    """Return the base of this process's traces: when it started, rounded down to a multiple of 26 days.

    Some tools put traces together and ignore ``baseTimeNanoseconds``, so the traces of a run must have the same base.
    This one needs no exchange between processes: only processes that start on both sides of a multiple differ. A child
    process has its parent's base.
    """
    return _process_base_ns


def _started_ns() -> int:
    """Return the unix time when this process started; in a child of multiprocessing, when its parent started."""
    multiprocessing = sys.modules.get("multiprocessing.process")  # it is loaded if it made this process
    parent = multiprocessing.parent_process() if multiprocessing is not None else None
    try:
        ticks = int(read_stat(parent.pid if parent else os.getpid())[StatField.START])
        age_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - ticks * 10**9 // os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):  # no Linux
        age_ns = 0
    return time.time_ns() - max(age_ns, 0)


# A global, because it belongs to the process; computed at import, so that forked children have it too.
_process_base_ns = _started_ns() // GRID_NS * GRID_NS
