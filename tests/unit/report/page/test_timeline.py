"""The timeline of a page."""

import json
from itertools import pairwise

import pytest

import kinetoscope
from kinetoscope.report.page.rank_spans import read_spans
from kinetoscope.report.page.rank_traces import RankTraces
from kinetoscope.report.page.timeline import TimelineBuilder
from support.page_data import page_of, read_column, span, write_trace
from trainsim import Fault, Settings, simulate


def spans_of(timeline):
    """Return all spans as rows, with the rank, kind and name of their tracks and their row in it."""
    spans, texts = timeline.spans, timeline.texts
    columns = {name: read_column(column) for name, column in vars(spans).items() if column}
    rows = []
    for track in timeline.tracks:
        for row, (first, last) in enumerate(pairwise(track.row_begins)):
            for place in range(first, last):
                values = {name: numbers[place] for name, numbers in columns.items()}
                names = {"name": texts[values["names"]], "category": texts[values["categories"]]}
                rows.append(values | names | {"track": track, "row": row, "place": place})
    return rows


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """The traces of two ranks, and their page."""
    folder = tmp_path_factory.mktemp("run")
    fault = Fault(kind="slow_loader", cost_ns=3_000_000)
    simulate(Settings(num_ranks=2, has_stacks=True, faults=(fault,))).write(folder)
    paths = sorted(folder.rglob("*.json"))
    return paths, page_of(*paths)


def test_every_span_of_every_rank_is_in_the_timeline(simulated):
    paths, page = simulated
    recorded = [event for path in paths for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]

    shown = [row for row in spans_of(page.timeline) if row["track"].kind != "steps"]

    assert sorted(row["name"] for row in shown) == sorted(
        event["name"] for event in recorded if event.get("cat") != "Trace"
    )
    assert {row["track"].rank for row in shown} == {0, 1}
    assert sum(row["durations"] for row in shown) == sum(
        round(event["dur"] * 1000) for event in recorded if event.get("cat") != "Trace"
    )


def test_spans_of_one_row_do_not_overlap_and_come_in_order(simulated):
    _, page = simulated
    for one, other in pairwise(spans_of(page.timeline)):
        if one["track"] is other["track"] and one["row"] == other["row"]:
            assert one["begins"] + one["durations"] <= other["begins"]


def test_steps_are_on_a_track_of_their_own_where_the_report_has_them(simulated):
    _, page = simulated
    steps = [row for row in spans_of(page.timeline) if row["track"].kind == "steps"]
    expected = {(row["rank"], f"step {row['step']}", row["begin_ns"]) for row in page.report["steps"]}
    assert {(row["track"].rank, row["name"], row["begins"]) for row in steps} == expected


def test_every_kernel_knows_the_call_that_launched_it(simulated):
    paths, page = simulated
    rows = spans_of(page.timeline)
    launched = [row for row in rows if row["category"] == "kernel" and row["launches"]]

    assert len(launched) == sum(map(num_launched_kernels, paths))
    for kernel in launched:
        launch = rows[kernel["launches"] - 1]
        assert launch["category"] == "cuda_runtime"
        assert launch["track"].rank == kernel["track"].rank
        assert launch["begins"] <= kernel["begins"]


def num_launched_kernels(path):
    """Return the number of a trace's kernels that were launched in it."""
    events = json.loads(path.read_text())["traceEvents"]
    calls = {event["args"]["correlation"] for event in events if event.get("cat") == "cuda_runtime"}
    return sum(event.get("cat") == "kernel" and event["args"]["correlation"] in calls for event in events)


def test_spans_that_overlap_without_nesting_lie_in_rows_of_their_own(tmp_path):
    events = [span("one", 0, 10), span("two", 5, 10), span("in two", 12, 2), span("three", 11, 9)]
    rows = spans_of(page_of(write_trace(tmp_path / "rank0.json", events)).timeline)
    assert {row["name"]: row["row"] for row in rows} == {"one": 0, "two": 1, "three": 0, "in two": 2}


def test_the_arguments_of_a_span_are_shown_without_those_that_only_number_it(tmp_path):
    events = [
        span("aten::mm", 0, 10, **{"External id": 7, "Input Dims": [[2, 3], [3, 4]], "Ev Idx": 2}),
        span("aten::mm", 20, 10, **{"External id": 8, "Input Dims": [[2, 3], [3, 4]], "Ev Idx": 3}),
        span("aten::add", 40, 10, **{"External id": 9}),
    ]
    timeline = page_of(write_trace(tmp_path / "rank0.json", events)).timeline
    assert timeline.details == [{"Input Dims": [[2, 3], [3, 4]]}]
    assert [row["details"] for row in spans_of(timeline)] == [1, 1, 0]


def test_a_stack_is_the_python_functions_around_a_span(tmp_path):
    events = [
        span("train.py(1): main", 0, 100, category="python_function"),
        span("train.py(9): step", 10, 50, category="python_function"),
        span("aten::mm", 20, 10),
    ]
    timeline = page_of(write_trace(tmp_path / "rank0.json", events)).timeline
    (operator,) = [row for row in spans_of(timeline) if row["name"] == "aten::mm"]
    lines, callers = read_column(timeline.stacks.lines), read_column(timeline.stacks.callers)
    stack, place = [], operator["stacks"]
    while place:
        stack.append(timeline.texts[lines[place - 1]])
        place = callers[place - 1]
    assert stack == ["train.py(9): step", "train.py(1): main"]


def test_a_flow_leads_from_the_span_around_its_start_to_the_one_around_its_finish(tmp_path):
    flow = {"cat": "fwdbwd", "name": "fwdbwd", "id": 1, "pid": 1}
    events = [
        span("aten::mm", 0, 10),
        span("MmBackward", 50, 10, tid=2),
        flow | {"ph": "s", "tid": 1, "ts": 0},
        flow | {"ph": "f", "tid": 2, "ts": 52, "bp": "e"},
    ]
    timeline = page_of(write_trace(tmp_path / "rank0.json", events)).timeline
    rows, flows = spans_of(timeline), timeline.flows
    ends = [
        (rows[one]["name"], rows[other]["name"])
        for one, other in zip(*map(read_column, (flows.sources, flows.targets)), strict=True)
    ]
    assert ends == [("aten::mm", "MmBackward")]


def test_counters_have_their_unit(tmp_path):
    events = [span("aten::mm", 0, 10)]
    events += [
        {"ph": "C", "name": "process", "pid": 1, "tid": 3, "ts": ts, "args": {"resident_gib": value, "threads": 9}}
        for ts, value in ((1, 0.5), (2, 0.75), (4, 0.25))
    ]
    counters = page_of(write_trace(tmp_path / "rank0.json", events)).timeline.counters
    assert [(one.name, one.unit) for one in counters] == [("process resident", "GiB"), ("process threads", "")]
    assert [value * counters[0].scale for value in read_column(counters[0].values)] == pytest.approx(
        [0.5, 0.75, 0.25], abs=1e-6
    )
    assert read_column(counters[0].times) == [1000, 2000, 4000]


def test_a_trace_without_any_span_has_an_empty_timeline(tmp_path):
    events = [{"ph": "C", "name": "loss", "pid": 1, "tid": 3, "ts": 5, "args": {"loss": -1.5}}]
    timeline = page_of(write_trace(tmp_path / "rank0.json", events)).timeline
    assert spans_of(timeline) == []
    assert [value * timeline.counters[0].scale for value in read_column(timeline.counters[0].values)] == [-1.5]


def test_too_many_spans_show_the_longest_and_some_in_every_interval(tmp_path):
    short = [span("short", 2 * at, 1) for at in range(5000)]
    path = write_trace(tmp_path / "rank0.json", [*short, span("long", 0, 10_000, tid=2), span("last", 9999, 1, tid=3)])
    report = kinetoscope.analyze(path, cache=False)
    (window,) = RankTraces(report, [str(path)], cache=False)
    builder = TimelineBuilder(report, max_spans=4000)
    builder.add(window, read_spans(window.trace))

    timeline = builder.build(0)

    rows = spans_of(timeline)
    assert len(rows) == 4000
    assert {row["name"] for row in rows} == {"short", "long", "last"}
    begins = [row["begins"] for row in rows if row["name"] == "short"]
    assert max(other - one for one, other in pairwise(begins)) < 10_000
    assert sum(track.num_left_out for track in timeline.tracks) == 1002
    assert any("4,000 of 5,002 spans" in note for note in timeline.notes)


def test_profiler_overhead_per_step_is_reported_for_kinetoscope_traces(tmp_path):
    events = [span("event/batch", 100 * at, 100, category="batch", batch=at) for at in range(4)]
    events += [span("kinetoscope/stop", 350, 40, category="kinetoscope")]
    events += [span("kinetoscope/save", 390, 70, category="kinetoscope")]
    measured = page_of(write_trace(tmp_path / "rank0.json", events, kinetoscope={"rank": 0}))
    other = page_of(write_trace(tmp_path / "rank1.json", events))
    assert (measured.profiler_ns_per_step, other.profiler_ns_per_step) == (12_500, None)
    assert (measured.profiler_ns_around, other.profiler_ns_around) == (60_000, None)


def test_our_markers_are_on_a_track_of_their_own(tmp_path):
    events = [span("event/batch", 0, 100, category="batch", batch=1), span("aten::mm", 10, 20)]
    timeline = page_of(write_trace(tmp_path / "rank0.json", events, kinetoscope={"rank": 0})).timeline
    assert [(track.kind, track.name) for track in timeline.tracks] == [
        ("steps", "Steps"),
        ("markers", "thread 1"),
        ("thread", "thread 1"),
    ]


def test_ranks_over_the_size_limit_are_omitted_from_the_timeline_only(tmp_path, monkeypatch):
    monkeypatch.setattr("kinetoscope.report.page.build.MAX_SPANS", 25)
    events = [span("aten::mm", 20 * at, 10) for at in range(10)]
    page = page_of(*(write_trace(tmp_path / f"rank{rank}.json", events) for rank in range(5)))
    assert {track.rank for track in page.timeline.tracks} == {0, 1}
    assert page.report["run"]["ranks"] == [0, 1, 2, 3, 4]
    assert any("2 of the 5 ranks" in note for note in page.notes)


def test_a_copy_of_a_trace_is_shown_once(tmp_path):
    events = [span("aten::mm", 20 * at, 10) for at in range(10)]
    paths = [write_trace(tmp_path / name, events) for name in ("rank0.json", "copy_of_rank0.json")]
    assert len(spans_of(page_of(*paths).timeline)) == 10


def test_the_times_of_ranks_are_on_one_clock(tmp_path):
    fault = Fault(kind="slow_loader", cost_ns=3_000_000)
    simulate(Settings(num_ranks=2, faults=(fault,), offset_ns=7_000_000_000)).write(tmp_path)
    page = page_of(*sorted(tmp_path.rglob("*.json")))
    begins = {}
    for row in spans_of(page.timeline):
        begins.setdefault((row["track"].rank, row["track"].kind), row["begins"])
    assert abs(begins[0, "stream"] - begins[1, "stream"]) < 1_000_000_000
    expected = {(row["rank"], row["step"]): row["begin_ns"] for row in page.report["steps"]}
    shown = {
        (row["track"].rank, int(row["name"].removeprefix("ProfilerStep#"))): row["begins"]
        for row in spans_of(page.timeline)
        if row["name"].startswith("ProfilerStep#") and row["category"] == "user_annotation"
    }
    assert shown == expected


def test_only_the_last_seconds_are_read_where_these_are_asked_for(tmp_path):
    second = 1_000_000
    events = [span(f"at second {begin}", begin * second, second / 2) for begin in range(10)]
    names = [str(write_trace(tmp_path / "rank0.json", events))]
    report = kinetoscope.analyze(names, cache=False)
    (window,) = RankTraces(report, names, cache=False, last_s=3.25)
    assert window.trace.spans.collect()["name"].to_list() == ["at second 7", "at second 8", "at second 9"]


def sampled(path, window, tid):
    """Return the trace of a window, in which another thread took the samples."""
    begin = window * 1_000_000
    name = {"ph": "M", "name": "thread_name", "pid": 1, "tid": tid, "args": {"name": "samples of MainThread"}}
    lines = [span("train.py(1): main", begin, 100, tid=tid, category="stack_sample")]
    lines.append(span("train.py(9): step", begin + 10, 50, tid=tid, category="stack_sample"))
    return write_trace(path, [name, span("aten::mm", begin, 90), *lines], kinetoscope={"rank": 0})


def test_samples_of_a_thread_are_one_track_below_it_for_any_number_of_windows(tmp_path):
    paths = [sampled(tmp_path / f"rank0-{window}.json", window, 70 + window) for window in range(3)]
    timeline = page_of(*paths).timeline

    assert [(track.kind, track.name) for track in timeline.tracks] == [
        ("thread", "thread 1"),
        ("samples", "samples of MainThread"),
    ]
    begins = [row["begins"] for row in spans_of(timeline) if row["track"].kind == "samples" and row["row"] == 0]
    assert begins == [0, 10**9, 2 * 10**9]
    assert timeline.windows == [[10**9 * window, 10**9 * window + 100_000] for window in range(3)]


def test_omitted_spans_are_known_by_track_and_time(tmp_path):
    paths = [tmp_path / "rank0.json"]
    events = [span("long", 0, 400_000, tid=1), *(span("short", 2 * at, 1, tid=2) for at in range(200_000))]
    report = kinetoscope.analyze(str(write_trace(paths[0], events)), cache=False)
    builder = TimelineBuilder(report, max_spans=5000)
    for window in RankTraces(report, [str(paths[0])], cache=False):
        builder.add(window, read_spans(window.trace))
    timeline = builder.build(0)

    left_out = timeline.left_out
    tracks, cells, counts = (read_column(getattr(left_out, name)) for name in ("tracks", "cells", "counts"))
    assert sum(counts) == sum(track.num_left_out for track in timeline.tracks) > 100_000
    assert {timeline.tracks[track].name for track in tracks} == {"thread 2"}
    assert len(cells) > 500
    early = sum(count for cell, count in zip(cells, counts, strict=True) if cell * left_out.cell_ns < 40_000_000)
    assert early == pytest.approx(sum(counts) / 10, rel=0.1)


def test_a_timeline_that_shows_all_spans_leaves_none_out(simulated):
    assert simulated[1].timeline.left_out is None


def test_last_seconds_are_per_rank_even_for_files_without_a_rank_in_their_names(tmp_path):
    """A rank whose clock is 30 s behind recorded just as much."""
    files = [(tmp_path / name, 1_000.0 * start_s) for name, start_s in (("one.json", 0), ("two.json", 30))]
    for rank, (path, start_ms) in enumerate(files):
        events = [span(f"ProfilerStep#{step}", 1_000 * (start_ms + 1_000 * step), 500_000) for step in range(4)]
        write_trace(path, events, distributedInfo={"rank": rank, "world_size": 2})
    names = [str(path) for path, _ in files]
    report = kinetoscope.analyze(names, cache=False, last_s=1.75)
    windows = list(RankTraces(report, names, cache=False, last_s=1.75))
    assert [read_spans(window.trace)["name"].to_list() for window in windows] == [
        ["ProfilerStep#2", "ProfilerStep#3"]
    ] * 2
