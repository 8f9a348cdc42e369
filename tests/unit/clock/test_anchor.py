import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetoscope.clock.anchor import Anchor, ClockLine, take_anchor
from kinetoscope.clock.clock import SystemClock
from kinetoscope.testing import FakeClock

SECOND = 10**9


def test_an_anchor_reads_both_clocks_at_one_moment():
    anchor = take_anchor(FakeClock(monotonic_ns=70, unix_ns=5000))
    assert anchor == Anchor(monotonic_ns=70, unix_ns=5000, bound_ns=0)


def test_an_anchor_is_the_pair_of_readings_that_were_closest_together():
    class Interrupted(FakeClock):
        """A clock whose readings take long, but for the second pair."""

        waits = iter([9000, 9000, 10, 10, 7000, 7000])

        def unix_ns(self):
            self.advance(next(self.waits))
            now = super().unix_ns()
            self.advance(next(self.waits))
            return now

    anchor = take_anchor(Interrupted(monotonic_ns=0, unix_ns=5_000), tries=3)
    assert anchor == Anchor(monotonic_ns=18_010, unix_ns=23_010, bound_ns=10)


def test_the_machines_own_clocks_are_read_within_a_bound():
    anchor = take_anchor(SystemClock())
    assert 0 <= anchor.bound_ns < SECOND


def test_the_line_goes_through_both_anchors():
    line = ClockLine(Anchor(1000, 5000), Anchor(1000 + SECOND, 5000 + SECOND + 400))
    assert line.unix_ns(1000) == 5000
    assert line.unix_ns(1000 + SECOND) == 5000 + SECOND + 400
    assert line.unix_ns(1000 + SECOND // 2) == 5000 + SECOND // 2 + 200
    assert not line.stepped


@pytest.mark.parametrize("step", [-3600 * SECOND, -5_000_000, 5_000_000, 3600 * SECOND])
def test_a_step_of_unix_time_between_the_anchors_changes_no_duration(step):
    clock = FakeClock()
    start = take_anchor(clock)
    clock.advance(SECOND)
    clock.step_unix(step)
    line = ClockLine(start, take_anchor(clock))
    assert line.stepped
    assert line.unix_ns(start.monotonic_ns + SECOND) - line.unix_ns(start.monotonic_ns) == SECOND


def test_a_slewed_clock_in_a_long_window_is_no_step():
    hour = 3600 * SECOND
    assert not ClockLine(Anchor(0, 0), Anchor(hour, hour + hour // 2000)).stepped


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.integers(1, 10**12), st.integers(-400, 400))
def test_time_never_goes_back(one, other, elapsed, drift_ppm):
    line = ClockLine(Anchor(0, 0), Anchor(elapsed, elapsed + elapsed * drift_ppm // 10**6))
    early, late = sorted((one, other))
    assert line.unix_ns(early) <= line.unix_ns(late)
