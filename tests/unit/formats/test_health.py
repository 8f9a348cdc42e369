"""formats/health.py: all readers find the same faults of a file, and leave out the same events."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from kinetoscope import analyze, load
from kinetoscope.merge.check import check_trace, repair_trace
from kinetoscope.merge.merge_traces import merge_traces
from support.fork_server import run_command

BASE_NS = 1_790_857_026_000_000_000
FAR_US = 4_321_000_000_000.0


def span(name: str, ts: float, dur: float, cat: str = "cpu_op", **more: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "cat": cat, "pid": 1, "tid": 1, "ts": ts, "dur": dur} | more


def steps(count: int, at_us: float = FAR_US, tid: int = 1) -> list[dict[str, Any]]:
    """Steps of 10 ms with two operators each."""
    found = []
    for step in range(count):
        begin = at_us + step * 10_000
        found.append(span(f"ProfilerStep#{step}", begin, 9_900, "user_annotation", tid=tid))
        found += [span("aten::mm", begin + 100 + 400 * number, 300, tid=tid) for number in range(2)]
    return found


def document(events: list[Any], **header: Any) -> dict[str, Any]:
    return (
        {"baseTimeNanoseconds": BASE_NS, "distributedInfo": {"rank": 0, "world_size": 1}}
        | header
        | {"traceEvents": events}
    )


def written(path: Path, events: list[Any], **header: Any) -> Path:
    path.write_text(json.dumps(document(events, **header)))
    return path


def findings(path: Path) -> dict[str, str]:
    return {finding.kind: finding.text for finding in check_trace(path).findings}


def events_of(path: Path) -> list[dict[str, Any]]:
    return [event for event in json.loads(path.read_bytes())["traceEvents"] if event["ph"] != "M"]


TIMELESS = [span("aten::mm", 0, 0), {"ph": "i", "s": "t", "name": "mark", "pid": 1, "tid": 1, "ts": 0}]
NEGATIVE = [span("never ended", FAR_US + 10, -1), span("backwards", FAR_US + 20, -250.5)]


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize(("bad", "words"), [(TIMELESS, "have lost their time"), (NEGATIVE, "negative duration")])
def test_events_without_a_usable_time_are_named_left_out_and_counted_by_every_reader(tmp_path, bad, words, indent):
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps(document(steps(4) + bad * 3), indent=indent))
    assert words in findings(path)["times"]
    assert "6" in findings(path)["times"]
    repair_trace(path, tmp_path / "repaired.json")
    report = merge_traces(tmp_path / "merged.json", path)
    assert any(note.startswith("rank0.json") and words in note for note in report.notes)
    for output in (tmp_path / "repaired.json", tmp_path / "merged.json"):
        assert "times" not in findings(output)
        assert len(events_of(output)) == len(steps(4))
    trace = load(path, cache=False)
    assert trace.spans.collect().height == len(steps(4))
    assert any(words in repair for repair in trace.repairs)
    run = analyze(path, cache=False).run
    assert any(words in note for note in run["notes"])
    assert run["step_ns"] == 10_000_000


def test_the_number_of_the_first_event_without_a_time_is_named(tmp_path):
    path = written(tmp_path / "rank0.json", steps(2) + TIMELESS)
    assert f"from number {len(steps(2)) + 1} on" in findings(path)["times"]
    assert f"from number {len(steps(2)) + 1} on" in load(path, cache=False).repairs[0]


@pytest.mark.parametrize("others_us", [0.5, 10_000_000])
def test_instant_at_the_start_of_a_trace_is_kept(tmp_path, others_us):
    path = written(tmp_path / "rank0.json", [*TIMELESS, *steps(2, others_us)])
    assert "times" not in findings(path)
    repair_trace(path, tmp_path / "repaired.json")
    assert len(events_of(tmp_path / "repaired.json")) == len(steps(2)) + 2
    assert not load(path, cache=False).repairs


WORDS = {
    "inf": None, "-inf": None, "nan": None, "-nan": None, "NaN": None, "Infinity": None, "-nan(ind)": None,
    "1.#INF": None, "0x1p3": 8.0, ".5": 0.5, "1.": 1.0, "01": 1,
}  # fmt: skip


@pytest.mark.parametrize("indent", [None, 1])
def test_an_event_with_a_number_that_is_not_json_is_kept(tmp_path, indent):
    copies = [
        span("copy", FAR_US + number, 0.5, "gpu_memcpy", args={"x": f"@{number}@"}) for number in range(len(WORDS))
    ]
    text = json.dumps(document(copies), indent=indent)
    for number, word in enumerate(WORDS):
        text = text.replace(f'"@{number}@"', word)
    path = tmp_path / "rank0.json"
    path.write_text(text)
    assert "inf" in findings(path)["events"]
    repair_trace(path, tmp_path / "repaired.json")
    assert [event["args"]["x"] for event in events_of(tmp_path / "repaired.json")] == list(WORDS.values())
    first, *others = (round(event["ts"] * 1000) for event in events_of(tmp_path / "repaired.json"))
    assert [ts - first for ts in others] == [1000 * number for number in range(1, len(WORDS))]
    assert load(path, cache=False).spans.collect().height == len(WORDS)


def packed(documents: list[bytes]) -> bytes:
    return b"".join(map(gzip.compress, documents))


@pytest.mark.parametrize("form", ["objects", "lists", "members", "inside", "between", "indented", "a list between"])
def test_all_documents_of_a_file_are_read(tmp_path, form):
    one, two = steps(3), [event | {"name": "two"} for event in steps(3, FAR_US + 50_000)]
    lists = [json.dumps(events).encode() for events in (one, two)]
    whole = [json.dumps(document(events)).encode() for events in (one, two)]
    middle = whole[0].index(b'"cat"', len(whole[0]) // 2)  # within an event, as where two writers take turns
    between = whole[0].index(b'}, {"ph"', middle) + 1
    content = {
        "objects": b"\n".join(whole),
        "lists": b"\n".join(lists),
        "members": packed(whole),
        "inside": whole[0][:middle] + whole[1] + whole[0][middle:],
        "between": whole[0][:between] + b", " + whole[1] + whole[0][between:],
        "indented": json.dumps(document([*one[:2], document(two), *one[2:]]), indent=1).encode(),
        "a list between": json.dumps(document([*one[:2], two, *one[2:]])).encode(),
    }[form]
    path = tmp_path / ("rank0.json.gz" if form == "members" else "rank0.json")
    path.write_bytes(content)
    assert "2 documents" in " ".join(finding.text for finding in check_trace(path).findings)
    repair_trace(path, tmp_path / "repaired.json")
    assert len(events_of(tmp_path / "repaired.json")) == len(one) + len(two) - (form == "inside")
    trace = load(path, cache=False)
    assert trace.spans.collect().height == len(one) + len(two) - (form == "inside")
    assert any("2 documents" in repair for repair in trace.repairs)


@pytest.mark.parametrize("is_between", [False, True])
@pytest.mark.parametrize("header", [{"baseTimeNanoseconds": BASE_NS + 7}, {"distributedInfo": {"rank": 1}}])
def test_a_document_of_another_rank_or_clock_is_not_mixed_in(tmp_path, header, is_between):
    path = tmp_path / "rank0.json"
    one, other = document(steps(2)), document(steps(2), **header)
    if is_between:
        one["traceEvents"].insert(3, other)
    path.write_text(json.dumps(one) + ("" if is_between else json.dumps(other)))
    assert "was not read" in " ".join(finding.text for finding in check_trace(path).findings)
    assert load(path, cache=False).spans.collect().height == len(steps(2))


def test_times_of_a_document_between_events_keep_all_their_digits(tmp_path):
    whole = document([span("first", 1.5, 1), document([span("inner", 0, 1)]), span("last", 9.5, 1)])
    text = json.dumps(whole).replace('"ts": 0', '"ts": 4321000000000.123')
    (tmp_path / "rank0.json").write_text(text)
    merge_traces(tmp_path / "merged.json", tmp_path / "rank0.json")
    for path in (tmp_path / "rank0.json", tmp_path / "merged.json"):
        times = load(path, cache=False).spans.collect().select("name", "ts").rows()
        assert dict(times)["inner"] == BASE_NS + 4_321_000_000_000_123


def test_fields_behind_the_events_are_no_document(tmp_path):
    path = tmp_path / "rank0.json"
    behind = {"deviceProperties": [{"id": 0, "name": "A"}], "samples": [{"ph": "P", "name": "x", "ts": 1}]}
    path.write_text(json.dumps({"traceEvents": steps(2)} | behind))
    assert set(findings(path)) <= {"clock"}
    assert load(path, cache=False).header["deviceProperties"] == behind["deviceProperties"]


def launched(begin: float, correlation: int) -> list[dict[str, Any]]:
    args = {"correlation": correlation, "device": 0, "stream": 7}
    launch = span("cudaLaunchKernel", begin, 5, "cuda_runtime", args={"correlation": correlation})
    return [launch, span("mm", begin + 9, 100, "kernel", pid=0, tid=7, args=args)]


def test_ranks_that_were_pasted_into_one_file_are_found_by_their_steps(tmp_path):
    path = written(tmp_path / "pasted.json", steps(4) + steps(4, FAR_US + 2_500), distributedInfo=None)
    assert "pasted" in findings(path)["mixed ranks"]
    assert any("pasted" in note for note in analyze(path, cache=False).run["notes"])
    assert "mixed ranks" not in findings(written(tmp_path / "rank0.json", steps(4)))


def test_ranks_that_were_pasted_into_one_file_are_found_by_their_launches(tmp_path):
    ranks = [
        [event for number in range(3) for event in launched(at + 500 * number, number + 1)]
        for at in (FAR_US, FAR_US + 90)
    ]
    assert any(
        "pasted" in note for note in load(written(tmp_path / "a.json", ranks[0] + ranks[1]), cache=False).repairs
    )
    assert not load(written(tmp_path / "b.json", ranks[0]), cache=False).repairs


def test_spans_that_overlap_are_counted_with_the_time_that_is_lost(tmp_path):
    crossing = [span("next", FAR_US + 5_000, 200), span("crossing", FAR_US + 5_100, 250)]
    repairs = load(written(tmp_path / "rank0.json", steps(2) + crossing), cache=False).repairs
    assert any("end after it: 1." in repair and "0.150 ms" in repair for repair in repairs)


def test_records_that_were_dropped_are_a_finding(tmp_path):
    path = written(tmp_path / "rank0.json", steps(2), kinetoscope={"rank": 0, "dropped": 3})
    assert "3 records were dropped" in findings(path)["losses"]


@pytest.mark.parametrize("phase", ["C", "i", "B"])
def test_a_file_that_no_process_writes_did_not_change(tmp_path, phase):
    """The second pass reads an event whose values the first pass noted without its args."""
    events = [span("value", FAR_US + number, 1, ph=phase, args={"value": number}) for number in range(3)]
    path = written(
        tmp_path / "rank0.json", steps(2) + [{k: v for k, v in event.items() if k != "dur"} for event in events]
    )
    repair_trace(path, tmp_path / "repaired.json")
    assert len(events_of(tmp_path / "repaired.json")) == len(steps(2)) + 3


@pytest.mark.parametrize("bad", [TIMELESS, NEGATIVE])
def test_check_exits_with_1_and_summary_with_0(tmp_path, bad):
    path = written(tmp_path / "rank0.json", steps(4) + bad)
    ran = [run_command(verb, path, *more) for verb, more in (("check", []), ("summary", ["--no-cache"]))]
    assert [process.returncode for process in ran] == [1, 0]
    assert all("left out" in " ".join(process.stdout.split()) for process in ran)


HALF, BIDI = "\ud800", "\u202e"


@pytest.mark.parametrize("form", ["object", "list"])
def test_half_a_character_in_any_header_field_is_read_as_text(tmp_path, form):
    unusual = f"x{HALF}{BIDI}y"
    fields = ("traceName", "trace_id", "host_name", unusual)
    header = dict.fromkeys(fields, unusual) | {"deviceProperties": [{"id": 0, "name": unusual}]}
    header["distributedInfo"] = {"rank": 0, "world_size": 1, "backend": unusual, "pg_config": [{"pg_desc": unusual}]}
    header["kinetoscope"] = {"rank": 0, "run_name": unusual, "host": unusual, "notes": [unusual], "start": unusual}
    named = [
        {"ph": "M", "name": "kinetoscope_header", "pid": 1, "tid": 1, "args": {"baseTimeNanoseconds": BASE_NS} | header}
    ]
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps(named + steps(4)) if form == "list" else json.dumps(document(steps(4), **header)))
    assert not {"events", "times"} & set(findings(path))
    repair_trace(path, tmp_path / "repaired.json")
    merge_traces(tmp_path / "merged.json", path)
    assert load(path, cache=False).header["traceName"] == f"x\\ud800{BIDI}y"
    ran = [
        run_command(*verb, path)
        for verb in (
            ["summary", "--no-cache"],
            ["summary", "--no-cache", "--json"],
            ["info", "--no-cache"],
            ["report", "--no-cache", "-o", tmp_path / "report.html"],
        )
    ]
    assert not [process.stderr for process in ran if "Traceback" in process.stderr]
    assert BIDI not in "".join(process.stdout + process.stderr for process in ran)
