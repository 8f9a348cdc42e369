"""sources/module_calls.py with torch's compiler and with wrappers of distributed training."""

import socket

import pytest
import torch
from torch import nn

from kinetoscope import ModuleCalls, Profiler, ProfilerAction
from kinetoscope.testing import MemoryTraceHandler

ACTIVE, SKIP = ProfilerAction.ACTIVE, ProfilerAction.SKIP
NUM_STEPS = 6
WINDOWS = {
    "a window that the first compilation is in": (ACTIVE,) * NUM_STEPS,
    "a window that opens later": (SKIP, SKIP, *(ACTIVE,) * 4),
    "a window that closes earlier": (ACTIVE, ACTIVE, *(SKIP,) * 4),
}


class Block(nn.Module):
    def __init__(self, breaks_graph=False):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.rest = nn.Sequential(nn.ReLU(), nn.Linear(4, 4))
        self.breaks_graph = breaks_graph

    def forward(self, x):
        x = self.linear(x)
        if self.breaks_graph:
            torch._dynamo.graph_break()
        return self.rest(x)


class Model(nn.Module):
    def __init__(self, breaks_graph=False):
        super().__init__()
        self.layers = nn.ModuleList(Block(breaks_graph) for _ in range(2))

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


def compiled_steps(actions, *, breaks_graph, records_modules):
    """Return what torch's compiler counted, the losses, and the names of the recorded calls."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(0)
    model, losses = torch.compile(Model(breaks_graph), backend="eager"), []

    def step(number):
        loss = model(torch.randn(3 if number < NUM_STEPS - 1 else 5, 4)).square().sum()  # the last one recompiles
        loss.backward()
        losses.append(loss.item())

    names = recorded(step, actions, None if records_modules else [])
    counters = {name: dict(values) for name, values in torch._dynamo.utils.counters.items()}
    return {name: counters.get(name) for name in ("stats", "frames", "graph_break")}, losses, names


@pytest.mark.parametrize("breaks_graph", [False, True])
@pytest.mark.parametrize("window", WINDOWS)
def test_the_compiler_makes_the_same_graphs_and_breaks_and_recompiles_as_often(window, breaks_graph):
    pytest.importorskip("torch._dynamo")
    actions = WINDOWS[window]
    expected = compiled_steps(actions, breaks_graph=breaks_graph, records_modules=False)
    found = compiled_steps(actions, breaks_graph=breaks_graph, records_modules=True)
    assert found[:2] == expected[:2]
    assert set(found[2]) == ({"Model", "Model.layers.0", "Model.layers.1"} if breaks_graph else {"Model"})


def test_a_compiled_module_is_one_span_under_its_own_name():
    torch._dynamo.reset()
    model = torch.compile(Model(), backend="eager")
    assert recorded(lambda _: model(torch.ones(1, 4)), (ACTIVE, ACTIVE)) == ["Model", "Model"]


def test_wrappers_of_activation_checkpointing_add_no_span_and_no_name():
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    model = nn.Sequential(checkpoint_wrapper(nn.Linear(4, 4)), nn.ReLU())
    x = torch.ones(1, 4, requires_grad=True)
    names = recorded(lambda _: model(x).sum().backward())
    assert names == ["Sequential", "Sequential.0", "Sequential.1", "Sequential.0"]


@pytest.fixture
def process_group():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    torch.distributed.init_process_group("gloo", init_method=address, world_size=1, rank=0)
    yield
    torch.distributed.destroy_process_group()


def test_data_parallel_models_have_the_names_of_the_model_in_them(process_group):
    model = nn.parallel.DistributedDataParallel(Model())
    names = recorded(lambda _: model(torch.ones(1, 4)).sum().backward())
    assert names[:3] == ["Model", "Model.layers.0", "Model.layers.0.linear"]


def test_sharded_modules_have_the_names_of_their_classes(process_group):
    from torch.distributed.fsdp import fully_shard

    model = Model()
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    names = recorded(lambda _: model(torch.ones(1, 4)).sum().backward())
    assert names[:3] == ["Model", "Model.layers.0", "Model.layers.0.linear"]


@pytest.mark.parametrize(
    ("model", "batch"),
    [
        (nn.LSTM(4, 4, num_layers=2), torch.ones(3, 2, 4)),
        (nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), torch.ones(2, 3, 4)),
        (torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 4)), {nn.Linear}), torch.ones(1, 4)),
        (nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), torch.ones(1, 4)),
    ],
    ids=["LSTM", "transformer layer", "quantized", "parametrized"],
)
def test_modules_of_torch_are_recorded(model, batch):
    assert recorded(lambda _: model(batch))[0].partition(".")[0] == type(model).__name__
