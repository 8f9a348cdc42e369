"""GrowingMemory with real tensors: containers that retain them, lines that add them, and what is not reported."""

import gc
import inspect
import sys
import threading
import weakref
from collections import defaultdict, deque

import pytest

from kinetoscope import Float64Tensors, GrowingMemory, Profiler, ProfilerAction
from kinetoscope.sources import retained_objects
from kinetoscope.testing import MemoryTraceHandler
from support.leaking_loop import NUM_STEPS, Recording, forward, line_here

torch = pytest.importorskip("torch")

CACHE = {}


# -- what is found


def keep_in_a_list():
    recording, losses = Recording(), []
    for _ in recording:
        losses.append(forward())  # here
    return recording, "losses"


def keep_in_a_new_list_each_time():
    recording, losses = Recording(), []
    for _ in recording:
        losses = [*losses[:0], *losses]
        losses += [forward()]  # here
    return recording, "losses"


def keep_in_a_dict():
    recording, seen = Recording(), {}
    for number in recording:
        seen["batch", number] = (number, forward())  # here
    return recording, "seen"


def keep_in_a_deque():
    recording, latest = Recording(), deque()
    for _ in recording:
        latest.appendleft({"loss": forward()})  # here
    return recording, "latest"


def keep_by_name():
    recording, history = Recording(), defaultdict(list)
    for _ in recording:
        history["loss"].append(forward())  # here
    return recording, "history['loss']"


def keep_in_a_global():
    recording = Recording()
    for number in recording:
        CACHE[number] = forward()  # here
    return recording, "CACHE"


def keep_in_a_closure():
    recording, kept = Recording(), set()

    def remember(loss):
        kept.add(loss)  # here

    for _ in recording:
        remember(forward())
    return recording, "kept"


def keep_in_a_sum():
    recording, total = Recording(), 0
    for _ in recording:
        total = total + forward()  # here
    return recording, "total"


class Trainer:
    def __init__(self):
        self.history, self.total, self.model = [], 0, torch.nn.Linear(1, 1)
        self.model.layers = torch.nn.ModuleList([torch.nn.Linear(1, 1)])

    def fit(self, recording):
        for _ in recording:
            self.step()
        return recording


class KeepsResults(Trainer):
    def step(self):
        self.history.append(forward())  # here


class KeepsItsSum(Trainer):
    def step(self):
        self.total += forward()  # here


class Remembering(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.outputs = []

    def forward(self, values):
        self.outputs.append(values)  # here
        return values


class KeepsInALayer(Trainer):
    def __init__(self):
        super().__init__()
        self.model.layer = Remembering()

    def step(self):
        self.model.layer(forward())


@pytest.mark.parametrize(
    "keep",
    [
        keep_in_a_list,
        keep_in_a_new_list_each_time,
        keep_in_a_dict,
        keep_in_a_deque,
        keep_by_name,
        keep_in_a_global,
        keep_in_a_closure,
        keep_in_a_sum,
    ],
)
def test_container_that_keeps_results_is_named_with_the_adding_line(keep):
    CACHE.clear()
    recording, name = keep()
    (holder,) = recording.holders.values()
    assert (holder["holder"], holder["line"]) == (name, line_here(keep))
    assert (holder["steps"], holder["tensors"], holder["graphs"]) == (NUM_STEPS, NUM_STEPS, NUM_STEPS)
    assert holder["location"] == ("global variable" if name == "CACHE" else f"variable of {keep.__name__}")
    if name != "total":
        assert holder["bytes"] == NUM_STEPS * (4 + 48), "a number, and what its backward pass needs"


@pytest.mark.parametrize(
    ("kind", "name", "marked"),
    [
        (KeepsResults, "self.history", KeepsResults.step),
        (KeepsItsSum, "self.total", KeepsItsSum.step),
        (KeepsInALayer, "self.model.layer.outputs", Remembering.forward),
    ],
)
def test_an_attribute_that_keeps_results_is_named_with_the_line_in_its_class(kind, name, marked):
    (holder,) = kind().fit(Recording()).holders.values()
    assert (holder["holder"], holder["line"]) == (name, line_here(marked))
    assert holder["location"] == f"attribute of a {'Remembering' if 'layer' in name else kind.__name__}"


def test_no_line_is_named_if_two_lines_add_to_a_list():
    recording, losses = Recording(), []
    for number in recording:
        if number % 2:
            losses.append(forward())
        else:
            losses.append(forward() * 2)
    (holder,) = recording.holders.values()
    assert "line" not in holder


def test_a_line_that_reads_or_replaces_an_item_is_not_one_that_adds():
    recording, losses, seen = Recording(), [], {}
    for number in recording:
        losses.append(forward())  # here
        losses[0] = losses[-1]
        seen[number] = forward()
        assert seen[number] is not None
    holders, first = recording.holders, line_here(test_a_line_that_reads_or_replaces_an_item_is_not_one_that_adds)
    file, _, line = first.rpartition(":")
    assert holders["losses"]["line"] == first
    assert holders["seen"]["line"] == f"{file}:{int(line) + 2}"


def test_no_line_is_named_for_a_method_bound_before_the_loop():
    recording, losses = Recording(), []
    keep = losses.append
    for _ in recording:
        keep(forward())
    assert "line" not in recording.holders["losses"]


def test_object_that_gets_a_tensor_in_under_5_percent_of_steps_is_not_named():
    recording, often, seldom = Recording(num_batches=61), [], []
    for number in recording:
        often.append(forward())
        if number in (20, 40):
            seldom.append(forward())
    assert set(recording.holders) == {"often"}


def test_a_loop_in_a_notebook_is_looked_at():
    cell = "losses = []\nfor _ in recording:\n    losses.append(forward())\n"
    names = {"recording": Recording(), "forward": forward, "__name__": "__main__"}
    exec(compile(cell, "<ipython-input-7-aa>", "exec"), names)
    (holder,) = names["recording"].holders.values()
    assert (holder["holder"], holder["line"]) == ("losses", "<ipython-input-7-aa>:3")


# -- what is not


def test_object_without_tensors_across_steps_is_not_named():
    model = torch.nn.Linear(3, 3)
    optimizer = torch.optim.Adam(model.parameters())
    recording, numbers, latest, results = Recording(), [], deque(maxlen=3), []
    for _ in recording:
        results = [forward(), forward()]
        optimizer.zero_grad()
        model(torch.ones(3)).sum().backward()
        optimizer.step()
        numbers.append(results[0].item())
        latest.append(results[1])
    assert recording.holders == {}
    (seen,) = recording.notes
    assert (seen["complete"], seen["holders"]) == (1, 0)


def test_sum_with_freed_graphs_keeps_no_memory_and_is_not_named():
    recording, total = Recording(), 0
    for _ in recording:
        loss = forward()
        loss.backward()
        total = total + loss
    assert recording.holders == {}


def test_a_result_that_depends_on_one_from_before_the_loop_does_not_grow():
    recording, before, loss = Recording(), forward(), None
    for _ in recording:
        loss = forward() + before
    assert recording.holders == {}
    assert loss is not None


def test_nothing_is_printed_after_the_function_of_the_loop_returns():
    handler = MemoryTraceHandler()
    profiler = Profiler(lambda state: ProfilerAction.ACTIVE, handler, sources=[GrowingMemory()], strict=True)

    def train():
        losses = []
        for _ in profiler.batches(range(4)):
            losses.append(forward())

    with profiler:
        train()
    assert handler.events("memory_holder") == []


@pytest.mark.parametrize(("limit", "value"), [("MAX_OBJECTS", 50), ("MAX_SCAN_NS", 0)])
def test_a_look_that_had_to_end_early_says_so(limit, value, monkeypatch):
    monkeypatch.setattr(retained_objects, limit, value)
    many = [[] for _ in range(100)]
    recording = Recording()
    for _ in recording:
        pass
    assert recording.notes[-1]["complete"] == 0
    assert len(many) == 100


def test_a_first_look_that_had_to_end_early_says_so(monkeypatch):
    monkeypatch.setattr(retained_objects, "MAX_OBJECTS", 500)
    many = [[[] for _ in range(100)] for _ in range(100)]
    recording = Recording()
    for _ in recording:
        many.clear()
    assert recording.notes[-1]["complete"] == 1
    many += [[[] for _ in range(100)] for _ in range(100)]
    recording = Recording()
    for number in recording:
        if number:
            many.clear()
    assert recording.notes[-1]["complete"] == 0


# -- what it leaves alone


@pytest.mark.parametrize("is_enabled", [True, False])
def test_gc_does_not_run_during_a_scan(is_enabled):
    """Right after one it may: Python keeps some freed tuples for reuse, and counts them as if they were alive."""
    begun, many = [], [[[], []] for _ in range(2000)]
    recording = Recording()

    def note(phase, info):
        begun.extend(frame.function for frame in inspect.stack(0) if frame.filename == retained_objects.__file__)

    gc.callbacks.append(note)
    if not is_enabled:
        gc.disable()
    try:
        for _ in recording:
            gc.collect()  # also frees the tuples that Python keeps
        assert gc.isenabled() is is_enabled
    finally:
        gc.callbacks.remove(note)
        gc.enable()
    assert set(begun) <= {"scan_objects"}
    assert len(many) == 2000


def test_a_collector_that_another_thread_switches_off_during_a_look_stays_off():
    thresholds = gc.get_threshold()
    try:
        with Profiler(lambda state: ProfilerAction.ACTIVE, MemoryTraceHandler()) as profiler:
            with retained_objects.scan_objects(profiler.run, inspect.currentframe()) as scan:
                other = threading.Thread(target=gc.disable)
                other.start()
                other.join()
                assert scan.objects
            assert not gc.isenabled()
            assert gc.get_threshold() == thresholds
    finally:
        gc.enable()


def test_a_tensor_lives_no_longer_because_it_was_looked_at():
    gc.disable()
    try:
        handler = MemoryTraceHandler()
        profiler = Profiler(lambda state: ProfilerAction.ACTIVE, handler, sources=[GrowingMemory()], strict=True)
        with profiler:
            kept = [forward()]
            for number in profiler.batches(range(3)):
                if number == 1:
                    result = weakref.ref(kept[0])
                    del kept
                    assert result() is None, "after the first scan"
                loss = forward()
        result = weakref.ref(loss)
        del loss
        assert result() is None, "after the last scan"
    finally:
        gc.enable()


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="locals() of a function is a copy there")
def test_variables_that_exec_made_stay_where_the_user_finds_them():
    exec("made = 7")
    for _ in Recording():
        pass
    assert locals()["made"] == 7


class Unfriendly:
    """Counts how often code of its class runs."""

    num_calls = 0

    def _count(self, *arguments):
        Unfriendly.num_calls += 1
        raise RuntimeError("a method of the user's was called")

    __len__ = __iter__ = __eq__ = __hash__ = __bool__ = __getattr__ = __repr__ = __getitem__ = __contains__ = _count
    values = property(_count)

    @property
    def __dict__(self):
        return self._count()


class UnfriendlyList(list):
    __len__ = __iter__ = __getitem__ = __reversed__ = Unfriendly._count


class UnfriendlyTensor(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        Unfriendly.num_calls += is_recorded
        return super().__torch_function__(function, types, args, kwargs or {})


is_recorded = False


def test_no_code_of_the_users_is_called():
    global is_recorded
    tensor = (torch.ones(2, requires_grad=True) * 2).as_subclass(UnfriendlyTensor)
    recording, unfriendly, kept = Recording(), Unfriendly(), UnfriendlyList()
    is_recorded = True
    for _ in recording:
        list.append(kept, tensor)
    is_recorded = False
    assert Unfriendly.num_calls == 0
    assert recording.holders["kept"]["tensors"] == NUM_STEPS
    assert unfriendly is not None


class KeepsInItsClass:
    shared = []

    def step(self):
        self.shared.append(forward())  # here


class Remembers(torch.optim.SGD):
    def step(self):
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter].setdefault("history", []).append(forward())


def test_the_state_of_an_optimizer_is_looked_at_where_it_can_grow():
    parameters = [torch.nn.Parameter(torch.ones(3))]
    own, searching = Remembers(parameters, lr=0.1), torch.optim.LBFGS(parameters, lr=0.1, max_iter=1)
    recording = Recording()

    def loss():
        searching.zero_grad()
        loss = (parameters[0] ** 4).sum()
        loss.backward()
        return loss

    for _ in recording:
        own.step()
        searching.step(loss)
    assert recording.holders["own.state[...]['history']"]["graphs"] == NUM_STEPS
    assert recording.holders["searching.state[...]['old_dirs']"]["tensors"] == NUM_STEPS


def test_a_list_that_a_class_shares_between_its_objects_is_named():
    recording, trainer = Recording(), KeepsInItsClass()
    for _ in recording:
        trainer.step()
    holder = recording.holders["trainer.shared"]
    assert holder["line"] == line_here(KeepsInItsClass.step)
    KeepsInItsClass.shared.clear()


ODD_TENSORS = {
    "sparse COO": lambda: torch.eye(4).to_sparse(),
    "sparse CSR": lambda: torch.eye(4).to_sparse_csr(),
    "strided nested": lambda: torch.nested.nested_tensor([torch.randn(n, 4) for n in (3, 5)]),
    "jagged nested": lambda: torch.nested.nested_tensor([torch.randn(n, 4) for n in (3, 5)], layout=torch.jagged),
    "meta": lambda: torch.empty(4, 4, device="meta"),
    "functional": lambda: torch._to_functional_tensor(torch.randn(4, 4)),
    "without a storage": lambda: torch.randn(4, 4).to_mkldnn(),
    "sparse with a graph": lambda: torch.eye(4, requires_grad=True).to_sparse() * 2,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ODD_TENSORS)
def test_kept_tensors_without_memory_of_their_own_end_no_source(kind, caplog):
    try:
        ODD_TENSORS[kind]()
    except RuntimeError as error:
        pytest.skip(f"this torch does not have them: {error}")
    recording, kept = Recording(more_sources=[Float64Tensors()]), []
    for _ in recording:
        kept.append(ODD_TENSORS[kind]())
    assert "kept" in recording.holders
    assert caplog.text == ""
