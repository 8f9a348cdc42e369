"""analysis/windows/intervals.py: the algebra of time intervals."""

from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetoscope.analysis.windows.intervals import IntervalUnion, count_starts_inside, count_up_to, union_ns

TIMES = st.integers(0, 60)
INTERVALS = st.lists(st.tuples(TIMES, TIMES), max_size=12)


def build_frame(intervals):
    return pl.DataFrame(intervals, schema={"begin": pl.Int64, "end": pl.Int64}, orient="row")


def covered(frames, times):
    union = IntervalUnion(*map(build_frame, frames))
    return union.pieces.rows(), union.covered_before(pl.Series(times, dtype=pl.Int64)).to_list()


def moments_of(intervals):
    return {moment for begin, end in intervals for moment in range(begin, end)}


def moments_in(union):
    """Return the nanoseconds of a union, whose pieces are apart and in order, with the right sums before them."""
    pieces = union.pieces.rows()
    assert all(end < following for (_, end, _), (following, _, _) in pairwise(pieces))
    assert [before for _, _, before in pieces] == [
        sum(end - begin for begin, end, _ in pieces[:place]) for place in range(len(pieces))
    ]
    return moments_of((begin, end) for begin, end, _ in pieces)


@given(st.lists(INTERVALS, min_size=1, max_size=3), st.lists(st.integers(-5, 70), max_size=8))
def test_covered_time_before_a_point_is_the_union_of_intervals(frames, times):
    inside = set().union(*map(moments_of, frames))
    pieces, found = covered(frames, times)
    assert found == [sum(moment < time for moment in inside) for time in times]
    assert all(end < following for (_, end, _), (following, _, _) in pairwise(pieces))
    assert [before for _, _, before in pieces] == [sum(moment < begin for moment in inside) for begin, _, _ in pieces]


@given(INTERVALS, INTERVALS)
def test_unions_behave_like_sets_of_nanoseconds(intervals, others):
    one, other = IntervalUnion(build_frame(intervals)), IntervalUnion(build_frame(others))
    inside, inside_other = moments_of(intervals), moments_of(others)
    assert moments_in(one.union(build_frame(others))) == inside | inside_other
    assert moments_in(one.intersection(other)) == inside & inside_other
    assert moments_in(one.difference(other)) == inside - inside_other
    assert one.total_ns == len(inside)
    assert bool(one) == bool(inside)


@given(INTERVALS, TIMES, TIMES)
def test_the_part_within_two_times_and_the_rest_of_it_make_all_of_that_time(intervals, begin, end):
    union, inside, asked = IntervalUnion(build_frame(intervals)), moments_of(intervals), set(range(begin, end))
    assert moments_in(union.clip(begin, end)) == inside & asked
    assert moments_in(union.complement(begin, end)) == asked - inside


@given(INTERVALS, INTERVALS)
def test_the_overlap_of_intervals_with_a_union_is_how_much_of_each_it_covers(intervals, asked):
    asked = build_frame([sorted(times) for times in asked])
    found = IntervalUnion(build_frame(intervals)).overlap_ns(asked["begin"], asked["end"]).to_list()
    assert found == [len(moments_of(intervals) & set(range(begin, end))) for begin, end in asked.iter_rows()]


@given(INTERVALS, st.lists(st.integers(-5, 70), max_size=8))
def test_a_union_covers_the_times_of_its_nanoseconds(intervals, times):
    found = IntervalUnion(build_frame(intervals)).covers(pl.Series(times, dtype=pl.Int64)).to_list()
    assert found == [time in moments_of(intervals) for time in times]


@given(INTERVALS)
def test_gaps_are_between_the_pieces(intervals):
    union, inside = IntervalUnion(build_frame(intervals)), moments_of(intervals)
    hull = set(range(min(inside), max(inside))) if inside else set()
    assert moments_of(union.gaps.rows()) == hull - inside


@given(INTERVALS)
def test_the_length_of_the_union_of_a_groups_intervals_is_that_of_the_union(intervals):
    frame = build_frame(intervals).sort("begin")
    assert frame.select(union_ns(pl.lit(True))).item() == IntervalUnion(frame).total_ns


@pytest.mark.parametrize("intervals", [[(1, 2), (2, 3)], [(2, 3), (1, 2)], [(1, 3), (2, 3)], [(2, 3), (1, 3)]])
def test_intervals_that_touch_or_overlap_are_one(intervals):
    assert covered([intervals], [3])[0] == [(1, 3, 0)]


def test_nothing_covers_nothing_and_no_time_is_before_everything():
    assert covered([[]], [3]) == ([], [0])
    assert covered([[(1, 2)]], [None, 5]) == ([(1, 2, 0)], [0, 1])


def test_many_intervals_in_any_order_are_put_in_order():
    intervals = [(place * 7919 % 1000, place * 7919 % 1000 + 1) for place in range(0, 1000, 3)]
    pieces, found = covered([intervals, sorted(intervals)], [1000])
    assert found == [len(set(intervals))]
    assert pieces == sorted(pieces)


@given(INTERVALS)
def test_interval_counts_itself_and_those_that_start_in_it(intervals):
    intervals = sorted(intervals, key=lambda one: one[0])
    frame = build_frame(intervals)
    found = count_starts_inside(frame["begin"], frame["end"]).to_list()
    begins = [begin for begin, _ in intervals]
    assert found == [max(1, sum(later < end for later in begins[index:])) for index, (_, end) in enumerate(intervals)]


@given(st.lists(TIMES), st.lists(TIMES), st.booleans())
def test_moments_before_times_are_counted_for_times_in_any_order(moments, times, is_sorted):
    moments, times = sorted(moments), sorted(times) if is_sorted else times
    found = count_up_to(pl.Series(moments, dtype=pl.Int64), pl.Series(times, dtype=pl.Int64)).to_list()
    assert found == [sum(moment <= time for moment in moments) for time in times]


@given(INTERVALS)
def test_intervals_in_order_are_joined_as_those_in_no_order(intervals):
    in_order = sorted(intervals)
    assert covered([in_order], [60]) == covered([in_order[::-1]], [60])
