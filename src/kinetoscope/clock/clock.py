"""clock: nanoseconds. The one place that asks the operating system what time it is."""

import time
from typing import Protocol


class Clock(Protocol):
    """A clock that never goes back, and the unix time beside it. Both in integer nanoseconds."""

    def monotonic_ns(self) -> int:
        """Nanoseconds on CLOCK_MONOTONIC: since some moment before this process began."""
        ...

    def unix_ns(self) -> int:
        """Nanoseconds since 1970 (UTC), as the system believes it to be; may be stepped at any time."""
        ...


class SystemClock:
    """The machine's own clock."""

    # Python's functions themselves rather than methods around them: a span asks twice, and a call costs.
    monotonic_ns = staticmethod(time.monotonic_ns)
    unix_ns = staticmethod(time.time_ns)
