"""A clock that can break, for errors of ours inside of hooks that other code calls."""

from kinetoscope.testing import FakeClock


class FailingClock(FakeClock):
    """A clock that can break."""

    is_broken = False

    def monotonic_ns(self):
        if self.is_broken:
            raise OSError("the clock is broken")
        return super().monotonic_ns()
