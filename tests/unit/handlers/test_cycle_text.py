"""A cycle with a contributed trace, written by C: the same file as Python writes, in little memory."""

import json
import tempfile
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kinetoscope.core.clock.clock import Anchor
from kinetoscope.core.job.ranks import Attempt, Ranks
from kinetoscope.core.job.timestamp import Timestamp
from kinetoscope.handlers import json_trace_handler
from kinetoscope.handlers.cycle_events import cycle_text
from kinetoscope.handlers.json_trace_handler import JSONTraceHandler
from kinetoscope.recording.markers.recorder_types import SpanName, WindowRecords
from kinetoscope.recording.window.cycle import Contributions, Cycle
from kinetoscope.spool.folders import TraceRecipe
from kinetoscope.spool.record import Flag, Kind, Record, RecordsInMemory, ThreadRecords, pack_records
from support.trace_processor.trace_processor import load

NAMES = [SpanName("work"), SpanName("event/batch", ("loop",)), SpanName('a "quote" and ünïcödé \\', ("kernel",))]
BEGIN_NS, UNIX_NS = 5_000_000_000, 1_700_000_000_123_456_789
BASE_NS = 1_699_999_999_000_000_000
PID = 4000


def marker(begin_ns, duration_ns, name=0):
    begin_ns += BEGIN_NS
    return Record(begin_ns, begin_ns + duration_ns, name, 7, 0, Kind.SPAN, Flag.NONE)


def op(begin_ns, duration_ns, *, name="aten::mm", cat="cpu_op", pid=PID, tid=PID, **fields):
    """Return a span of Kineto's, with times from the window's begin."""
    ts = (UNIX_NS - BASE_NS + begin_ns) / 1000
    return {"ph": "X", "name": name, "cat": cat, "pid": pid, "tid": tid, "ts": ts, "dur": duration_ns / 1000} | fields


def thread_name(name, pid=PID, tid=PID):
    return {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}


def contributed(folder, events, header=None):
    path = Path(folder) / "contributed.json"
    header = {"baseTimeNanoseconds": BASE_NS, "deviceProperties": [{"id": 0}]} if header is None else header
    path.write_text(json.dumps(header | {"traceEvents": events}))
    return path


def a_cycle(file, *threads):
    tracks = [
        ThreadRecords.of(PID + i, f"thread {i}", i == 0, pack_records(records)) for i, records in enumerate(threads)
    ]
    return Cycle(
        number=0,
        run_name="run",
        ranks=Ranks(3, 3, 8, 8),
        attempt=Attempt("run", 0, PID),
        pid=PID,
        begin_timestamp=Timestamp(),
        timestamp=Timestamp(batch=1),
        begin=Anchor(BEGIN_NS, UNIX_NS),
        end=Anchor(BEGIN_NS + 10**9, UNIX_NS + 10**9),
        names=NAMES,
        recorded=WindowRecords(lambda: tracks),
        contributions=Contributions(0, [file]),
    )


def written(cycle, folder, *, by_c=True):
    recipe = TraceRecipe("traces", f"{'c' if by_c else 'python'}.json", "")
    with pytest.MonkeyPatch.context() as patch:
        if not by_c:
            patch.setattr(json_trace_handler, "cycle_text", lambda cycle: None)
        return JSONTraceHandler.reopen(Path(folder), recipe, "run", cycle.ranks, cycle.attempt).write(cycle)


def tracks_of(path):
    """Return the name, place and spans of each track of a file; and the header."""
    trace = json.loads(path.read_text())
    events = trace.pop("traceEvents")
    titles = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    found = Counter()
    for event in events:
        tid = event.pop("tid")
        title = titles[tid] if not event["name"].startswith("process_") else ""
        found[title, json.dumps(event, sort_keys=True)] += 1
    return found, trace


def assert_same(events, *threads):
    with tempfile.TemporaryDirectory() as folder:
        cycle = a_cycle(contributed(folder, events), *threads)
        assert cycle_text(cycle) is not None
        by_c, by_python = written(cycle, folder), written(cycle, folder, by_c=False)
        assert tracks_of(by_c) == tracks_of(by_python)
        with load(by_c) as trace:
            assert trace.errors() == {}


TIMES = st.tuples(st.integers(0, 40_000), st.integers(0, 20_000))
# Not event/batch, which decides the role of a track: if it is moved to another track, C still counts it for its thread.
MARKERS = st.builds(lambda time, name: marker(*time, name), TIMES, st.sampled_from([0, 2]))
OPS = st.builds(
    lambda time, cat, tid: op(*time, cat=cat, tid=tid),
    TIMES,
    st.sampled_from(["cpu_op", "python_function", "user_annotation"]),
    st.sampled_from([PID, PID + 1, str(PID), 77]),
)
KERNELS = st.builds(lambda time: op(*time, name="gemm", cat="kernel", pid=0, tid=7, args={"stream": 7}), TIMES)


@given(st.lists(OPS | KERNELS, max_size=12), st.lists(MARKERS, max_size=8), st.lists(MARKERS, max_size=4))
@example([op(0, 100_000), op(10, 20), op(20, 120_000)], [marker(50_000, 100_000)], [])  # the outer one moves
@example([op(0, 1000), op(500, 1000)], [marker(900, 1000)], [])
def test_spans_that_overlap_in_any_way_give_the_same_file_as_in_python(ops, markers, others):
    described = [thread_name("python3.12"), thread_name("pt_main", tid=77)]
    markers, others = (sorted(some, key=lambda record: record.end) for some in (markers, others))
    assert_same([*described, *ops], markers, others)


def test_flows_instants_counters_and_metadata_are_the_same():
    events = [
        {"ph": "M", "name": "process_name", "pid": PID, "args": {"name": "python"}},
        {"ph": "M", "name": "process_labels", "pid": 0, "args": {"labels": "GPU 0"}},
        thread_name("stream 7", pid=0, tid=7),
        op(0, 10_000, args={"External id": 5, "text": 'a "quote" \\'}),
        op(2000, 1000, name="gemm", cat="kernel", pid=0, tid=7),
        {"ph": "s", "id": 5, "name": "ac2g", "cat": "ac2g", "pid": PID, "tid": PID, "ts": 1_123_456.789 + 0.5},
        {"ph": "f", "id": 5, "bp": "e", "name": "ac2g", "cat": "ac2g", "pid": 0, "tid": 7, "ts": 1_123_458.789},
        {"ph": "i", "s": "t", "name": "[memory]", "pid": PID, "tid": PID, "ts": 1_123_457.5, "args": {"Bytes": 12}},
        {
            "ph": "X",
            "name": "Iteration Start",
            "cat": "Trace",
            "pid": "Traces",
            "tid": "Trace Kineto",
            "ts": 1_123_457.0,
            "dur": 2,
        },
    ]
    assert_same(events, [marker(100, 5000, 1)], [marker(3, 4)])


def test_a_marker_keeps_its_times_and_spans_that_overlap_it_are_changed(tmp_path):
    cycle = a_cycle(
        contributed(tmp_path, [op(1000, 3003), op(5000, 900_000)]), [marker(0, 4001), marker(10_000, 10**6)]
    )
    events = json.loads(written(cycle, tmp_path).read_text())["traceEvents"]
    spans = {(event["name"], event["dur"]): event for event in events if event["ph"] == "X"}
    assert spans["aten::mm", 3.001]["args"]["kinetoscope"] == "clipped 0.002 us at its end to nest"
    assert spans["work", 4.001]["tid"] == spans["work", 1000.0]["tid"]
    moved = spans["aten::mm", 900.0]
    assert moved["tid"] != spans["work", 1000.0]["tid"]
    assert moved["args"]["kinetoscope"] == f"moved from thread {PID} to overlap 1: it overlaps work"


def counter(time_ns, value, series=0):
    return Record(BEGIN_NS + time_ns, value, 2, 7, 0, Kind.COUNTER, Flag.NONE, series)


def instant(time_ns):
    return Record(BEGIN_NS + time_ns, 0, 0, 7, 0, Kind.INSTANT, Flag.NONE)


@given(
    st.lists(
        MARKERS
        | st.builds(instant, st.integers(0, 99))
        | st.builds(counter, st.integers(0, 3), st.integers(-(2**60), 2**60))
    ),
    st.integers(1, 5),
)
@example([counter(1, 5, 0), counter(1, 6, 1), counter(1, 7, 0), counter(2, 8, 0)], 2)  # one call is in two parts
def test_records_in_several_parts_give_the_same_file_as_in_python(records, num_in_part):
    records = sorted(records, key=lambda record: record.end if record.kind == Kind.SPAN else record.begin)
    parts = [
        RecordsInMemory(pack_records(records[at : at + num_in_part])) for at in range(0, len(records), num_in_part)
    ]
    with tempfile.TemporaryDirectory() as folder:
        cycle = a_cycle(contributed(folder, [op(0, 1000), op(10, 20, tid=77)]))
        cycle.threads.append(ThreadRecords(PID, "thread", True, parts))
        cycle.threads.append(ThreadRecords.of(PID, "the next one with its tid", False, pack_records(records[:3])))
        by_c, by_python = written(cycle, folder), written(cycle, folder, by_c=False)
        assert tracks_of(by_c) == tracks_of(by_python)


def test_records_stay_structs_until_their_line_is_written(tmp_path, monkeypatch):
    def fail(cycle, thread):
        pytest.fail(f"{thread.name} is written event by event")

    monkeypatch.setattr("kinetoscope.handlers.cycle_events.thread_events", fail)
    monkeypatch.setattr("kinetoscope.handlers.json_trace_handler.thread_events", fail)
    overlapping = [marker(0, 50), marker(20, 60), marker(10, 90)]
    cycle = a_cycle(contributed(tmp_path, [op(0, 1000)]), overlapping)
    events = json.loads(written(cycle, tmp_path).read_text())["traceEvents"]
    spans = [event for event in events if event["name"] == "work"]
    assert len(spans) == 3
    moved = [event["args"]["kinetoscope"] for event in spans if "kinetoscope" in event["args"]]
    assert moved == [f"moved from thread {PID} to overlap 1: it overlaps work"] * len(moved)
    assert moved


def test_a_cycle_with_a_damaged_record_is_left_to_python(tmp_path):
    unknown_name = marker(0, 5)._replace(name=99)
    assert cycle_text(a_cycle(contributed(tmp_path, [op(0, 100)]), [unknown_name])) is None


@pytest.mark.parametrize(
    ("header", "events"),
    [
        ({}, [op(0, 100)]),
        (None, [op(0, 100), {"ph": "s", "id": "0x5", "name": "f", "cat": "f", "pid": 1, "tid": 1, "ts": 2}]),
        (None, [op(0, 100), "no event"]),
    ],
    ids=["no base", "odd ids", "damaged"],
)
def test_a_cycle_that_c_cannot_write_is_written_by_python(tmp_path, header, events):
    cycle = a_cycle(contributed(tmp_path, events, header), [marker(0, 4000)])
    assert cycle_text(cycle) is None
    names = {event["name"] for event in json.loads(written(cycle, tmp_path).read_text())["traceEvents"]}
    assert {"work", "aten::mm"} <= names


def test_a_long_window_takes_no_memory_of_pythons(tmp_path):
    args = {"External id": 1, "Record function id": 0, "Ev Idx": 3}
    ops = [op(number * 1000, 500, args=args) for number in range(40_000)]
    file = contributed(tmp_path, ops)
    cycle = a_cycle(file, [marker(number * 1000, 900) for number in range(40_000)])
    tracemalloc.start()
    try:
        path = written(cycle, tmp_path)
        _, max_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(json.loads(path.read_text())["traceEvents"]) > 80_000
    assert max_bytes < 4 << 20 < file.stat().st_size  # as objects they take 60 MB
