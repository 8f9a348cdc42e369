"""An evaluation within a step: what it fetches and computes is its own, not the training's."""

import json

import pytest

import kinetoscope

MS = 1_000
STEP_MS = 100
FETCH = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def span(name, category, begin_ms, length_ms, **args):
    times = {"ts": begin_ms * MS, "dur": length_ms * MS}
    return {"ph": "X", "name": name, "cat": category, "pid": 0, "tid": 1, **times, "args": args}


def step(number):
    """1 ms of fetching, then a batch of 90 ms: 10 ms of forward, a collective of 2 ms, 50 ms of evaluation, 3 ms of
    waiting for the device, 25 ms of Python."""
    begin_ms = number * STEP_MS
    return [
        span(FETCH, "user_annotation", begin_ms + 4, 1),
        span("event/batch", "batch", begin_ms + 5, 90, batch=number),
        span("aten::mm", "cpu_op", begin_ms + 15, 10),
        span("event/eval", "eval", begin_ms + 30, 50),
        span(FETCH, "user_annotation", begin_ms + 31, 40),
        span("aten::addmm", "cpu_op", begin_ms + 72, 6),
        span("c10d::allreduce_", "cpu_op", begin_ms + 78, 1),
        span("cudaStreamSynchronize", "cuda_runtime", begin_ms + 79, 1),
        span("c10d::allreduce_", "cpu_op", begin_ms + 81, 2),
        span("cudaStreamSynchronize", "cuda_runtime", begin_ms + 83, 3),
    ]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "rank0.json"
    events = [event for number in range(12) for event in step(number)]
    path.write_text(json.dumps({"baseTimeNanoseconds": 1_790_000_000_000_000_000, "traceEvents": events}))
    return path


@pytest.fixture(scope="module")
def report(path):
    return kinetoscope.analyze(path, cache=False)


def test_fetches_of_an_evaluation_are_no_wait_for_the_next_batch(report):
    assert report.steps[5].data_wait_ns == 1_000_000
    assert "input_bound" not in [finding.kind for finding in report.findings]


def test_evaluation_operators_are_no_forward_pass_and_its_waits_no_step_python(report):
    row = report.steps[5]
    assert (row.forward_ns, row.python_ns) == (10_000_000, 25_000_000)


def test_waits_of_an_evaluation_belong_to_it(report):
    row = report.steps[5]
    assert (row.communication_wait_ns, row.sync_ns) == (2_000_000, 3_000_000)


def test_evaluations_within_steps_have_a_column_of_their_own(report):
    assert report.steps[5].evaluation_inside_ns == 50_000_000
    assert report.steps[5].evaluation_ns == 0  # between the steps


def test_the_summary_shows_the_time_of_evaluations(path, capsys):
    from kinetoscope.cli import main

    assert main(["summary", "--no-cache", str(path)]) == 0
    assert "evaluation" in capsys.readouterr().out
