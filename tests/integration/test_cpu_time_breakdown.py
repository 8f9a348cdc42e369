"""Where the loop's time goes in real runs: an optimizer with a closure, no operators of torch, three windows."""

import polars as pl
import pytest

import kinetoscope

torch = pytest.importorskip("torch")
STEP_PARTS = ("forward_ns", "backward_ns", "optimizer_ns", "communication_wait_ns", "sync_ns", "gc_ns", "python_ns")


def train(folder, *, closure=False, num_batches=14, **options):
    """Train on one thread; its markers have no names of phases. Returns the report."""
    options = {"system": False, "quiet": True} | options
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    parameters = model.parameters()
    optimizer = torch.optim.LBFGS(parameters, max_iter=3) if closure else torch.optim.SGD(parameters, lr=0.01)
    data = torch.utils.data.TensorDataset(torch.randn(num_batches * 16, 64), torch.randint(0, 8, (num_batches * 16,)))

    def loss_of(inputs, targets):
        optimizer.zero_grad()
        with kinetoscope.marker("my model"):
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        with kinetoscope.marker("my gradients"):
            loss.backward()
        return loss

    with kinetoscope.profile(folder, **options) as profiler:
        for inputs, targets in profiler.batches(torch.utils.data.DataLoader(data, batch_size=16)):
            if closure:
                optimizer.step(lambda inputs=inputs, targets=targets: loss_of(inputs, targets))
            else:
                loss_of(inputs, targets)
                optimizer.step()
    return kinetoscope.analyze(folder, cache=False)


def spans_in(folder, row, pattern):
    """Return the time of spans of that name in a step, as intervals of the trace."""
    trace = kinetoscope.load(folder / "traces" / "merged_trace.json.gz", cache=False)
    spans = trace.spans.filter(pl.col("name").str.contains(pattern)).select(begin="ts", length="dur").collect()
    return spans.filter(pl.col("begin").is_between(row.begin_ns, row.begin_ns + row.duration_ns))


def adds_up(report):
    parts = report.run["parts"]["host"]
    assert sum(value for value in parts.values() if value is not None) == report.run["step_ns"]
    for row in report.steps:
        known = sum(getattr(row, name) or 0 for name in (*STEP_PARTS, "unknown_ns", "evaluation_inside_ns"))
        assert 0 <= row.duration_ns - known <= (row.data_wait_ns or 0)
    return parts


def test_forward_and_backward_in_the_closure_of_an_optimizer_are_not_its_own(tmp_path):
    report = train(tmp_path, closure=True)
    parts = adds_up(report)
    assert parts["forward_ns"] > 0
    rows = [row for row in report.steps if row.optimizer_ns is not None]
    assert len(rows) >= 8
    for row in rows:
        closures_ns = sum(spans_in(tmp_path, row, r"^my (model|gradients)$")["length"])
        optimizer_ns = sum(spans_in(tmp_path, row, r"^Optimizer\.step#LBFGS")["length"])
        operators_ns = sum(spans_in(tmp_path, row, r"^aten::(linear|relu|cross_entropy_loss)$")["length"])
        assert operators_ns <= row.forward_ns <= closures_ns
        assert 0 < row.backward_ns <= closures_ns
        assert row.optimizer_ns <= optimizer_ns - row.forward_ns - row.backward_ns


def test_hooks_report_phases_without_torch_operators_and_others_are_unknown(tmp_path):
    report = train(tmp_path, torch=False)
    parts = adds_up(report)
    assert all(parts[name] > 0 for name in ("forward_ns", "backward_ns", "optimizer_ns"))
    assert {parts[name] for name in ("communication_wait_ns", "sync_ns", "python_ns")} == {None}
    assert parts["unknown_ns"] > 0
    assert report.run["bound_by"] in ("unknown", "data")  # the wait for data is known, and long on a busy machine
    assert "python_overhead" not in [finding.kind for finding in report.findings]


def test_three_windows_each_have_their_time_breakdown_and_memory(tmp_path):
    schedule = kinetoscope.cyclic_schedule(skip_first=1, wait=1, warmup=1, active=3, repeat=3)
    report = train(tmp_path, schedule=schedule, num_batches=18)
    adds_up(report)
    recorded = [row for row in report.steps if row.forward_ns is not None]
    assert len(recorded) == 9
    assert {row.between_ns is None for row in recorded[2::3]} == {True}
    peaks = [max(row.peak_memory_bytes for row in recorded[place : place + 3]) for place in (0, 3, 6)]
    assert peaks == [report.memory[0].peak_bytes] * 3
