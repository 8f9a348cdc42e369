"""Profiler overhead: in steps, which is a finding, and around a window, which is in no step."""

import json

import pytest

import kinetoscope

MS = 1_000
BASE_NS = 1_790_000_000_000_000_000


def span(name, category, begin_ms, length_ms, **args):
    times = {"ts": begin_ms * MS, "dur": length_ms * MS}
    return {"ph": "X", "name": name, "cat": category, "pid": 0, "tid": 1, **times, "args": args}


def window(first, *, stop_in_step=False, drain_ms=0.0):
    """Four steps of 10 ms, with 7 ms of Kineto's start before them and 40 ms of its stop at their end."""
    begin_ms = 1000 * first
    events = [span("kinetoscope/start", "kinetoscope", begin_ms - 8, 7)]
    for place in range(4):
        at_ms, is_last = begin_ms + 10 * place, place == 3
        length_ms = 49.5 if is_last and stop_in_step else 9.5
        events.append(span("event/batch", "batch", at_ms, length_ms, batch=first + place))
        events += [span("aten::mm", "cpu_op", at_ms + 0.5 + part, 0.9) for part in range(7)]
        if drain_ms:
            events.append(span("kinetoscope/drain", "kinetoscope", at_ms + 7.5, drain_ms))
    stop_ms = begin_ms + 30 + (9.2 if stop_in_step else 9.6)
    return [*events, span("kinetoscope/stop", "kinetoscope", stop_ms, 40)]


def findings(folder, **options):
    for place in range(4):
        text = json.dumps({"baseTimeNanoseconds": BASE_NS, "traceEvents": window(1 + 10 * place, **options)})
        (folder / f"rank0-{place}.json").write_text(text)
    found = kinetoscope.analyze(folder, cache=False).findings
    return {finding.kind: finding for finding in found}


@pytest.mark.parametrize("stop_in_step", [False, True])
def test_kinetos_cost_around_each_window_is_no_cost_of_steps(stop_in_step, tmp_path):
    assert "profiler_cost" not in findings(tmp_path, stop_in_step=stop_in_step)


def test_the_cost_in_steps_and_that_around_a_window_are_two_numbers(tmp_path):
    found = findings(tmp_path, drain_ms=1)["profiler_cost"]
    assert found.cost_ns_per_step == 1_000_000
    assert dict(found.evidence) == {"profiler_ns": 1_000_000, "window_overhead_ns": 47_000_000}
    assert found.where.spans == ("kinetoscope/drain",)
