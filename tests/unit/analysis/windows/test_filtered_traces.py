"""Filtered traces: nothing is concluded from a trace from which most events were removed."""

import json
from itertools import count

import pytest

import kinetoscope
from support.report_consistency import assert_consistent_report, screen
from trainsim import Fault, Settings, simulate

SETTINGS = Settings(num_ranks=1, num_steps=60, faults=(Fault(kind="gc", cost_ns=9_000_000),))


def numbered(folder):
    """Return a run in whose trace host events are numbered, as Kineto does."""
    (path,) = simulate(SETTINGS).write(folder)
    trace, number = json.loads(path.read_text()), count()
    for event in trace["traceEvents"]:
        if event.get("cat") in ("cpu_op", "user_annotation", "python_function"):
            event.setdefault("args", {})["Ev Idx"] = next(number)
    return path, trace


def analyze_sources(path, trace, is_kept):
    trace["traceEvents"] = [event for event in trace["traceEvents"] if is_kept(event)]
    path.write_text(json.dumps(trace))
    return kinetoscope.analyze(path, cache=False)


def is_number(event, name, of, remainder=0):
    number = (event.get("args") or {}).get(name)
    return not isinstance(number, int) or number % of == remainder


def test_no_fault_is_looked_for_where_most_events_were_taken_out(tmp_path):
    path, trace = numbered(tmp_path)
    report = analyze_sources(
        path, trace, lambda event: all(is_number(event, name, 12) for name in ("Ev Idx", "correlation"))
    )
    run = report.run
    assert (run["bound_by"], report.findings, report.is_judged) == ("unknown", [], False)
    assert (run["parts"]["device"], run["flops_per_s"], run["mfu"], run["tensor_core_share"]) == (None,) * 4
    assert run["notes"][0].startswith("rank0.json was filtered after it was recorded")
    assert "No findings, since parts of the trace are unknown: see the notes." in screen(report)
    assert_consistent_report(report)
    before = kinetoscope.analyze(simulate(Settings(num_ranks=1)).write(tmp_path / "before"), cache=False)
    assert kinetoscope.compare(before, report).notes[0] == f"After: {run['notes'][0]}"


@pytest.mark.parametrize(
    "is_kept",
    [
        pytest.param(lambda event: True, id="all"),
        pytest.param(lambda event: is_number(event, "correlation", 2), id="every other launch"),
        pytest.param(lambda event: event.get("cat") != "python_function", id="no stacks"),
        pytest.param(lambda event: not 500 < (event.get("args") or {}).get("Ev Idx", 0) < 2_000, id="a hole"),
    ],
)
def test_a_trace_that_has_most_of_its_events_was_not_thinned_out(is_kept, tmp_path):
    report = analyze_sources(*numbered(tmp_path), is_kept)
    assert report.is_judged
    assert not any("was filtered" in note for note in report.run["notes"])


def test_launches_next_to_all_operators_exclude_those_a_profiler_never_records(tmp_path):
    path, trace = numbered(tmp_path)
    for event in trace["traceEvents"]:
        if isinstance(number := (event.get("args") or {}).get("correlation"), int):
            event["args"]["correlation"] = 40 * number
    report = analyze_sources(path, trace, lambda event: True)
    assert report.is_judged
    assert not any("was filtered" in note for note in report.run["notes"])


def test_files_that_were_thinned_out_are_named_by_one_sentence(tmp_path):
    files = simulate(Settings(num_ranks=3, num_steps=20)).write(tmp_path)
    for path in files:
        trace = json.loads(path.read_text())
        for event, number in zip(trace["traceEvents"], count()):
            event.setdefault("args", {})["Ev Idx"] = 40 * number
            if "correlation" in event["args"]:
                event["args"]["correlation"] *= 40
        path.write_text(json.dumps(trace))
    notes = kinetoscope.analyze(tmp_path, cache=False).run["notes"]
    assert next(note for note in notes if "was filtered" in note).startswith(
        "rank0.json was filtered after it was recorded, as 2 more were:"
    )
