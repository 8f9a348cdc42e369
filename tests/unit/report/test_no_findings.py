"""Sentences on a run without findings: each trace has one that can be acted on."""

import json
from dataclasses import replace

import kinetoscope
from kinetoscope.report.no_findings import describe_no_findings
from support.report_consistency import screen
from trainsim import Fault, Settings, simulate


def report_on(folder, **settings):
    (path,) = simulate(Settings(num_ranks=1, **settings)).write(folder)
    return kinetoscope.analyze(path, cache=False)


def test_a_busy_gpu_is_described_by_its_idle_time_and_hints(tmp_path):
    report = report_on(tmp_path, reads_loss="never", num_steps=12)
    sentences = describe_no_findings(report)
    assert sentences[0] == "No finding."
    assert sentences[1].startswith("GPU busy for 9")
    assert sentences[2:] == report.run["hints"]
    assert [line for line in sentences if line in screen(report)] == sentences


def test_without_steps_the_parts_of_idle_time_are_named(tmp_path):
    (path,) = simulate(Settings(num_ranks=1, num_steps=4)).write(tmp_path)
    trace = json.loads(path.read_text(encoding="utf-8"))
    events = [event for event in trace["traceEvents"] if not event["name"].startswith(("ProfilerStep", "Optimizer"))]
    path.write_text(json.dumps(trace | {"traceEvents": events}), encoding="utf-8")
    report = kinetoscope.analyze(path, step="nothing has this name", cache=False)
    idle, why = describe_no_findings(report)[:2]
    assert idle.startswith(("GPU idle for", "GPU busy for"))
    assert why == "No findings, since no steps were recorded."
    assert idle in screen(report)


def test_a_run_with_a_finding_has_no_hints(tmp_path):
    report = report_on(tmp_path, num_steps=12, faults=(Fault(kind="slow_loader", cost_ns=5_000_000),))
    assert report.findings
    assert report.run["hints"] == []


def test_a_filtered_trace_bounds_idle_time(tmp_path):
    report = report_on(tmp_path, num_steps=4, faults=(Fault(kind="cpu_optimizer", cost_ns=5_000_000),))
    report = replace(report, is_judged=False, why_unjudged=["Most events are missing."], findings=[])
    idle, why = describe_no_findings(report)[:2]
    assert idle.startswith("GPU idle for at most ")
    assert why == "No findings, since parts of the trace are unknown: see the notes."
