"""frames/tracks.py: nested spans."""

import random

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from kinetoscope.frames.tracks import nest_spans
from reference import nesting


def nested(spans, *, clip=False):
    """self_ns, parent and depth of each span; a span is its begin, its end, and its track."""
    columns = {
        "ts": [span[0] for span in spans],
        "dur": [span[1] - span[0] for span in spans],
        "track": [span[2] for span in spans],
    }
    frame = pl.DataFrame(columns, schema={"ts": pl.Int64, "dur": pl.Int64, "track": pl.UInt32})
    return nest_spans(frame, clip=clip).rows()


def test_the_own_time_of_a_span_excludes_the_spans_in_it():
    step, forward, mm, other_thread, backward = (0, 100, 0), (10, 40, 0), (12, 20, 0), (0, 100, 1), (40, 90, 0)
    assert nested([step, forward, mm, other_thread, backward]) == [
        (20, None, 0),
        (22, 0, 1),
        (8, 1, 2),
        (100, None, 0),
        (50, 0, 1),
    ]


def test_spans_may_come_in_any_order_such_as_that_of_their_ends():
    assert nested([(12, 20, 0), (10, 40, 0), (0, 100, 0)]) == [(8, 1, 2), (22, 2, 1), (70, None, 0)]


def test_of_spans_that_start_together_the_longer_or_first_contains_the_other():
    assert nested([(0, 5, 0), (0, 9, 0), (0, 5, 0)]) == [(0, 1, 1), (4, None, 0), (5, 0, 2)]


def test_spans_that_overlap_are_siblings_and_no_time_is_counted_twice():
    outer, one, other, in_both = (0, 20, 0), (2, 10, 0), (5, 15, 0), (6, 9, 0)
    assert nested([outer, one, other, in_both]) == [(7, None, 0), (8, 0, 1), (7, 0, 1), (3, 2, 2)]


def test_span_that_starts_when_another_ends_is_not_inside_it():
    assert nested([(0, 5, 0), (5, 5, 0), (5, 8, 0), (5, 5, 0)]) == [
        (5, None, 0),
        (0, 2, 1),
        (3, None, 0),
        (0, 2, 1),
    ]


def test_clipped_spans_end_with_the_span_in_which_they_began():
    outer, late, in_late, after = (0, 20, 0), (5, 30, 0), (10, 40, 0), (20, 25, 0)
    assert nested([outer, late, in_late, after], clip=True) == [
        (5, None, 0, 20),
        (5, 0, 1, 15),
        (10, 1, 2, 10),
        (5, None, 0, 5),
    ]


def test_no_spans_are_no_rows():
    assert nested([]) == []


times = st.integers(0, 30) | st.sampled_from([0, 2**61, -(2**61)])
spans = st.tuples(times, times, st.integers(0, 2)).map(lambda span: (min(span[:2]), max(span[:2]), span[2]))


def expected(spans):
    """Return the same as the documentation defines it, computed for each pair of spans."""
    order = sorted(range(len(spans)), key=lambda row: (spans[row][0], -spans[row][1], row))
    found = []
    for row, (begin, end, track) in enumerate(spans):
        before = order[: order.index(row)]
        holding = [row for row in before if spans[row][2] == track and spans[row][1] >= end and spans[row][1] > begin]
        found.append(holding[-1] if holding else None)
    children = {
        row: [spans[child][:2] for child, parent in enumerate(found) if parent == row] for row in range(len(spans))
    }
    return [(_left(spans[row], children[row]), parent, _depth(found, row)) for row, parent in enumerate(found)]


def _left(span, children):
    covered, until = 0, span[0]
    for begin, end in sorted(children):
        covered += max(0, end - max(begin, until))
        until = max(until, end)
    return span[1] - span[0] - covered


def _depth(parents, row):
    return 0 if parents[row] is None else 1 + _depth(parents, parents[row])


@given(st.lists(spans, max_size=40))
def test_any_spans_nest_as_documented(given_spans):
    assert nested(given_spans) == expected(given_spans)


@given(st.lists(spans, max_size=40))
def test_any_spans_are_clipped_as_documented(given_spans):
    assert nested(given_spans, clip=True) == nesting.nest_spans(given_spans, clip=True)


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.sampled_from([3, 1000, 2**40]), st.sampled_from([1, 50, 2**40]))
def test_many_spans_in_any_order_nest_as_documented(seed, latest, longest):
    chance = random.Random(seed)
    begins = [chance.randrange(latest) for _ in range(chance.choice([400, 10_000]))]
    many = [(begin, begin + chance.randrange(longest), chance.randrange(2)) for begin in begins]
    assert nested(many) == nesting.nest_spans(many)
