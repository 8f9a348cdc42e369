"""frames/trace.py: the description of a trace, and the frames of one trace and of several."""

import json

import polars as pl
import pytest

import kinetoscope
from kinetoscope.frames.convert_parquet import convert_parquet
from kinetoscope.frames.trace import Trace
from kinetoscope.frames.trace_set import TraceSet

BASE_NS = 1_790_857_026_000_000_000


def span(name, ts, dur, *, category="cpu_op", tid=8, **more):
    return {"ph": "X", "name": name, "cat": category, "pid": 7, "tid": tid, "ts": ts, "dur": dur} | more


STEP = [
    span("ProfilerStep#4", 0, 1_200_000, category="user_annotation"),
    span("aten::linear", 1, 100),
    span("aten::mm", 11, 50),
    span("gemm", 30, 40, category="kernel", tid=9),
    {"ph": "C", "name": "cpu", "pid": 7, "tid": 8, "ts": 3, "args": {"percent": 1.5}},
]


def load(tmp_path, events, name="trace.json", **header):
    document = {"baseTimeNanoseconds": BASE_NS, "traceEvents": events} | header
    (tmp_path / name).write_text(json.dumps(document))
    trace = kinetoscope.load(tmp_path / name)
    assert isinstance(trace, Trace)
    return trace


@pytest.mark.parametrize("times", [1, 2])
def test_names_and_categories_are_strings(tmp_path, times):
    for _ in range(times):  # the second time from the cache
        trace = load(tmp_path, STEP)
    found = trace.spans.filter(pl.col("name").str.contains("lin|mm$") & pl.col("category").str.ends_with("op"))
    assert found.collect()["name"].to_list() == ["aten::linear", "aten::mm"]
    assert trace.counters.filter(pl.col("series").str.starts_with("per")).collect().height == 1
    assert trace.events.filter(pl.col("name").str.len_chars() == 3).collect().height == 1


def test_a_trace_shows_its_ranks_its_time_and_its_content(tmp_path):
    trace = load(tmp_path, STEP, distributedInfo={"rank": 3, "world_size": 8})
    size = (tmp_path / "trace.json").stat().st_size
    assert repr(trace).splitlines() == [
        f"<kinetoscope.Trace trace.json ({size} bytes)",
        "  rank        3 of 8",
        "  clock       unix time",
        "  time        1.200 s from 2026-10-01 12:17:06 UTC, 1 batch",
        "  events      4 spans on 2 tracks, 0 instants, 1 counter, 0 flow ends",
        "  categories  cpu_op 2, kernel 1, user_annotation 1>",
    ]


def test_trace_of_a_deleted_file_is_read_and_one_with_lost_content_has_a_repr(tmp_path):
    load(tmp_path, STEP)
    convert_parquet(tmp_path / "trace.json", tmp_path / "trace.parquet")
    trace = kinetoscope.load(tmp_path / "trace.parquet")
    assert "4 spans" in repr(trace)
    (tmp_path / "trace.parquet").rename(tmp_path / "elsewhere")  # it is open
    assert "4 spans" in repr(trace)
    (tmp_path / "elsewhere").write_bytes(b"")
    assert repr(trace) == "<kinetoscope.Trace trace.parquet: it cannot be read any more>"


def test_visible_parts_of_traces_have_no_home_path(tmp_path):
    home = tmp_path / "home" / "anna"
    home.mkdir(parents=True)
    trace = load(home, STEP, "rank0.json", kinetoscope={"notes": ["Left out: /home/anna/runs/rank1.json."]})
    for text in (repr(trace), trace._repr_html_(), TraceSet([trace])._repr_html_()):
        assert "anna" not in text
    assert "<bdi>kinetoscope.Trace rank0.json</bdi>" in trace._repr_html_()
    assert trace.to_dict()["name"] == str(home / "rank0.json")


def test_a_trace_without_a_clock_says_that_it_can_be_aligned_on_a_span(tmp_path):
    (tmp_path / "trace.json").write_text(json.dumps(STEP))
    shown = repr(kinetoscope.load(tmp_path / "trace.json"))
    assert "not unix time: other traces can be aligned with it only on a span that both have" in shown


def test_a_repr_has_no_control_characters(tmp_path):
    assert "\x1b" not in repr(load(tmp_path, [span("x", 0, 1, category="\x1b[2J")]))


@pytest.mark.parametrize(
    ("name", "rank"),
    [("rank3.json", 3), ("a-rank_12.json", 12), ("rank9999999999.json", None), (f"rank{9**99}.json", None)],
)
def test_file_name_gives_a_possible_rank(tmp_path, name, rank):
    found = TraceSet([load(tmp_path, STEP, name)])
    assert found.spans.collect()["rank"].unique().to_list() == [rank]


def test_the_events_of_a_set_are_those_of_all_its_traces_with_their_ranks(tmp_path):
    ranks = [load(tmp_path, STEP, f"r{rank}.json", distributedInfo={"rank": rank}) for rank in (1, 0)]
    events = TraceSet(ranks).events.collect()
    assert events.group_by("rank", "kind").len().sort("rank", "kind").rows() == [
        (0, "span", 4),
        (0, "counter", 1),
        (1, "span", 4),
        (1, "counter", 1),
    ]
    assert set(events["trace"]) == {0, 1}


def test_nested_spans_have_their_own_time_their_parent_and_their_depth(tmp_path):
    nested = load(tmp_path, STEP).nested()
    assert nested.select("row", "name", "self_ns", "parent", "depth").collect().rows() == [
        (0, "ProfilerStep#4", 1_199_900_000, None, 0),
        (1, "aten::linear", 50_000, 0, 1),
        (2, "aten::mm", 50_000, 1, 2),
        (3, "gemm", 40_000, None, 0),
    ]
    linear = nested.filter(pl.col("name") == "aten::mm").select("parent", "external_id").collect()
    assert linear.rows() == [(1, None)]


def test_asynchronous_spans_and_those_without_a_time_hold_nothing(tmp_path):
    halves = [{"ph": ph, "cat": "x", "id": 1, "name": "io", "pid": 7, "tid": 8, "ts": ts} for ph, ts in ("b0", "e9")]
    halves = [half | {"ts": int(half["ts"])} for half in halves]
    timeless = {"ph": "B", "name": "lost", "pid": 7, "tid": 8}
    trace = load(tmp_path, [*halves, timeless, span("aten::mm", 1, 2)])
    assert trace.spans.collect().height == 3
    assert trace.nested().select("row", "name", "parent").collect().rows() == [(0, "aten::mm", None)]


def test_the_nested_spans_of_a_set_have_their_ranks(tmp_path):
    ranks = [load(tmp_path, STEP, f"r{rank}.json", distributedInfo={"rank": rank}) for rank in (0, 1)]
    own = TraceSet(ranks).nested().group_by("rank").agg(pl.col("self_ns").sum()).sort("rank").collect()
    assert own.rows() == [(0, 1_200_040_000), (1, 1_200_040_000)]
