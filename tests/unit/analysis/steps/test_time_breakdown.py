"""Parts of a step: what ran on the device in it, and which part bounds it."""

import json
from typing import Any, cast

import pytest

import kinetoscope
from kinetoscope.analysis.steps.time_breakdown import DeviceBreakdown, StepBreakdown, classify_bound
from kinetoscope.report.labels import HOST_PART_LABELS

MS = 1_000_000


def kernel(correlation: int, start_us: float, length_us: float) -> dict[str, Any]:
    args = {"device": 0, "stream": 7, "correlation": correlation}
    return event("gemm", "kernel", start_us, length_us, 7, pid=0, **args)


def event(
    name: str, category: str, start_us: float, length_us: float, tid: int, pid: int = 100, **args: int
) -> dict[str, Any]:
    return {
        "ph": "X", "name": name, "cat": category, "ts": start_us, "dur": length_us, "pid": pid, "tid": tid, "args": args
    }  # fmt: skip


def test_the_device_parts_of_a_single_step_contain_work_in_flight(tmp_path):
    """A kernel of the step before runs for 1.5 of 2 ms; that of the step itself takes 0.1 ms."""
    events = [
        event("ProfilerStep#0", "user_annotation", 0, 2000, 1),
        event("aten::mm", "cpu_op", 10, 50, 1),
        event("cudaLaunchKernel", "cuda_runtime", 20, 10, 1, correlation=1),
        event("cudaDeviceSynchronize", "cuda_runtime", 60, 1700, 1, correlation=2),
        kernel(99, -300, 1800),
        kernel(1, 1600, 100),
    ]
    path = tmp_path / "trace.json"
    trace = {"traceEvents": events, "deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-40GB"}]}
    path.write_text(json.dumps(trace), encoding="utf-8")
    run: Any = kinetoscope.analyze(path, cache=False).run
    assert run["parts"]["device"] == {
        "compute_ns": 1.6 * MS, "exposed_communication_ns": 0, "exposed_copy_ns": 0, "idle_ns": 0.4 * MS
    }  # fmt: skip


@pytest.mark.parametrize(
    ("compute", "communication", "idle", "late_wait", "expected"),
    [
        (90, 4, 6, 0, "compute"),
        (60, 5, 35, 0, "host"),
        (60, 35, 5, 0, "communication"),
        (60, 35, 5, 30, "ranks"),
        (20, 60, 20, 0, "communication"),
        (20, 10, 70, 0, "host"),
    ],
)
def test_a_step_that_waits_for_the_device_is_bound_by_what_the_device_does(
    compute, communication, idle, late_wait, expected
):
    host = dict.fromkeys(HOST_PART_LABELS, 0.0) | {
        "sync_ns": 70.0 * MS,
        "python_ns": 20.0 * MS,
        "backward_ns": 10.0 * MS,
    }
    device = DeviceBreakdown(
        compute_ns=compute * MS, exposed_communication_ns=communication * MS, exposed_copy_ns=0.0, idle_ns=idle * MS
    )
    parts = StepBreakdown(host=cast("Any", host), device=device)
    assert classify_bound(parts, 100 * MS, on_device=False, late_wait_ns=late_wait * MS) == expected


def test_an_idle_device_names_the_part_of_the_host_that_it_waits_for():
    host = dict.fromkeys(HOST_PART_LABELS, 0.0) | {"sync_ns": 60.0 * MS, "data_wait_ns": 40.0 * MS}
    device = DeviceBreakdown(compute_ns=55.0 * MS, exposed_communication_ns=0.0, exposed_copy_ns=0.0, idle_ns=45.0 * MS)
    parts = StepBreakdown(host=cast("Any", host), device=device)
    assert classify_bound(parts, 100 * MS, on_device=False) == "data"


def test_gpu_limited_step_that_mostly_waits_for_stragglers_is_bound_by_them():
    host = dict.fromkeys(HOST_PART_LABELS, 0.0) | {"forward_ns": 20.0 * MS}
    device = DeviceBreakdown(
        compute_ns=40.0 * MS, exposed_communication_ns=58.0 * MS, exposed_copy_ns=0.0, idle_ns=2.0 * MS
    )
    parts = StepBreakdown(host=cast("Any", host), device=device)
    assert classify_bound(parts, 100 * MS, on_device=True, late_wait_ns=50 * MS) == "ranks"
    assert classify_bound(parts, 100 * MS, on_device=True) == "communication"
