"""Perfetto traces: the trace processor shows the same for the packets and for the JSON."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kinetoscope.merge.merge_traces import merge_traces
from reference.perfetto_packets import ReferencePerfettoWriter, varint
from support.trace_processor.trace_processor import load

MAX_GROWTH_BYTES = 20_000_000  # for 30 MB more to read; AddressSanitizer keeps 8 MB of freed memory
PEAK = """
import re, sys
from pathlib import Path
from kinetoscope.merge.merge_traces import merge_traces
merge_traces(sys.argv[2], sys.argv[1])
print(1024 * int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]))
"""
BASE_NS = 1_790_857_026_000_000_000
QUESTIONS = {
    "spans": "select slice.name, category, ts - (select min(ts) from slice) as at, dur, depth, thread.name as thread "
    "from slice join thread_track on track_id = thread_track.id join thread using (utid) order by at, dur, slice.name",
    "flows": "select b.name as begin, e.name as end from flow join slice b on slice_out = b.id "
    "join slice e on slice_in = e.id order by b.ts, b.name",
    "counters": "select coalesce(above.name || ' ', '') || track.name as counter, value, "
    "ts - (select min(ts) from counter) as at from counter join track on track_id = track.id "
    "left join track as above on track.parent_id = above.id order by at, counter",
    "processes": "select pid, name from process where name is not null order by pid",
}


def span(name: str, ts: float, dur: float, tid: int = 40, **fields: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "cat": "cpu_op", "pid": 40, "tid": tid, "ts": ts, "dur": dur} | fields


def flow(ph: str, ts: float, tid: int, number: int = 1) -> dict[str, Any]:
    more = {"bp": "e"} if ph == "f" else {}
    return {"ph": ph, "id": number, "cat": "ac2g", "name": "ac2g", "pid": 40, "tid": tid, "ts": ts} | more


def counter(ts: float, **values: float) -> dict[str, Any]:
    return {"ph": "C", "name": "memory", "pid": 40, "tid": 40, "ts": ts, "args": values}


EVENTS = [
    span("inner", 12, 3),  # spans in the order of their ends, as markers are written
    span("same begin, inside", 10, 2),
    span("outer", 10, 10),
    span("touches", 20, 5),
    span("no time at all", 25, 0),
    span("launch", 30, 5),
    flow("s", 30, 40),
    span("kernel", 40, 5, tid=7, cat="kernel"),
    flow("f", 40, 7),
    span('"quoted" \\ é 🎉', 50, 1),
    counter(1, used=1.5, free=-2),
    counter(2, used=7, free=1e9),
    {"ph": "i", "s": "t", "name": "instant", "cat": "marker", "pid": 40, "tid": 40, "ts": 13},
    {"ph": "B", "name": "begun", "cat": "old", "pid": 40, "tid": 9, "ts": 1},
    {"ph": "E", "pid": 40, "tid": 9, "ts": 4},
]


def write(path: Path, events: list[dict[str, Any]]) -> Path:
    path.write_text(json.dumps({"baseTimeNanoseconds": BASE_NS, "traceEvents": events}))
    return path


def answers(path: Path) -> dict[str, Any]:
    with load(path) as trace:
        assert trace.errors() == {}
        return {name: trace.query(question) for name, question in QUESTIONS.items()}


def test_spans_flows_counters_and_processes_are_those_of_the_json(tmp_path):
    files = [write(tmp_path / f"rank{rank}.json", EVENTS) for rank in (0, 3)]
    as_json = answers(merge_traces(tmp_path / "out.json", *files).output)
    as_packets = answers(merge_traces(tmp_path / "out.pftrace", *files).output)
    assert as_packets["spans"]
    assert as_packets == as_json


def test_args_of_every_kind_arrive(tmp_path):
    args = {
        "text": 'a "b" \\ \n é',
        "whole": -3,
        "large": 2**53,
        "part": 0.25,
        "yes": True,
        "none": None,
        "shape": [[4, 32], []],
        "nested": {"a": {"b": [1, "x"]}},
    }
    file = write(tmp_path / "rank0.json", [span("op", 1, 1, args=args)])
    with load(merge_traces(tmp_path / "out.pftrace", file).output) as trace:
        rows = trace.query(
            "select key, string_value as s, int_value as i, real_value as r from args where key like 'debug.%'"
        )
    found = {
        row["key"].removeprefix("debug."): next(value for value in (row["s"], row["i"], row["r"]) if value is not None)
        for row in rows
    }
    assert found == {
        "text": args["text"],
        "whole": -3,
        "large": 2**53,
        "part": 0.25,
        "yes": 1,
        "none": "null",
        "shape[0][0]": 4,
        "shape[0][1]": 32,
        "nested.a.b[0]": 1,
        "nested.a.b[1]": "x",
    }


def test_spans_that_do_not_nest_are_on_a_track_of_their_own_in_perfetto_too(tmp_path):
    file = write(tmp_path / "rank0.json", [span("a", 0, 500), span("b", 250, 500), span("c", 260, 10)])
    found = answers(merge_traces(tmp_path / "out.pftrace", file).output)["spans"]
    assert {(row["name"], row["thread"]) for row in found} == {
        ("a", "main"),
        ("b", "thread 40 (overlap 1)"),
        ("c", "main"),
    }


def nested(draw_order: random.Random, begin: int, end: int, depth: int, found: list[dict[str, Any]]) -> None:
    """Nested spans in the order of their ends. Many begin or end together, or take no time."""
    at = begin
    while at < end and depth:
        at = draw_order.choice([at, at, draw_order.randint(at, end)])
        until = draw_order.choice([at, end, draw_order.randint(at, end)])
        nested(draw_order, at, until, depth - 1, found)
        found.append(span(f"s{len(found)}", at, until - at))
        at = max(until, at + (until == at))


@pytest.mark.parametrize("seed", range(6))
def test_spans_in_the_order_of_their_end_nest_as_in_the_json(tmp_path, seed):
    events: list[dict[str, Any]] = []
    nested(random.Random(seed), 0, 30, 4, events)
    (tmp_path / "in.json").write_text(json.dumps({"baseTimeNanoseconds": BASE_NS, "traceEvents": events}))
    answers = []
    for name in ("out.json", "out.pftrace"):
        with load(merge_traces(tmp_path / name, tmp_path / "in.json").output) as trace:
            assert trace.errors() == {}
            answers.append(trace.query(QUESTIONS["spans"]))
    assert [row | {"name": "", "depth": 0} for row in answers[0]] == [
        row | {"name": "", "depth": 0} for row in answers[1]
    ]
    of_time = [[(row["name"], row["depth"]) for row in rows if row["dur"]] for rows in answers]
    assert of_time[0] == of_time[1]


def test_packets_of_spans_in_the_order_of_their_end_take_no_memory(tmp_path):
    """A recorder writes each span before the one around it, and the one around all of them last."""
    pytest.importorskip("kinetoscope._native")

    def peak_bytes(num_batches: int) -> int:
        header = json.dumps({"baseTimeNanoseconds": BASE_NS, "kinetoscope": {"rank": 0}})
        with (tmp_path / "in.json").open("w") as file:
            file.write(header[:-1] + ', "traceEvents": [\n')
            part = json.dumps(span("part", -1, 1, args={"text": "x" * 60})) + ",\n"
            whole = json.dumps(span("batch", -1, 9)) + ",\n"
            for begin in range(0, 10 * num_batches, 10):
                file.writelines(part.replace("-1", f"{begin + number}") for number in range(5))
                file.write(whole.replace("-1", f"{begin}"))
            file.write(json.dumps(span("fit", 0, 10 * num_batches)) + "]}")
        command = [sys.executable, "-c", PEAK, tmp_path / "in.json", tmp_path / "out.pftrace"]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert peak_bytes(60_000) - peak_bytes(20_000) < MAX_GROWTH_BYTES


def test_a_packed_trace_opens_too(tmp_path):
    file = write(tmp_path / "rank0.json", EVENTS)
    assert answers(merge_traces(tmp_path / "out.pftrace.gz", file).output)["spans"]


def test_many_names_are_written_once(tmp_path):
    file = write(tmp_path / "rank0.json", [span("a name that is long enough to be seen", n, 0.5) for n in range(1000)])
    assert merge_traces(tmp_path / "out.pftrace", file).output.read_bytes().count(b"long enough") == 1


def test_a_number_beyond_all_doubles_ends_no_merge(tmp_path):
    args = {"large": 10**400, "small": -(10**400), "list": [10**400], "other": 7}
    file = write(tmp_path / "rank0.json", [span("a", 0, 1) | {"args": args}])
    written = merge_traces(tmp_path / "out.pftrace", file).output.read_bytes()
    assert all(key.encode() in written for key in args)


def test_writer_accepts_events_unmodified(tmp_path):
    with (tmp_path / "out.pftrace").open("wb") as stream:
        writer = ReferencePerfettoWriter(stream)
        writer.write([span("a", BASE_NS, 1_000) | {"pid": 1}])
    with load(tmp_path / "out.pftrace") as trace:
        assert trace.errors() == {}
        assert trace.query("select name, ts, dur from slice") == [{"name": "a", "ts": BASE_NS, "dur": 1_000}]


@pytest.mark.parametrize(
    ("number", "encoded"), [(0, b"\0"), (127, b"\x7f"), (300, b"\xac\x02"), (-1, b"\xff" * 9 + b"\x01")]
)
def test_numbers_are_encoded_as_protobuf_does(number, encoded):
    assert varint(number) == encoded


@pytest.mark.parametrize("suffix", [".json", ".pftrace"])
def test_no_instant_is_on_a_track_without_a_name(tmp_path, suffix):
    moments = [
        {"ph": "i", "s": scope, "name": f"moment {scope}", "pid": 40, "tid": 40, "ts": 13 + number}
        for number, scope in enumerate("gpt")
    ]
    file = write(tmp_path / "rank0.json", [span("work", 0, 50), *moments])
    with load(merge_traces(tmp_path / f"out{suffix}", file).output) as trace:
        rows = trace.query(
            "select slice.name, thread.name as thread from slice left join thread_track on track_id = thread_track.id "
            "left join thread using (utid) where slice.name like 'moment%' order by ts"
        )
    assert [(row["name"], row["thread"]) for row in rows] == [(f"moment {scope}", "main") for scope in "gpt"]


@pytest.mark.parametrize("suffix", [".json", ".pftrace"])
def test_a_viewer_that_adds_pids_to_names_shows_each_pid_once(tmp_path, suffix):
    named = {"ph": "M", "name": "thread_name", "pid": 40, "tid": 9, "args": {"name": "thread 9 (worker)"}}
    file = write(
        tmp_path / "rank3.json", [named, span("work", 0, 50), span("other", 0, 50, 9), span("third", 0, 50, 8)]
    )
    with load(merge_traces(tmp_path / f"out{suffix}", file).output) as trace:
        (process,) = trace.query("select name || ' ' || pid as shown from process where name is not null")
        threads = trace.query("select name || ' ' || tid as shown from thread where name is not null order by tid")
    assert process["shown"] == "rank 3"
    assert {"thread 8", "worker 9", "main 40"} <= {row["shown"] for row in threads}
