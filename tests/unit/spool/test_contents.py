"""spool/contents.py: what a worker process recorded goes into the windows of its parent, each record into one."""

import pytest

from kinetoscope.spool.contents import SpooledPart, SpooledTrack, child_records_in_window
from kinetoscope.spool.record import Flag, Kind, Record, pack_records

FIRST_NS, LAST_NS = 1_000, 2_000  # of a window
IDS = [30, 31, 32]  # of a worker's names, in the parent


def span(begin_ns, end_ns, name=0):
    return Record(begin_ns, end_ns, name, 7, 0, Kind.SPAN, Flag.NONE)


def in_window(*records, open_spans=(), **dropped):
    part = SpooledPart(0, len(records), lambda: pack_records(records))
    track = SpooledTrack(0, 50, 51, "worker", 0, True, 0, 0, parts=[part], open_spans=list(open_spans), **dropped)
    return child_records_in_window(track, IDS, FIRST_NS, LAST_NS)


@pytest.mark.parametrize(
    ("begin_ns", "is_in"), [(FIRST_NS - 1, False), (FIRST_NS, True), (LAST_NS, True), (LAST_NS + 1, False)]
)
def test_a_record_is_in_the_window_in_which_it_began_and_in_no_other(begin_ns, is_in):
    ended, still_open = span(begin_ns, begin_ns), span(begin_ns, 0)
    assert in_window(ended).num_records == is_in
    assert in_window(open_spans=[still_open]).num_records == is_in


def test_a_span_that_ends_after_the_window_or_not_at_all_is_cut_at_its_end():
    records = [span(FIRST_NS, LAST_NS), span(FIRST_NS, LAST_NS + 1), span(LAST_NS, LAST_NS + 900)]
    found = in_window(*records, open_spans=[span(1_500, 0)]).records()
    assert [(record.begin, record.end, record.flags) for record in found] == [
        (FIRST_NS, LAST_NS, Flag.NONE),
        (FIRST_NS, LAST_NS, Flag.CUT),
        (LAST_NS, LAST_NS, Flag.CUT),
        (1_500, LAST_NS, Flag.CUT),
    ]


def test_records_have_the_names_and_series_of_the_parent_and_keep_their_values():
    counter = Record(FIRST_NS, 2.5, 1, 7, 0, Kind.COUNTER, Flag.FLOAT, 2)
    large = Record(FIRST_NS, LAST_NS + 5, 1, 7, 0, Kind.COUNTER, Flag.NONE, 2)
    unnamed = span(FIRST_NS, LAST_NS, name=len(IDS))
    found = list(in_window(span(FIRST_NS, LAST_NS, name=2), counter, large, unnamed).records())
    assert [(record.name, record.series) for record in found] == [(32, 0), (31, 32), (31, 32)]
    assert [record.end for record in found[1:]] == [2.5, LAST_NS + 5]


@pytest.mark.parametrize(
    ("dropped_ns", "num_dropped"), [(FIRST_NS - 1, 0), (FIRST_NS, 3), (LAST_NS, 3), (LAST_NS + 1, 0)]
)
def test_records_without_space_are_counted_in_their_window(dropped_ns, num_dropped):
    assert in_window(num_dropped=3, dropped_ns=dropped_ns).num_dropped == num_dropped
