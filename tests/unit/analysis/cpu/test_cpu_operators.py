"""Operators on the CPU under which the GPU idles, and waits whose data the CPU needs."""

from typing import Any

import pytest

import kinetoscope
from trainsim import Fault, Settings
from trainsim.analyses import analyze_cached, write_changed

MS = 1_000_000
OFFLOAD = Settings(num_ranks=2, step_ns=10 * MS, faults=(Fault(kind="cpu_optimizer", cost_ns=8 * MS),))


def changed_report(change, folder, settings=OFFLOAD):
    return kinetoscope.analyze(write_changed(change, settings, folder), cache=False)


def kinds_of(report):
    return [finding.kind for finding in report.findings]


def test_an_optimizer_on_the_cpu_is_named_and_its_copies_are_no_syncs():
    run, report = analyze_cached(OFFLOAD)
    finding = report.findings[0]
    assert (finding.kind, finding.confidence) == ("host_bound", "high")
    assert finding.title.startswith("CPU optimizer: the GPU waits ")
    assert finding.title.endswith(" ms/step for aten::_fused_adamw_")
    assert finding.where.spans == ("aten::_fused_adamw_",)
    evidence = dict(finding.evidence)
    assert evidence["device_wait_ns"] == pytest.approx(8 * MS, rel=0.05)
    run_facts: Any = report.run
    assert 0 < evidence["sync_ns"] < run_facts["parts"]["host"]["sync_ns"] * 1.01
    saved_ns = run.saving_ns_per_step(run.without(0))
    assert finding.saving_ns_per_step == pytest.approx(saved_ns, abs=0.02 * run_facts["step_ns"])
    assert "synchronisation" not in kinds_of(report)
    assert report.run["bound_by"] == "host"


def test_another_operator_on_the_cpu_is_no_optimizer(tmp_path):
    def rename(trace):
        for event in trace["traceEvents"]:
            if event["name"].startswith("Optimizer.step"):
                event["name"] = "postprocess"
            elif event["name"] == "aten::_fused_adamw_":
                event["name"] = "torchvision::nms"

    (first, *_) = changed_report(rename, tmp_path).findings
    assert first.kind == "host_bound"
    assert first.title.startswith("CPU operator: ")
    assert first.title.endswith(" torchvision::nms")


@pytest.mark.parametrize("num_bytes", [4, 30_000_000])
def test_a_wait_is_a_sync_unless_its_data_is_needed(num_bytes, tmp_path):
    """A small value is needed, too, where an operator computes with it at once."""
    settings = Settings(num_ranks=1, step_ns=3 * MS, faults=(Fault(kind="items", count=60),))

    def resize(trace):
        for event in trace["traceEvents"]:
            if "DtoH" in event["name"]:
                event["args"]["bytes"] = num_bytes

    is_sync = "synchronisation" in kinds_of(changed_report(resize, tmp_path, settings))
    assert is_sync == (num_bytes < 1_000)
    assert "synchronisation" not in kinds_of(changed_report(resize, tmp_path, OFFLOAD))


def test_an_operator_that_a_busy_machine_stops_once_is_no_finding(tmp_path):
    """The GPU waits 40 ms for one of the ten calls of the optimizer."""

    def stop_once(trace):
        calls = [event for event in trace["traceEvents"] if event["name"] == "aten::_foreach_mul_"]
        stopped = min(calls, key=lambda event: event["ts"])
        until, pause_us = stopped["ts"] + stopped["dur"] / 2, 40_000.0
        for event in trace["traceEvents"]:
            if event["ts"] > until:
                event["ts"] += pause_us
            elif event["ts"] + event.get("dur", 0) > until:
                event["dur"] += pause_us

    report = changed_report(stop_once, tmp_path, Settings(num_ranks=1, step_ns=3 * MS, reads_loss="each step"))
    assert "host_bound" not in kinds_of(report)


def test_a_report_without_runtime_calls_names_no_operator_on_the_cpu(tmp_path):
    """A blocking call that was not recorded looks like an operator that computes."""

    def drop_calls(trace):
        trace["traceEvents"] = [event for event in trace["traceEvents"] if event.get("cat") != "cuda_runtime"]

    assert "host_bound" not in kinds_of(changed_report(drop_calls, tmp_path))
