"""Kineto's text, in whatever pieces it arrives, is kept event by event; odd text is kept as it is."""

import json
import os
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinetoscope.core.clock.clock import GRID_NS
from kinetoscope.torch.export import copy_trace, rewrite_trace
from kinetoscope.torch.kineto_text import AlteredName, KinetoText, read_text
from support.chunked_kineto import ChunkedKineto

BASE_NS = 1_790_857_026_000_000_000
BEGIN_US = 4_411_007_546_334  # weeks after the base, as it happens


def span(name: str = "aten::add", begin_us: float = 1.5, duration_us: float = 2.25, args: str = '"Ev Idx": 3') -> str:
    """A span as Kineto writes it: ``name`` and ``args`` are raw text."""
    return f"""
  {{
    "ph": "X",
    "cat": "cpu_op",
    "name": "{name}",
    "pid": 17,
    "tid": "stream 7",
    "ts": {BEGIN_US + Decimal(str(begin_us)):.3f},
    "dur": {duration_us:.3f}
    ,
    "args": {{
      "External id": 1,{args}
    }}
  }}"""


def kineto(*events: str) -> bytes:
    head = f' {{\n    "schemaVersion": 1,\n    "baseTimeNanoseconds": {BASE_NS},\n    "traceEvents": [\n    '
    return (head + ",".join(events) + '\n  ],"traceName": "/tmp/trace.json"\n}').encode()


def events_of(text: KinetoText) -> list[dict]:
    """Return every event, its ``ts`` in exact microseconds of unix time."""
    found = []
    for document in text.documents():
        trace = json.loads(document, parse_float=Decimal)
        base_us = Decimal(trace["baseTimeNanoseconds"]) / 1000
        found += [event | {"ts": base_us + event.get("ts", 0)} for event in trace["traceEvents"]]
    return found


def expected(text: bytes) -> list[dict]:
    trace = json.loads(text, parse_float=Decimal)
    return [event | {"ts": Decimal(BASE_NS) / 1000 + event["ts"]} for event in trace["traceEvents"]]


ARGS = [
    '"a": [[], [1, -2.5e3], {"b": null}], "c": true',
    '"q": "a \\\\" b"',
    '"path": "c:\\\\\\\\"',
    '"u": "\\\\u00e9"',
]


@settings(deadline=None)
@given(
    args=st.lists(st.sampled_from(ARGS), max_size=8),
    num_bytes=st.integers(1, 700),
)
def test_every_event_is_returned_whatever_the_pieces(args, num_bytes):
    content = kineto(*(span(args=text.replace("\\\\", "\\"), begin_us=10 * at) for at, text in enumerate(args)))
    text = read_text(ChunkedKineto(content, num_bytes), [])
    assert events_of(text) == expected(content)
    assert text.is_valid


def test_long_text_is_wrapped_completely_for_any_number_of_lines(tmp_path):
    from kinetoscope._native import KinetoLines

    event = f'{{"ph":"X","name":"a","pid":1,"tid":1,"ts":{BEGIN_US}.125,"dur":1\n  }},'.encode()
    events = event * (9_000_000 // len(event))  # there is room for eight million bytes of lines at once
    (tmp_path / "end").write_bytes(b"]}")
    for num_more in range(len(event)):  # so that the room ends at each place in a line
        found = KinetoLines(BEGIN_US * 1000 - 1000, [], (), event.replace(b"a", b"a" * num_more) + events)
        stop, num_ends = 1, 0
        with open(tmp_path / "end", "rb", buffering=0) as end:
            while stop == 1:  # full
                stop, lines = found.read(end.fileno(), bytearray(b"\1"))
                num_ends += bytes(lines).count(b"}")
        assert (stop, num_ends) == (2, 1 + len(events) // len(event))


def test_times_count_from_a_base_so_near_the_events_that_a_double_holds_them():
    text = read_text(ChunkedKineto(kineto(span(), span(begin_us=9.001))), [])
    [document] = text.documents()
    trace = json.loads(document)
    first_us, second_us = (event["ts"] for event in trace["traceEvents"])
    assert 0 <= first_us < second_us < 2**42
    assert trace["baseTimeNanoseconds"] % GRID_NS == 0
    assert trace["baseTimeNanoseconds"] + round(1000 * first_us) == BASE_NS + 1000 * BEGIN_US + 1500
    assert round(1000 * (second_us - first_us)) == 7501


def test_a_name_that_kineto_changed_is_put_right():
    renamed = [AlteredName(1, 'say "hi"\n', 'say "hi"')]
    text = read_text(ChunkedKineto(kineto(span("first", 0), span('say "hi"', 5), span("last", 9))), renamed)
    assert [event["name"] for event in events_of(text)] == ["first", 'say "hi"\n', "last"]
    assert text.is_valid


@pytest.mark.parametrize("num_bytes", [1, 1000])
@pytest.mark.parametrize("name", ['say "hi"', '"all"', '"', '","', 'a", "pid": 1, "tid": "b', 'torch/x.py(0): "b2b"'])
def test_quotes_in_a_name_are_escaped_as_its_line_is_made(name, num_bytes):
    text = read_text(ChunkedKineto(kineto(span("first", 0), span(name, 5), span("last", 9)), num_bytes), [])
    assert text.is_valid
    assert [event["name"] for event in events_of(text)] == ["first", name, "last"]
    assert text.may_have_changed_names  # a newline in it would be missing


def test_quotes_in_a_name_are_escaped_in_the_one_line_output_of_old_torch():
    events = [span(name, begin).replace('",\n    "', '", "') for name, begin in (('say "hi"', 0), ("last", 9))]
    text = read_text(ChunkedKineto(kineto(*events)), [])
    assert [event["name"] for event in events_of(text)] == ['say "hi"', "last"]


def test_a_frame_with_another_name_than_at_its_reading_keeps_what_kineto_wrote():
    events = [span("first", 0), frame("unknown", 5, "null"), span("last", 9)]
    text = read_text(ChunkedKineto(kineto(*events)), [AlteredName(1, "a.py(0): \x01'", "a.py(0): '")])
    assert text.is_valid
    assert [event["name"] for event in events_of(text)] == ["first", "unknown", "last"]


def test_names_found_later_are_corrected_even_for_clipped_spans():
    events = [span("outer", 0, 100), span("unknown", 40, 63), span("unknown", 60, 2), span("a/b", 200, 1)]
    text = read_text(ChunkedKineto(kineto(*events, frame("a/b", 300, "null"))), [])
    names = {(40, 63): ["\u00e9"], (60, 2): ["t\tb"], (200, 1): ["a\\b", "other\n"], (300, 1): ["c\\d"]}
    begin_ns = BASE_NS + BEGIN_US * 1000
    text = text.correct_names({(begin_ns + begin * 1000, dur * 1000): one for (begin, dur), one in names.items()})
    assert text.is_valid
    assert [event["name"] for event in events_of(text)] == ["outer", "\u00e9", "t\tb", "a\\b", "a/b"]


@pytest.mark.parametrize(
    "unusual",
    [
        span("nested \x01"),
        span(args='"Bytes": nan'),
        span(args='"a": [1,]'),
        span(args='"a": 01'),
        span(begin_us=-4e12),  # before our base
        span("\u00e9"),
        span(args='"a": ' + "[" * 100 + "]" * 100),
    ],
)
def test_text_after_a_malformed_event_is_kept_unmodified(unusual):
    content = kineto(span("first", 0), unusual, span("last", 20))
    text = read_text(ChunkedKineto(content), [])
    assert not text.is_valid
    kept = b"".join(text.remainder.pieces())
    assert kept.lstrip().startswith(unusual.strip().encode())
    assert kept.endswith(content[-40:])
    [first] = json.loads(next(text.documents()))["traceEvents"]
    assert first["name"] == "first"


@pytest.mark.parametrize("cut", [1, 60, 150, 300])
def test_a_text_that_ends_too_early_is_kept_to_its_end(cut):
    content = kineto(span("first", 0), span("last", 20))
    text = read_text(ChunkedKineto(content[:-cut]), [])
    whole = b"".join(text.documents())
    assert whole.count(b'"ph"') == content[:-cut].count(b'"ph"')


def test_spans_that_overlap_are_made_to_nest_and_their_args_say_so():
    events = [span("outer", 0, 100), span("inner", 40, 63), span("long", 50, 200), span("after", 300, 1)]
    text = read_text(ChunkedKineto(kineto(*events)), [])
    assert text.is_valid
    outer, inner, long, after, *added = events_of(text)
    assert (inner["dur"], inner["args"]["kinetoscope"]) == (60, "clipped 3.000 us at its end to nest")
    assert (long["tid"], long["dur"]) == (added[0]["tid"], 200)
    assert added[0]["args"]["name"] == "thread 7 (overlap 1)"
    assert "kinetoscope" not in after["args"] | outer["args"]


@pytest.mark.parametrize("num_bytes", [900_000, 20_000_000])
def test_long_events_come_back_and_nest_wherever_they_are(num_bytes):
    long = f'"text": "{"x" * num_bytes}"'
    events = [span("first", 0, 1)]
    for begin in range(100, 100 + 20_000_000 // num_bytes * 100, 100):
        events += [span("outer", begin, 50), span("inner", begin + 20, 33, long), span("after", begin + 60, 1)]
    text = read_text(ChunkedKineto(kineto(*events), 100_000), [])
    assert text.is_valid
    found = events_of(text)
    assert [event["name"] for event in found] == ["first", *["outer", "inner", "after"] * (len(events) // 3)]
    inner = [event for event in found if event["name"] == "inner"]
    assert {event["dur"] for event in inner} == {30}
    assert {len(event["args"]["text"]) for event in inner} == {num_bytes}
    assert all(event["args"]["kinetoscope"].startswith("clipped 3.000 us") for event in inner)


def test_overlapping_frames_of_threads_without_a_number_are_on_a_track_with_a_name():
    frames = [span(name, begin, 9000) for name, begin in (("one", 0), ("other", 4000))]
    events = [frame.replace("cpu_op", "python_function").replace('"stream 7"', "0") for frame in frames]
    text = read_text(ChunkedKineto(kineto(*events).replace(b'"pid": 17', f'"pid": {os.getpid()}'.encode())), [])
    names = [event["args"]["name"] for event in events_of(text) if event.get("name") == "thread_name"]
    assert names == ["Python threads without a number", "Python threads without a number (overlap 1)"]


def frame(name: str, number: int, parent: int | str, args: str = "") -> str:
    """A Python function as Kineto writes it."""
    numbers = f'"Python parent id": {parent}, "Python id": {number}{args}'
    return span(name, begin_us=number, args=numbers).replace("cpu_op", "python_function")


FRAMES = [
    frame("train.py(1): <module>", 1, "null"),
    frame("kinetoscope/recording/run/loop.py(2): batches", 2, 1),
    frame("kinetoscope/recording/run/loop.py(3): _next", 3, 2),
    frame("<built-in function next>", 4, 3),
    frame("data.py(4): __next__", 5, 4),
    frame("<built-in function len>", 6, 5),
    frame("kinetoscope_plugin.py(5): mine", 7, 3),
    frame("kinetoscope/core/background/writer_thread.py(6): _loop", 8, "null"),
    frame("json.py(7): dumps", 9, 8),
]


def parents_of(path) -> dict[str, int | None]:
    return {event["name"]: event["args"]["Python parent id"] for event in json.loads(path.read_text())["traceEvents"]}


@pytest.mark.parametrize("num_lines", range(len(FRAMES) + 1))
def test_our_frames_go_and_their_children_are_those_of_the_frame_above(tmp_path, num_lines):
    unusual = frame("odd.py(8): odd", 10, "null", ', "note": "\u00e9"')  # from here on Python reads
    text = read_text(ChunkedKineto(kineto(*FRAMES[:num_lines], unusual, *FRAMES[num_lines:])), [])
    rewrite_trace([(text, {})], tmp_path / "trace.json", {})
    assert parents_of(tmp_path / "trace.json") == {
        "train.py(1): <module>": None,
        "data.py(4): __next__": 1,
        "<built-in function len>": 5,
        "kinetoscope_plugin.py(5): mine": 1,
        "json.py(7): dumps": None,
        "odd.py(8): odd": None,
    }


@pytest.mark.parametrize(
    "decoy", ['"note": {"Python parent id": 1, "Python id": 7}', '"say \\"Python parent id": 1, "say \\"Python id": 7']
)
def test_frame_is_recognized_by_its_own_fields_not_by_words_in_other_fields(tmp_path, decoy):
    names = [
        ("train.py(1): <module>", "null"),
        ("kinetoscope/loop.py(2): batches", 1),
        ("kinetoscope/loop.py(3): _next", 2),
        ("data.py(4): __next__", 3),
    ]
    frames = [frame(name, number, parent) for number, (name, parent) in enumerate(names, 1)]
    events = [text.replace('"Python parent id"', f'{decoy}, "Python parent id"', 1) for text in frames]
    rewrite_trace([(read_text(ChunkedKineto(kineto(*events)), []), {})], tmp_path / "trace.json", {})
    assert parents_of(tmp_path / "trace.json") == {"train.py(1): <module>": None, "data.py(4): __next__": 1}


def test_without_our_frames_a_text_is_as_right_as_with_them(tmp_path):
    text = read_text(ChunkedKineto(kineto(*FRAMES)), [])
    assert text.is_valid
    copy_trace(text, tmp_path / "trace.json", {})
    assert parents_of(tmp_path / "trace.json")["data.py(4): __next__"] == 1


def test_names_that_kineto_changes_are_corrected_after_kinetoscope_frames():
    renamed = [AlteredName(1, "kinetoscope/\u00e9.py(1): f", "unknown"), AlteredName(2, "a\tb", "unknown")]
    events = [frame("train.py(1): f", 1, "null"), frame("unknown", 2, 1), span("unknown", 5)]
    text = read_text(ChunkedKineto(kineto(*events)), renamed)
    assert [event["name"] for event in events_of(text)] == ["train.py(1): f", "a\tb"]
    assert text.is_valid
