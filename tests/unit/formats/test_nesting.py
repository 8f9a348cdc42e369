"""Whatever overlaps, the result nests and no span is lost; begins and ends match, in order of time."""

import copy
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetoscope.formats.nesting import in_pairs, nest
from kinetoscope.formats.track_ids import RankTracks

US = 1000


def span(begin: int, end: int, cat: str = "cpu_op", **fields) -> dict:
    return {
        "ph": "X",
        "name": f"{cat}@{begin}",
        "cat": cat,
        "pid": 0,
        "tid": 7,
        "ts": begin,
        "dur": end - begin,
    } | fields


def is_marker(event: dict) -> bool:
    return event["cat"] == "marker"


def bounds(event: dict) -> tuple[int, int]:
    return event["ts"], event["ts"] + event["dur"]


def nests(events: list[dict]) -> bool:
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append(bounds(event))
    return all(
        end <= other_begin
        or other_end <= begin
        or (begin <= other_begin and other_end <= end)
        or (other_begin <= begin and end <= other_end)
        for track in tracks.values()
        for begin, end in track
        for other_begin, other_end in track
    )


spans = st.lists(
    st.builds(
        lambda begin, length, cat, tid: span(begin, begin + length, cat, tid=tid),
        st.integers(0, 40_000),
        st.integers(0, 20_000),
        st.sampled_from(["marker", "cpu_op", "python_function", "kernel"]),
        st.integers(1, 2),
    ),
    max_size=25,
)


@given(spans)
def test_the_result_always_nests_loses_no_event_and_keeps_fixed_times(events):
    before = copy.deepcopy(events)
    nest(events, is_marker)
    after = events[: len(before)]
    assert nests(events)
    assert [event["name"] for event in after] == [event["name"] for event in before]
    assert all(event["ph"] == "M" for event in events[len(before) :])
    assert all(event["dur"] >= 0 for event in after)
    for event, was in zip(after, before, strict=True):
        assert not is_marker(was) or bounds(event) == bounds(was)
        assert was["ts"] <= event["ts"]
        assert bounds(event)[1] <= bounds(was)[1]
        if event != was:
            assert event["args"]["kinetoscope"]


@given(spans)
def test_nesting_again_changes_nothing(events):
    nest(events, is_marker)
    once = copy.deepcopy(events)
    assert nest(events, is_marker).clipped == 0
    assert events == once


def test_python_frame_across_the_start_of_a_marker_ends_at_that_start():
    frame, marker = span(0, 30 * US, "python_function"), span(20 * US, 900 * US, "marker")
    counts = nest([frame, marker], is_marker)
    assert bounds(frame) == (0, 20 * US)
    assert frame["args"]["kinetoscope"] == "clipped 10.000 us at its end to nest"
    assert (counts.clipped, counts.moved) == (1, 0)


def test_op_that_starts_just_before_its_markers_end_starts_at_that_end():
    marker, op = span(0, 100 * US, "marker"), span(99 * US, 900 * US)
    nest([marker, op], is_marker)
    assert bounds(op) == (100 * US, 900 * US)


def test_a_large_overlap_moves_to_a_named_track_after_the_first():
    events = [
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": 7, "args": {"name": "main"}},
        {"ph": "M", "name": "thread_sort_index", "pid": 0, "tid": 7, "args": {"sort_index": 5}},
        span(0, 500 * US),
        span(250 * US, 900 * US),
    ]
    assert nest(events).moved == 1
    moved = events[3]
    assert moved["tid"] != 7
    assert moved["args"]["kinetoscope"] == "moved from thread 7 to overlap 1: it overlaps cpu_op@0"
    name, order = events[4:]
    assert (name["tid"], name["args"]["name"]) == (moved["tid"], "main (overlap 1)")
    assert (order["tid"], order["args"]["sort_index"]) == (moved["tid"], 5)


def test_later_of_two_overlapping_fixed_spans_moves():
    first, second = span(0, 10, "marker"), span(9, 12, "marker")
    nest([first, second], is_marker)
    assert first["tid"] == 7
    assert second["tid"] != 7


def test_a_fixed_span_stays_and_a_long_op_that_overlaps_it_is_moved():
    op, marker = span(0, 500 * US), span(250 * US, 900 * US, "marker")
    nest([op, marker], is_marker)
    assert marker["tid"] == 7
    assert op["tid"] != 7


@pytest.mark.parametrize(
    "events", [[span(0, 9), span(0, 9)], [span(5, 5), span(5, 5), span(5, 9)], [span(0, 5), span(5, 9)]]
)
def test_identical_empty_and_touching_spans_are_unmodified(events):
    before = copy.deepcopy(events)
    nest(events)
    assert events == before


def test_shared_args_are_not_changed():
    shared = {"x": 1}
    nest([span(0, 10, args=shared), span(9, 12, args=shared)])
    assert shared == {"x": 1}


def test_overlap_tracks_of_two_threads_have_tids_of_their_own():
    events = [span(begin, begin + 500 * US, tid=tid) for tid in (1, 2) for begin in (0, 250 * US)]
    nest(events)
    assert len({event["tid"] for event in events if event["ph"] == "X"}) == 4


@pytest.mark.parametrize(("before", "after"), [("said", "said; clipped"), (None, None), (7, 7), ({"a": 1}, {"a": 1})])
def test_a_note_on_nesting_is_added_to_an_earlier_note_and_to_nothing_else(before, after):
    events = [span(0, 100 * US), span(99 * US, 101 * US, args={"kinetoscope": before})]
    nest(events)
    entry = events[1]["args"]["kinetoscope"]
    assert (entry[: len(after)] if isinstance(after, str) else entry) == after


def test_a_second_nesting_puts_nothing_on_the_overlap_track_of_the_first():
    # Kineto's events are nested when they are exported, and again together with the markers.
    events = [span(begin, begin + 500 * US, cat="user_annotation") for begin in (0, 250 * US)]
    nest(events)
    frame, marker = span(600 * US, 8000 * US, cat="frame"), span(700 * US, 9000 * US, cat="marker")
    events += [span(300 * US, 8000 * US, cat="frame"), frame, marker]
    nest(events, is_fixed=is_marker)
    tracks = defaultdict(list)
    for event in RankTracks(0).adopt(events):
        tracks[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in tracks.values():
        for (begin, end), (later, its_end) in zip(sorted(spans), sorted(spans)[1:], strict=False):
            assert later >= end or (begin <= later and its_end <= end)


def named(begin, end, name, tid=1):
    return {"ph": "X", "name": name, "ts": begin, "dur": end - begin, "pid": 0, "tid": tid, "args": {}}


def shown(events, is_of_kinetoscope=lambda event: True):
    return [event["ph"] + event["name"] for event in in_pairs(events, is_of_kinetoscope)]


def test_outer_span_starts_before_and_ends_after_its_inner_spans():
    assert shown([named(2, 4, "b"), named(0, 9, "a"), named(5, 6, "c")]) == ["Ba", "Bb", "Eb", "Bc", "Ec", "Ea"]


def test_spans_that_end_at_a_time_come_before_those_that_start_then():
    assert shown([named(0, 5, "a"), named(5, 5, "b"), named(5, 9, "c")]) == ["Ba", "Ea", "Bc", "Bb", "Eb", "Ec"]


def test_spans_of_others_stay_whole():
    assert shown([named(0, 9, "ours"), named(1, 2, "theirs")], lambda event: event["name"] == "ours") == [
        "Bours",
        "Xtheirs",
        "Eours",
    ]


def test_an_end_has_the_time_and_the_args_of_its_span():
    begin, end = in_pairs([named(3, 7, "a") | {"args": {"batch": 1}, "cat": "c"}], lambda event: True)
    assert (begin["ts"], end["ts"]) == (3, 7)
    assert begin["args"] == end["args"] == {"batch": 1}
    assert "dur" not in begin
    assert "dur" not in end


def test_each_track_has_brackets_of_its_own():
    assert shown([named(0, 5, "a", 1), named(3, 8, "b", 2)]) == ["Ba", "Ea", "Bb", "Eb"]
