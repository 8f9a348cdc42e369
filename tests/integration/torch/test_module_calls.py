"""sources/module_calls.py with torch's compiler and with wrappers of distributed training."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from kinetoscope import ModuleCalls, Profiler, ProfilerAction
from kinetoscope.testing import MemoryTraceHandler
from support.free_ports import free_port
from support.torch_versions import VERSION

ACTIVE, SKIP = ProfilerAction.ACTIVE, ProfilerAction.SKIP
NUM_STEPS = 4
WINDOWS = {
    "a window that the first compilation is in": (ACTIVE,) * NUM_STEPS,
    "a window that opens later": (SKIP, ACTIVE, ACTIVE, ACTIVE),
    "a window that closes earlier": (ACTIVE, SKIP, SKIP, SKIP),
}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.rest = nn.Sequential(nn.ReLU(), nn.Linear(4, 4))

    def forward(self, x):
        return self.rest(self.linear(x))


class BreakingBlock(Block):
    def forward(self, x):
        x = self.linear(x)
        torch._dynamo.graph_break()
        return self.rest(x)


class OverridingBlock(Block):
    """As layers of Transformers do for activation checkpointing."""

    def __call__(self, *arguments, **options):
        return super().__call__(*arguments, **options)


class BreakingOverridingBlock(OverridingBlock, BreakingBlock):
    pass


class Model(nn.Module):
    def __init__(self, block=Block):
        super().__init__()
        self.layers = nn.ModuleList(block() for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def recorded(work, actions=(ACTIVE,), sources=None):
    """Return the names of the recorded calls of modules, in order."""
    handler = MemoryTraceHandler()

    def schedule(state):
        return actions[min(int(state.timestamp.batch), len(actions) - 1)]

    sources = [ModuleCalls()] if sources is None else sources
    with Profiler(schedule, handler, sources=sources, strict=True) as profiler:
        for number in profiler.batches(range(len(actions))):
            work(number)
    names = {name.name for cycle in handler.cycles for name in cycle.names if name.categories == ("module",)}
    return [name for name, _, _ in handler.spans() if name in names]


def compile_model(block):
    return torch.compile(Model(block), backend="eager")


def compile_in_place(block):
    model = Model(block)
    model.compile(backend="eager")
    return model


def compile_layers(block):
    model = Model(block)
    for layer in model.layers:
        layer.compile(backend="eager")
    return model


def compile_function(block):
    return torch.compile(Model(block).forward, backend="eager")


COMPILATIONS = (compile_model, compile_in_place, compile_layers, compile_function)
MODEL, LAYERS = {"Model"}, {"Model.layers.0", "Model.layers.1"}


def compiled_steps(actions, compilation, block, *, records_modules):
    """Return what torch's compiler counted, the losses, and the names of the recorded calls."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(0)
    model, losses = compilation(block), []

    def step(number):
        loss = model(torch.randn(3 if number < NUM_STEPS - 1 else 5, 4)).square().sum()  # the last one recompiles
        loss.backward()
        losses.append(loss.item())

    names = recorded(step, actions, None if records_modules else [])
    counters = {name: dict(values) for name, values in torch._dynamo.utils.counters.items()}
    return {name: counters.get(name) for name in ("stats", "frames", "graph_break", "recompiles")}, losses, names


@pytest.mark.parametrize("block", [OverridingBlock, BreakingOverridingBlock])
@pytest.mark.parametrize("window", WINDOWS)
def test_the_compiler_makes_the_same_graphs_and_breaks_and_recompiles_as_often(window, block):
    pytest.importorskip("torch._dynamo")
    actions = WINDOWS[window]
    expected = compiled_steps(actions, compile_model, block, records_modules=False)
    found = compiled_steps(actions, compile_model, block, records_modules=True)
    assert found[:2] == expected[:2]
    assert set(found[2]) == (MODEL | LAYERS if issubclass(block, BreakingBlock) else MODEL)


@pytest.mark.parametrize("compilation", COMPILATIONS)
@pytest.mark.parametrize("window", WINDOWS)
def test_so_it_does_in_each_way_to_compile(window, compilation):
    pytest.importorskip("torch._dynamo")
    actions = WINDOWS[window]
    expected = compiled_steps(actions, compilation, Block, records_modules=False)
    found = compiled_steps(actions, compilation, Block, records_modules=True)
    assert found[:2] == expected[:2]
    names = {compile_layers: MODEL | LAYERS, compile_function: set()}
    assert set(found[2]) == names.get(compilation, MODEL)


COMPILED_FIRST_IN_A_WINDOW = """
import sys
import torch
from kinetoscope import ModuleCalls, Profiler, ProfilerAction
from kinetoscope.testing import MemoryTraceHandler

handler = MemoryTraceHandler()
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
assert "torch._dynamo.eval_frame" not in sys.modules
with Profiler(lambda state: ProfilerAction.ACTIVE, handler, sources=[ModuleCalls()], strict=True) as profiler:
    for number in profiler.batches(range(2)):
        model = torch.compile(model, backend="eager") if number == 0 else model
        model(torch.ones(1, 4))
print([name for name, _, _ in handler.spans() if name.startswith("Sequential")])
"""


def test_a_model_that_is_compiled_first_within_a_window_has_its_name():
    done = subprocess.run(
        [sys.executable, "-c", COMPILED_FIRST_IN_A_WINDOW], capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.stdout, done.returncode) == ("['Sequential', 'Sequential']\n", 0), done.stderr


@pytest.mark.parametrize("backend", ["aot_eager"])
def test_graphs_that_the_compiler_makes_are_no_modules_of_the_model(backend):
    torch._dynamo.reset()
    model = torch.compile(Model(BreakingBlock), backend=backend)
    names = recorded(lambda _: model(torch.ones(1, 4)).sum().backward(), (ACTIVE, ACTIVE))
    assert set(names) == MODEL | LAYERS


def test_a_compiled_module_is_one_span_under_its_own_name():
    torch._dynamo.reset()
    model = torch.compile(Model(), backend="eager")
    assert recorded(lambda _: model(torch.ones(1, 4)), (ACTIVE, ACTIVE)) == ["Model", "Model"]


def test_a_model_that_is_compiled_after_its_first_call_keeps_its_name():
    torch._dynamo.reset()
    models = [nn.Sequential(nn.ReLU())]

    def step(number):
        if number == 1:
            models.append(torch.compile(models[0], backend="eager"))
        models[-1](torch.ones(1, 4))

    assert recorded(step, (ACTIVE,) * 3) == ["Sequential", "Sequential.0", "Sequential", "Sequential"]


def test_wrappers_of_activation_checkpointing_add_no_span_and_no_name():
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    model = nn.Sequential(checkpoint_wrapper(nn.Linear(4, 4)), nn.ReLU())
    x = torch.ones(1, 4, requires_grad=True)
    names = recorded(lambda _: model(x).sum().backward())
    assert names == ["Sequential", "Sequential.0", "Sequential.1", "Sequential.0"]


@pytest.fixture
def process_group():
    address = f"tcp://127.0.0.1:{free_port()}"
    torch.distributed.init_process_group("gloo", init_method=address, world_size=1, rank=0)
    yield
    torch.distributed.destroy_process_group()


def test_data_parallel_models_have_the_names_of_the_model_in_them(process_group):
    model = nn.parallel.DistributedDataParallel(Model())
    names = recorded(lambda _: model(torch.ones(1, 4)).sum().backward())
    assert names[:3] == ["Model", "Model.layers.0", "Model.layers.0.linear"]


@pytest.mark.skipif(VERSION < (2, 7), reason="fully_shard needs a GPU in torch 2.6")
def test_sharded_modules_have_the_names_of_their_classes(process_group):
    from torch.distributed.fsdp import fully_shard

    model = Model()
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    names = recorded(lambda _: model(torch.ones(1, 4)).sum().backward())
    assert names[:3] == ["Model", "Model.layers.0", "Model.layers.0.linear"]


ROW = torch.ones(1, 4)
MODELS = {
    "LSTM": lambda: (nn.LSTM(4, 4, num_layers=2), torch.ones(3, 2, 4)),
    "transformer layer": lambda: (nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), torch.ones(2, 3, 4)),
    "quantized": lambda: (
        torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 4)), {nn.Linear}),
        ROW,
    ),
    "parametrized": lambda: (nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), ROW),
    "fx": lambda: (torch.fx.symbolic_trace(Model()), ROW),
    "exported": lambda: (torch.export.export(Model(), (ROW,)).module(), ROW),
    "scripted": lambda: (torch.jit.script(nn.Sequential(nn.Linear(4, 4))), ROW),
    "traced": lambda: (torch.jit.trace(Model(), ROW), ROW),
}


@pytest.mark.parametrize("kind", MODELS)
def test_modules_of_torch_are_recorded(kind):
    model, batch = MODELS[kind]()
    assert recorded(lambda _: model(batch))[0].partition(".")[0] == type(model).__name__
