"""Each text of a trace is redacted, whatever the shape of the event, and nothing else changes."""

import hashlib
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetoscope.formats.chrome import encode_line, read_chrome
from kinetoscope.formats.trace_redaction import TraceRedactor, redact_categories, write_redacted


def hide(text):
    return text.replace("secret", "#")


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:8]


TEXTS = st.sampled_from(["secret", "my secret 2", "Xsecret", "secret\\", 'a "secret"'])
VALUES = st.recursive(
    TEXTS | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from("ph name cat pid tid ts dur id id2 bind_id s bp scope args secretfield".split())  # noqa: SIM905


@given(st.dictionaries(FIELDS, VALUES, max_size=8))
def test_no_text_of_an_event_of_any_shape_is_left(event):
    assert b"secret" not in encode_line(TraceRedactor(hide).event(event))


@given(st.dictionaries(TEXTS | st.just("displayTimeUnit"), VALUES, max_size=5))
def test_no_text_of_a_header_is_left(header):
    assert "secret" not in json.dumps(TraceRedactor(hide).header(header))


LINES = b"""{"ph":"X","cat":"kernel","name":"add","pid":0,"tid":1,"ts":706779.150,"dur":0.010,"args":{"correlation":5}},
{"ph":"s","id":5,"pid":3,"tid":3,"ts":0.000,"cat":"ac2g","name":"ac2g"},
{"ph":"M","name":"process_labels","pid":0,"tid":0,"args":{"labels":"GPU 0"}},
{"ph":"X","cat":"Trace","name":"p","pid":"Spans","tid":"stream 7","ts":1.000,"dur":1.000,"args":{"Op count":null}}"""


def test_lines_without_redactions_are_unmodified_to_the_last_digit():
    assert TraceRedactor(lambda text: text).lines(LINES) == LINES


def test_even_if_every_text_is_replaced_it_is_still_known_what_each_event_is():
    kernel, flow, label, span = json.loads(b"[" + TraceRedactor(digest).lines(LINES) + b"]")
    assert (kernel["ph"], kernel["cat"], kernel["args"]["correlation"]) == ("X", "kernel", 5)
    assert kernel["name"] == digest("add")
    assert (flow["ph"], flow["cat"], flow["id"]) == ("s", "ac2g", 5)
    assert (label["name"], label["args"]) == ("process_labels", {"labels": "GPU 0"})
    assert (span["pid"], span["tid"]) == (digest("Spans"), "stream 7")


def test_strings_that_distinguish_tracks_flows_and_arguments_stay_different():
    redactor = TraceRedactor(lambda text: "x")
    events = [{"ph": "b", "pid": name, "tid": name, "id": name, "id2": {"local": name}} for name in ("a", "b", "a")]
    one, other, again = map(redactor.event, events)
    assert one == again
    assert all(one[field] != other[field] for field in ("pid", "tid", "id", "id2"))
    args = redactor.event({"ph": "X", "args": {"one": 1, "two": 2, "batch": 3}})["args"]
    assert sorted(args.values()) == [1, 2, 3]
    assert args["batch"] == 3


def test_the_argument_names_from_which_operations_are_counted_are_kept():
    args = {"Input Dims": [[1, 2]], "Input type": ["float"], "Concrete Inputs": ["secret"]}
    redacted = TraceRedactor(digest).event({"ph": "X", "args": args})["args"]
    assert redacted == {"Input Dims": [[1, 2]], "Input type": [digest("float")], "Concrete Inputs": [digest("secret")]}


def test_categories_of_torch_and_kinetoscope_are_kept_and_others_redacted():
    assert redact_categories("cpu_op", hide) == "cpu_op"
    assert redact_categories("marker,secret team", hide) == "marker,# team"


@pytest.mark.parametrize("base", [0, 1_700_000_000_000_000_000])
def test_a_redacted_trace_has_the_same_times(tmp_path, base):
    events = [{"ph": "X", "name": "secret", "pid": 1, "tid": 1, "ts": 3.25, "dur": 1.5}]
    document = {"traceEvents": events, "host_name": "secret"} | ({"baseTimeNanoseconds": base} if base else {})
    (tmp_path / "trace.json").write_text(json.dumps(document))
    trace, stream = read_chrome(tmp_path / "trace.json"), io.BytesIO()
    write_redacted(trace, stream, TraceRedactor(hide))
    (tmp_path / "redacted.json").write_bytes(stream.getvalue())
    redacted = read_chrome(tmp_path / "redacted.json")
    assert (redacted.base_ns, redacted.has_clock) == (trace.base_ns, trace.has_clock)
    assert redacted.events == [trace.events[0] | {"name": "#"}]
    assert redacted.header["host_name"] == "#"
