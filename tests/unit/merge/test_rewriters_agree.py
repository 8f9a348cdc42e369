"""merge/native_rewrite.py: it writes the same trace as its reference, whatever the file."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetoscope.errors import MergeError, TraceFileError
from kinetoscope.merge.check import check_trace, repair_trace
from kinetoscope.merge.merge_traces import merge_traces
from kinetoscope.merge.window import Window
from reference.rewriting import use_reference
from support.event_strategies import BASE_NS, QUIET, categories, events, others, spans
from support.malformed_traces import MALFORMATIONS, break_event, malformed_trace
from support.merged_traces import meaning
from support.trace_processor.trace_processor import load


def merged(output: Path, file: Path, **how: Any) -> Any:
    """Return the meaning of the merged trace, and the counts; or the kind of error."""
    try:
        report = merge_traces(output, file, **how)
    except (MergeError, TraceFileError) as error:
        return type(error)
    trace = json.loads(output.read_bytes())
    counts = report.num_events, report.num_clipped, report.num_moved
    return counts, meaning(trace)


def agree(text: bytes, folder: Path, monkeypatch: pytest.MonkeyPatch, **how: Any) -> Any:
    file = folder / "rank3.json"
    file.write_bytes(text)
    native = merged(folder / "out.json", file, **how)
    with monkeypatch.context() as patch:
        use_reference(patch)
        assert native == merged(folder / "reference.json", file, **how)
    if not isinstance(native, type):
        assert not {finding.kind for finding in check_trace(folder / "out.json").findings} & {"syntax", "nesting"}
    return native


@QUIET
@given(events, st.sampled_from([None, 0, 2]))
def test_both_write_the_same_events(tmp_path, monkeypatch, events, indent):
    text = json.dumps({"baseTimeNanoseconds": BASE_NS, "traceEvents": events}, indent=indent).encode()
    agree(text, tmp_path, monkeypatch)


@QUIET
@given(events, st.sampled_from([None, 0, 2]))
def test_both_write_the_same_events_where_many_look_alike(tmp_path, monkeypatch, events, indent):
    """C uses what it learnt from the first event for the others, if enough text follows."""
    trace = {"baseTimeNanoseconds": BASE_NS, "traceEvents": events * 4, "traceName": "x" * 300}
    agree(json.dumps(trace, indent=indent).encode(), tmp_path, monkeypatch)


@QUIET
@given(
    st.lists(st.sampled_from(["1", "-1.5", "0.0004", "12345678.125", "8388608.0625", "1e3", "01", "-", "null", '"7"']))
)
def test_both_read_numbers_alike_where_many_events_look_alike(tmp_path, monkeypatch, numbers):
    lines = [
        f'{{"ph":"X","name":"n","pid":1,"tid":{number},"ts":{number},"dur":1,"args":{{"a":{number},"b":[{number}]}}}}'
        for number in ["1", *numbers, "2"]
    ]
    text = '{"traceEvents":[' + ",\n".join(lines) + '],"traceName":"' + "x" * 300 + '"}'
    agree(text.encode(), tmp_path, monkeypatch)


@QUIET
@given(st.lists(st.permutations(("pid", "tid", "ts", "dur", "args", "cat")), min_size=1), st.data())
def test_both_find_pids_tids_and_times_anywhere_in_an_event(tmp_path, monkeypatch, orders, data):
    """Also if a value is too long, or too far from the next, for the first pass to note it."""
    long_value, far = st.sampled_from([3, "7", "9" * 300]), st.sampled_from(["", "x" * 300])
    written = []
    for number, order in enumerate(orders):
        values = {"pid": data.draw(long_value), "tid": data.draw(long_value), "ts": 10 * number + 0.5, "dur": 4.25}
        values |= {"args": {"a": data.draw(far)}, "cat": data.draw(far)}
        name, phase = data.draw(st.sampled_from(["n", "n" * 70000])), data.draw(st.sampled_from("XBEiC"))
        written.append({"name": name, "ph": phase} | {key: values[key] for key in order})
    agree(json.dumps(written).encode(), tmp_path, monkeypatch)


@QUIET
@given(events)
def test_both_align_on_the_same_span(tmp_path, monkeypatch, events):
    agree(json.dumps(events).encode(), tmp_path, monkeypatch, align_on="aten::add")


@QUIET
@given(events, st.floats(1e-9, 1e-4))
def test_both_keep_the_same_window(tmp_path, monkeypatch, events, last_s):
    text = json.dumps({"baseTimeNanoseconds": BASE_NS, "traceEvents": events}).encode()
    agree(text, tmp_path, monkeypatch, window=Window(last_s=last_s))


@QUIET
@given(st.lists(st.tuples(st.integers(0, 40_000), st.integers(0, 40_000), categories), min_size=2, max_size=40))
def test_both_nest_spans_alike(tmp_path, monkeypatch, spans):
    events = [
        {"ph": "X", "name": f"s{index}", "cat": category, "pid": 1, "tid": 1, "ts": begin / 1000, "dur": dur / 1000}
        for index, (begin, dur, category) in enumerate(spans)
    ]
    text = json.dumps({"baseTimeNanoseconds": BASE_NS, "traceEvents": events}).encode()
    agree(text, tmp_path, monkeypatch)


@QUIET
@given(events, st.integers(0, 3_000))
def test_any_part_of_a_file_is_merged_or_refused(tmp_path, events, cut):
    text = json.dumps({"baseTimeNanoseconds": BASE_NS, "traceEvents": events}).encode()
    file = tmp_path / "rank3.json"
    file.write_bytes(text[: max(1, len(text) - cut)])
    result = merged(tmp_path / "out.json", file)
    assert isinstance(result, (tuple, type))


@QUIET
@given(
    st.lists(st.tuples(spans | others, st.sampled_from(["", *MALFORMATIONS])), max_size=12), st.sampled_from([None, 2])
)
def test_both_read_broken_events_alike(tmp_path, monkeypatch, events, indent):
    texts = [break_event(event, kind, indent=indent) for event, kind in events]
    agree(malformed_trace(texts), tmp_path, monkeypatch)


def test_both_number_ids_alike_where_one_event_has_an_id_of_the_other_kind(tmp_path, monkeypatch):
    flows = [{"ph": "s", "name": "f", "cat": "c", "pid": 3, "tid": 7, "ts": 1} | ids for ids in ({"id": 0}, {"id2": 9})]
    agree(json.dumps({"baseTimeNanoseconds": BASE_NS, "traceEvents": flows}).encode(), tmp_path, monkeypatch)


@pytest.mark.parametrize("field", ["id", "bind_id", "pid", "tid", "ts"])
def test_both_read_minus_zero_as_zero(tmp_path, monkeypatch, field):
    flows = [
        f'{{"ph": "s", "name": "f", "pid": 3, "tid": 7, "ts": 1, "id": 5, "{field}": {zero}}}' for zero in ("0", "-0")
    ]
    last = '{"ph": "s", "name": "f", "pid": 3, "tid": 7, "ts": 1, "id": 11}'
    text = f'{{"baseTimeNanoseconds": {BASE_NS}, "traceEvents": [{", ".join([*flows, flows[1], last])}]}}'
    agree(text.encode(), tmp_path, monkeypatch)


@pytest.mark.parametrize("names", ["abba", "aba", "abab", "abcacb"])
def test_thread_named_several_times_has_the_last_name_even_if_repeated(tmp_path, monkeypatch, names):
    named = [{"ph": "M", "name": "thread_name", "pid": 3, "tid": 7, "args": {"name": name}} for name in names]
    overlapping = [{"ph": "X", "name": "step", "pid": 3, "tid": 7, "ts": ts, "dur": 900} for ts in (0, 500)]
    text = json.dumps({"baseTimeNanoseconds": BASE_NS, "traceEvents": [*named, *overlapping]}).encode()
    agree(text, tmp_path, monkeypatch)
    repair_trace(tmp_path / "rank3.json", tmp_path / "repaired.json")
    for written in ("out.json", "repaired.json"):
        events = json.loads((tmp_path / written).read_bytes())["traceEvents"]
        named = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
        assert [name for name in named if name.endswith("(overlap 1)")] == [f"{names[-1]} (overlap 1)"]


@pytest.mark.parametrize("kind", ["bare quotes", "control character", "NaN in a field", "two commas"])
def test_file_with_every_event_malformed_is_merged(tmp_path, monkeypatch, kind):
    event = {"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1, "args": {"b": 1}}
    counts, _ = agree(malformed_trace([break_event(event, kind)] * 20), tmp_path, monkeypatch)
    assert counts == (20, 0, 0)
    with load(tmp_path / "out.json") as trace:
        assert trace.errors() == {}


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity"])
def test_nan_and_infinities_become_null_and_a_note(tmp_path, monkeypatch, literal):
    event = f'{{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1, "args": {{"loss": {literal}}}}}'
    text = f'{{"baseTimeNanoseconds": {BASE_NS}, "traceEvents": [{event}, {event}]}}'
    counts, _ = agree(text.encode(), tmp_path, monkeypatch)
    assert counts == (2, 0, 0)
    trace = json.loads((tmp_path / "out.json").read_bytes(), parse_constant=pytest.fail)
    assert trace["traceEvents"][0]["args"] == {"loss": None, "not_finite": {"loss": literal}}


@pytest.mark.parametrize("piece", ["\x01", "\t", "\udcff"])
def test_control_characters_and_invalid_utf_8_in_a_name_are_repaired(tmp_path, piece):
    event = f'{{"ph": "X", "name": "a{piece}b", "pid": 1, "tid": 1, "ts": 1, "dur": 1}}'
    text = f'{{"baseTimeNanoseconds": {BASE_NS}, "traceEvents": [{event}, {event}]}}'
    result = merged_native(text.encode(errors="surrogateescape"), tmp_path)
    assert [event["name"][0] for event in result if event["ph"] == "X"] == ["a", "a"]


def merged_native(text: bytes, folder: Path) -> list[dict[str, Any]]:
    file = folder / "rank3.json"
    file.write_bytes(text)
    return json.loads(merge_traces(folder / "out.json", file).output.read_bytes())["traceEvents"]


def test_spans_that_come_in_any_order_nest_as_in_the_right_one(tmp_path, monkeypatch):
    events = [
        {"ph": "X", "name": str(n), "pid": 1, "tid": 1, "ts": n * 7 % 5_000, "dur": n % 90 / 10} for n in range(5_000)
    ]
    agree(json.dumps({"baseTimeNanoseconds": BASE_NS, "traceEvents": events}).encode(), tmp_path, monkeypatch)


def test_both_nest_spans_that_come_far_out_of_order(tmp_path, monkeypatch):
    monkeypatch.setattr("kinetoscope.merge.native_rewrite._MAX_PENDING", 16)
    events = [
        {"ph": "X", "name": str(n), "pid": 1, "tid": 1, "ts": (n * 617) % 1_000, "dur": n % 40} for n in range(1_000)
    ]
    agree(json.dumps({"baseTimeNanoseconds": BASE_NS, "traceEvents": events}).encode(), tmp_path, monkeypatch)


def test_an_event_longer_than_a_piece_is_taken_whole(tmp_path, monkeypatch):
    events = [{"ph": "X", "name": "n" * 1_000_000, "pid": 1, "tid": 1, "ts": 1, "dur": 1, "args": {"a": [1] * 100_000}}]
    agree(json.dumps({"baseTimeNanoseconds": BASE_NS, "traceEvents": events}).encode(), tmp_path, monkeypatch)


@pytest.mark.parametrize("name", ["a\\", "😀", '"a" \\'])
def test_names_that_perfetto_misreads_are_written_in_another_way(tmp_path, name):
    event = {"ph": "X", "name": name, "pid": 1, "tid": 1, "ts": 1, "dur": 1, "args": {name: name}}
    result = merged_native(json.dumps({"baseTimeNanoseconds": BASE_NS, "traceEvents": [event] * 3}).encode(), tmp_path)
    assert [event["name"] for event in result if event["ph"] == "X"] == [name] * 3
    with load(tmp_path / "out.json") as trace:
        assert trace.errors() == {}
        assert trace.query("select count(*) as n from slice") == [{"n": 3}]
