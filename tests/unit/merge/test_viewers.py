"""merge/check.py: what Perfetto counts as an error is found, and is gone after a repair."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinetoscope.merge.check import check_trace, repair_trace
from support.event_strategies import BASE_NS, QUIET
from support.trace_processor.trace_processor import load


def span(ts: object, dur: object = 5, **more: object) -> dict[str, Any]:
    return {"ph": "X", "name": "a", "cat": "cpu_op", "pid": 1, "tid": 7, "ts": ts, "dur": dur} | more


def flow(phase: str, ts: float, **more: object) -> dict[str, Any]:
    return {"ph": phase, "name": "f", "cat": "ac2g", "id": 3, "bp": "e", "pid": 1, "tid": 7, "ts": ts} | more


def bound(ts: int, *, out: bool = False, **more: object) -> dict[str, Any]:
    """Return a span at which an arrow begins or ends, as Chrome and JAX write it."""
    return span(ts, bind_id=hex(2**50)) | ({"flow_out": True} if out else {"flow_in": True}) | more


def without(event: dict[str, Any], *fields: str) -> dict[str, Any]:
    return {key: value for key, value in event.items() if key not in fields}


ARROW = [flow("s", 2), flow("f", 22)]
TWO = [span(0), span(20)]
COUNTER = span(1, ph="C")

CASES: dict[str, tuple[str, list[Any]]] = {
    "an empty object among the events": ("events", [*TWO, {}]),
    "no phase": ("events", [*TWO, without(span(1), "ph")]),
    "an empty phase": ("events", [*TWO, span(1, ph="")]),
    "no time": ("events", [*TWO, without(span(1), "ts")]),
    "no duration": ("events", [without(span(0), "dur"), span(20)]),
    "an asynchronous span without an id": ("events", [*TWO, span(1, ph="b"), span(2, ph="e")]),
    "an asynchronous span without a pid": ("events", [*TWO, without(span(1, ph="b", id=3), "pid")]),
    "an instant without a thread": ("events", [*TWO, without(span(1, ph="i"), "tid")]),
    "an instant of no process": ("events", [*TWO, without(span(1, ph="i", s="p"), "tid", "pid")]),
    "a counter of text": ("events", [*TWO, COUNTER | {"args": {"a": 1, "b": "x"}}]),
    "a counter of null": ("events", [*TWO, COUNTER | {"args": {"a": None}}]),
    "a counter without args": ("events", [*TWO, COUNTER]),
    "a thread whose name is a number": (
        "events",
        [*TWO, span(0, ph="M", name="thread_name", args={"name": 5, "more": 1})],
    ),
    "a flow whose id is text": ("events", [*TWO, flow("s", 2, id="request 7"), flow("f", 22, id="request 7")]),
    "a flow without an id": ("events", [*TWO, without(flow("s", 2), "id")]),
    "a binding without a direction": ("events", [*TWO, span(1, 1, bind_id="0x5")]),
    "a flow before all spans": ("flows", [span(10), span(20), *ARROW]),
    "a flow on a track without spans": ("flows", [*TWO, flow("s", 2, tid=8), flow("f", 22)]),
    "a flow after the last end": (
        "flows",
        [span(0, ph="B"), span(1, ph="E"), *ARROW, span(20)],
    ),
    "a direction that is a number": ("events", [*TWO, span(1, 1, bind_id="0x5", flow_out=1)]),
    "a bound id used again": ("flows", [bound(0, out=True), bound(20, out=True), bound(40)]),
    "a bound id used again in another spelling": (
        "flows",
        [bound(0, out=True), bound(20, out=True, bind_id=2**50), bound(40)],
    ),
    "an id used again in another spelling": ("flows", [*TWO, *ARROW, flow("s", 3, id="0x3"), flow("f", 23, id="3")]),
    "a number that is another id in hexadecimal": (
        "flows",
        [*TWO, flow("s", 2, id=16), flow("f", 22, id=16), flow("s", 3, id="10"), flow("f", 23, id="10")],
    ),
    "an id used again": ("flows", [*TWO, *ARROW, flow("s", 3), flow("f", 23)]),
    "spans whose tid is text and flows whose tid is a number": (
        "tracks",
        [span(0, tid="7"), span(20, tid="7"), *ARROW],
    ),
    "spans of a stream and flows whose tid is a number": (
        "tracks",
        [span(0, tid="stream 7"), span(20, tid="stream 7"), *ARROW],
    ),
    "tids of more than 32 bits": ("tracks", [span(0, tid=2**40), span(2, tid=2**41), span(4, tid=1)]),
    "negative tids": ("tracks", [span(0, tid=-5), span(2, tid=-6)]),
    "stream 0 and stream 2 of GPU 2": ("nesting", [span(0, 500, pid=2, tid=0), span(250, 500, pid=2, tid=2)]),
    "no tid, and the main thread": ("nesting", [without(span(0, 500), "tid"), span(250, 500, tid=1)]),
    "negative times": ("times", [span(-8), span(-2), span(20)]),
    "times in more digits than a double has": (
        "times",
        [span(1_790_857_026_000_000 + n * 1.25, 1.25) for n in range(20)],
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("base_ns", [0, BASE_NS])
def test_everything_that_perfetto_counts_as_an_error_is_found_and_repaired(tmp_path, case, base_ns):
    kind, events = CASES[case]
    path, output = tmp_path / "in.json", tmp_path / "out.json"
    if base_ns and "digits" in case:
        return  # its times count from 1970 already
    path.write_text(json.dumps({"traceEvents": events} | ({"baseTimeNanoseconds": base_ns} if base_ns else {})))
    assert kind in {finding.kind for finding in check_trace(path).findings}
    repair_trace(path, output)
    assert {finding.kind for finding in check_trace(output).findings} <= {"clock", "pairs"}
    assert errors(path) != {}
    assert errors(output) == {}


@pytest.mark.parametrize("spellings", [(3, 3, 3), ("0x3", 3, "3")])
def test_flows_from_one_start_to_several_ends_are_unmodified(tmp_path, spellings):
    """As in public traces of Chrome, Lighthouse and JAX."""
    phases = zip("sff", (2, 22, 42), spellings, strict=True)
    ends = [span(0), span(20), span(40), *(flow(phase, ts, id=number) for phase, ts, number in phases)]
    bounds = [bound(0, out=True, tid=8), bound(20, tid=8), bound(40, tid=8, flow_out=True), bound(60, tid=8)]
    path, output = tmp_path / "in.json", tmp_path / "out.json"
    path.write_text(json.dumps({"baseTimeNanoseconds": BASE_NS, "traceEvents": [*ends, *bounds]}))
    assert check_trace(path).findings == []
    repair_trace(path, output)
    kept = [(event.get("id"), event.get("bind_id")) for event in json.loads(output.read_bytes())["traceEvents"]]
    assert kept == [(event.get("id"), event.get("bind_id")) for event in [*ends, *bounds]]
    with load(output) as trace:
        assert trace.errors() == {}
        assert trace.query("select count(*) as n from flow") == [{"n": 5}]


flows = st.builds(
    flow,
    st.sampled_from("sstff"),
    st.integers(1, 99),
    id=st.sampled_from([10, "10", "0xa", "a", 16, -6]),
    name=st.sampled_from("fg"),
    cat=st.sampled_from("cd"),
    bp=st.sampled_from(["e", None]),
)
ends = st.dictionaries(st.sampled_from(["flow_in", "flow_out"]), st.sampled_from([True, True, False, 1, "true"]))
bounds = st.builds(
    lambda ts, number, more: span(ts, bind_id=number) | more,
    st.integers(0, 9).map(lambda tenth: 10 * tenth),
    st.sampled_from([2**50, hex(2**50), str(2**50)]),
    ends,
)


@settings(QUIET, max_examples=15, derandomize=True)
@given(st.lists(flows, max_size=6), st.lists(bounds, max_size=5))
def test_any_flows_are_as_right_as_perfetto_counts_them_and_right_after_a_repair(tmp_path, flows, bounds):
    path, output = tmp_path / "in.json", tmp_path / "out.json"
    path.write_text(json.dumps({"baseTimeNanoseconds": BASE_NS, "traceEvents": [span(0, 1000), *flows, *bounds]}))
    found = {finding.kind for finding in check_trace(path).findings} - {"pairs"}
    assert bool(found) == bool(errors(path))
    repair_trace(path, output)
    assert check_trace(output).findings == []
    assert errors(output) == {}


def errors(path: Path) -> dict[str, int]:
    """Return the numbers that Perfetto counts in a file, once for the same bytes."""
    content = path.read_bytes()
    if content not in _errors:
        with load(path) as trace:
            _errors[content] = trace.errors()
    return _errors[content]


_errors: dict[bytes, dict[str, int]] = {}
