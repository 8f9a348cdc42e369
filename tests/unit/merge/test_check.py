"""merge/check.py: a damaged trace becomes valid, nothing else is changed, and memory does not grow with the file."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given

from kinetoscope.core.clock.clock import GRID_NS
from kinetoscope.errors import SettingsError, TraceFileError
from kinetoscope.formats.chrome import read_chrome
from kinetoscope.merge.check import FileCheck, check_trace, compare_checks, repair_trace
from reference.rewriting import use_reference
from support.event_strategies import BASE_NS, QUIET, events
from support.trace_processor.trace_processor import load

OUR_BASE_NS = 795 * GRID_NS  # a base of ours stays
MAX_BYTES = 150_000_000
PEAK = """
import re, sys
from pathlib import Path
from kinetoscope.merge.check import repair_trace
repair_trace(*sys.argv[1:])
print(1024 * int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]))
"""


def span(ts: float, dur: float = 5, **more: object) -> dict[str, Any]:
    return {"ph": "X", "name": "a", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": ts, "dur": dur} | more


def repaired(folder: Path, trace: object, cut: int = 0) -> dict[str, Any]:
    text = json.dumps(trace).encode()
    (folder / "in.json").write_bytes(text[: len(text) - cut])
    repair_trace(folder / "in.json", folder / "out.json")
    return json.loads((folder / "out.json").read_bytes())


def test_pids_tids_ids_names_and_unknown_fields_are_unmodified(tmp_path):
    trace = {
        "baseTimeNanoseconds": OUR_BASE_NS,
        "deviceProperties": [{"id": 0, "name": "A100"}],
        "anything": {"of": ["others"]},
        "traceEvents": [
            {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "args": {"name": "python", "more": 1}},
            {"ph": "M", "name": "thread_name", "pid": "Spans", "tid": "PyTorch Profiler", "args": {"name": "p"}},
            span(1, pid="7", tid="stream 3", made_by="somebody", args={"Input Dims": [[4, 8]]}),
            {"ph": "s", "id": 900, "pid": 7, "tid": 8, "ts": 1, "cat": "ac2g", "name": "ac2g"},
            span(1, pid=7, tid=8),
            span(1, pid=0, tid=9),
            {"ph": "f", "id": 900, "pid": 0, "tid": 9, "ts": 2, "cat": "ac2g", "name": "ac2g", "bp": "e"},
            {"ph": "b", "id": "0x1f", "cat": "x", "name": "request", "ts": 3, "pid": 7},
            {"ph": "i", "name": "of no process", "ts": 4, "s": "g"},
        ],
        "traceName": "rank0.json",
    }
    result = repaired(tmp_path, trace, cut=len('], "traceName": "rank0.json"}') - 1)
    kept = {key: value for key, value in trace.items() if key not in ("traceEvents", "traceName")}
    assert kept.items() <= result.items()
    assert result["traceEvents"] == trace["traceEvents"]


@pytest.mark.parametrize(("base_ns", "digits"), [(BASE_NS + 123_456_789, ""), (0, "179085702612345")])
def test_repair_does_not_change_times(tmp_path, base_ns, digits):
    """Times from a base or from 1970, with more digits than a double has. The written times fit viewers' doubles."""
    spans = ", ".join(
        f'{{"ph": "X", "name": "a", "ts": {digits}{fraction}, "dur": 1}}' for fraction in ("6.789", "7.001")
    )
    (tmp_path / "in.json").write_text(f'{{"baseTimeNanoseconds": {base_ns}, "traceEvents": [{spans}]')
    repair_trace(tmp_path / "in.json", tmp_path / "out.json")
    first_ns = (base_ns or BASE_NS + 123_450_000) + 6_789
    assert [event["ts"] for event in read_chrome(tmp_path / "out.json").events] == [first_ns, first_ns + 212]
    result = json.loads((tmp_path / "out.json").read_bytes())
    assert 0 <= result["traceEvents"][0]["ts"] < 2**42
    assert result["baseTimeNanoseconds"] % GRID_NS == 0


def test_a_trace_without_a_clock_gets_none(tmp_path):
    result = repaired(tmp_path, [span(1.5), span(10.5)], cut=1)
    assert [event["ts"] for event in result["traceEvents"]] == [1.5, 10.5]
    assert [finding.kind for finding in check_trace(tmp_path / "out.json").findings] == ["clock"]


def test_times_that_viewers_drop_move_by_full_seconds(tmp_path):
    (tmp_path / "in.json").write_text(json.dumps([span(-1_500_000.25), span(10.5)]))
    done = repair_trace(tmp_path / "in.json", tmp_path / "out.json").repairs
    assert done == ["All times moved by +2 s, so that viewers take them."]
    events = json.loads((tmp_path / "out.json").read_bytes())["traceEvents"]
    assert [event["ts"] for event in events] == [499_999.75, 2_000_010.5]


@pytest.mark.parametrize(("fraction", "kinds"), [(0.5, ["clock", "times"]), (0, ["clock"])])
def test_times_far_from_where_they_count_from_are_right_in_whole_microseconds_only(tmp_path, fraction, kinds):
    (tmp_path / "in.json").write_text(json.dumps([span(2**44 + fraction)]))
    assert [finding.kind for finding in check_trace(tmp_path / "in.json").findings] == kinds


def test_only_spans_that_overlap_are_moved(tmp_path):
    trace = {"baseTimeNanoseconds": OUR_BASE_NS, "traceEvents": [span(0, 500), span(250, 500, name="b"), span(900)]}
    result = repaired(tmp_path, trace)
    first, second, third, *names = result["traceEvents"]
    assert (first, third) == (span(0, 500), span(900))
    assert (second["pid"], second["ts"], second["dur"]) == (1, 250, 500)
    assert names[0]["args"]["name"] == "thread 1 (overlap 1)"
    assert names[0]["tid"] == second["tid"] != 1
    assert check_trace(tmp_path / "out.json").findings == []
    with load(tmp_path / "out.json") as loaded:
        assert loaded.errors() == {}
        assert loaded.query("select count(*) as n from slice") == [{"n": 3}]


@pytest.mark.parametrize("name", [["a"], {"b": "c"}, None, True, 7, 2.5])
def test_the_note_of_a_moved_span_is_valid_json_if_the_other_spans_name_is_no_string(tmp_path, name):
    trace = {"baseTimeNanoseconds": BASE_NS, "traceEvents": [span(0, 500, name=name), span(250, 500)]}
    first, moved, *_ = repaired(tmp_path, trace)["traceEvents"]
    assert first["name"] == name
    assert moved["args"]["kinetoscope"] == "moved from thread 1 to overlap 1: it overlaps another span"


def test_a_moved_span_has_one_note_with_the_track_where_it_ended_up(tmp_path):
    tasks = [span(10 * number, 10_000, name=f"task {number}") for number in range(40)]
    trace = {"baseTimeNanoseconds": BASE_NS, "traceEvents": tasks}
    result = repaired(tmp_path, trace)
    notes = [event["args"]["kinetoscope"] for event in result["traceEvents"] if event["ph"] == "X" and "args" in event]
    assert notes == [f"moved from thread 1 to overlap {k}: it overlaps task 0" for k in range(1, 40)]
    names = {event["tid"]: event["args"]["name"] for event in result["traceEvents"] if event["name"] == "thread_name"}
    assert names[result["traceEvents"][39]["tid"]] == "thread 1 (overlap 39)"
    again = repair_trace(tmp_path / "in.json", tmp_path / "out.json")
    assert again.repairs == ["Spans cut so that all nest: 0; moved: 39."]


def test_a_note_names_the_overlap_track_by_its_number_where_others_were_there_before(tmp_path):
    overlap = {"name": "thread 1 (overlap 1)", "overlap_of": 1, "overlap": 1}
    trace = {"baseTimeNanoseconds": BASE_NS}
    trace["traceEvents"] = [
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 16777217, "args": overlap},
        span(0, 500, tid=16777217),
        span(0, 500),
        span(250, 500),
    ]
    moved = repaired(tmp_path, trace)["traceEvents"][3]
    assert moved["args"]["kinetoscope"] == "moved from thread 1 to overlap 2: it overlaps a"


def test_file_that_claims_to_be_of_kinetoscope_is_nested_too(tmp_path):
    trace = {"baseTimeNanoseconds": BASE_NS, "kinetoscope": {"rank": 3}}
    trace["traceEvents"] = [span(0, 500), span(250, 500)]
    repaired(tmp_path, trace)
    assert [finding.kind for finding in check_trace(tmp_path / "in.json").findings] == ["nesting"]
    assert check_trace(tmp_path / "out.json").findings == []


def test_repair_says_what_was_wrong_what_was_done_and_what_is_left(tmp_path):
    trace = {"traceEvents": [span(0, 500), span(250, 500), {"ph": "E", "pid": 1, "tid": 2, "ts": 3}]}
    (tmp_path / "in.json").write_text(json.dumps(trace)[:-1])
    result = repair_trace(tmp_path / "in.json", tmp_path / "out.json")
    assert [finding.kind for finding in result.check.findings] == ["syntax", "clock", "nesting", "pairs"]
    assert result.repairs[-1] == "Spans cut so that all nest: 0; moved: 1."
    assert [finding.kind for finding in result.unrepaired] == ["clock", "pairs"]


def test_file_is_repaired_in_place_and_compressed_by_its_suffix(tmp_path):
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": [span(n * 10) for n in range(2000)]}).encode())[:-2000])
    repair_trace(path, path)
    assert len(json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]) > 10
    assert os.listdir(tmp_path) == ["rank0.json.gz"]


@pytest.mark.parametrize("content", [b"", b"\x89PNG\r\n", b'{"a": 1}', b'{"traceEvents": [{"ph"'])
def test_nothing_is_written_if_nothing_can_be_read(tmp_path, content):
    (tmp_path / "in.json").write_bytes(content)
    with pytest.raises(TraceFileError, match=r"in\.json"):
        repair_trace(tmp_path / "in.json", tmp_path / "out.json")
    assert os.listdir(tmp_path) == ["in.json"]


def test_perfettos_format_is_refused(tmp_path):
    (tmp_path / "in.json").write_text(json.dumps([span(1)]))
    with pytest.raises(SettingsError, match="JSON"):
        repair_trace(tmp_path / "in.json", tmp_path / "out.pftrace")


TWO_RANKS = [{"ph": "X", "ts": 0.0, "name": "ProfilerStep#3", "cat": "cpu_op", "dur": dur} for dur in (1.001, 0.001)]


@QUIET
@given(events)
@example(TWO_RANKS)
def test_any_events_are_repaired_as_by_the_reference(tmp_path, monkeypatch, events):
    (tmp_path / "in.json").write_text(json.dumps({"baseTimeNanoseconds": BASE_NS, "traceEvents": events}))
    repaired = repaired_trace(tmp_path)
    with monkeypatch.context() as patch:
        use_reference(patch)
        assert repaired == repaired_trace(tmp_path)


def repaired_trace(folder):
    """Return the notes and the repaired trace, or the error."""
    try:
        repaired = repair_trace(folder / "in.json", folder / "out.json")
    except TraceFileError as error:  # no event has a phase
        return str(error)
    assert {fault.kind for fault in check_trace(folder / "out.json").findings} <= {"pairs", "clock", "mixed ranks"}
    return repaired.repairs, json.loads((folder / "out.json").read_bytes(), parse_constant=pytest.fail)


def test_events_hidden_by_viewers_give_a_file_no_clock(tmp_path):
    """Found by `make fuzz`."""
    shown = {"ph": "b", "id": "0x1", "cat": "x", "ts": 10**15}
    (tmp_path / "in.json").write_text(json.dumps([shown, {"ph": "b", "cat": "x", "ts": 10**15 + 1}]))
    repair = repair_trace(tmp_path / "in.json", tmp_path / "out.json")
    written = json.loads((tmp_path / "out.json").read_bytes())
    assert written["baseTimeNanoseconds"] == 0
    assert [event["ts"] for event in written["traceEvents"]] == [10**15]
    assert "clock" in {finding.kind for finding in repair.check.findings}


def test_memory_does_not_grow_with_the_file(tmp_path):
    """The file is cut, and has overlaps and quotes that are not escaped: everything that makes a reader keep data."""
    pytest.importorskip("kinetoscope._native")
    write_large_damaged_trace(tmp_path / "in.json", 40_000_000)
    done = subprocess.run(
        [sys.executable, "-c", PEAK, tmp_path / "in.json", tmp_path / "out.json"],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert int(done.stdout) < MAX_BYTES
    assert (tmp_path / "out.json").stat().st_size > 30_000_000


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak from Linux")
def test_memory_does_not_grow_with_the_square_of_spans_that_overlap(tmp_path):
    pytest.importorskip("kinetoscope._native", reason="Python is too slow for so many")
    num_spans = 8_000
    spans = [span(number, 2 * num_spans, cat="user_annotation") for number in range(num_spans)]
    (tmp_path / "in.json").write_text(json.dumps(spans))
    peak = subprocess.run(
        [sys.executable, "-c", PEAK, tmp_path / "in.json", tmp_path / "out.json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(peak.stdout) < MAX_BYTES
    assert {finding.kind for finding in check_trace(tmp_path / "out.json").findings} <= {"clock"}


def write_large_damaged_trace(path: Path, size_bytes: int) -> None:
    """Write events of 250 bytes; one in a hundred overlaps the one before, one in ten thousand is no JSON."""
    args = {"External id": 1, "Input Dims": [[64, 64], [64, 64]], "Input type": ["float", "float"], "more": "x" * 60}
    short, long = (json.dumps(span(-1, dur, args=args), indent=1) + ",\n" for dur in (5, 30))
    with path.open("w") as file:
        size = file.write(json.dumps({"baseTimeNanoseconds": BASE_NS})[:-1] + ', "traceEvents": [\n')
        number = 0
        while size < size_bytes:
            name = 'say "hello"' if number % 10_000 == 9_999 else "aten::mm"
            line = (long if number % 100 == 99 else short).replace("-1", f"{10 * number}")
            size += file.write(line.replace('"a"', f'"{name}"', 1))
            number += 1


@pytest.mark.parametrize("base_ns", [10**19, 2**64, -1, "soon", 1e300])
def test_a_base_that_is_no_unix_time_does_not_count_as_a_clock(tmp_path, base_ns):
    result = repaired(tmp_path, {"baseTimeNanoseconds": base_ns, "traceEvents": [span(1.5)]}, cut=1)
    assert [event["ts"] for event in result["traceEvents"]] == [1.5]
    assert [finding.kind for finding in check_trace(tmp_path / "out.json").findings] == ["clock"]


@pytest.mark.parametrize("first", [1.5, -1.5])
def test_a_repair_does_not_make_a_far_time_one_that_viewers_round(tmp_path, first):
    """From the file's own base, 32 years are a whole number of microseconds; from one of ours they are not."""
    result = repaired(tmp_path, {"baseTimeNanoseconds": 10**18, "traceEvents": [span(first), span(10**15)]})
    first_event, far = result["traceEvents"]
    assert far["ts"] - first_event["ts"] == 10**15 - first
    assert check_trace(tmp_path / "out.json").findings == []


@pytest.mark.parametrize("wrong", ['"xx":1.5', '"ts":"x"'])
@pytest.mark.parametrize("phase", ["X", "Z"])
def test_event_left_out_of_a_repair_is_not_confused_with_one_of_equal_length(tmp_path, wrong, phase):
    good = json.dumps(span(1.5), separators=(",", ":"))
    bad = good.replace('"ts":1.5', wrong).replace('"ph":"X"', f'"ph":"{phase}"')
    (tmp_path / "in.json").write_text(f'{{"traceEvents": [{good}, {bad}, {good}]}}')
    repair_trace(tmp_path / "in.json", tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_bytes())["traceEvents"] == [span(1.5), span(1.5)]


def test_step_with_an_unusual_pid_is_a_step_of_its_file(tmp_path):
    result = repaired(tmp_path, {"traceEvents": [span(1, name="ProfilerStep#3", pid={"a": 1}, tid=[2])]})
    assert (result["traceEvents"][0]["pid"], result["traceEvents"][0]["tid"]) == ("{'a': 1}", "[2]")


def test_bare_list_of_kinetoscope_becomes_an_object_with_its_header(tmp_path):
    header = {
        "ph": "M",
        "name": "kinetoscope_header",
        "args": {"baseTimeNanoseconds": BASE_NS, "kinetoscope": {"rank": 5}},
    }
    result = repaired(tmp_path, [header, span(1)], cut=1)
    assert (result["kinetoscope"], len(result["traceEvents"])) == ({"rank": 5}, 1)
    assert (check_trace(tmp_path / "out.json").ranks, check_trace(tmp_path / "in.json").num_events) == ([5], 1)


def flow(phase: str, number: int, ts: float, **more: object) -> dict[str, Any]:
    return {"ph": phase, "bp": "e", "id": number, "cat": "ac2g", "name": "ac2g", "pid": 1, "tid": 1, "ts": ts} | more


@pytest.mark.parametrize("phase", ["\ufffd", "é"])
def test_repair_writes_a_trace_even_without_a_valid_phase(tmp_path, phase):
    repaired(tmp_path, [{"ph": "s", "pid": 1, "tid": 1}, {"ph": phase, "pid": 1, "tid": 1, "ts": 2}])
    assert {finding.kind for finding in check_trace(tmp_path / "out.json").findings} <= {"clock"}


def test_flows_that_end_before_their_start_keep_their_ids_next_to_a_duplicate_start(tmp_path):
    """As in every GPU trace of Kineto's: first the kernels, then the launches."""
    ends = [flow("f", number, 2) for number in reversed(range(1000))]
    begins = [flow("s", number, 2) for number in (*range(1000), 5)]
    result = repaired(tmp_path, [span(1), *ends, *begins, flow("f", 5, 3)], cut=1)
    ids = [event["id"] for event in result["traceEvents"][1:]]
    assert ids[:2000] == [*reversed(range(1000)), *range(1000)]
    assert ids[2000] == ids[2001] != 5


def test_flow_that_starts_twice_gets_a_new_id_after_many_flows_without_spans(tmp_path):
    num_hidden = 100_000
    hidden = [flow("s", number, 1, tid=2) for number in range(num_hidden)]
    shown = [span(1), *(flow("s", 200_000, 2) for _ in range(3))]
    result = repaired(tmp_path, [*hidden, *shown], cut=1)
    first, second, third = (event["id"] for event in result["traceEvents"][1:])
    assert first == 200_000
    assert len({first, second, third}) == 3


@pytest.mark.parametrize(("world_size", "missing"), [(4, "1"), (10**15, "1, 4-999999999999999")])
def test_ranks_without_a_file_are_listed_in_ranges_for_any_number_of_ranks(world_size, missing):
    checks = [FileCheck(f"rank{rank}.json", [rank], world_size) for rank in (0, 2, 3)]
    assert [found.text for found in compare_checks(checks)] == [f"Ranks without a file here: {missing}."]
