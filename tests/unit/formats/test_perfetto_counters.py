"""Groups of the counters of a process in Perfetto traces."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetoscope.merge.merge_traces import merge_traces
from kinetoscope.merge.window import Window
from reference.perfetto_packets import ReferencePerfettoWriter
from reference.rewriting import use_reference
from support.event_strategies import QUIET, places, texts, times, values
from support.trace_processor.trace_processor import load

BASE_NS = 1_790_857_026_000_000_000
NUM_NAMES = 70_000  # more than C notes


def counter(name: str, ts: float, values: Any, **fields: Any) -> dict[str, Any]:
    return {"ph": "C", "name": name, "pid": 40, "tid": 40, "ts": ts, "args": values} | fields


def write(path: Path, events: list[dict[str, Any]]) -> Path:
    return write_text(path, json.dumps(events))


def write_text(path: Path, events: str) -> Path:
    path.write_text(f'{{"baseTimeNanoseconds": {BASE_NS}, "traceEvents": {events}}}')
    return path


def tree(path: Path, rank: int = 0) -> dict[str, list[float]]:
    """Return the counters of a rank; see `LoadedTrace.counters`."""
    with load(path) as trace:
        assert trace.errors() == {}
        return trace.counters(rank)


def merged_tree(folder: Path, *events: dict[str, Any]) -> dict[str, list[float]]:
    return tree(merge_traces(folder / "out.pftrace", write(folder / "rank0.json", list(events))).output)


def test_counters_of_one_subject_are_grouped_and_unchanged_ones_are_a_group_in_it(tmp_path):
    found = merged_tree(
        tmp_path,
        counter("memory/virtual", 1, {"used": 1.5, "free": 8}),
        counter("memory/swap", 1, {"used": 0, "free": 2}),
        counter("memory/virtual", 2, {"used": 2.5, "free": 7}),
        counter("memory/swap", 2, {"used": 0, "free": 2}),
        counter("process", 1, {"percent": 3, "threads": 4}),
        counter("process", 2, {"percent": 5, "threads": 4}),
    )
    assert found == {
        "memory | virtual used": [1.5, 2.5],
        "memory | virtual free": [8, 7],
        "memory | unchanged | swap used": [0, 0],
        "memory | unchanged | swap free": [2, 2],
        "process | percent": [3, 5],
        "process | unchanged | threads": [4, 4],
    }


def test_a_counter_that_is_alone_needs_no_group_unless_it_never_changes(tmp_path):
    found = merged_tree(
        tmp_path,
        counter("cpu", 1, {"percent": 10}),
        counter("cpu", 2, {"percent": 20}),
        counter("gpu/0", 1, {"clock": 10}),
        counter("gpu/0", 2, {"clock": 20}),
        counter("idle", 1, {"value": 0}),
    )
    assert found == {"cpu percent": [10, 20], "gpu/0 clock": [10, 20], "idle | unchanged | value": [0]}


def test_a_number_that_changes_in_a_later_cycle_of_its_rank_counts_as_changing(tmp_path):
    files = [
        write(tmp_path / f"ep0-ba{n}-rank{rank}.json", [counter("memory", n, {"used": used, "free": 1})])
        for n, rank, used in ((1, 0, 5), (2, 0, 6), (3, 1, 5), (4, 1, 5))
    ]
    output = merge_traces(tmp_path / "out.pftrace", *files).output
    assert tree(output, 0) == {"memory | used": [5, 6], "memory | unchanged | free": [1, 1]}
    assert tree(output, 1) == {"memory | unchanged | used": [5, 5], "memory | unchanged | free": [1, 1]}


def test_counters_of_several_processes_in_one_file_of_a_rank_are_its_counters(tmp_path):
    found = merged_tree(tmp_path, counter("a/x", 1, {"n": 1}), counter("a/x", 2, {"n": 2}, pid=50, tid="stream 7"))
    assert found == {"a/x n": [1, 2]}


def test_the_same_number_written_otherwise_is_no_change(tmp_path):
    texts = [json.dumps(counter("a", n, {"n": "?"})).replace('"?"', text) for n, text in enumerate(["1", "1.0", "1e0"])]
    file = write_text(tmp_path / "rank0.json", f"[{','.join(texts)}]")
    assert tree(merge_traces(tmp_path / "out.pftrace", file).output) == {"a | unchanged | n": [1, 1, 1]}


def test_the_same_name_written_otherwise_is_the_same_counter(tmp_path):
    one, other = counter("mémoire/é", 1, {"ü": 1}), counter("mémoire/é", 2, {"ü": 2})
    texts = json.dumps(one, ensure_ascii=False), json.dumps(other).replace("/", "\\/")
    file = write_text(tmp_path / "rank0.json", f"[{texts[0]}, {texts[1]}]")
    assert tree(merge_traces(tmp_path / "out.pftrace", file).output) == {"mémoire/é ü": [1, 2]}


def test_a_value_that_is_no_number_is_no_series(tmp_path):
    found = merged_tree(
        tmp_path,
        counter("a", 1, {"text": "7", "yes": True, "none": None, "list": [1], "inner": {"n": 1}, "n": -1}),
        counter("a", 2, {"text": "8", "yes": False, "none": None, "list": [2], "inner": {"n": 2}, "n": 1}),
        counter("b", 2, {}),
        counter("c", 2, None),
        {"ph": "C", "name": "d", "pid": 40, "tid": 40, "ts": 3},
        {"ph": "C", "name": "e", "pid": 40, "tid": 40, "args": {"n": 1}},
    )
    assert found == {"a n": [-1, 1]}


def test_events_that_need_repair_count_too(tmp_path):
    plain, malformed = json.dumps(counter("a", 1, {"n": 1, "m": 1})), json.dumps(counter("a", 2, {"n": 2, "m": 1}))
    file = write_text(
        tmp_path / "rank0.json", f"[{plain}, {malformed[:-1]}, 'no': JSON}}, {malformed[:-1]}, \"ts\": 3}}]"
    )
    found = tree(merge_traces(tmp_path / "out.pftrace", file).output)
    assert found.keys() == {"a | n", "a | unchanged | m"}


@pytest.mark.parametrize(
    ("name", "path"),
    [("/proc", "/proc | x"), ("proc/", "proc | x"), ("a/b/c", "a | b/c x"), ("", "x"), ("é/ü", "é | ü x")],
)
def test_unusual_names_have_groups_except_the_empty_one(tmp_path, name, path):
    found = merged_tree(tmp_path, counter(name, 1, {"x": 1, "y": 3}), counter(name, 2, {"x": 2, "y": 4}))
    assert found == {path: [1, 2], path[:-1] + "y": [3, 4]}


def test_only_a_window_of_the_trace_has_its_groups(tmp_path):
    step = {"ph": "X", "name": "ProfilerStep#1", "pid": 40, "tid": 40, "ts": 2, "dur": 2}
    events = [step, *(counter("a", n, {"n": n, "m": 0}) for n in range(6))]
    file = write(tmp_path / "rank0.json", events)
    report = merge_traces(tmp_path / "out.pftrace", file, window=Window(first_batch=1, last_batch=1))
    assert tree(report.output) == {"a | n": [2, 3, 4], "a | unchanged | m": [0, 0, 0]}


def test_with_very_many_counters_all_are_in_the_groups_of_their_subjects(tmp_path):
    file = write(tmp_path / "rank0.json", [counter(f"s/{n}", n, {"x": 1}) for n in range(NUM_NAMES)])
    found = tree(merge_traces(tmp_path / "out.pftrace", file).output)
    assert len(found) == NUM_NAMES
    assert found["s | 0 x"] == [1]


Message = dict[int, list[Any]]


def message(packed: bytes) -> Message:
    """Return the fields of a protobuf message, by their numbers."""
    found: Message = {}
    at = 0

    def varint() -> int:
        nonlocal at
        number = shift = 0
        while True:
            number |= (packed[at] & 127) << shift
            at, shift = at + 1, shift + 7
            if packed[at - 1] < 128:
                return number

    while at < len(packed):
        tag = varint()
        if tag & 7 == 0:
            found.setdefault(tag >> 3, []).append(varint())
            continue
        size = 8 if tag & 7 == 1 else varint()
        found.setdefault(tag >> 3, []).append(packed[at : at + size])
        at += size
    return found


def counters_in(packed: bytes) -> tuple[set[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Return each described counter and group with its parent and name; and each number with its time and counter."""
    packets = [message(packet) for packet in message(packed)[1]]
    tracks = [message(packet[60][0]) for packet in packets if 60 in packet]
    values = [(packet[8][0], message(packet[11][0])) for packet in packets if 11 in packet]
    described = {(track[1][0], track[5][0], track[2][0], 8 in track) for track in tracks if 2 in track}
    assert len(described) == len({uuid for uuid, *_ in described})
    return described, sorted((ts, *event[11], *event[44]) for ts, event in values if event[9] == [4])


short = st.builds(lambda digits, behind: digits / 10**behind, st.integers(-(10**17), 10**17), st.integers(0, 17))
numbers = st.integers(-2, 2) | st.integers() | short | st.floats(allow_nan=False, allow_infinity=False)
counter_events = st.builds(
    lambda name, args, fields: {"ph": "C", "name": name, "args": args} | fields,
    st.sampled_from(["a", "a/b", "a/", "/", "", "cpu", "é/\\/x", "b/\u0000"]) | texts,
    st.dictionaries(texts | st.sampled_from(["x", "y"]), numbers | values, max_size=3),
    st.fixed_dictionaries({"pid": places, "tid": places}, optional={"ts": times}),
)


@QUIET
@given(st.lists(st.lists(counter_events, max_size=12), min_size=1, max_size=3), st.booleans())
def test_any_counters_are_written_as_the_reference_does(tmp_path, monkeypatch, cycles, ensure_ascii):
    for number, events in enumerate(cycles):
        text = json.dumps(events, ensure_ascii=ensure_ascii).encode(errors="surrogatepass")
        header = f'{{"baseTimeNanoseconds": {BASE_NS}, "traceEvents": '.encode()
        (tmp_path / f"ba{number}-rank3.json").write_bytes(header + text + b"}")
    files = [tmp_path / f"ba{number}-rank3.json" for number in range(len(cycles))]
    found = counters_in(merge_traces(tmp_path / "out.pftrace", *files).output.read_bytes())
    with monkeypatch.context() as patch:
        use_reference(patch)
        assert found == counters_in(merge_traces(tmp_path / "out.pftrace", *files).output.read_bytes())


def test_a_writer_describes_counters_that_were_not_surveyed_before(tmp_path):
    with (tmp_path / "out.pftrace").open("wb") as stream:
        writer = ReferencePerfettoWriter(stream)
        for n in (1, 2):
            writer.write([counter("memory/swap", BASE_NS + n, {"used": n, "free": 1}, pid=0)])
        writer.write([{"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "rank 0"}}])
    assert tree(tmp_path / "out.pftrace") == {"memory | swap used": [1, 2], "memory | swap free": [1, 1]}
