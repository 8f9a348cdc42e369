"""What times count from: the same for all traces of a run, and near enough that doubles hold nanoseconds."""

import multiprocessing
import os
import subprocess
import sys
import time

from hypothesis import given
from hypothesis import strategies as st

from kinetoscope.formats.trace_base import GRID_NS, choose_base_ns, process_base_ns

NOW_NS = 1_790_857_026_123_456_789
moments = st.integers(0, 2**62)


@given(moments, st.lists(moments, max_size=3))
def test_nothing_begins_before_its_base_and_doubles_hold_its_nanoseconds(earliest_ns, known_ns):
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


def test_the_base_of_traces_that_are_merged_is_the_earliest_of_theirs_where_it_is_ours():
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
from kinetoscope.formats.trace_base import _started_ns
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
