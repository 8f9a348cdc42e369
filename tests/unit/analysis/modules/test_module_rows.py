"""analysis/modules: device time by module of simulated runs, in which the module of each kernel is known."""

import json

import polars as pl
import pytest

import kinetoscope
from trainsim import Settings, simulate

RUNS = {
    "data parallel": {},
    "activation checkpointing": {"has_recomputation": True},
    "FSDP": {"layout": "fsdp"},
    "gradient accumulation": {"num_accumulated": 2},
    "two windows": {"num_cycles": 2},
}


def simulated(folder, **options):
    run = simulate(Settings(seed=3, num_ranks=2, num_steps=6, has_modules=True, **options))
    run.write(folder)
    return run, kinetoscope.load(folder).modules


@pytest.mark.parametrize("name", RUNS)
def test_kernels_belong_to_the_module_that_launched_them(name, tmp_path):
    run, table = simulated(tmp_path, **RUNS[name])
    rows = {(row["rank"], row["name"]): row for row in table.iter_rows(named=True)}
    found = {
        key: (rows[key]["device_forward_ns"], rows[key]["device_backward_ns"], rows[key]["recompute_ns"] or 0)
        for key in run.truth.modules
    }
    assert found == {key: (row["forward"], row["backward"], row["recompute"]) for key, row in run.truth.modules.items()}


@pytest.mark.parametrize("name", RUNS)
def test_device_time_of_modules_and_of_the_rest_is_that_of_all_kernels(name, tmp_path):
    _, table = simulated(tmp_path, **RUNS[name])
    columns = ("self_device_forward_ns", "self_device_backward_ns")
    for rank in range(2):
        own = table.filter(pl.col("rank") == rank)
        outermost = own.filter(pl.col("depth").is_null() | (pl.col("depth") == 0))
        found = own.select(pl.col(columns).sum()).row(0) + outermost.select(
            pl.col("communication_ns", "recompute_ns").sum()
        ).row(0)
        devices = kinetoscope.load(tmp_path).of_rank(rank)
        spans = pl.concat([trace.spans for trace in devices]).filter(
            pl.col("category").is_in(["kernel", "gpu_memcpy", "gpu_memset"]) & (pl.col("dur") > 0)
        )
        assert sum(time or 0 for time in found) == spans.select(pl.col("dur").sum()).collect().item()


def test_collectives_have_a_column_of_their_own(tmp_path):
    _, table = simulated(tmp_path, layout="fsdp")
    (model,) = table.filter((pl.col("rank") == 0) & (pl.col("name") == "Model")).iter_rows(named=True)
    assert model["communication_ns"] > 0


def test_without_a_device_its_times_are_unknown(tmp_path):
    _, table = simulated(tmp_path, has_device=False)
    columns = ("device_forward_ns", "device_backward_ns", "communication_ns")
    assert table.select(pl.col(columns).count()).row(0) == (0, 0, 0)


def test_the_optimizer_counts_in_steps_that_its_own_hook_ends(tmp_path):
    events = []

    def add(category, name, begin, dur, **values):
        events.append({"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": begin, "dur": dur} | values)

    for step in range(4):
        begin = 1_000.0 * step
        add("batch", "event/batch", begin, 900, args={"batch": step})
        add("module", "Model", begin + 10, 300, args={"class": "Model", "depth": 0})
        add("cpu_op", "aten::mm", begin + 20, 200)
        add("watched_phase", "event/optimizer", begin + 500, 400)
        # torch's span ends after the step: the last one contains the end of the recording, too
        add("user_annotation", "Optimizer.step#SGD.step", begin + 500, 410 if step < 3 else 90_000, tid=2)
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    rows = {row["name"]: row["self_cpu_forward_ns"] for row in kinetoscope.load(path).modules.iter_rows(named=True)}
    assert rows == {"Model": 4 * 300_000, "(optimizer)": 4 * 400_000, "(outside of modules)": 4 * 200_000}


@pytest.mark.parametrize("has_device", [True, False])
@pytest.mark.parametrize("name", ["data parallel", "activation checkpointing", "gradient accumulation"])
def test_cpu_time_adds_up_to_the_steps_also_where_another_thread_runs_the_backward_pass(name, has_device, tmp_path):
    _, table = simulated(tmp_path, has_device=has_device, **RUNS[name])
    steps = kinetoscope.analyze(tmp_path, cache=False).steps
    for rank in range(2):
        own = table.filter(pl.col("rank") == rank)
        cpu_ns = own.select(pl.col("self_cpu_forward_ns", "self_cpu_backward_ns").sum()).sum_horizontal().item()
        if not has_device:  # else recomputation is in the backward pass, and its column has time of the device
            cpu_ns += own.filter(pl.col("depth") == 0)["recompute_ns"].sum() or 0
        assert cpu_ns == sum(row.duration_ns for row in steps if row.rank == rank)
