"""A loop that says nothing of its phases: torch's hooks tell of them, and its traces have them as spans."""

import asyncio
import sys
import threading
import time
from types import SimpleNamespace

import polars as pl
import pytest

import kinetoscope
from kinetoscope import cyclic_schedule
from kinetoscope.pulse.layout import Phase
from kinetoscope.pulse.pulses import find_pulses
from support.trace_processor.trace_processor import load

torch = pytest.importorskip("torch")

MS = 1_000_000


class Sleeps(torch.autograd.Function):
    """Takes 5 ms forward and 7 ms backward."""

    @staticmethod
    def forward(context, values):
        time.sleep(0.005)
        return values.clone()

    @staticmethod
    def backward(context, gradient):
        time.sleep(0.007)
        return gradient


class SlowOptimizer(torch.optim.SGD):
    def step(self, closure=None):
        time.sleep(0.003)
        return super().step(closure)


def train(folder, *, num_micro_batches=1, **options):
    model = torch.nn.Linear(2, 2)
    optimizer = SlowOptimizer(model.parameters(), lr=0.1)
    schedule = cyclic_schedule(skip_first=2, warmup=1, active=4, per="run")
    with kinetoscope.profile(folder, schedule=schedule, system=False, quiet=True, **options) as profiler:
        for batch in profiler.batches([torch.ones(2)] * 12):
            with profiler.marker("train"):
                for _ in range(num_micro_batches):
                    Sleeps.apply(model(batch)).sum().backward()
                optimizer.step()


def phases_of(folder):
    spans = kinetoscope.load(folder).spans.filter(pl.col("category") == "watched_phase").sort("ts").collect()
    return list(zip(spans["name"], spans["dur"], strict=True))


def test_a_trace_has_the_phases_of_a_loop_without_markers_of_them(tmp_path):
    train(tmp_path / "run", torch=False)
    phases = phases_of(tmp_path / "run")
    assert [name for name, _ in phases] == ["event/forward", "event/backward", "event/optimizer"] * 5
    for name, least_ms in (("event/forward", 5), ("event/backward", 7), ("event/optimizer", 3)):
        assert all(duration_ns >= least_ms * MS for found, duration_ns in phases if found == name), name
    with load(tmp_path / "run" / "traces" / "merged_trace.json.gz") as trace:
        assert not trace.errors()


@pytest.mark.parametrize("calls_step", [False, True])
def test_loop_on_another_thread_than_the_start_has_its_phases_and_waits(tmp_path, calls_step):
    def train():
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = torch.utils.data.DataLoader(torch.ones(8, 2))
        for batch in loader if calls_step else profiler.batches(loader):
            model(batch).sum().backward()
            optimizer.step()
            if calls_step:
                profiler.step()

    schedule = cyclic_schedule(skip_first=2, warmup=0, active=4, per="run")
    with kinetoscope.profile(tmp_path, schedule=schedule, torch=False, system=False, quiet=True) as profiler:
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
    assert [name for name, _ in phases_of(tmp_path)] == ["event/forward", "event/backward", "event/optimizer"] * 4
    waits = kinetoscope.load(tmp_path).spans.filter(pl.col("name") == "event/dataloader").collect()
    assert len(waits) == 4
    (pulses,) = find_pulses(tmp_path).values()
    assert all(row.by_phase[Phase.DATA_WAIT] for row in pulses[0].rows[1:])


def test_each_micro_batch_has_a_forward_and_a_backward_pass(tmp_path):
    train(tmp_path / "run", torch=False, num_micro_batches=3)
    of_a_step = ["event/forward", "event/backward"] * 3 + ["event/optimizer"]
    assert [name for name, _ in phases_of(tmp_path / "run")] == of_a_step * 5


def test_without_operators_the_phases_are_known_but_not_what_bounds_the_step(tmp_path):
    """There may be a device without any recorded work."""
    train(tmp_path / "run", torch=False)
    report = kinetoscope.analyze(tmp_path / "run")
    host = report.run["parts"]["host"]
    for name, least_ms in (("forward_ns", 5), ("backward_ns", 7), ("optimizer_ns", 3)):
        assert host[name] >= least_ms * MS, name
    assert report.run["bound_by"] == "unknown"
    assert not report.findings


def test_operators_determine_the_phases_if_recorded(tmp_path):
    train(tmp_path / "watched")
    report = kinetoscope.analyze(tmp_path / "watched")
    host = report.run["parts"]["host"]
    assert len(phases_of(tmp_path / "watched")) == 15
    assert host["backward_ns"] >= 7 * MS
    assert report.run["bound_by"] == "host"


def test_optimizer_has_its_time_when_the_step_ends_in_its_hook(tmp_path):
    """Torch's span of it begins within the step and ends after it, so it is not on the loop's track."""
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.register_step_pre_hook(lambda *_: time.sleep(0.003))
    with kinetoscope.profile(tmp_path, system=False, quiet=True) as profiler:
        optimizer.register_step_post_hook(lambda *_: profiler.step())
        for _ in range(14):
            model(torch.ones(2)).sum().backward()
            optimizer.step()
    host = kinetoscope.analyze(tmp_path).run["parts"]["host"]
    assert host["optimizer_ns"] >= 3 * MS
    assert host["backward_ns"] > 0


def test_writing_a_checkpoint_is_from_the_first_call_to_the_last(tmp_path, monkeypatch):
    module = SimpleNamespace(serialize_file=lambda values: time.sleep(0.004), __name__="safetensors.torch")
    original = module.serialize_file
    optimizer = SlowOptimizer([torch.nn.Parameter(torch.zeros(2))], lr=0.1)
    with kinetoscope.profile(tmp_path / "run", torch=False, system=False, quiet=True) as profiler:
        for step in range(4):
            optimizer.step()
            if step == 1:
                monkeypatch.setitem(sys.modules, "safetensors.torch", module)  # imported where it is used first
            if step == 2:
                torch.save(optimizer.state_dict(), tmp_path / "optimizer.pt")
                time.sleep(0.006)
                module.serialize_file({})
            profiler.step()
        with pytest.raises(TypeError):
            torch.save()
    assert module.serialize_file is original
    steps = kinetoscope.load(tmp_path / "run").all_steps
    checkpoints = steps["checkpoint_ns"].to_list()
    assert [duration_ns or 0 for duration_ns in checkpoints[:2]] == [0, 0]
    assert 10 * MS <= checkpoints[2] <= steps["duration_ns"][2] - 3 * MS
    assert checkpoints[3] == 0
    assert "optimizer.pt" in {path.name for path in tmp_path.iterdir()}


def test_steps_that_another_thread_takes_are_no_python_of_the_loop(tmp_path):
    """Torch records the operators of one thread."""
    model, schedule = torch.nn.Linear(64, 64), cyclic_schedule(skip_first=2, warmup=1, active=8, per="run")
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(48, 64)), batch_size=4)

    def take_step(batch):
        model(batch).sum().backward()

    async def train_elsewhere():
        with kinetoscope.profile(tmp_path / "run", schedule=schedule, system=False, quiet=True) as profiler:
            for (batch,) in profiler.batches(loader):
                await asyncio.to_thread(take_step, batch)

    asyncio.run(train_elsewhere())
    report = kinetoscope.analyze(tmp_path / "run", cache=False)
    assert "python_overhead" not in [finding.kind for finding in report.findings]
    host = report.run["parts"]["host"]
    assert host["python_ns"] is None
    assert host["unknown_ns"] > 0
    assert any("profile_all_threads=True" in note for note in report.run["notes"])
