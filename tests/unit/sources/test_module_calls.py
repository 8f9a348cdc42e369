"""sources/module_calls.py: calls of torch modules as spans, with every kind of model, and nothing left in any."""

import copy
import ctypes
import pickle
import sys
import threading

import pytest

from kinetoscope import ModuleCalls, Profiler, ProfilerAction
from kinetoscope.sources import module_names
from kinetoscope.testing import MemoryTraceHandler

torch = pytest.importorskip("torch")
pytest.importorskip("torch.utils.checkpoint")
nn = torch.nn
CALL = nn.Module.__dict__["__call__"]


def vectorcall():
    """Return the address of the C code that CPython calls for `CALL`."""
    get = ctypes.pythonapi.PyVectorcall_Function
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object]
    return get(CALL)


PLAIN_CALL = vectorcall()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = nn.Linear(4, 4)
        self.mlp = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def forward(self, x):
        return self.mlp(self.attn(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


NAMES_OF_MODEL = [
    "Model",
    *(f"Model.layers.{layer}{part}" for layer in (0, 1) for part in ("", ".attn", ".mlp", ".mlp.0", ".mlp.1")),
    "Model.head",
]


def recorded(work, actions=(ProfilerAction.ACTIVE,)):
    """Return the spans of modules that ``work`` calls, batch by batch, as name, begin and end, in order of begin."""
    handler = MemoryTraceHandler()

    def schedule(state):
        return actions[min(int(state.timestamp.batch), len(actions) - 1)]

    with Profiler(schedule, handler, sources=[ModuleCalls()], strict=True) as profiler:
        for _ in profiler.batches(range(len(actions))):
            work()
    assert vectorcall() == PLAIN_CALL
    names = {name.name for cycle in handler.cycles for name in cycle.names if name.categories == ("module",)}
    spans = [(name, begin, end) for name, begin, end in handler.spans() if name in names]
    return sorted(spans, key=lambda span: (span[1], -span[2]))


def names_of(work):
    return [name for name, _, _ in recorded(work)]


def test_each_call_of_a_module_is_a_span_with_its_qualified_name():
    model = Model()
    assert names_of(lambda: model(torch.ones(1, 4))) == NAMES_OF_MODEL


def test_spans_of_modules_nest_as_the_calls_do():
    model = Model()
    spans = recorded(lambda: model(torch.ones(1, 4)))
    _, begin, end = spans[0]
    assert all(begin <= first and last <= end for _, first, last in spans[1:])


def test_the_class_and_the_depth_are_args_of_the_name():
    handler = MemoryTraceHandler()
    model = Model()
    with Profiler(lambda _: ProfilerAction.ACTIVE, handler, sources=[ModuleCalls()], strict=True) as profiler:
        for _ in profiler.batches(range(1)):
            model(torch.ones(1, 4))
    args = {name.name: dict(name.args) for name in handler.cycles[0].names if name.categories == ("module",)}
    assert args["Model"] == {"class": "Model", "depth": 0}
    assert args["Model.layers.1.mlp"] == {"class": "Sequential", "depth": 3}


def test_outside_of_windows_nothing_is_installed_and_nothing_recorded():
    model = Model()
    seen = []
    skip, active = ProfilerAction.SKIP, ProfilerAction.ACTIVE

    def work():
        seen.append(vectorcall() == PLAIN_CALL)
        model(torch.ones(1, 4))

    spans = recorded(work, (skip, active, skip, active, skip))
    assert len(spans) == 2 * len(NAMES_OF_MODEL)
    assert seen[0] is True
    assert seen[1] is False


def test_models_of_one_class_are_numbered():
    first, second, loss = nn.Linear(4, 4), nn.Linear(4, 4), nn.MSELoss()
    assert names_of(lambda: loss(first(torch.ones(1, 4)), second(torch.ones(1, 4)))) == [
        "Linear",
        "Linear-2",
        "MSELoss",
    ]


def test_modules_that_are_made_anew_in_each_step_have_one_name():
    def work():
        loss = nn.MSELoss()
        loss(nn.ReLU()(torch.ones(1)), torch.zeros(1))
        nn.ReLU()(torch.ones(1))

    spans = recorded(work, (ProfilerAction.ACTIVE,) * 5)
    assert [name for name, _, _ in spans] == ["ReLU", "MSELoss", "ReLU"] * 5


def test_the_model_is_not_searched_for_each_module_that_is_made_anew(monkeypatch):
    searched = []

    def name_modules(root):
        searched.append(type(root).__name__)
        return module_names.name_modules(root)

    class Activating(nn.Module):
        def forward(self, x):
            return nn.ReLU()(nn.Tanh()(x))

    monkeypatch.setattr("kinetoscope.sources.module_calls.name_modules", name_modules)
    model = Activating()
    recorded(lambda: model(torch.ones(1)), (ProfilerAction.ACTIVE,) * 20)
    assert searched.count("Activating") <= 3  # first for itself, then once for each class


def test_a_model_that_several_threads_call_first_has_one_name():
    model, interval = Model(), sys.getswitchinterval()
    ready = threading.Barrier(8)

    def call():
        ready.wait()
        model(torch.ones(1, 4))

    def work():
        threads = [threading.Thread(target=call) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    sys.setswitchinterval(1e-6)
    try:
        names = names_of(work)
    finally:
        sys.setswitchinterval(interval)
    assert sorted(names) == sorted(NAMES_OF_MODEL * 8)


class DataParallel(nn.Module):
    """As torch's DistributedDataParallel, by the names that count."""

    __module__, __qualname__ = "torch.nn.parallel.distributed", "DistributedDataParallel"

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)


DataParallel.__name__ = "DistributedDataParallel"


@pytest.mark.parametrize("wrap_first", [True, False])
def test_a_model_and_its_wrapper_have_one_name_and_one_span(wrap_first):
    """Training calls the wrapper, and an evaluation the model in it."""
    model = nn.Sequential(nn.Linear(4, 4))
    wrapper = DataParallel(model)

    def work():
        for each in (wrapper, model, wrapper) if wrap_first else (model, wrapper, model):
            each(torch.ones(1, 4))

    assert names_of(work) == ["Sequential", "Sequential.0"] * 3


def test_a_wrapped_layer_in_a_model_that_was_called_before_keeps_its_name():
    model = Model()
    model(torch.ones(1, 4))

    def work():
        model(torch.ones(1, 4))
        model.layers[0] = DataParallel(model.layers[0])
        model(torch.ones(1, 4))

    assert names_of(work) == NAMES_OF_MODEL * 2


def test_modules_that_are_added_get_their_names():
    model = Model()

    def work():
        model(torch.ones(1, 4))
        model.layers.append(nn.Linear(4, 4))

    assert names_of(lambda: (work(), model(torch.ones(1, 4))))[-2:] == ["Model.layers.2", "Model.head"]


def test_a_call_that_raises_ends_its_span():
    class Failing(nn.Module):
        def forward(self, x):
            raise KeyError("forward")

    model = nn.Sequential(nn.ReLU(), Failing())

    def work():
        with pytest.raises(KeyError, match="forward"):
            model(torch.ones(1))

    assert names_of(work) == ["Sequential", "Sequential.0", "Sequential.1"]


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputed_calls_of_activation_checkpointing_are_recorded(reentrant):
    block = Block()

    def work():
        x = torch.ones(1, 4, requires_grad=True)
        torch.utils.checkpoint.checkpoint(block, x, use_reentrant=reentrant).sum().backward()

    assert names_of(work).count("Block") == 2


def test_shared_modules_have_their_first_name():
    shared = nn.Linear(4, 4)
    model = nn.Sequential(shared, nn.ReLU(), shared)
    assert names_of(lambda: model(torch.ones(1, 4))) == [
        "Sequential",
        "Sequential.0",
        "Sequential.1",
        "Sequential.0",
    ]


def test_a_module_that_calls_itself_is_recorded_at_each_call():
    class Recursive(nn.Module):
        def forward(self, num_calls):
            return self(num_calls - 1) if num_calls else 0

    model = Recursive()
    assert names_of(lambda: model(2)) == ["Recursive"] * 3


def test_modules_that_are_not_registered_have_names_of_their_own():
    class Hidden(nn.Module):
        def __init__(self):
            super().__init__()
            self.others = [nn.ReLU()]

        def forward(self, x):
            return self.others[0](x)

    model = Hidden()
    assert names_of(lambda: model(torch.ones(1))) == ["Hidden", "ReLU"]


def test_modules_called_on_several_threads_are_recorded_on_each():
    models = [Model(), Model()]

    def work():
        threads = [threading.Thread(target=model, args=(torch.ones(1, 4),)) for model in models]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    names = names_of(work)
    assert len(names) == 2 * len(NAMES_OF_MODEL)
    assert {name.partition(".")[0] for name in names} == {"Model", "Model-2"}


def test_no_python_code_sees_a_difference_in_a_window():
    model, code = Model(), CALL.__code__

    def work():
        assert nn.Module.__dict__["__call__"] is nn.Module.__call__ is CALL
        assert model.__call__.__func__ is CALL
        assert type(model).forward is Model.forward
        assert CALL.__code__ is code
        assert CALL.__dict__ == {}

    assert recorded(work) == []


class Overriding(nn.Linear):
    """As layers of Transformers do for activation checkpointing."""

    def __call__(self, *arguments, **options):
        return super().__call__(*arguments, **options)


class CallingByName(nn.Linear):
    def __call__(self, *arguments):
        return nn.Module.__call__(self, *arguments)


@pytest.mark.parametrize("layer", [Overriding, CallingByName])
def test_classes_that_override_the_call_are_recorded(layer):
    model = nn.Sequential(layer(4, 4), nn.ReLU())
    assert names_of(lambda: model(torch.ones(1, 4))) == ["Sequential", "Sequential.0", "Sequential.1"]


def test_a_call_of_the_bound_method_is_recorded():
    layer = Overriding(4, 4)

    def work():
        x = torch.ones(1, 4, requires_grad=True)
        torch.utils.checkpoint.checkpoint(super(Overriding, layer).__call__, x, use_reentrant=False).sum().backward()

    assert names_of(work) == ["Overriding", "Overriding"]


def test_an_unsupported_torch_is_reported_in_one_line(monkeypatch, caplog):
    monkeypatch.delattr(nn.Module, "_wrapped_call_impl")
    model = Model()
    assert recorded(lambda: model(torch.ones(1, 4)), (ProfilerAction.ACTIVE,) * 2) == []
    (line,) = [record.message for record in caplog.records if "modules" in record.message]
    assert line == "Calls of modules are not recorded: this version of torch is not supported."


def test_of_two_sources_one_records_and_the_other_reports_that(caplog):
    handler = MemoryTraceHandler()
    model = Model()
    with Profiler(lambda _: ProfilerAction.ACTIVE, handler, sources=[ModuleCalls(), ModuleCalls()]) as profiler:
        for _ in profiler.batches(range(2)):
            model(torch.ones(1, 4))
    assert [name for name, _, _ in handler.spans()].count("Model") == 2
    assert caplog.text.count("not recorded: another recorder of calls is running.") == 1


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_model_is_copied_and_pickled_within_a_window(duplicate):
    model, copies = Model(), []

    def work():
        model(torch.ones(1, 4))
        copies.append(duplicate(model))
        copies[0](torch.ones(1, 4))

    assert names_of(work)[len(NAMES_OF_MODEL)] == "Model-2"


def test_a_model_is_the_same_after_the_window():
    model = Model()
    before = [(module, dict(module.__dict__)) for module in model.modules()]
    recorded(lambda: model(torch.ones(1, 4)))
    assert all(module.__dict__.keys() == attributes.keys() for module, attributes in before)
    assert all(module.__dict__[key] is value for module, attributes in before for key, value in attributes.items())


def describe_model(model):
    """Return all that recording might change in a model and its classes."""
    instances = [(module, {key: id(value) for key, value in vars(module).items()}) for module in model.modules()]
    hooks = [{key: dict(value) for key, value in vars(module).items() if "hooks" in key} for module in model.modules()]
    of_classes = [(kind, {**vars(kind)}) for kind in {type(module) for module in model.modules()} | {nn.Module}]
    forwards = [(module.forward.__func__, type(module).forward) for module in model.modules()]
    return instances, hooks, of_classes, forwards, list(model.state_dict()), pickle.dumps(model)


def test_a_model_and_its_classes_are_the_same_in_a_window_and_after_it():
    model = Model()
    before, within = describe_model(model), []

    def work():
        model(torch.ones(1, 4))
        within.append(describe_model(model))

    recorded(work)
    assert within == [before]
    assert describe_model(model) == before


def global_hooks():
    """Return the hooks that are set for all modules."""
    names = [name for name in vars(nn.modules.module) if name.startswith("_global_") and name.endswith("_hooks")]
    return {name: dict(vars(nn.modules.module)[name]) for name in names}


@pytest.mark.parametrize("is_within", [True, False])
def test_torch_profiler_with_modules_records_as_well(is_within):
    model, before = Model(), global_hooks()

    def work():
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_modules=True) as other:
            model(torch.ones(1, 4))
        assert any(event.key == "aten::linear" for event in other.key_averages())

    if is_within:
        assert names_of(work) == NAMES_OF_MODEL
    else:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_modules=True):
            assert names_of(lambda: model(torch.ones(1, 4))) == NAMES_OF_MODEL
    assert global_hooks() == before


def test_a_hook_of_others_that_is_set_within_a_window_stays_after_it():
    model, calls, handles = Model(), [], []

    def work():
        hook = nn.modules.module.register_module_forward_hook(lambda module, arguments, output: calls.append(module))
        handles.append(hook)
        model(torch.ones(1, 4))

    try:
        assert names_of(work) == NAMES_OF_MODEL
        model(torch.ones(1, 4))
    finally:
        handles[0].remove()
    assert len(calls) == 2 * len(NAMES_OF_MODEL)


def test_other_code_may_replace_the_call_of_modules_within_a_window(monkeypatch):
    model, calls = Model(), []

    def replacement(self, *arguments):
        calls.append(type(self))
        return CALL(self, *arguments)

    def work():
        monkeypatch.setattr(nn.Module, "__call__", replacement)
        model(torch.ones(1, 4))

    assert names_of(work) == NAMES_OF_MODEL
    assert nn.Module.__dict__["__call__"] is replacement
    assert len(calls) == len(NAMES_OF_MODEL)


def test_a_module_that_yields_is_recorded_until_it_returns_its_generator():
    class Yielding(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.ReLU()

        def forward(self, count):
            for _ in range(count):
                yield self.layer(torch.ones(1))

    model = Yielding()
    spans = recorded(lambda: [*model(2)])
    assert [name for name, _, _ in spans] == ["Yielding", "Yielding.layer", "Yielding.layer"]
    assert spans[0][2] <= spans[1][1]


def test_a_window_that_closes_within_calls_of_another_thread_leaves_them_running():
    inside, closed = threading.Event(), threading.Event()

    class Waiting(nn.Module):
        def forward(self, x):
            inside.set()
            assert closed.wait(60)
            return x + 1

    model, results = nn.Sequential(Waiting(), nn.ReLU()), []
    thread = threading.Thread(target=lambda: results.append(model(torch.ones(1)).item()))

    def work():
        thread.start()
        assert inside.wait(60)

    names = names_of(work)
    closed.set()
    thread.join()
    assert results == [2.0]
    assert names == ["Sequential", "Sequential.0"]
    assert names_of(lambda: model(torch.ones(1))) == ["Sequential", "Sequential.0", "Sequential.1"]


def test_no_module_is_kept_alive():
    import gc
    import weakref

    alive = []

    def work():
        model = Model()
        model(torch.ones(1, 4))
        alive.append(weakref.ref(model))
        del model
        gc.collect()
        assert alive[0]() is None

    recorded(work)


def test_functional_calls_vmap_scripts_and_symbolic_traces_work_in_a_window():
    model = Model()
    scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))

    def work():
        torch.func.functional_call(model, dict(model.named_parameters()), (torch.ones(1, 4),))
        torch.func.vmap(model)(torch.ones(3, 1, 4))
        scripted(torch.ones(1, 4))
        torch.fx.symbolic_trace(model)(torch.ones(1, 4))

    names = names_of(work)
    assert names.count("Model.head") >= 2


def test_hooks_of_users_are_called_as_without():
    model, calls = Model(), []
    model.head.register_forward_hook(lambda module, arguments, output: calls.append("hook"))
    handle = nn.modules.module.register_module_forward_pre_hook(lambda module, arguments: calls.append("global"))
    try:
        recorded(lambda: model(torch.ones(1, 4)))
    finally:
        handle.remove()
    assert calls.count("hook") == 1
    assert calls.count("global") == len(NAMES_OF_MODEL)


def test_losses_are_bitwise_equal_with_and_without():
    def losses(profiled):
        torch.manual_seed(0)
        model, found = Model(), []
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step():
            loss = model(torch.randn(3, 4)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())

        for _ in range(3):
            recorded(step) if profiled else step()
        return found

    assert losses(profiled=True) == losses(profiled=False)
