"""formats/chrome_scan.py: the scanner reads every file as its reference does."""

import json
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kinetoscope.formats import chrome_stream
from kinetoscope.formats.chrome_scan import new_scanner
from reference.scanning import ReferenceScanner
from support.malformed_traces import MALFORMATIONS, break_event, malformed_trace
from support.scanner_output import Reading, read_with

SPAN = {"ph": "X", "name": "a", "cat": "c", "pid": 1, "tid": 2, "ts": 1.5, "dur": 2.25}
KINETO = """\
 {
    "schemaVersion": 1,
    "distributedInfo": {"rank": 3},
    "baseTimeNanoseconds": 1790857026000000000,
    "traceEvents": [
  {
    "ph": "X",
    "cat": "cpu_op",
    "name": "aten::mm",
    "pid": 7,
    "tid": 8,
    "ts": 4411189208527.989,
    "dur": 1405.213
    ,
    "args": {
      "External id": 5,"Sequence number": -1, "Input Dims": [[4, 8], []], "Input type": ["float", ""]
    }
  },
  {
    "ph": "s",
    "id": 31,
    "pid": 7,
    "tid": 8,
    "ts": 4411189208600.001,
    "cat": "ac2g",
    "name": "ac2g"
  }
  ],"traceName": "x.json" }"""


@pytest.fixture
def read():
    def read(content: str | bytes | list | dict) -> Reading:
        if isinstance(content, (list, dict)):
            content = json.dumps(content)
        return read_with(new_scanner(), content if isinstance(content, bytes) else content.encode())

    return read


def row(read, event: dict[str, Any]) -> dict[str, Any]:
    """Return the row of an event that is between two ordinary ones."""
    reading = read([SPAN, event, SPAN])
    assert len(reading.rows) == 3
    return reading.rows[1]


def test_a_kineto_event_becomes_a_row_with_its_arguments(read):
    reading = read(KINETO)
    span, flow = reading.rows
    assert span["ts"] == 1790857026000000000 + 4411189208527989
    assert (span["kind"], span["name"], span["category"], span["dur"]) == ("span", "aten::mm", "cpu_op", 1405213)
    assert (span["external_id"], span["sequence"], span["stream"]) == (5, -1, None)
    assert (span["shapes"], span["types"]) == ("[[4, 8], []]", '["float", ""]')
    assert span["args"]["Input Dims"] == [[4, 8], []]
    assert (flow["kind"], flow["phase"], flow["id"], flow["args"]) == ("flow", "s", 31, None)
    assert reading.tracks == [(7, 8)]
    assert reading.header["distributedInfo"] == {"rank": 3}
    assert reading.header["traceName"] == "x.json"
    assert reading.repairs == []


@pytest.mark.parametrize(
    ("ts", "ns"),
    [
        ("0", 0),
        ("-1.5", -1500),
        ("0.001", 1),
        ("1e3", 1_000_000),
        ("0.0006", 1),
        ("7.1234567", 7123),
        ("8796093022207.999", 8796093022207999),
        ("1712195495501688.123", 1712195495501688123),
        ("1712195495501688", 1712195495501688000),
        ('"12.5"', 12500),
    ],
)
def test_times_keep_every_nanosecond(read, ts, ns):
    assert read(f'[{{"ph":"X","ts":{ts},"dur":1}},{{"ph":"X","ts":0}}]').rows[0]["ts"] == ns


@pytest.mark.parametrize("ts", ["null", "true", '"soon"', "1e400", "99999999999999999999", "[1]"])
def test_events_without_a_time_that_makes_sense_are_left_out(read, ts):
    reading = read(f'[{{"ph":"X","ts":{ts},"name":"bad"}},{json.dumps(SPAN)}]')
    assert [row["name"] for row in reading.rows] == ["a"]
    assert len(reading.repairs) == 1


@pytest.mark.parametrize(
    ("event", "column", "value"),
    [
        (SPAN | {"args": {"device": 1, "Device Id": 2}}, "device", 1),
        (SPAN | {"args": {"Device Id": 2}}, "device", 2),
        (SPAN | {"args": {"stream": "7"}}, "stream", None),
        (SPAN | {"args": {"stream": 7.5}}, "stream", None),
        (SPAN | {"args": {"correlation": 10**18}}, "correlation", None),
        (SPAN | {"args": {"dtype": "Float"}}, "dtype", "Float"),
        (SPAN | {"args": None}, "args", None),
        (SPAN | {"args": 5}, "args", {"args": 5}),
        (SPAN | {"cat": ["a", "b"]}, "category", "a,b"),
        (SPAN | {"name": 5}, "name", "5"),
        (SPAN | {"id": "0x1f"}, "id_text", "0x1f"),
        (SPAN | {"id": {"local": 1}}, "id_text", '{"local": 1}'),
        (SPAN | {"cname": "red", "tts": 5}, "fields", {"cname": "red", "tts": 5}),
        (SPAN | {"name": 'q"\\\n\té😀'}, "name", 'q"\\\n\té😀'),
    ],
)
def test_unusual_values_get_their_meaning(read, event, column, value):
    assert row(read, event)[column] == value


@pytest.mark.parametrize(
    ("content", "names", "repair"),
    [
        ('[{"ph":"X","name":"a","ts":1},{"ph":"X","name":"b","ts":2', ["a"], "ends too early"),
        ('[{"ph":"X","name":"a","ts":1},{"ph":"X","name":"b","ts":2},]', ["a", "b"], "1 commas"),
        ('[{"ph":"X","name":"a","ts":1} {"ph":"X","name":"b","ts":2}]', ["a", "b"], "1 commas"),
        ('[,{"ph":"X","name":"a","ts":1}]', ["a"], "1 commas"),
        ('[,{"ph":"X","name":"a\\x","ts":1},{"ph":"X","name":"b","ts":1}]', ["b"], "1 commas"),
        ('[{"ph":"X","name":"a\tb","ts":1},{"ph":"X","name":"b","ts":2}]', ["a\tb", "b"], "not strict JSON"),
        ('[{"ph":"X","name":"a","ts":1,"args":{"v":NaN}}]', ["a"], "became null"),
        ('[{"ph":"X","name":"a\udcff","ts":1}]', ["a\ufffd"], "not UTF-8"),
        ('[{"ph":"X","name":"a","ts":1},5,{"ph":"X","name":"b","ts":2}]', ["a", "b"], "not events"),
        ('[{"ph":"X","name":}},{"ph":"X","name":"b","ts":2}]', ["b"], "left out"),
        ('[{"ph":"X","name":"a","ts":1,},{"ph":"X","name":"b","ts":2}]', ["a", "b"], "Commas within 1 events"),
        ('[{"ph":"X" "name":"a","ts":1,,"args":{,"v":[1 2,,]}}]', ["a"], "Commas within 1 events"),
        ('{"traceEvents":[{"ph":"X","name":"a","ts":1}],"x":}', ["a"], "around the events"),
        ('[\n{"ph": "X",\n"name": "a "b" \\q",\n"ts": 1}]', ['a "b" \\q'], "were escaped"),
    ],
)
def test_a_damaged_file_is_read_as_far_as_it_makes_sense(read, content, names, repair):
    reading = read(content.encode(errors="surrogateescape"))
    assert [row["name"] for row in reading.rows] == names
    assert any(repair in sentence for sentence in reading.repairs)


@pytest.mark.parametrize("content", [b"", b"   ", b"\x00\x01", b"[]", b"{}", b"[[]]", b'{"traceEvents": 5}', b'["a"]'])
def test_a_file_that_is_no_trace_raises_an_error_that_says_so(read, content):
    assert read(content).error.startswith("Cannot read the trace trace: ")


def test_a_value_that_is_nested_too_deep_loses_only_its_event(read):
    deep = '{"ph":"X","ts":1,"args":{"a":' + "[" * 5000 + "]" * 5000 + "}}"
    assert [row["name"] for row in read(f"[{json.dumps(SPAN)},{deep},{json.dumps(SPAN)}]").rows] == ["a", "a"]


def test_a_string_larger_than_the_window_is_read_or_only_its_event_is_lost(read, monkeypatch):
    monkeypatch.setattr(chrome_stream, "_PIECE_BYTES", 1 << 12)
    monkeypatch.setattr(chrome_stream, "_MAX_EVENT_BYTES", 1 << 16)
    for size, num_rows in ((30_000, 3), (300_000, 2)):
        assert len(read([SPAN, SPAN | {"args": {"text": "x" * size}}, SPAN]).rows) == num_rows


def test_a_field_that_comes_twice_counts_as_it_comes_last(read):
    reading = read('[{"ph":"X","name":"a","ts":1,"dur":"X","dur":2.5},{"ph":"X","name":"b","ts":2,"dur":1}]')
    assert [(row["name"], row["dur"]) for row in reading.rows] == [("a", 2500), ("b", 1000)]
    assert reading.repairs == []


def test_many_malformed_events_among_others_keep_their_order(read):
    names = [f"event {number}" for number in range(300)]
    unusual = {number: [name] for number, name in enumerate(names) if number % 7 == 0 or 100 <= number < 200}
    reading = read([SPAN | {"name": unusual.get(number, name)} for number, name in enumerate(names)])
    assert [row["name"] for row in reading.rows] == names
    assert reading.repairs == [
        f"{len(unusual)} events that are not strict JSON, or have values of unusual types, were read nevertheless."
    ]


def test_only_the_broken_events_are_lost(read):
    """The event after each of them is read, also if a string is not closed."""
    events = [json.dumps(SPAN | {"name": f"event {number}"}) for number in range(200)]
    broken = [event.replace('"cat"', 'cat"' if number % 20 else '"cat') for number, event in enumerate(events)]
    mixed = [broken[number] if number % 10 == 5 else event for number, event in enumerate(events)]
    names = [row["name"] for row in read("[" + ",\n".join(mixed) + "]").rows]
    assert names == [f"event {number}" for number in range(200) if number % 10 != 5]


@pytest.mark.parametrize(
    ("kind", "name", "repair"),
    [
        ("bare quotes", 'say "x" event {}', "Quotes or backslashes were escaped in 50 events."),
        ("one bare quote", '5" event {}', "Quotes or backslashes were escaped in 50 events."),
        ("bare backslash", "C:\\q event {}", "Quotes or backslashes were escaped in 50 events."),
        ("control character", "\x01event {}", "50 events that are not strict JSON"),
        ("line break", "\nevent {}", "50 events that are not strict JSON"),
        ("bytes that are not UTF-8", "\ufffd\ufffdevent {}", "Bytes that are not UTF-8 were replaced in 50 events."),
        ("half of a character", "\\ud83devent {}", "50 events that are not strict JSON"),
        ("NaN in a field", "event {}", "50 numbers that are NaN or infinite became null."),
        ("infinity in the args", "event {}", "50 numbers that are NaN or infinite became null."),
        ("a time that is a string", "event {}", "50 events that are not strict JSON, or have values of unusual types"),
        ("comma behind the last field", "event {}", "Commas within 50 events were missing or too many."),
        ("commas missing between fields", "event {}", "Commas within 50 events were missing or too many."),
        ("two commas", "event {}", "Commas within 50 events were missing or too many."),
        ("garbage before it", "event {}", "50 pieces that are not a complete event were left out."),
    ],
)
def test_file_with_every_event_malformed_in_one_way_is_read(read, kind, name, repair):
    events = [SPAN | {"name": f"event {number}", "args": {"stream": number}} for number in range(50)]
    reading = read(malformed_trace(break_event(event, kind) for event in events))
    assert [row["name"] for row in reading.rows] == [name.format(number) for number in range(50)]
    assert [row["stream"] for row in reading.rows] == list(range(50))
    assert {(row["ts"], row["dur"]) for row in reading.rows} == {(1790857026000001500, 2250)}
    assert any(repair in sentence for sentence in reading.repairs)


@pytest.mark.parametrize(
    "kind",
    ["NaN for a time", "string without its end", "no closing brace", "field without a value", "key without quotes"],
)
def test_an_event_that_makes_no_sense_is_left_out_and_the_others_are_read(read, kind):
    events = [break_event(SPAN | {"name": f"event {number}"}, kind if number % 2 else "") for number in range(50)]
    reading = read(malformed_trace(events))
    assert [row["name"] for row in reading.rows] == [f"event {number}" for number in range(0, 50, 2)]
    assert any("left out" in sentence for sentence in reading.repairs)


# -- both scanners --

_texts = st.text(max_size=8) | st.sampled_from(["aten::mm", 'q"', "\\", "\ud800", "\x00", "é", "stream 7"])
_numbers = st.integers(-(10**20), 10**20) | st.floats() | st.sampled_from([0, -1, 1.5, 2**43 + 0.001, 1e16])
_values = st.recursive(
    st.none() | st.booleans() | _numbers | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=6,
)
_keys = st.sampled_from(["External id", "device", "Device Id", "stream", "Input Dims", "Input type", "bytes", "x"])
_events = st.fixed_dictionaries(
    {"ph": st.sampled_from("XXXBEbeistfCMnSFTO") | _values},
    optional={
        "name": _texts | _values,
        "cat": _texts | _values,
        "pid": st.integers(0, 3) | _values,
        "tid": st.integers(0, 3) | _values,
        "ts": _numbers | _values,
        "dur": _numbers | _values,
        "id": _values,
        "args": st.dictionaries(_keys | _texts, _values, max_size=4) | _values,
        "bp": _values,
        "s": _texts,
        "cname": _values,
    },
)


def assert_alike(content: bytes) -> None:
    assert repr(read_with(new_scanner(), content)) == repr(read_with(ReferenceScanner(), content))


@given(st.lists(_events | _values, max_size=6), st.sampled_from([None, 2]), st.booleans())
def test_the_scanner_agrees_with_its_reference_on_any_events(events, indent, is_ascii):
    text = json.dumps({"traceEvents": events, "baseTimeNanoseconds": 10**18}, indent=indent, ensure_ascii=is_ascii)
    assert_alike(text.encode(errors="surrogatepass"))


@given(
    st.lists(st.tuples(_events, st.sampled_from(["", *MALFORMATIONS])), max_size=8),
    st.sampled_from([None, 2]),
    st.sampled_from([1 << 9, 1 << 18]),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_scanner_agrees_with_its_reference_on_broken_events(monkeypatch, events, indent, window_bytes):
    monkeypatch.setattr(chrome_stream, "_PIECE_BYTES", window_bytes)
    assert_alike(malformed_trace(break_event(event, kind, indent=indent) for event, kind in events))


_PIECES = [b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"NaN", b"1e999", b"\x00", b"\n", b"\xff", b"\\ud800"]
_PIECES += [b'"ph":"X",', b"]}", b'"traceEvents":[', b"[[[[", b'{"ph":"X","ts":1}', b"9" * 20, b"\\u0041", b" " * 40]
_edits = st.tuples(st.integers(0, 4000), st.integers(0, 40), st.sampled_from(_PIECES) | st.binary(max_size=4))


@given(st.lists(_edits, min_size=1, max_size=6), st.sampled_from([256, 1 << 18]), st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_scanner_agrees_with_its_reference_on_a_mutated_file(monkeypatch, edits, window_bytes, is_list):
    monkeypatch.setattr(chrome_stream, "_PIECE_BYTES", window_bytes)
    content = bytearray(json.dumps([SPAN, SPAN | {"args": {"stream": 7}}] * 6).encode() if is_list else KINETO.encode())
    for place, length, piece in edits:
        start = place % (len(content) + 1)
        content[start : start + length] = piece
    assert_alike(bytes(content))


# -- how long it takes --

_GOOD = b'{"ph":"X","name":"good","pid":1,"tid":2,"ts":%d,"dur":1},\n'
GARBAGE_BYTES = int(os.environ.get("KINETOSCOPE_GARBAGE_BYTES", "2000000"))
_GARBAGE = [b'{"ph":', b'{"x":{"ph":1},', b'{"ph":"X","a":"', b'"', b"1,", b"{},", b'{"name":{"ts":']


@pytest.mark.parametrize("garbage", _GARBAGE, ids=repr)
def test_millions_of_garbage_fragments_do_not_delay_reading_of_events(garbage):
    # Piece by piece this would take minutes, and the test would time out.
    good = b"".join(_GOOD % number for number in range(5000))
    reading = read_with(new_scanner(), b"[" + good + garbage * (GARBAGE_BYTES // len(garbage)) + b'"},\n' + good + b"]")
    names = [row["name"] for row in reading.rows]
    assert names[:5000] == ["good"] * 5000
    assert reading.rows[-1]["ts"] == 4999_000
    assert len(names) > 7500
    assert any("were skipped" in repair for repair in reading.repairs)


def test_no_event_is_skipped_if_every_other_one_is_lost():
    content = b"[" + b"".join(_GOOD % number + b'{"ph":"X","name":"cut sho\n' for number in range(20_000)) + b"]"
    reading = read_with(new_scanner(), content)
    assert [row["ts"] for row in reading.rows] == [1000 * number for number in range(20_000)]
    assert not any("were skipped" in repair for repair in reading.repairs)
