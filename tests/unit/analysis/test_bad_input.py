"""Missing or wrong data in traces is reported in a sentence, and no number is made up from it."""

import gzip
import json
import tracemalloc

import pytest

import kinetoscope
from kinetoscope.errors import MergeError, SettingsError, TraceFileError
from trainsim import Settings, simulate

HOURS_NS = 3 * 3_600_000_000_000


def analyse(*paths, **settings):
    return kinetoscope.analyze(paths, cache=False, **settings)


def traces(folder, **settings):
    return simulate(Settings(num_steps=3, **settings)).write(folder)


def changed(path, change):
    """Return a trace in which ``change`` has changed the object that the file holds."""
    trace = json.loads(path.read_text())
    change(trace)
    path.write_text(json.dumps(trace))
    return path


def without(path, is_unwanted):
    def remove(trace):
        trace["traceEvents"] = [event for event in trace["traceEvents"] if not is_unwanted(event)]

    return changed(path, remove)


def with_clock_behind(path):
    def move(trace):
        trace["baseTimeNanoseconds"] -= HOURS_NS

    return changed(path, move)


def has_note(report, text):
    return any(text in note for note in report.run["notes"])


def test_without_steps_the_report_says_what_a_step_is(tmp_path):
    first, second = traces(tmp_path)
    for path in (first, second):
        without(path, lambda event: "ProfilerStep" in event["name"])
    report = analyse(first, second)
    assert has_note(report, "No step was found: steps are spans called ProfilerStep#n")
    assert report.steps == report.stragglers == report.findings == []
    assert all(row.busy_ns for row in report.ranks)


def test_unknown_step_name_is_reported(tmp_path):
    (path,) = traces(tmp_path)[:1]
    report = kinetoscope.analyze(path, step="train", cache=False)
    assert has_note(
        report, "No step was found: no span of a thread is called train, with or without a number after it."
    )


def test_unknown_name_is_reported_with_a_similar_span_name(tmp_path):
    (path,) = traces(tmp_path)[:1]
    trace = json.loads(path.read_text())
    trace["traceEvents"].append({"ph": "X", "pid": 1, "tid": 1, "ts": trace["traceEvents"][-1]["ts"], "dur": 1})
    path.write_text(json.dumps(trace))
    report = kinetoscope.analyze(path, step="ProfilrStep", cache=False)
    assert has_note(report, "is called ProfilrStep, with or without a number after it. Did you mean ProfilerStep?")


def test_a_rank_without_steps_is_named(tmp_path):
    first, second = traces(tmp_path)
    without(second, lambda event: "ProfilerStep" in event["name"])
    report = analyse(first, second)
    assert has_note(report, "No step was found on rank 1.")
    assert {row.rank for row in report.steps} == {0}


def test_device_times_are_unknown_and_cpu_times_known_without_a_device(tmp_path):
    report = analyse(*traces(tmp_path, has_device=False))
    assert has_note(report, "No GPU work was recorded")
    assert {(row.device, row.busy_ns, row.num_steps) for row in report.ranks} == {(None, None, 3)}
    assert all(row.forward_ns and row.device_busy_ns is None for row in report.steps)


def test_missing_ranks_are_counted_and_not_waited_for(tmp_path):
    report = analyse(traces(tmp_path, num_ranks=8)[3])
    assert has_note(report, "Missing traces: ranks 0-2, 4-7, of 8.")
    assert {(call.ranks, call.skew_ns, call.late_rank) for call in report.collectives} == {((3,), None, None)}
    assert report.stragglers == []


def test_ranks_that_were_not_asked_for_are_not_missing(tmp_path):
    report = analyse(*traces(tmp_path, num_ranks=4), ranks=[2])
    assert not has_note(report, "Missing traces")
    assert report.run["ranks"] == [2]


def test_the_error_for_a_missing_rank_lists_the_others(tmp_path):
    with pytest.raises(SettingsError, match=r"No trace of the selected ranks .*\. There are traces of ranks 0-1\."):
        analyse(*traces(tmp_path), ranks=[7])


@pytest.mark.parametrize("state", [None, "killed"])
def test_a_number_of_ranks_that_no_run_has_takes_no_memory_to_tell(state, tmp_path):
    def damage(trace):
        trace["distributedInfo"] = {"rank": 0, "world_size": 20_000_000}
        trace |= {"recovered": True} if state else {}

    path = changed(traces(tmp_path)[0], damage)
    tracemalloc.start()
    try:
        report = analyse(path)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert has_note(report, "Missing traces: ranks 1-19999999, of 20,000,000.")
    assert peak_bytes < 500_000_000  # a list of them all takes more
    if state:
        assert report.run["missing"][0] == "Missing traces: ranks 1-19999999."


@pytest.mark.parametrize(
    ("what", "field"), [("name", ("kinetoscope", "run_name")), ("number of ranks", ("distributedInfo", "world_size"))]
)
def test_traces_that_say_they_are_of_different_runs_are_an_error(what, field, tmp_path):
    for path, value in zip(traces(tmp_path), (5, 6), strict=True):
        value = value if what == "number of ranks" else f"run {value}"
        changed(path, lambda trace, value=value: trace.setdefault(field[0], {}).update({field[1]: value}))
    with pytest.raises(MergeError, match=rf"the {what} of the run is .*5 in rank0.json, and .*6 in rank1.json"):
        analyse(*tmp_path.glob("*.json"))


def test_ranks_of_runs_hours_apart_are_an_error(tmp_path):
    first, _ = traces(tmp_path / "one")
    _, second = traces(tmp_path / "other", seed=1)
    with pytest.raises(MergeError, match=r"rank 1 recorded the same steps as rank 0 3\.0 h earlier"):
        analyse(first, with_clock_behind(second))


@pytest.mark.parametrize("has_sequence", [True, False])
def test_clocks_hours_apart_are_put_right_by_collectives_that_end_together(has_sequence, tmp_path):
    first, second = traces(tmp_path, jitter_ns=500, has_sequence=has_sequence)
    with_one_clock = analyse(first, second)
    report = analyse(first, with_clock_behind(second))
    assert has_note(report, "The clock of rank 1 is 3.0 h behind those of the others.")
    for found, truth in ((report.steps, with_one_clock.steps), (report.collectives, with_one_clock.collectives)):
        assert found == truth


def test_uncertain_clocks_are_reported_as_hiding_a_straggler(tmp_path):
    assert has_note(analyse(*traces(tmp_path, jitter_ns=400_000)), "is within the error of its clock")


def test_a_window_in_which_nothing_was_recorded_is_named(tmp_path):
    first, second = traces(tmp_path)
    without(second, lambda event: event["ph"] != "M" and event.get("cat") != "Trace")
    report = analyse(first, second)
    assert has_note(report, "rank1.json has neither operators of torch nor work of a device.")
    assert [row.busy_ns is None for row in report.ranks] == [False, True]


def test_a_trace_of_another_profiler_without_steps_has_no_rows_of_steps(tmp_path):
    path = tmp_path / "viztracer.json"
    spans = [{"ph": "X", "name": f"f{n % 3}", "pid": 1, "tid": 1, "ts": 10 * n, "dur": 8} for n in range(30)]
    path.write_text(json.dumps({"traceEvents": spans}))
    report = analyse(path)
    assert has_note(report, "No step was found")
    assert report.steps == report.operators == report.kernels == report.findings == []


def test_nothing_to_analyze_is_an_error(tmp_path):
    path = tmp_path / "empty.json"
    path.write_text('{"traceEvents": []}')
    with pytest.raises(TraceFileError, match="there is no event in it"):
        analyse(path)
    with pytest.raises(TraceFileError, match="There is no trace to analyze"):
        analyse()


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_nothing_is_concluded_from_a_file_without_a_whole_step(compress, tmp_path):
    data = compress(traces(tmp_path)[0].read_bytes())
    path = tmp_path / ("cut.json" if compress is bytes else "cut.json.gz")
    path.write_bytes(data[: len(data) // 2])
    report = analyse(path)
    assert has_note(report, f"{path.name} is truncated, and none of its steps is whole")
    assert report.findings == report.stragglers == []


def test_the_same_trace_given_twice_counts_once(tmp_path):
    path, _ = traces(tmp_path)
    copy = tmp_path / "copy.json"
    copy.write_bytes(path.read_bytes())
    report, alone = analyse(path, copy), analyse(path)
    assert has_note(report, "was left out: it holds the same as")
    assert (report.ranks, report.steps, report.operators) == (alone.ranks, alone.steps, alone.operators)


def test_a_step_that_a_rank_recorded_twice_is_named(tmp_path):
    first, _ = traces(tmp_path / "one")
    again, _ = traces(tmp_path / "other", seed=1)
    report = analyse(first, again)
    assert has_note(report, "Recorded more than once: 3 of the steps, such as step 3 of rank 0.")
    assert len(report.steps) == 6
