"""Samples and tokens in a second, of runs whose loops count them; what is missing of runs that did not end."""

from dataclasses import replace

import pytest

import kinetoscope
from kinetoscope.analysis.cpu.throughput import LoopCounts, throughput
from kinetoscope.analysis.run_checks import list_missing_data
from kinetoscope.analysis.summaries import Selection, sum_trace
from trainsim import Settings, simulate


@pytest.mark.parametrize("is_counted", [True, False])
def test_samples_and_tokens_per_second_are_shown_where_the_loop_counts_them(tmp_path, is_counted):
    schedule = kinetoscope.cyclic_schedule(skip_first=1, warmup=1, active=4, repeat=2)
    with kinetoscope.profile(tmp_path / "run", schedule=schedule, torch=False, system=False, quiet=True) as profiler:
        for _ in profiler.batches(range(20)):
            if is_counted:
                profiler.step(samples=32, tokens=32 * 128)
    for traces in (tmp_path / "run", tmp_path / "run" / "traces" / "merged_trace.json.gz"):
        run = kinetoscope.analyze(traces, cache=False).run
        reported = (run["samples_per_s"], run["tokens_per_s"])
        in_a_second = 1e9 / run["step_ns"]
        expected = (pytest.approx(32 * in_a_second), pytest.approx(32 * 128 * in_a_second))
        assert reported == (expected if is_counted else (None, None))


def test_loop_counts_are_the_mean_of_ranks_and_need_a_step():
    counts = [LoopCounts(10, 100, 0), LoopCounts(10, 300, 0)]
    assert throughput(counts, 1e9) == (20, None)
    assert throughput(counts, None) == (None, None)
    assert throughput([], 1e9) == (None, None)


@pytest.fixture(scope="module")
def of_ranks(tmp_path_factory):
    """The summaries of the traces of three ranks."""
    folder = tmp_path_factory.mktemp("traces")
    simulate(Settings(num_ranks=3, num_steps=6)).write(folder)
    return [sum_trace(str(path), selection=Selection(), cache=False) for path in sorted(folder.glob("*.json*"))]


def _steps(traces):
    return [row for trace in traces for window in trace.windows for row in window.steps]


def test_a_run_that_did_not_end_says_which_ranks_and_steps_are_missing(of_ranks):
    steps = _steps(of_ranks)
    last = max(row.step for row in steps)
    assert list_missing_data(of_ranks, steps) == [f"The last saved step is {last}."]

    short = [row for row in steps if row.rank != 1 or row.step < last - 1]
    assert list_missing_data(of_ranks, short)[1:] == [
        f"Missing steps that other ranks have: steps {last - 1}-{last} of rank 1."
    ]
    assert list_missing_data(of_ranks[:1], _steps(of_ranks[:1]))[0] == "Missing traces: ranks 1-2."
    assert list_missing_data(of_ranks, []) == ["No step was saved."]


def test_the_first_lines_say_what_is_missing_of_a_killed_run(tmp_path):
    simulate(Settings(num_ranks=1, num_steps=4)).write(tmp_path)
    report = kinetoscope.analyze(tmp_path, cache=False)
    assert report.run["missing"] == []
    run = report.run | {"state": "killed", "missing": ["Missing traces: rank 1."]}
    assert "Missing traces: rank 1." in repr(replace(report, run=run)).splitlines()[1]
