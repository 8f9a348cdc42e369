"""merge/window.py and the choice of ranks: a part of the traces is kept completely, the rest is left out."""

import json
from pathlib import Path

import pytest

from kinetoscope.errors import MergeError, SettingsError
from kinetoscope.merge.merge_traces import merge_traces
from kinetoscope.merge.window import Window
from support.trace_processor.trace_processor import load

BASE_NS = 1_790_857_026_000_000_000


def step(number: int, ts: float) -> list[dict]:
    """Return a step of a millisecond with an op, a launch and its kernel, and a pair of B and E over its end."""
    place = {"pid": 40, "tid": 40}
    return [
        {"ph": "X", "name": f"ProfilerStep#{number}", "cat": "user_annotation", "ts": ts, "dur": 1000} | place,
        {"ph": "X", "name": f"op {number}", "cat": "cpu_op", "ts": ts + 100, "dur": 100} | place,
        {"ph": "s", "id": number, "cat": "ac2g", "name": "ac2g", "ts": ts + 100} | place,
        {"ph": "X", "name": f"kernel {number}", "cat": "kernel", "pid": 0, "tid": 7, "ts": ts + 400, "dur": 100},
        {"ph": "f", "id": number, "cat": "ac2g", "name": "ac2g", "bp": "e", "pid": 0, "tid": 7, "ts": ts + 400},
        {"ph": "B", "name": f"pair {number}", "cat": "old", "pid": 40, "tid": 41, "ts": ts + 900},
        {"ph": "E", "pid": 40, "tid": 41, "ts": ts + 1500},
    ]


def write(path: Path, begin_us: float = 0, num_steps: int = 6) -> Path:
    events = [event for number in range(num_steps) for event in step(number, begin_us + 2000 * number)]
    path.write_text(json.dumps({"baseTimeNanoseconds": BASE_NS, "traceEvents": events}))
    return path


def names(path: Path) -> list[str]:
    events = json.loads(path.read_text())["traceEvents"]
    return [event["name"] for event in events if event["ph"] in "XB"]


def test_batches_keep_their_spans_on_each_rank_and_nothing_else(tmp_path):
    files = [write(tmp_path / f"rank{rank}.json", 777 * rank) for rank in (0, 1)]
    output = merge_traces(tmp_path / "out.json", *files, window=Window(first_batch=2, last_batch=3)).output
    once = [f"{what} {n}" for n in (2, 3) for what in ("op", "kernel", "pair")] + ["ProfilerStep#2", "ProfilerStep#3"]
    assert sorted(names(output)) == sorted(once * 2)
    with load(output) as trace:
        assert trace.errors() == {}
        assert trace.query("select count(*) as n from flow") == [{"n": 4}]


def test_a_pair_is_kept_or_left_out_as_a_whole(tmp_path):
    file = write(tmp_path / "rank0.json")
    output = merge_traces(tmp_path / "out.json", file, window=Window(first_batch=2, last_batch=3)).output
    phases = [event["ph"] for event in json.loads(output.read_text())["traceEvents"] if event["ph"] in "BE"]
    assert phases == ["B", "E", "B", "E"]


def test_the_last_seconds_end_with_the_last_span_of_all_ranks(tmp_path):
    files = [write(tmp_path / "rank0.json"), write(tmp_path / "rank1.json", 4000)]
    output = merge_traces(tmp_path / "out.json", *files, window=Window(last_s=0.0009)).output
    assert names(output) == ["ProfilerStep#5", "op 5", "kernel 5", "pair 5"]


def test_batches_that_no_rank_has_are_an_error(tmp_path):
    with pytest.raises(MergeError, match="batches 70 to 80"):
        merge_traces(
            tmp_path / "out.json", write(tmp_path / "rank0.json"), window=Window(first_batch=70, last_batch=80)
        )


def test_a_window_is_either_batches_or_seconds():
    with pytest.raises(SettingsError, match="pass one of them"):
        Window(first_batch=1, last_batch=2, last_s=1.0)
    with pytest.raises(SettingsError, match="pass one of them"):
        Window(first_batch=1)


def test_only_the_ranks_that_are_asked_for_are_merged(tmp_path):
    files = [write(tmp_path / f"rank{rank}.json") for rank in range(4)]
    report = merge_traces(tmp_path / "out.json", *files, ranks=[1, 3])
    assert report.ranks == [1, 3]
    with pytest.raises(MergeError, match="rank 9"):
        merge_traces(tmp_path / "out.json", *files, ranks=[9])


def test_a_rank_taken_out_of_a_merged_trace_has_exactly_the_events_that_went_in(tmp_path):
    files = [write(tmp_path / f"rank{rank}.json", 777 * rank) for rank in range(3)]
    merged = merge_traces(tmp_path / "merged.json", *files).output
    for rank, file in enumerate(files):
        alone = merge_traces(tmp_path / "alone.json", merged, ranks=[rank])
        assert alone.ranks == [rank]
        assert meaning(alone.output) == meaning(file)


def meaning(path: Path) -> list[dict]:
    """Return the events on unix time, without pids, tids and ids, which merging chooses."""
    trace = json.loads(path.read_text())
    events = [event for event in trace["traceEvents"] if event["ph"] != "M"]
    first = {event["id"]: index for index, event in enumerate(events) if event.get("ph") == "s"}
    return [
        {key: value for key, value in event.items() if key not in ("pid", "tid")}
        | {"ts": trace["baseTimeNanoseconds"] + round(event["ts"] * 1000)}
        | ({"id": first[event["id"]]} if "id" in event else {})
        for event in events
    ]


def test_fields_next_to_the_events_and_unknown_ones_in_them_are_kept(tmp_path):
    file = tmp_path / "rank0.json"
    event = {"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1, "tts": 5, "mine": [1, {"x": None}]}
    text = json.dumps({"baseTimeNanoseconds": BASE_NS, "deviceProperties": [{"id": 0}], "traceEvents": [event]})
    file.write_text(text[:-1] + ', "traceName": "t"}')
    trace = json.loads(merge_traces(tmp_path / "out.json", file).output.read_text())
    (written,) = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert (written["tts"], written["mine"]) == (5, [1, {"x": None}])
    (kept,) = trace["kinetoscope"]["files"]
    assert kept["name"] == "rank0.json"
    assert (kept["header"]["deviceProperties"], kept["header"]["traceName"]) == ([{"id": 0}], "t")
