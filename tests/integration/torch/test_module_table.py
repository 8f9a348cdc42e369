"""Time by torch module of real runs: sums that are exact, and times of layers that are known."""

import time
from collections import defaultdict
from contextlib import contextmanager
from functools import partial

import polars as pl
import pytest
import torch
from torch import nn

import kinetoscope

NUM_STEPS = 3
OTHERS = {"(optimizer)", "(gradient accumulation)", "(outside of modules)"}


def recorded(folder, step, **options):
    """Return the table of modules and the steps of a run of ``step``."""
    schedule = kinetoscope.cyclic_schedule(skip_first=0, wait=0, warmup=1, active=NUM_STEPS, repeat=1)
    with kinetoscope.profile(
        folder, schedule=schedule, modules=True, system=False, quiet=True, strict=True, **options
    ) as profiler:
        for _ in profiler.batches(range(NUM_STEPS + 1)):
            step()
    return kinetoscope.load(folder).modules, kinetoscope.analyze(folder, cache=False)


def train(model, loss_of):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()

    return step


class Experts(nn.Module):
    """A mixture of experts: each token goes to one of them."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(8, 3)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8)) for _ in range(3))

    def forward(self, x):
        chosen = self.gate(x).argmax(-1)
        return sum(expert(x * (chosen == number).unsqueeze(-1)) for number, expert in enumerate(self.experts))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x):
        return x + torch.relu(self.norm(self.conv(x)))


MODELS = {
    "transformer": lambda: (
        nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2),
        lambda model: model(torch.randn(2, 4, 8)).square().mean(),
    ),
    "ResNet": lambda: (
        nn.Sequential(nn.Conv2d(3, 4, 3), Residual(), Residual(), nn.Flatten(), nn.Linear(4 * 6 * 6, 2)),
        lambda model: model(torch.randn(2, 3, 8, 8)).square().mean(),
    ),
    "LSTM": lambda: (nn.LSTM(8, 8, num_layers=2), lambda model: model(torch.randn(5, 2, 8))[0].square().mean()),
    "experts": lambda: (Experts(), lambda model: model(torch.randn(6, 8)).square().mean()),
}


@pytest.mark.parametrize("name", MODELS)
def test_modules_and_the_time_outside_add_up_to_the_steps(name, tmp_path):
    torch.manual_seed(0)
    table, report = recorded(tmp_path / "run", train(*MODELS[name]()))
    own = table.select(pl.col("self_cpu_forward_ns", "self_cpu_backward_ns").sum()).row(0)
    recomputed = table["recompute_ns"].sum()
    assert sum(own) + (recomputed or 0) == sum(row.duration_ns for row in report.steps)
    assert set(table["name"]) >= OTHERS


@pytest.mark.parametrize("name", MODELS)
def test_the_time_of_a_module_is_its_own_and_that_of_the_modules_inside(name, tmp_path):
    table, _ = recorded(tmp_path / "run", train(*MODELS[name]()))
    for row in table.iter_rows(named=True):
        inside = table.filter((pl.col("name") == row["name"]) | pl.col("name").str.starts_with(f"{row['name']}."))
        for side in ("cpu_forward_ns", "cpu_backward_ns"):
            assert row[side] == inside[f"self_{side}"].sum(), (row["name"], side)


class Sleep(torch.autograd.Function):
    """An operator whose forward and backward take a known time."""

    took_ns = defaultdict(int)

    @staticmethod
    def forward(ctx, x, name, forward_s):
        ctx.name, ctx.forward_s = name, forward_s
        ctx.save_for_backward(x)  # which checkpointing computes again
        with timed(f"{name} forward"):
            time.sleep(forward_s)
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        with timed(f"{ctx.name} backward"):
            time.sleep(2 * ctx.forward_s)
        return gradient * x, None, None


@contextmanager
def timed(name):
    start_ns = time.perf_counter_ns()
    try:
        yield
    finally:
        Sleep.took_ns[name] += time.perf_counter_ns() - start_ns


class Layer(nn.Module):
    def __init__(self, name, forward_s):
        super().__init__()
        self.name, self.forward_s = name, forward_s

    def forward(self, x):
        return Sleep.apply(x, self.name, self.forward_s)


class SleepingModel(nn.Module):
    def __init__(self, checkpointing):
        super().__init__()
        self.layers = nn.ModuleList(Layer(f"layer {number}", 0.004 * (number + 1)) for number in range(3))
        self.checkpointing = checkpointing

    def forward(self, x):
        for layer in self.layers:
            if self.checkpointing is None:
                x = self.call(layer, x)
            else:
                is_reentrant = self.checkpointing == "reentrant"
                x = torch.utils.checkpoint.checkpoint(partial(self.call, layer), x, use_reentrant=is_reentrant)
        return x

    @staticmethod
    def call(layer, x):
        with timed(f"{layer.name} call"):
            return layer(x)


@pytest.mark.parametrize("checkpointing", [None, "reentrant", "not reentrant"])
def test_times_of_layers_lie_between_those_measured_inside_and_around_them(checkpointing, tmp_path):
    model, batch, num_begun = SleepingModel(checkpointing), torch.ones(2, requires_grad=True), 0

    def step():
        nonlocal num_begun
        if num_begun == 1:  # the step before is a warm-up step
            Sleep.took_ns.clear()
        num_begun += 1
        loss = model(batch).sum()
        with timed("all backward"):
            loss.backward()

    table, _ = recorded(tmp_path / "run", step)
    rows, took_ns = {row["name"]: row for row in table.iter_rows(named=True)}, Sleep.took_ns
    for number in range(3):
        row, name = rows[f"SleepingModel.layers.{number}"], f"layer {number}"
        forward_ns = row["cpu_forward_ns"] + (row["recompute_ns"] or 0)
        assert took_ns[f"{name} forward"] <= forward_ns
        assert forward_ns <= took_ns[f"{name} call"]
        assert took_ns[f"{name} backward"] <= row["cpu_backward_ns"]
        assert (row["recompute_ns"] is None) == (checkpointing is None)
        assert row["num_calls"] == NUM_STEPS
    of_layers = [rows[f"SleepingModel.layers.{number}"] for number in range(3)]
    assert sum(row["cpu_backward_ns"] + (row["recompute_ns"] or 0) for row in of_layers) <= took_ns["all backward"]


def test_flops_and_memory_are_those_of_the_layer(tmp_path):
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 2))
    table, report = recorded(tmp_path / "run", train(model, lambda model: model(torch.randn(8, 64)).sum()))
    rows = {row["name"]: row for row in table.iter_rows(named=True)}
    forward = 2 * 8 * 64 * 256
    assert rows["Sequential.0"]["flops"] == NUM_STEPS * 2 * forward  # the input needs no gradient
    assert rows["Sequential"]["flops"] == sum(row["flops"] for name, row in rows.items() if name[-1].isdigit())
    assert rows["Sequential"]["flops"] == pytest.approx(NUM_STEPS * report.run["flops_per_step"])
    assert rows["Sequential.0"]["saved_bytes"] == NUM_STEPS * 8 * 256 * 4
    assert rows["Sequential.0"]["allocated_bytes"] >= rows["Sequential.0"]["saved_bytes"]


def test_without_the_option_the_table_is_empty_and_has_its_columns(tmp_path):
    with kinetoscope.profile(tmp_path / "run", quiet=True) as profiler:
        for _ in profiler.batches(range(4)):
            nn.Linear(2, 2)(torch.ones(1, 2))
    table = kinetoscope.load(tmp_path / "run").modules
    assert table.is_empty()
    assert {"rank", "name", "class_name", "depth", "num_calls", "mfu", "self_device_backward_ns"} <= set(table.columns)


def test_a_model_is_the_same_in_each_rank_and_cycle(tmp_path):
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    schedule = kinetoscope.cyclic_schedule(skip_first=0, wait=1, warmup=0, active=1, repeat=2)
    with kinetoscope.profile(tmp_path / "run", schedule=schedule, modules=True, quiet=True) as profiler:
        for _ in profiler.batches(range(4)):
            model(torch.ones(1, 2))
    table = kinetoscope.load(tmp_path / "run").modules
    assert dict(table.select("name", "num_calls").iter_rows()) == {
        "Sequential": 2,
        "Sequential.0": 2,
        "Sequential.1": 2,
        "(outside of modules)": None,
    }
