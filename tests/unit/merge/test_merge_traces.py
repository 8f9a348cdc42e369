"""merge/merge_traces.py: any ranks and cycles become one valid trace, and existing files are not damaged."""

import gzip
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from kinetoscope.errors import MergeError, TraceFileError
from kinetoscope.formats.header import validate_header
from kinetoscope.merge.merge_traces import merge_traces
from support.trace_processor.trace_processor import load

BASE_NS = 1_790_857_026_000_000_000
GPU_LABEL = {"ph": "M", "name": "process_labels", "pid": 0, "tid": 0, "args": {"labels": "GPU 0"}}


def write(path: Path, events: list[dict], base_ns: int | None = BASE_NS, **header) -> Path:
    clock = {"baseTimeNanoseconds": base_ns} if base_ns else {}
    path.write_text(json.dumps(clock | header | {"traceEvents": events}))
    return path


def cpu(ts: float, name: str = "op", tid: int = 50, **fields) -> dict:
    return {"ph": "X", "name": name, "cat": "cpu_op", "pid": 40, "tid": tid, "ts": ts, "dur": 1} | fields


def kernel(ts: float, stream: int = 7) -> dict:
    return {"ph": "X", "name": "k", "cat": "kernel", "pid": 0, "tid": stream, "ts": ts, "dur": 1}


def flow(ph: str, ts: float, tid: int = 50) -> dict:
    return {"ph": ph, "id": 1, "cat": "ac2g", "name": "ac2g", "pid": 40, "tid": tid, "ts": ts} | {"bp": "e"}


def spans(path: Path) -> list[dict]:
    return [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]


def thread_names(path: Path) -> dict[tuple[int, int], str]:
    events = json.loads(path.read_text())["traceEvents"]
    return {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}


def test_every_rank_is_a_process_and_all_are_on_one_clock(tmp_path):
    first = write(tmp_path / "a.json", [cpu(10)], distributedInfo={"rank": 1})
    second = write(tmp_path / "b.json", [cpu(10)], BASE_NS + 5_000, kinetoscope={"rank": 0})
    report = merge_traces(tmp_path / "out.json", first, second)
    begins = {span["pid"]: span["ts"] for span in spans(report.output)}
    assert begins[0] - begins[1] == pytest.approx(5)
    assert report.ranks == [0, 1]


def test_traces_years_apart_give_a_warning_in_json_and_none_in_perfetto_format(tmp_path):
    early = write(tmp_path / "rank0.json", [cpu(10)], BASE_NS - 7 * 365 * 86_400 * 10**9)
    late = write(tmp_path / "rank1.json", [cpu(10.001 + n * 0.002, dur=0.001) for n in range(500)])
    report = merge_traces(tmp_path / "out.json", early, late)
    (note,) = report.notes
    assert "2555 days" in note
    assert "to 25 ns" in note
    assert ".pftrace" in note
    assert json.loads(report.output.read_text())["kinetoscope"]["notes"] == [note]
    report = merge_traces(tmp_path / "out.pftrace", early, late)
    assert report.notes == []
    with load(report.output) as trace:
        assert trace.errors() == {}
        assert trace.query("select count(*) as n, max(dur) as dur from slice where dur < 1000") == [
            {"n": 500, "dur": 1}
        ]


def test_the_rank_comes_from_the_name_or_else_from_the_position(tmp_path):
    files = [write(tmp_path / name, [cpu(1)]) for name in ("x-rank7.json", "plain.json")]
    assert merge_traces(tmp_path / "out.json", *files).ranks == [1, 7]


def test_a_gpu_stream_never_lands_on_a_thread_of_the_same_number(tmp_path):
    file = write(tmp_path / "rank0.json", [GPU_LABEL, cpu(1, tid=7), cpu(2, tid=40), kernel(1)])
    output = merge_traces(tmp_path / "out.json", file).output
    names = thread_names(output)
    assert names[0, 7] == "thread"
    assert names[0, 40] == "main"
    (stream,) = {span["tid"] for span in spans(output) if span["cat"] == "kernel"}
    assert names[0, stream] == "GPU 0 stream 7"


def test_the_loop_comes_first_then_backward_then_threads_then_streams(tmp_path):
    backward = cpu(1, "autograd::engine::evaluate_function: AddBackward0", tid=3)
    file = write(tmp_path / "rank0.json", [GPU_LABEL, kernel(1), cpu(1, tid=2), backward, cpu(1, tid=40)])
    output = merge_traces(tmp_path / "out.json", file).output
    events = json.loads(output.read_text())["traceEvents"]
    index = {e["tid"]: e["args"]["sort_index"] for e in events if e["name"] == "thread_sort_index"}
    names = thread_names(output)
    assert [names[0, tid] for tid in sorted(index, key=index.__getitem__)] == [
        "main",
        "thread",
        "thread",
        "GPU 0 stream 7",
    ]


def test_a_track_has_the_same_tid_in_every_cycle_of_its_rank(tmp_path):
    cycles = [[GPU_LABEL, kernel(1, 9), kernel(1, 7)], [GPU_LABEL, kernel(9, 7), cpu(9)]]
    files = [write(tmp_path / f"rank0.{cycle}.json", events) for cycle, events in enumerate(cycles)]
    output = merge_traces(tmp_path / "out.json", *files).output
    assert sorted(thread_names(output).values()) == ["GPU 0 stream 7", "GPU 0 stream 9", "thread"]


def test_overlap_tracks_of_different_threads_stay_apart_over_cycles(tmp_path):
    def overlapping(tid: int) -> list[dict]:
        return [cpu(1, tid=tid, dur=500), cpu(250, tid=tid, dur=500)]

    files = [write(tmp_path / f"rank0.{tid}.json", overlapping(tid)) for tid in (50, 60)]
    report = merge_traces(tmp_path / "out.json", *files)
    assert report.num_moved == 2
    assert len({span["tid"] for span in spans(report.output)}) == 4
    with load(report.output) as trace:
        assert trace.errors() == {}


@pytest.mark.parametrize("tid", ["50", "050", "stream 50"])
def test_thread_id_in_two_notations_is_one_track_with_nested_spans(tmp_path, tid):
    file = write(tmp_path / "a.json", [cpu(0, dur=500), cpu(250, tid=tid, dur=500), cpu(900, tid=tid)])
    report = merge_traces(tmp_path / "out.json", file)
    assert report.num_moved == 1
    assert [span["tid"] for span in spans(report.output)].count(50) == 2
    with load(report.output) as trace:
        assert trace.errors() == {}


def test_flows_of_different_files_stay_apart(tmp_path):
    events = [cpu(1), cpu(5, tid=51), flow("s", 1), flow("f", 5, tid=51)]
    files = [write(tmp_path / f"rank{rank}.json", events) for rank in (0, 1)]
    with load(merge_traces(tmp_path / "out.json", *files).output) as trace:
        assert trace.errors() == {}
        assert trace.query("select count(*) as n from flow") == [{"n": 2}]


def test_names_and_order_of_processes_come_once(tmp_path):
    files = [write(tmp_path / f"rank3.{cycle}.json", [cpu(cycle)], host_name="h") for cycle in (0, 1)]
    output = merge_traces(tmp_path / "out.json", *files).output
    events = json.loads(output.read_text())["traceEvents"]
    assert [e["args"] for e in events if e["name"].startswith("process_")] == [
        {"name": "h · rank"},
        {"sort_index": 3},
    ]


def test_files_of_two_starts_of_a_rank_are_not_merged_silently(tmp_path):
    files = [write(tmp_path / f"{n}.json", [], kinetoscope={"rank": 0, "start": f"start {n}"}) for n in range(2)]
    assert "The traces of rank 0 come from several starts" in merge_traces(tmp_path / "out.json", *files).notes[0]
    assert not merge_traces(tmp_path / "out.json", files[0], files[0]).notes


def test_all_ranks_with_files_of_two_starts_are_reported(tmp_path):
    def file(rank, start):
        own = {"rank": rank, "start": f"start {start}"}
        return write(tmp_path / f"{rank}-{start}.json", [], kinetoscope=own)

    files = [file(rank, start) for rank in range(70) for start in range(1 if rank == 7 else 2)]
    (note,) = merge_traces(tmp_path / "out.json", *files).notes
    assert note.startswith("The traces of ranks 0-6, 8-69 come from several starts of a run.")


def test_the_header_names_the_ranks_up_to_a_limit(tmp_path):
    files = [write(tmp_path / f"rank{rank}.json", [cpu(1)], distributedInfo={"rank": rank}) for rank in range(66)]
    header = json.loads(merge_traces(tmp_path / "out.json", *reversed(files)).output.read_text())
    assert header["kinetoscope"]["merged"]
    assert header["kinetoscope"]["ranks"] == list(range(64))
    assert header["kinetoscope"]["num_ranks"] == 66
    assert header["distributedInfo"] == {"rank": 0}


def test_a_file_without_a_clock_is_refused_and_the_way_out_is_named(tmp_path):
    files = [write(tmp_path / "rank2.json", [cpu(1)]), write(tmp_path / "rank3.json", [cpu(1)], None)]
    with pytest.raises(MergeError, match=r"rank 3 has no clock anchor.*rank3\.json.*align_on"):
        merge_traces(tmp_path / "out.json", *files)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rank2.json", "rank3.json"]


@pytest.mark.parametrize("first_us", [5, -70])
@pytest.mark.parametrize("name", ["out.json", "out.pftrace"])
def test_one_file_without_a_clock_merges_alone_and_stays_without(tmp_path, name, first_us):
    file = write(tmp_path / "viztracer.json", [cpu(first_us), cpu(first_us + 30)], None)
    report = merge_traces(tmp_path / name, file)
    assert "viztracer.json has no clock" in report.notes[0]
    with load(report.output) as trace:
        assert trace.errors() == {}
        begins = [row["ts"] for row in trace.query("select ts from slice order by ts")]
    assert begins[1] - begins[0] == 30_000
    assert begins[0] == 5_000 or "moved" in report.notes[1]
    if name == "out.json":
        with pytest.raises(MergeError, match="no clock anchor"):
            merge_traces(tmp_path / "again.json", report.output, write(tmp_path / "rank1.json", [cpu(1)]))


def test_align_on_starts_a_span_of_each_rank_where_rank_0_starts_it(tmp_path):
    files = [
        write(tmp_path / "rank0.json", [cpu(100, "step"), cpu(130, "step")]),
        write(tmp_path / "rank1.json", [cpu(7, "step"), cpu(8, "after")], None),
    ]
    output = merge_traces(tmp_path / "out.json", *files, align_on="step").output
    begins = {(span["pid"], span["name"]): span["ts"] for span in reversed(spans(output))}
    assert begins[1, "step"] == begins[0, "step"]
    assert begins[1, "after"] - begins[1, "step"] == pytest.approx(1)


def test_align_on_moves_only_files_without_a_clock_and_says_which(tmp_path):
    files = [
        write(tmp_path / "rank0.json", [cpu(100, "step")]),
        write(tmp_path / "rank1.json", [cpu(103, "step")]),
        write(tmp_path / "rank2.json", [cpu(7, "step")], None),
    ]
    report = merge_traces(tmp_path / "out.json", *files, align_on="step")
    begins = {span["pid"]: span["ts"] for span in spans(report.output)}
    assert begins[1] - begins[0] == pytest.approx(3)
    assert begins[2] == begins[0]
    (note,) = report.notes
    assert note.startswith("Moved so that 'step' begins at the same time: rank 2 by ")


def test_align_all_moves_every_file(tmp_path):
    files = [write(tmp_path / f"rank{rank}.json", [cpu(100 + 3 * rank, "step")]) for rank in (0, 1)]
    report = merge_traces(tmp_path / "out.json", *files, align_on="step", align_all=True)
    assert len({span["ts"] for span in spans(report.output)}) == 1
    assert report.notes == ["Moved so that 'step' begins at the same time: rank 1 by -0.000003000 s."]


def test_align_on_where_all_files_have_a_clock_says_that_nothing_moved(tmp_path):
    files = [write(tmp_path / f"rank{rank}.json", [cpu(100 + 3 * rank, "step")]) for rank in (0, 1)]
    report = merge_traces(tmp_path / "out.json", *files, align_on="step")
    assert len({span["ts"] for span in spans(report.output)}) == 2
    assert report.notes == [
        "All files have a clock, so none was aligned on 'step'. Pass align_all to align them all the same."
    ]


def test_a_merge_says_how_many_spans_were_cut_and_moved(tmp_path):
    file = write(tmp_path / "rank0.json", [cpu(100, dur=50), cpu(120, dur=50)])
    assert merge_traces(tmp_path / "out.json", file).notes == ["Spans cut so that all nest: 0; moved: 1."]


def test_align_on_a_span_that_a_rank_lacks_is_refused(tmp_path):
    files = [write(tmp_path / f"rank{rank}.json", [cpu(1, f"only{rank}")], None) for rank in (0, 1)]
    with pytest.raises(MergeError, match="rank 1 has no span 'only0'"):
        merge_traces(tmp_path / "out.json", *files, align_on="only0")


def test_the_output_may_be_an_input(tmp_path):
    files = [write(tmp_path / f"rank{rank}.json", [cpu(1)]) for rank in (0, 1)]
    merge_traces(files[0], *files)
    assert {span["pid"] for span in spans(files[0])} == {0, 1}


@pytest.mark.parametrize("content", [b"", b"\x00\xff", b"{}"])
def test_a_bad_input_leaves_the_existing_output_as_it_was(tmp_path, content):
    good, bad, output = write(tmp_path / "rank0.json", [cpu(1)]), tmp_path / "rank1.json", tmp_path / "out.json"
    bad.write_bytes(content)
    output.write_text("precious")
    with pytest.raises(TraceFileError, match=r"rank1\.json"):
        merge_traces(output, good, bad)
    assert output.read_text() == "precious"
    assert len(list(tmp_path.iterdir())) == 3


def test_truncated_input_is_merged_up_to_its_cut_with_a_note(tmp_path):
    file = write(tmp_path / "rank0.json", [cpu(1), cpu(2)])
    file.write_bytes(file.read_bytes()[:-20])
    report = merge_traces(tmp_path / "out.json", file)
    assert report.num_events == 1
    assert any("ends too early" in note for note in report.notes)


def test_merged_traces_merge_again_rank_by_rank(tmp_path):
    nodes = [
        [
            write(tmp_path / f"rank{rank}.json", [cpu(0, dur=9), kernel(rank), flow("s", 1), flow("f", 2)])
            for rank in ranks
        ]
        for ranks in ((0, 1), (2, 3))
    ]
    merged = [merge_traces(tmp_path / f"node{n}.json", *files).output for n, files in enumerate(nodes)]
    whole = merge_traces(tmp_path / "whole.json", *nodes[0], *nodes[1]).output
    again = merge_traces(tmp_path / "again.json", *merged)
    assert again.ranks == [0, 1, 2, 3]
    assert sorted(map(str, spans(again.output))) == sorted(map(str, spans(whole)))
    assert thread_names(again.output) == thread_names(whole)
    with load(again.output) as trace:
        assert trace.errors() == {}
        assert trace.query("select count(*) as n from flow") == [{"n": 4}]


def test_a_merged_trace_that_is_a_bare_list_keeps_its_ranks_when_it_is_merged_again(tmp_path):
    files = [write(tmp_path / f"rank{rank}.json", [cpu(rank)]) for rank in (0, 1, 2)]
    merge_traces(tmp_path / "list.json", *files[:2], as_list=True, sources=["a"])
    report = merge_traces(tmp_path / "out.json", tmp_path / "list.json", files[2])
    assert (report.ranks, report.num_events) == ([0, 1, 2], 3)
    assert sorted(span["pid"] for span in spans(report.output)) == [0, 1, 2]
    merged = json.loads(report.output.read_text())
    assert [file["name"] for file in merged["kinetoscope"]["files"]] == ["rank0.json", "rank1.json", "rank2.json"]
    assert not [event for event in merged["traceEvents"] if event["name"] == "kinetoscope_header"]


def test_merged_list_has_composers_metadata_once_even_after_a_second_merge(tmp_path):
    files = [write(tmp_path / f"rank{rank}.json", [cpu(rank)]) for rank in (0, 1)]
    merge_traces(tmp_path / "list.json", *files, as_list=True)
    merge_traces(tmp_path / "list.json", tmp_path / "list.json", as_list=True)
    events = json.loads((tmp_path / "list.json").read_text())
    assert all("pid" in event and "tid" in event for event in events)
    ranks = [(event["pid"], event["args"]["value"]) for event in events if event["name"] == "global_rank"]
    assert ranks == [(0, 0), (1, 1)]
    syncs = [event for event in events if event["name"] == "clock_sync_timestamp_us"]
    assert [event["pid"] for event in syncs] == [0, 1]
    assert {event["args"]["value"] for event in syncs} == {-events[0]["args"]["baseTimeNanoseconds"] // 1000}


def test_ranks_that_composer_merged_stay_apart_when_they_are_merged_again(tmp_path):
    events = [
        event
        for rank in (0, 1)
        for event in (
            {"ph": "M", "name": "thread_sort_index", "pid": rank, "tid": 7, "args": {"sort_index": 99999}},
            {"ph": "M", "name": "global_rank", "pid": rank, "tid": 7, "args": {"value": rank}},
            {"ph": "M", "name": "clock_sync_timestamp_us", "pid": rank, "tid": 7, "args": {"value": 1000 + rank}},
            {"ph": "X", "name": "work", "pid": rank, "tid": 7, "ts": 1.7e15 + rank, "dur": 2},
        )
    ]
    (tmp_path / "composers.json").write_text(json.dumps(events))
    report = merge_traces(tmp_path / "out.json", tmp_path / "composers.json")
    assert report.ranks == [0, 1]
    first, second = spans(report.output)
    assert [(span["pid"], span["tid"]) for span in (first, second)] == [(0, 7), (1, 7)]
    assert round(1000 * (second["ts"] - first["ts"])) == 1000


def test_a_cycle_added_to_a_merged_trace_lands_on_the_tracks_of_its_rank(tmp_path):
    first = write(tmp_path / "a-rank0.json", [cpu(1), kernel(1)])
    second = write(tmp_path / "b-rank0.json", [cpu(100), kernel(100)])
    merged = merge_traces(tmp_path / "merged.json", first).output
    merge_traces(merged, merged, second)
    tracks = {span["name"]: set() for span in spans(merged)}
    for span in spans(merged):
        tracks[span["name"]].add((span["pid"], span["tid"]))
    assert all(len(where) == 1 for where in tracks.values())
    assert len(spans(merged)) == 4


@pytest.mark.parametrize("tid", [50, 51])
def test_a_file_that_is_still_being_written_is_refused_and_no_output_remains(tmp_path, tid):
    file = write(tmp_path / "rank0.json", [cpu(1)])
    text = file.read_text()

    def on_progress(num_done: int, num_all: int) -> None:
        if 2 * num_done >= num_all:  # after the first pass, before the second
            file.write_text(text.removesuffix("]}") + f", {json.dumps(cpu(2, tid=tid))}]}}")

    with pytest.raises(TraceFileError, match="changed during reading"):
        merge_traces(tmp_path / "out.json", file, on_progress=on_progress)
    assert os.listdir(tmp_path) == ["rank0.json"]


def test_files_of_one_rank_and_one_time_are_reported_as_overlapping(tmp_path):
    first = write(tmp_path / "a-rank0.json", [cpu(0, dur=500), cpu(3_000)])
    second = write(tmp_path / "b-rank0.json", [cpu(250, dur=500)])
    later = write(tmp_path / "c-rank0.json", [cpu(3_000)])
    (note,) = merge_traces(tmp_path / "out.json", first, second, later).notes
    assert note.startswith("a-rank0.json and b-rank0.json are both of rank 0 and overlap in time")


def test_consecutive_cycles_of_a_rank_are_not_reported_as_overlapping(tmp_path):
    files = [write(tmp_path / f"{cycle}-rank0.json", [cpu(cycle * 7_000, dur=4_000)]) for cycle in range(4)]
    assert merge_traces(tmp_path / "out.json", *files).notes == []


def test_progress_ends_where_everything_is_done(tmp_path):
    files = [write(tmp_path / f"rank{rank}.json", [cpu(0)]) for rank in range(3)]
    progress = []
    merge_traces(tmp_path / "merged.json", *files, on_progress=lambda done, total: progress.append((done, total)))
    done, total = progress[-1]
    assert done == total


@pytest.mark.parametrize(
    "args",
    [
        {"name": "n", "overlap_of": 50, "overlap": "many"},
        {"name": "n", "overlap_of": {"a": 1}, "overlap": 10**30},
        {"name": "n", "origin": [[1], {}]},
        {"name": "n", "origin": []},
        {"name": None, "origin": "a", "overlap_of": None},
    ],
)
def test_thread_names_that_resemble_kinetoscopes_do_not_crash(tmp_path, args):
    name = {"ph": "M", "name": "thread_name", "pid": 40, "tid": 50, "args": args}
    report = merge_traces(tmp_path / "out.json", write(tmp_path / "rank0.json", [name, cpu(1), cpu(2, tid=51)]))
    assert len({span["tid"] for span in spans(report.output)}) == 2


def test_nothing_to_merge_is_an_error(tmp_path):
    with pytest.raises(MergeError, match="no trace files"):
        merge_traces(tmp_path / "out.json")


def test_the_output_is_packed_by_name_and_its_mode_obeys_the_umask(tmp_path):
    file = write(tmp_path / "rank0.json", [cpu(1)])
    before = os.umask(0o022)
    try:
        output = merge_traces(tmp_path / "new" / "out.json.gz", file).output
    finally:
        os.umask(before)
    assert json.loads(gzip.decompress(output.read_bytes()))["traceEvents"]
    assert stat.S_IMODE(output.stat().st_mode) == 0o644


def test_composers_files_are_put_on_one_clock_by_the_moment_that_their_ranks_noted(tmp_path):
    for rank, (sync_us, at_us) in enumerate([(1000, 1500), (71_000, 71_500)]):
        events = [
            {"ph": "M", "name": "global_rank", "pid": 5, "tid": 5, "args": {"value": rank}},
            {"ph": "M", "name": "clock_sync_timestamp_us", "pid": 5, "tid": 5, "args": {"value": sync_us}},
            {"ph": "B", "name": "work", "pid": 5, "tid": 5, "ts": at_us},
            {"ph": "E", "name": "work", "pid": 5, "tid": 5, "ts": at_us + 20},
        ]
        (tmp_path / f"{'ab'[rank]}.json").write_text(json.dumps(events))
    merge_traces(tmp_path / "merged.json", tmp_path / "b.json", tmp_path / "a.json", as_list=True)
    merged = json.loads((tmp_path / "merged.json").read_text())
    assert [(event["pid"], event["ts"]) for event in merged if event["ph"] == "B"] == [(0, 1500), (1, 1500)]


@pytest.mark.parametrize("suffix", [".json", ".pftrace"])
def test_however_many_files_are_looked_at_at_a_time_the_merged_trace_is_the_same(tmp_path, suffix):
    files = [write(tmp_path / f"rank{rank}.json", [cpu(ts, f"op {ts}") for ts in range(50)]) for rank in range(9)]
    outputs = [tmp_path / f"merged{num_threads}{suffix}" for num_threads in (1, 3, 4)]
    reports = [merge_traces(output, *files, num_threads=num) for output, num in zip(outputs, (1, 3, 4), strict=True)]
    assert {output.read_bytes() for output in outputs} == {outputs[0].read_bytes()}
    assert {report.num_events for report in reports} == {450}


def test_the_first_of_several_bad_files_is_named_and_no_output_remains(tmp_path):
    files = [write(tmp_path / f"rank{rank}.json", [cpu(0)]) for rank in range(8)]
    files[2].write_bytes(b"")
    files[5].write_bytes(b"")
    progress = []
    with pytest.raises(TraceFileError, match=r"rank2\.json"):
        merge_traces(
            tmp_path / "merged.json", *files, on_progress=lambda done, total: progress.append(done), num_threads=4
        )
    assert progress == sorted(progress)
    assert [path.name for path in tmp_path.iterdir() if "rank" not in path.name] == []


def test_an_overlap_track_comes_right_after_its_own_track_also_if_that_is_the_loops(tmp_path):
    events = [
        {"ph": "X", "name": "ProfilerStep#1", "pid": 7, "tid": 8, "ts": 0, "dur": 100},
        {"ph": "X", "name": "a", "pid": 7, "tid": 8, "ts": 10, "dur": 50},
        {"ph": "X", "name": "b", "pid": 7, "tid": 8, "ts": 20, "dur": 5000},
        {"ph": "X", "name": "c", "pid": 7, "tid": 3, "ts": 20, "dur": 50},
    ]
    output = merge_traces(tmp_path / "out.json", write(tmp_path / "rank0.json", events)).output
    merged = json.loads(output.read_text())["traceEvents"]
    order = sorted(
        (event for event in merged if event["name"] == "thread_sort_index"),
        key=lambda event: event["args"]["sort_index"],
    )
    names = [thread_names(output)[event["pid"], event["tid"]] for event in order]
    assert names == ["thread", "thread 8 (overlap 1)", "thread"]


def test_traces_merge_also_while_python_ends_when_no_thread_can_be_started(tmp_path):
    files = [str(write(tmp_path / f"rank{rank}.json", [cpu(0)])) for rank in range(3)]
    program = (
        "import atexit, sys\n"
        "from kinetoscope.merge.merge_traces import merge_traces\n"
        "atexit.register(lambda: print(merge_traces(*sys.argv[1:]).num_events))"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "merged.json"), *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("3\n", "")


@pytest.mark.parametrize(
    "header",
    [{"baseTimeNanoseconds": 10**19}, {"distributedInfo": {"rank": 1, "world_size": "two"}, "schemaVersion": -1}],
)
def test_foreign_header_fields_do_not_prevent_reading_the_merged_trace(tmp_path, header):
    event = {"ph": "X", "name": "step", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
    (tmp_path / "in.json").write_text(json.dumps(header | {"traceEvents": [event]}))
    merge_traces(tmp_path / "merged.json", tmp_path / "in.json")
    merge_traces(tmp_path / "again.json", tmp_path / "merged.json")
    assert [span["name"] for span in spans(tmp_path / "again.json")] == ["step"]
    validate_header("again.json", json.loads((tmp_path / "again.json").read_text()))
