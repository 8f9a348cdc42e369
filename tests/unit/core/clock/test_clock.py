"""Anchors between clocks, and the base of times: near enough that doubles are exact to the nanosecond."""

import multiprocessing
import os
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetoscope.core.clock.clock import (
    GRID_NS,
    Anchor,
    ClockLine,
    SystemClock,
    choose_base_ns,
    process_base_ns,
    read_anchor,
)
from kinetoscope.testing import FakeClock

SECOND = 10**9


def test_an_anchor_reads_both_clocks_at_one_moment():
    anchor = read_anchor(FakeClock(monotonic_ns=70, unix_ns=5000))
    assert anchor == Anchor(monotonic_ns=70, unix_ns=5000, bound_ns=0)


def test_an_anchor_is_the_pair_of_readings_that_were_closest_together():
    class Interrupted(FakeClock):
        """A clock whose readings take long, except for the second pair."""

        waits = iter([9000, 9000, 10, 10, 7000, 7000])

        def unix_ns(self):
            self.advance(next(self.waits))
            now = super().unix_ns()
            self.advance(next(self.waits))
            return now

    anchor = read_anchor(Interrupted(monotonic_ns=0, unix_ns=5_000), tries=3)
    assert anchor == Anchor(monotonic_ns=18_010, unix_ns=23_010, bound_ns=10)


def test_the_machines_own_clocks_are_read_within_a_bound():
    anchor = read_anchor(SystemClock())
    assert 0 <= anchor.bound_ns < SECOND


def test_clock_line_passes_through_both_anchors():
    line = ClockLine(Anchor(1000, 5000), Anchor(1000 + SECOND, 5000 + SECOND + 400))
    assert line.unix_ns(1000) == 5000
    assert line.unix_ns(1000 + SECOND) == 5000 + SECOND + 400
    assert line.unix_ns(1000 + SECOND // 2) == 5000 + SECOND // 2 + 200
    assert not line.stepped


@pytest.mark.parametrize("step", [-3600 * SECOND, -5_000_000, 5_000_000, 3600 * SECOND])
def test_a_step_of_unix_time_between_the_anchors_changes_no_duration(step):
    clock = FakeClock()
    start = read_anchor(clock)
    clock.advance(SECOND)
    clock.step_unix(step)
    line = ClockLine(start, read_anchor(clock))
    assert line.stepped
    assert line.unix_ns(start.monotonic_ns + SECOND) - line.unix_ns(start.monotonic_ns) == SECOND


def test_a_slewed_clock_in_a_long_window_is_no_step():
    hour = 3600 * SECOND
    assert not ClockLine(Anchor(0, 0), Anchor(hour, hour + hour // 2000)).stepped


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.integers(1, 10**12), st.integers(-400, 400))
def test_time_is_monotonic(one, other, elapsed, drift_ppm):
    line = ClockLine(Anchor(0, 0), Anchor(elapsed, elapsed + elapsed * drift_ppm // 10**6))
    early, late = sorted((one, other))
    assert line.unix_ns(early) <= line.unix_ns(late)


NOW_NS = 1_790_857_026_123_456_789
moments = st.integers(0, 2**62)


@given(moments, st.lists(moments, max_size=3))
def test_nothing_starts_before_its_base_and_doubles_hold_its_nanoseconds(earliest_ns, known_ns):
    base_ns = choose_base_ns(earliest_ns, *known_ns, *(other_ns // GRID_NS * GRID_NS for other_ns in known_ns))
    microseconds = (earliest_ns - base_ns) / 1000
    assert base_ns % GRID_NS == 0
    assert 0 <= microseconds < 2**42
    assert base_ns + round(microseconds * 1000) == earliest_ns


def test_the_base_of_a_process_stays_when_a_line_of_the_grid_is_passed():
    started_ns = NOW_NS // GRID_NS * GRID_NS
    assert choose_base_ns(started_ns + GRID_NS - 1, started_ns) == started_ns
    assert choose_base_ns(started_ns + GRID_NS + 1, started_ns) == started_ns
    assert choose_base_ns(started_ns + 2 * GRID_NS, started_ns) == started_ns + 2 * GRID_NS  # too far for a double


def test_base_of_a_merged_trace_is_the_earliest_kinetoscope_base():
    line_ns = NOW_NS // GRID_NS * GRID_NS
    kinetos_ns = NOW_NS - 10**15
    assert choose_base_ns(NOW_NS, line_ns - GRID_NS, line_ns, kinetos_ns) == line_ns - GRID_NS
    assert choose_base_ns(NOW_NS, kinetos_ns) == line_ns


def test_the_base_is_the_line_before_the_process_started_and_a_child_has_the_same():
    assert 0 <= time.time_ns() - process_base_ns() < GRID_NS + 10**9 * 86400
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(process_base_ns) == process_base_ns()


PRINTS_THE_START = """
import multiprocessing, time
from kinetoscope.core.clock.clock import _started_ns
if __name__ == "__main__":
    time.sleep(1)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(_started_ns(), pool.apply(_started_ns))
"""


def test_a_spawned_process_counts_from_when_the_one_that_made_it_started(tmp_path):
    (tmp_path / "program.py").write_text(PRINTS_THE_START)
    begin_ns = time.time_ns()
    printed = subprocess.run([sys.executable, tmp_path / "program.py"], capture_output=True, text=True, check=True)
    own_ns, childs_ns = map(int, printed.stdout.split())
    tick_ns = 10**9 // os.sysconf("SC_CLK_TCK")
    assert begin_ns - 2 * tick_ns < own_ns < time.time_ns()
    assert abs(own_ns - childs_ns) < 500_000_000  # its own start is more than a second later
