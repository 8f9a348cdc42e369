"""A loop with only markers recorded: time outside of markers is unknown, and no fault of Python."""

import json

import pytest

import kinetoscope

MS = 1_000


def span(name, begin_ms, length_ms, **args):
    category = {"event/batch": "batch", "event/dataloader": "dataloader"}.get(name, "marker")
    times = {"ts": begin_ms * MS, "dur": length_ms * MS}
    return {"ph": "X", "name": name, "cat": category, "pid": 0, "tid": 1, **times, "args": args}


def report_on(folder, *names):
    """Write ten steps of 10 ms: 9 ms in a batch, 2 ms in each of these spans, and a quarter in a fetch."""
    events = []
    for step in range(10):
        events.append(span("event/batch", 10 * step, 9, batch=step))
        events.append(span("event/dataloader", 10 * step + 9.5, 0.25))
        events += [span(name, 10 * step + 1 + 2 * index, 2) for index, name in enumerate(names)]
    path = folder / "rank0.json"
    path.write_text(json.dumps({"baseTimeNanoseconds": 1_790_000_000_000_000_000, "traceEvents": events}))
    return kinetoscope.analyze(path, cache=False)


def test_no_python_overhead_is_reported_without_operators(tmp_path):
    report = report_on(tmp_path)
    assert "rank0.json has neither operators of torch nor work of a device." in " ".join(report.run["notes"])
    assert report.findings == []
    parts = report.run["parts"]["host"]
    known = {name: value for name, value in parts.items() if value}
    assert known == {"data_wait_ns": 250_000, "between_ns": 750_000, "unknown_ns": 9_000_000}
    assert {name for name, value in parts.items() if value is None} == {
        "forward_ns",
        "backward_ns",
        "optimizer_ns",
        "communication_wait_ns",
        "sync_ns",
        "gc_ns",
        "python_ns",
    }
    assert report.run["bound_by"] == "unknown"


@pytest.mark.parametrize(
    ("forward", "backward", "optimizer"),
    [
        ("forward", "backward", "optimizer"),
        ("## forward ##", "## backward ##", "## optimizer ##"),
        ("Forward Pass", "bwd", "optimizer_step"),
        (
            "[pl][profile][Strategy]SingleDeviceStrategy.training_step",
            "[pl][profile][Strategy]SingleDeviceStrategy.backward",
            "[pl][profile][LightningModule]Digits.optimizer_step",
        ),
        ("event/forward", "Accelerator.backward", "AcceleratedOptimizer.step"),
    ],
)
def test_spans_with_the_name_of_a_phase_are_that_phase(forward, backward, optimizer, tmp_path):
    report = report_on(tmp_path, forward, backward, optimizer)
    for row in report.steps:
        assert (row.forward_ns, row.backward_ns, row.optimizer_ns, row.unknown_ns) == (
            2_000_000,
            2_000_000,
            2_000_000,
            3_000_000,
        )
        assert row.python_ns is None
    assert report.run["parts"]["host"]["forward_ns"] == 2_000_000


@pytest.mark.parametrize("name", ["forward_hook", "my forward", "Net.forward", "data_parallel", "optimizer.zero_grad"])
def test_other_names_are_no_phases(name, tmp_path):
    (row, *_) = report_on(tmp_path, name).steps
    assert (row.forward_ns, row.data_wait_ns, row.optimizer_ns, row.unknown_ns) == (None, 0, None, 9_000_000)
