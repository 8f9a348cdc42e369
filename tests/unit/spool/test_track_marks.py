"""Track marks, which say whose the records after them are."""

from hypothesis import given
from hypothesis import strategies as st

from kinetoscope.spool.record import (
    MAX_MARKS,
    RECORD_BYTES,
    Kind,
    Record,
    TrackMark,
    pack_mark,
    pack_records,
    split_by_thread,
)

UNMARKED = TrackMark(0, 0, "unknown", False)
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
TURNS = st.lists(st.tuples(NAMES, st.booleans(), st.integers(0, 2**32 - 1), st.integers(0, 3)), max_size=10)


def records(num):
    return pack_records([Record(1, 2, 3, 4, 0, Kind.SPAN, 0)] * num)


def named(packed):
    return [(interval.mark.name, interval.end - interval.first) for interval in split_by_thread(packed, UNMARKED)]


@given(TURNS)
def test_each_thread_gets_its_own_records_back(turns):
    marks = [TrackMark(number + 1, tid, name, is_main) for number, (name, is_main, tid, _) in enumerate(turns)]
    packed = b"".join(pack_mark(mark) + records(num) for mark, (*_, num) in zip(marks, turns, strict=True))
    found = list(split_by_thread(memoryview(packed), UNMARKED))
    assert [(interval.mark, interval.end - interval.first) for interval in found] == [
        (mark, num) for mark, (*_, num) in zip(marks, turns, strict=True) if num
    ]
    assert all(
        packed[interval.first * RECORD_BYTES : interval.end * RECORD_BYTES] == records(interval.end - interval.first)
        for interval in found
    )


def test_long_name_is_truncated_to_a_maximal_number_of_marks():
    packed = pack_mark(TrackMark(100_000, 2, "é" * 1000, False))
    assert len(packed) == MAX_MARKS * RECORD_BYTES
    assert named(packed + records(1)) == [("é" * 64, 1)]


def test_a_mark_at_the_end_of_its_chunk_may_be_cut_short():
    packed = pack_mark(TrackMark(1, 2, "one", False)) + records(2)
    cut = pack_mark(TrackMark(2, 3, "a name of more than twenty bytes", False))[:RECORD_BYTES]
    assert named(packed + cut) == [("one", 2)]


def test_records_before_the_first_mark_are_not_lost():
    assert named(records(3)) == [("unknown", 3)]
    assert named(records(2) + pack_mark(TrackMark(1, 2, "one", False)) + records(1)) == [("unknown", 2), ("one", 1)]
    assert named(b"") == []
