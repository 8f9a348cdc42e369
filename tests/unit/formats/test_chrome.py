"""formats/chrome.py: reads any form of Chrome JSON, with exact nanoseconds, and writes valid JSON."""

import gzip
import io
import json
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetoscope.errors import TraceFileError
from kinetoscope.formats.chrome import ChromeWriter, read_chrome, read_header
from kinetoscope.formats.compression import compressed_by_name
from support.trace_processor.trace_processor import load

BASE_NS = 1_790_857_026_000_000_000
EVENTS = '{"ph": "X", "name": "a", "ts": 1.001, "dur": 2}, {"ph": "X", "name": "b", "ts": 5, "dur": 0.5}'
WHOLE = f'{{"baseTimeNanoseconds": {BASE_NS}, "host_name": "h", "traceEvents": [{EVENTS}]}}'


class Scalar:
    """A placeholder for a numpy scalar."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def item(self) -> Any:
        return self.value


@pytest.fixture
def write(tmp_path: Path):
    def write(content: str | bytes, name: str = "trace.json") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def written(events: list[dict], **header: Any) -> dict:
    stream = io.BytesIO()
    with ChromeWriter(stream, base_ns=BASE_NS, header=header) as writer:
        writer.write(events)
    return json.loads(stream.getvalue())


def names(path: Path) -> list[str]:
    return [event["name"] for event in read_chrome(path).events]


def test_times_are_unix_nanoseconds_counted_from_the_base_of_the_file(write):
    trace = read_chrome(write(WHOLE))
    assert [(event["ts"] - BASE_NS, event["dur"]) for event in trace.events] == [(1001, 2000), (5000, 500)]
    assert trace.has_clock
    assert trace.header == {"baseTimeNanoseconds": BASE_NS, "host_name": "h"}
    assert trace.repairs == []


def test_absolute_microseconds_keep_all_their_digits(write):
    trace = read_chrome(write('[{"ph": "X", "ts": 1712195495501688.123, "dur": 0.001, "args": {"f": 2.5}}]'))
    assert trace.events == [{"ph": "X", "ts": 1712195495501688123, "dur": 1, "args": {"f": 2.5}}]
    assert trace.has_clock


def test_microseconds_keep_all_their_digits_also_weeks_after_the_base(write):
    # There a double is exact to half a nanosecond, but not after multiplying it by 1000.
    trace = read_chrome(
        write(f'{{"baseTimeNanoseconds": {BASE_NS}, "traceEvents": [{{"ph": "X", "ts": 4412352254936.011}}]}}')
    )
    assert trace.events[0]["ts"] == BASE_NS + 4412352254936011


def test_absolute_microseconds_keep_their_digits_in_a_damaged_file_too(write):
    trace = read_chrome(write('[{"ph": "X", "ts": 1712195495501688.123, "dur": 1}, {"ph"'))
    assert trace.events[0]["ts"] == 1712195495501688123


def test_times_may_be_strings(write):
    trace = read_chrome(write('[{"ph": "X", "ts": "1712195495501688.123", "dur": "7"}]'))
    assert (trace.events[0]["ts"], trace.events[0]["dur"]) == (1712195495501688123, 7000)


def test_a_list_may_hold_its_base_in_its_first_metadata_event(write):
    trace = read_chrome(
        write(f'[{{"ph": "M", "name": "c", "args": {{"baseTimeNanoseconds": {BASE_NS}}}}}, {{"ph": "i", "ts": 1}}]')
    )
    assert (trace.base_ns, trace.events[1]["ts"], trace.has_clock) == (BASE_NS, BASE_NS + 1000, True)


def test_small_times_without_a_base_are_no_clock(write):
    assert not read_chrome(write('[{"ph": "X", "ts": 5, "dur": 1}]')).has_clock


def test_gzip_is_known_by_its_content_not_by_its_name(write):
    assert names(write(gzip.compress(WHOLE.encode()), "trace.json")) == ["a", "b"]


def test_gzip_that_ends_too_early_is_read_up_to_there(write):
    events = ",".join(f'{{"ph": "X", "name": "e{i}", "ts": {i * 977}, "dur": 1}}' for i in range(5000))
    trace = read_chrome(write(gzip.compress(f"[{events}]".encode())[:-4000]))
    assert 0 < len(trace.events) < 5000
    assert "gzip" in trace.repairs[0]


def test_gzip_of_several_members_is_read_whole(write):
    half = len(WHOLE) // 2
    assert names(write(gzip.compress(WHOLE[:half].encode()) + gzip.compress(WHOLE[half:].encode()))) == ["a", "b"]


@pytest.mark.parametrize("content", [WHOLE[:-2], WHOLE], ids=["cut", "whole"])
def test_file_that_ends_in_a_sparse_terabyte_is_read_up_to_the_hole(write, content):
    path = write(content)
    os.truncate(path, 1 << 40)
    trace = read_chrome(path)
    assert [event["name"] for event in trace.events] == ["a", "b"]
    assert "zeros in a row" in " ".join(trace.repairs)


def test_a_file_that_is_a_hole_of_a_terabyte_is_no_trace(write):
    path = write(b"")
    os.truncate(path, 1 << 40)
    with pytest.raises(TraceFileError, match=r"trace\.json"):
        read_chrome(path)


def test_damaged_gzip_is_a_kinetoscope_error(write):
    packed = bytearray(gzip.compress(WHOLE.encode()))
    packed[12:16] = b"\xff\xff\xff\xff"
    with pytest.raises(TraceFileError):
        read_chrome(write(bytes(packed)))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (WHOLE[:-2], ["a", "b"]),
        (WHOLE[:-20], ["a"]),
        (f"[{EVENTS},", ["a", "b"]),
        (f"[{EVENTS},]", ["a", "b"]),
        (f"[{EVENTS}", ["a", "b"]),
        ('[{"ph": "X", "name": "a\x01\tb", "ts": 1}]', ["a\x01\tb"]),
        ('[{"ph": "C", "name": "n", "ts": 1, "args": {"x": NaN, "y": -Infinity}}]', ["n"]),
        (b'[{"ph": "X", "name": "\xff", "ts": 1}]', ["\ufffd"]),
        ('[{"ph": "X", "name": "a", "ts": 1}, {"ph": "X" "name"}, {"ph": "X", "name": "c", "ts": 1}]', ["a", "c"]),
        ('[\n{\n"ph": "X",\n"name": "say "hi" C:\\x",\n"ts": 1\n}\n]', ['say "hi" C:\\x']),
    ],
    ids=["bracket", "middle", "comma", "both", "missing", "control", "nan", "utf8", "lost", "quotes"],
)
def test_every_complete_event_of_a_damaged_file_is_read_and_the_repair_is_reported(write, content, expected):
    trace = read_chrome(write(content))
    assert [event["name"] for event in trace.events] == expected
    assert trace.repairs


def test_header_fields_before_and_after_the_events_survive_a_repair(write):
    content = '{"a": 1, "traceEvents": [{"ph": "X", "name": "x", "ts": 1},], "traceName": "t"}'
    assert read_chrome(write(content)).header == {"a": 1, "traceName": "t"}


@given(cut=st.integers(min_value=80, max_value=len(WHOLE) - 1))
def test_a_file_cut_anywhere_keeps_all_events_before_the_cut(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("cut") / "trace.json"
    path.write_text(WHOLE[:cut])
    complete = [name for name, end in (("a", '"dur": 2}'), ("b", '"dur": 0.5}')) if end in WHOLE[:cut]]
    if complete:
        assert names(path) == complete
    else:
        with pytest.raises(TraceFileError):
            read_chrome(path)


@pytest.mark.parametrize(
    "content", [b"", b"  \n", b"\x00\x01\x02", b'{"a": 1}', b'{"traceEvents": 3}', b"3", b"PAR1.."]
)
def test_a_file_that_is_no_trace_raises_an_error_that_names_it(write, content):
    path = write(content)
    with pytest.raises(TraceFileError, match=str(path)):
        read_chrome(path)


def test_a_missing_file_raises_naming_the_file(tmp_path):
    with pytest.raises(TraceFileError, match=r"nowhere\.json"):
        read_chrome(tmp_path / "nowhere.json")


@given(st.lists(st.tuples(st.integers(-(10**12), 10**15), st.integers(0, 10**15))))
def test_times_come_back_exactly_as_written(tmp_path_factory, times):
    path = tmp_path_factory.mktemp("times") / "trace.json"
    with path.open("wb") as stream, ChromeWriter(stream, base_ns=BASE_NS, header={}) as writer:
        writer.write({"ph": "X", "ts": BASE_NS + ts, "dur": dur} for ts, dur in times)
    assert [(event["ts"] - BASE_NS, event["dur"]) for event in read_chrome(path).events] == times


@given(st.text(st.characters()) | st.text(st.characters(categories=["Cs", "Cc"])))
def test_any_string_makes_valid_json_as_key_and_as_value(text):
    event = {"ph": "X", "ts": BASE_NS, "name": text, "args": {text: text}}
    (result,) = written([event], user={text: text})["traceEvents"]
    assert result["name"] == text.encode(errors="backslashreplace").decode()


def test_times_have_three_decimals_relative_to_the_base():
    stream = io.BytesIO()
    with ChromeWriter(stream, base_ns=BASE_NS, header={}) as writer:
        writer.write([{"ph": "X", "ts": BASE_NS + 1_234_567, "dur": 80}])
    assert b'"ts":1234.567,"dur":0.080' in stream.getvalue()


def test_numbers_that_are_not_finite_become_null_and_are_named():
    args = {"a": float("nan"), "b": [1.0, float("-inf")], "c": None}
    (event,) = written([{"ph": "X", "ts": BASE_NS, "args": args}])["traceEvents"]
    assert event["args"] == {"a": None, "b": [1.0, None], "c": None, "not_finite": {"a": "NaN", "b[1]": "-Infinity"}}


def test_a_counter_that_is_not_finite_is_no_error_in_perfetto(tmp_path):
    path = tmp_path / "trace.json"
    with path.open("wb") as stream, ChromeWriter(stream, base_ns=BASE_NS, header={}) as writer:
        args = {"bad": float("nan"), "worse": Scalar(float("inf")), "good": 1}
        writer.write([{"ph": "C", "name": "loss", "pid": 0, "tid": 1, "ts": BASE_NS, "args": args}])
    (event,) = read_chrome(path).events
    assert event["args"] == {"good": 1}
    assert event["not_finite"] == {"bad": "NaN", "worse": "Infinity"}
    with load(path) as trace:
        assert trace.errors() == {}
        assert trace.query("select value from counter") == [{"value": 1.0}]


def test_scalars_and_unusual_objects_are_written():
    args = {"n": Scalar(4), "d": Decimal("1.5"), (1, 2): {3}, "o": Path("x")}
    (event,) = written([{"ph": "X", "ts": BASE_NS, "args": args}])["traceEvents"]
    assert event["args"] == {"n": 4, "d": "1.5", "(1, 2)": [3], "o": "x"}


def test_an_event_is_not_changed_by_writing_it():
    event = {"ph": "X", "ts": BASE_NS + 1, "dur": 2, "args": {"a": float("inf")}}
    before = json.dumps(event)
    written([event])
    assert json.dumps(event) == before


@pytest.mark.parametrize(("name", "packed"), [("t.json", False), ("t.json.gz", True)])
def test_the_name_says_whether_output_is_packed(name, packed):
    stream = io.BytesIO()
    with compressed_by_name(stream, name) as inner:
        inner.write(b"hello")
    assert (gzip.decompress(stream.getvalue()) if packed else stream.getvalue()) == b"hello"


@pytest.mark.parametrize("as_list", [False, True])
def test_the_header_is_read_without_the_rest_of_the_file(tmp_path, as_list):
    path = tmp_path / "trace.json"
    header = {"kinetoscope": {"rank": 3}}
    with path.open("wb") as stream, ChromeWriter(stream, base_ns=7, header=header, as_list=as_list) as writer:
        writer.write([{"ph": "X", "name": "a", "ts": 8, "dur": 1}])
    os.truncate(path, 1 << 40)  # too large to read or to keep in memory
    read = read_header(path)
    assert read == {"schemaVersion": 1, "displayTimeUnit": "ms", "baseTimeNanoseconds": 7} | header
