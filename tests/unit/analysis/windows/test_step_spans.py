"""Steps of traces without spans of steps."""

import pytest

import kinetoscope
from trainsim import Settings, simulate
from trainsim.analyses import write_changed

MS = 1_000_000
SETTINGS = Settings(num_ranks=1, num_steps=12, step_ns=6 * MS, reads_loss="each step")


def report_without(folder, *names, settings=SETTINGS, **options):
    """Return the report on a trace without the spans whose names begin so."""

    def drop(trace):
        trace["traceEvents"] = [event for event in trace["traceEvents"] if not event["name"].startswith(names)]

    return kinetoscope.analyze(write_changed(drop, settings, folder), cache=False, **options)


def with_steps(settings=SETTINGS):
    from trainsim.analyses import analyze_cached

    return analyze_cached(settings)[1]


@pytest.mark.parametrize(
    ("missing", "name"),
    [
        (["ProfilerStep"], "Optimizer.step#SGD.step"),
        (["ProfilerStep", "Optimizer.step"], "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"),
    ],
)
def test_regular_intervals_are_steps(tmp_path, missing, name):
    report = report_without(tmp_path, *missing)
    assert report.run["num_steps"] == SETTINGS.num_steps - 1
    assert report.run["step_ns"] == pytest.approx(with_steps().run["step_ns"], rel=0.02)
    assert any(f"a step is the time from one {name} to the next" in note for note in report.run["notes"])
    assert report.run["bound_by"] == with_steps().run["bound_by"]


def test_irregular_intervals_are_no_steps_but_candidates(tmp_path):
    def pause(trace):
        """Move every second half of the trace away, as two runs in one recording."""
        names = ("ProfilerStep", "enumerate")
        trace["traceEvents"] = [event for event in trace["traceEvents"] if not event["name"].startswith(names)]
        steps = sorted(
            (event for event in trace["traceEvents"] if event["name"].startswith("Optimizer")),
            key=lambda one: one["ts"],
        )
        for number, event in enumerate(steps):
            event["ts"] += 4_000 * number**2

    report = kinetoscope.analyze(write_changed(pause, SETTINGS, tmp_path), cache=False)
    assert report.run["num_steps"] == 0
    (note,) = (note for note in report.run["notes"] if note.startswith("No step was found"))
    assert "Spans that recur: Optimizer.step#SGD.step. Pass one of them with --step SPAN" in note
    report = kinetoscope.analyze(tmp_path, step="Optimizer.step#SGD.step", cache=False)
    assert report.run["num_steps"] == SETTINGS.num_steps


def test_device_time_of_operators_is_unknown_without_launches(tmp_path):
    """Some profilers record which operator launched a kernel by its External id only."""

    def drop_calls(trace):
        trace["traceEvents"] = [event for event in trace["traceEvents"] if event.get("cat") != "cuda_runtime"]

    report = kinetoscope.analyze(write_changed(drop_calls, SETTINGS, tmp_path), cache=False)
    assert {row.device_ns for row in report.operators} == {None}
    assert any(row.device_ns for row in with_steps().operators)
    assert simulate(SETTINGS).settings.has_device
