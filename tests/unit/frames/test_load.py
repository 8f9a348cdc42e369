"""frames/load.py: any trace as frames, from any place; and its cache."""

import gzip
import io
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import kinetoscope
from kinetoscope.errors import SettingsError, TraceFileError
from kinetoscope.frames.trace import Trace
from kinetoscope.frames.trace_set import TraceSet

BASE_NS = 1_790_857_026_000_000_000
EVENTS: list[dict[str, Any]] = [
    {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "args": {"name": "python"}},
    {"ph": "M", "name": "thread_name", "pid": 7, "tid": 8, "args": {"name": "main"}},
    {"ph": "M", "name": "thread_sort_index", "pid": 7, "tid": 8, "args": {"sort_index": 3}},
    {
        "ph": "X",
        "name": "aten::mm",
        "cat": "cpu_op",
        "pid": 7,
        "tid": 8,
        "ts": 1.5,
        "dur": 10,
        "args": {"External id": 4},
    },
    {"ph": "X", "name": "gemm", "cat": "kernel", "pid": 0, "tid": 7, "ts": 5, "dur": 2, "args": {"stream": 7}},
    {"ph": "s", "name": "ac2g", "cat": "ac2g", "id": 9, "pid": 7, "tid": 8, "ts": 2},
    {"ph": "f", "name": "ac2g", "cat": "ac2g", "id": 9, "pid": 0, "tid": 7, "ts": 5, "bp": "e"},
    {"ph": "i", "name": "saved", "s": "g", "pid": 7, "tid": 8, "ts": 20, "args": {"batch": 3}},
    {"ph": "C", "name": "cpu", "pid": 7, "tid": 8, "ts": 3, "args": {"user": 1.5, "system": 2, "note": "x"}},
]
HEADER = {"baseTimeNanoseconds": BASE_NS, "distributedInfo": {"rank": 3, "world_size": 4}}


def write(path: Path, events: list[dict] | None = None, **header: Any) -> Path:
    text = json.dumps(HEADER | header | {"traceEvents": EVENTS if events is None else events})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.fixture(params=["file", "cache", "parquet"])
def trace(request, tmp_path, monkeypatch) -> Trace:
    """The same trace, read from its file, from the cache of an earlier reading, or from Parquet alone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = write(tmp_path / "trace.json")
    trace = kinetoscope.load(path)
    if request.param == "cache":
        trace = kinetoscope.load(path)
    elif request.param == "parquet":
        kept = next((tmp_path / "cache").rglob("*.parquet")).rename(tmp_path / "other.parquet")
        path.unlink()
        trace = kinetoscope.load(kept)
    assert isinstance(trace, Trace)
    return trace


def test_spans_have_unix_nanoseconds_and_their_arguments(trace):
    spans = trace.spans.collect()
    assert spans.select("ts", "dur", "name", "category", "external_id", "stream").rows() == [
        (BASE_NS + 1500, 10_000, "aten::mm", "cpu_op", 4, None),
        (BASE_NS + 5000, 2_000, "gemm", "kernel", None, 7),
    ]
    assert json.loads(spans["args"][0]) == {"External id": 4}


def test_tracks_have_names_and_streams_are_not_threads(trace):
    tracks = trace.tracks.filter(pl.col("num_spans") > 0).collect()
    columns = ("pid", "tid_number", "process", "thread", "thread_sort_index", "kind", "num_spans", "last_ns")
    assert tracks.select(columns).rows() == [
        ("7", 8, "python", "main", 3, "thread", 1, BASE_NS + 11_500),
        ("0", 7, None, None, None, "stream", 1, BASE_NS + 7_000),
    ]
    assert tracks.join(trace.spans.collect(), on="track").height == 2


def test_counters_are_one_row_per_number(trace):
    assert trace.counters.select("ts", "name", "series", "value").collect().rows() == [
        (BASE_NS + 3000, "cpu", "user", 1.5),
        (BASE_NS + 3000, "cpu", "system", 2.0),
    ]


def test_flows_and_instants_have_rows_of_their_own(trace):
    flows = trace.flows.collect()
    assert flows.select("step", "id").rows() == [("s", 9), ("f", 9)]
    assert json.loads(flows["fields"][1]) == {"bp": "e"}
    assert trace.instants.select("ts", "name", "batch").collect().rows() == [(BASE_NS + 20_000, "saved", 3)]


def test_metadata_has_the_fields_next_to_the_events(trace):
    values = {key: json.loads(value) for key, value in trace.metadata.collect().rows()}
    assert values == HEADER == trace.header
    assert (trace.rank, trace.world_size, trace.base_ns, trace.has_clock) == (3, 4, BASE_NS, True)


def test_a_changed_file_is_read_again(tmp_path):
    path = write(tmp_path / "trace.json")
    kinetoscope.load(path)
    write(path, EVENTS[:4])
    assert kinetoscope.load(path).spans.collect().height == 1


def test_damaged_cache_is_rebuilt(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = write(tmp_path / "trace.json")
    kinetoscope.load(path)
    kept = next((tmp_path / "cache").rglob("*.parquet"))
    kept.write_bytes(kept.read_bytes()[:100])
    assert kinetoscope.load(path).spans.collect().height == 2
    assert kept.stat().st_size > 100


def test_without_a_cache_nothing_is_written(tmp_path):
    path = write(tmp_path / "trace.json")
    kinetoscope.load(path, cache=False)
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_to_raises_no_error(tmp_path):
    path = write(tmp_path / "traces" / "trace.json")
    path.parent.chmod(0o555)
    assert kinetoscope.load(path).spans.collect().height == 2


def test_start_and_end_events_are_one_span_each(tmp_path):
    halves = [
        ("B", "outer", 0),
        ("B", "inner", 1),
        ("E", "", 2),
        ("E", "outer", 5),
        ("E", "stray", 6),
        ("B", "open", 7),
    ]
    events = [{"ph": ph, "name": name, "pid": 1, "tid": 1, "ts": ts} for ph, name, ts in halves]
    events += [{"ph": "X", "name": "last", "pid": 1, "tid": 2, "ts": 9, "dur": 0}]
    trace = kinetoscope.load(write(tmp_path / "t.json", events))
    assert trace.spans.select("name", "dur").collect().rows() == [
        ("outer", 5000),
        ("inner", 1000),
        ("open", 2000),
        ("last", 0),
    ]
    assert [repair.split()[:4] for repair in trace.repairs] == [
        ["1", "spans", "have", "no"],
        ["1", "ends", "have", "no"],
    ]


def test_a_list_with_metadata_before_its_header_has_the_headers_clock(tmp_path):
    events = [
        {"ph": "M", "name": "thread_sort_index", "pid": 0, "tid": 1, "args": {"sort_index": 99999}},
        {"ph": "M", "name": "kinetoscope_header", "pid": 0, "tid": 1, "args": {"baseTimeNanoseconds": BASE_NS}},
        {"ph": "X", "name": "a", "pid": 0, "tid": 1, "ts": 2, "dur": 1},
    ]
    (tmp_path / "list.json").write_text(json.dumps(events))
    assert kinetoscope.load(tmp_path / "list.json").spans.collect()["ts"].to_list() == [BASE_NS + 2000]


def test_asynchronous_spans_are_paired_by_their_ids(tmp_path):
    halves = [("b", "1", 0), ("b", "2", 1), ("n", "1", 2), ("e", "1", 3), ("e", "2", 7)]
    events = [{"ph": ph, "cat": "x", "id": id, "name": id, "pid": 1, "tid": 1, "ts": ts} for ph, id, ts in halves]
    trace = kinetoscope.load(write(tmp_path / "t.json", events))
    assert trace.spans.select("name", "dur").collect().rows() == [("1", 3000), ("2", 6000)]
    assert trace.instants.collect().height == 1


def test_a_folder_is_a_set_of_ranks_without_the_merged_trace(tmp_path):
    for rank in (1, 0):
        write(tmp_path / f"x{rank}.json.gz", distributedInfo={"rank": rank})
    write(tmp_path / "merged_trace.json", kinetoscope={"merged": True})
    traces = kinetoscope.load(tmp_path)
    assert isinstance(traces, TraceSet)
    assert traces.ranks == [0, 1]
    assert [trace.rank for trace in traces] == [0, 1]
    spans = traces.spans.group_by("rank").len().sort("rank").collect()
    assert spans.rows() == [(0, 2), (1, 2)]
    assert traces.tracks.collect().select("rank", "trace").unique().height == 2


def test_a_run_folder_a_glob_and_a_list_are_sets_too(tmp_path):
    paths = [write(tmp_path / "traces" / f"ep0-ba1-rank{rank}.json", distributedInfo=None) for rank in range(3)]
    assert kinetoscope.load(tmp_path).ranks == [0, 1, 2]
    assert kinetoscope.load(str(tmp_path / "**" / "*rank[12].json")).ranks == [1, 2]
    with ThreadPoolExecutor(2) as executor:
        assert kinetoscope.load(paths[:2], executor=executor).ranks == [0, 1]


@pytest.mark.parametrize("executor", ["tcp://10.0.0.1:8786", ThreadPoolExecutor, object()])
@pytest.mark.parametrize("read", [kinetoscope.load, kinetoscope.analyze])
def test_an_executor_that_is_none_is_refused_with_the_one_to_pass(read, executor, tmp_path):
    paths = [write(tmp_path / f"rank{rank}.json") for rank in range(2)]
    with pytest.raises(SettingsError, match=r"executor must be .*client\.get_executor\(\); not "):
        read(paths, executor=executor)


def test_stdin_is_a_trace(monkeypatch):
    class Stdin:
        buffer = io.BytesIO(gzip.compress(json.dumps(EVENTS).encode()))

    monkeypatch.setattr(sys, "stdin", Stdin)
    assert kinetoscope.load("-").spans.collect().height == 2


def test_a_url_is_opened_by_fsspec(tmp_path):
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://run/rank5.json", "wb") as stream:
        stream.write(json.dumps(EVENTS).encode())
    assert kinetoscope.load("memory://run/rank5.json").rank == 5


@pytest.mark.parametrize("name", ["missing.json", "empty", "no*.json"])
def test_if_there_is_no_trace_the_error_says_what_a_trace_is(tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(TraceFileError, match=r"No trace in .*Pass a trace file"):
        kinetoscope.load(tmp_path / name)


def test_error_on_a_folder_of_runs_names_them(tmp_path):
    for name in "first", "the second":
        (tmp_path / "runs" / name / "traces").mkdir(parents=True)
    (tmp_path / "runs" / "notes").mkdir()
    with pytest.raises(TraceFileError) as raised:
        kinetoscope.load(tmp_path / "runs")
    runs = tmp_path / "runs"
    assert f"name one of {runs}/first, '{runs}/the second', or see all: kinetoscope view {runs}" in str(raised.value)


def test_trace_with_too_many_events_for_memory_is_refused_with_their_number(tmp_path, monkeypatch):
    event = b'{"ph":"X","name":"n","pid":1,"tid":1,"ts":1,"dur":2}'
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents":[' + b",".join([event] * 100_000) + b"]}"))
    monkeypatch.setattr("kinetoscope.frames.load.available_bytes", lambda: 8_000_000)
    with pytest.raises(TraceFileError, match=r"too many events for this machine.* of memory were available"):
        kinetoscope.load(path, cache=False)
    monkeypatch.setattr("kinetoscope.frames.load.available_bytes", lambda: None)
    assert kinetoscope.load(path, cache=False).spans.select("name").collect().height == 100_000
