"""analysis/windows/intervals.py: unions of intervals."""

from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetoscope.analysis.windows.intervals import Coverage, num_before, num_begun

TIMES = st.integers(0, 60)
INTERVALS = st.lists(st.tuples(TIMES, TIMES), max_size=12)


def frame_of(intervals):
    return pl.DataFrame(intervals, schema={"begin": pl.Int64, "end": pl.Int64}, orient="row")


def covered(frames, times):
    coverage = Coverage(*map(frame_of, frames))
    return coverage.islands.rows(), coverage.until(pl.Series(times, dtype=pl.Int64)).to_list()


@given(st.lists(INTERVALS, min_size=1, max_size=3), st.lists(st.integers(-5, 70), max_size=8))
def test_what_is_covered_before_a_time_is_every_nanosecond_of_some_interval(frames, times):
    inside = {moment for frame in frames for begin, end in frame for moment in range(begin, end)}
    islands, found = covered(frames, times)
    assert found == [sum(moment < time for moment in inside) for time in times]
    assert all(end < following for (_, end, _), (following, _, _) in pairwise(islands))
    assert [before for _, _, before in islands] == [sum(moment < begin for moment in inside) for begin, _, _ in islands]


@pytest.mark.parametrize("intervals", [[(1, 2), (2, 3)], [(2, 3), (1, 2)], [(1, 3), (2, 3)], [(2, 3), (1, 3)]])
def test_intervals_that_touch_or_overlap_are_one(intervals):
    assert covered([intervals], [3])[0] == [(1, 3, 0)]


def test_nothing_covers_nothing_and_no_time_is_before_everything():
    assert covered([[]], [3]) == ([], [0])
    assert covered([[(1, 2)]], [None, 5]) == ([(1, 2, 0)], [0, 1])


def test_many_intervals_in_any_order_are_put_in_order():
    intervals = [(place * 7919 % 1000, place * 7919 % 1000 + 1) for place in range(0, 1000, 3)]
    islands, found = covered([intervals, sorted(intervals)], [1000])
    assert found == [len(set(intervals))]
    assert islands == sorted(islands)


@given(INTERVALS)
def test_an_interval_counts_itself_and_those_that_begin_in_it(intervals):
    intervals = sorted(intervals, key=lambda one: one[0])
    frame = frame_of(intervals)
    found = num_begun(frame["begin"], frame["end"]).to_list()
    begins = [begin for begin, _ in intervals]
    assert found == [max(1, sum(later < end for later in begins[place:])) for place, (_, end) in enumerate(intervals)]


@given(st.lists(TIMES), st.lists(TIMES), st.booleans())
def test_moments_before_times_are_counted_for_times_in_any_order(moments, times, is_sorted):
    moments, times = sorted(moments), sorted(times) if is_sorted else times
    found = num_before(pl.Series(moments, dtype=pl.Int64), pl.Series(times, dtype=pl.Int64)).to_list()
    assert found == [sum(moment <= time for moment in moments) for time in times]


@given(INTERVALS)
def test_intervals_in_order_are_joined_as_those_in_no_order(intervals):
    in_order = sorted(intervals)
    assert covered([in_order], [60]) == covered([in_order[::-1]], [60])
