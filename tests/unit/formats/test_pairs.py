"""Spans in pairs: the brackets match, in order of time."""

from kinetoscope.formats.pairs import in_pairs


def span(begin, end, name, tid=1):
    return {"ph": "X", "name": name, "ts": begin, "dur": end - begin, "pid": 0, "tid": tid, "args": {}}


def shown(events, is_ours=lambda event: True):
    return [event["ph"] + event["name"] for event in in_pairs(events, is_ours)]


def test_what_encloses_begins_before_and_ends_after_what_it_encloses():
    assert shown([span(2, 4, "b"), span(0, 9, "a"), span(5, 6, "c")]) == ["Ba", "Bb", "Eb", "Bc", "Ec", "Ea"]


def test_what_ends_at_a_moment_comes_before_what_begins_then():
    assert shown([span(0, 5, "a"), span(5, 5, "b"), span(5, 9, "c")]) == ["Ba", "Ea", "Bc", "Bb", "Eb", "Ec"]


def test_spans_of_others_stay_whole():
    assert shown([span(0, 9, "ours"), span(1, 2, "theirs")], lambda event: event["name"] == "ours") == [
        "Bours",
        "Xtheirs",
        "Eours",
    ]


def test_an_end_has_the_time_and_the_args_of_its_span():
    begin, end = in_pairs([span(3, 7, "a") | {"args": {"batch": 1}, "cat": "c"}], lambda event: True)
    assert (begin["ts"], end["ts"]) == (3, 7)
    assert begin["args"] == end["args"] == {"batch": 1}
    assert "dur" not in begin
    assert "dur" not in end


def test_each_track_has_brackets_of_its_own():
    assert shown([span(0, 5, "a", 1), span(3, 8, "b", 2)]) == ["Ba", "Ea", "Bb", "Eb"]
