"""torch's compiler ignores markers: the number of graphs is the same with and without them."""

import pytest

import kinetoscope
from kinetoscope import ProfilerAction
from kinetoscope.recording.profiler import Profiler
from kinetoscope.testing import MemoryTraceHandler

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def fresh_compiler():
    pytest.importorskip("torch._dynamo.testing")  # here, not above: it takes a second to import
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def running():
    handler = MemoryTraceHandler()
    with Profiler(lambda state: ProfilerAction.ACTIVE, handler) as profiler:
        profiler.memory = handler
        yield profiler


def count_graphs(function, *, fullgraph=True):
    """Compile and call ``function``; return the number of graphs."""
    counter = torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(function, backend=counter, fullgraph=fullgraph)
    x = torch.ones(3)
    assert torch.equal(compiled(x), function(x))
    return counter.frame_count


def plain(x):
    return torch.sin(x) * 2 + 1


def test_a_decorated_function_compiles_into_one_graph(running):
    inner = running.marker("inner")(lambda x: torch.sin(x))

    def step(x):
        return inner(x) * 2 + 1

    assert count_graphs(step) == count_graphs(plain) == 1


def test_a_function_with_a_library_marker_compiles_into_one_graph(running):
    def step(x):
        with kinetoscope.marker("inside"):
            y = torch.sin(x)
        return y * 2 + 1

    assert count_graphs(step) == 1


def test_a_function_with_an_existing_marker_compiles_into_one_graph(running):
    marker = running.marker("ready-made")

    def step(x):
        with marker:
            y = torch.sin(x)
        return y * 2 + 1

    assert count_graphs(step) == 1


def test_a_model_that_holds_a_marker_compiles_into_one_graph(running):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.marker = running.marker("in the model")

        def forward(self, x):
            with self.marker:
                self.marker.instant()
                self.marker.counter({"x": 1.0})
                return plain(x)

    assert count_graphs(Model()) == 1


def test_a_function_with_start_and_finish_compiles_into_one_graph(running):
    marker = running.marker("stretch")

    def step(x):
        marker.start()
        y = torch.sin(x)
        marker.finish()
        return y * 2 + 1

    assert count_graphs(step) == 1


def test_markers_around_a_compiled_step_record_and_those_inside_do_not(running):
    outside, inside = running.marker("outside"), running.marker("inside")

    def step(x):
        with inside:
            return plain(x)

    compiled = torch.compile(step, backend="eager", fullgraph=True)
    for _ in range(3):
        with outside:
            compiled(torch.ones(3))
    running.close()
    names = [name for name, _, _ in running.memory.spans()]
    assert names.count("outside") == 3
    assert "inside" not in names


@pytest.mark.parametrize("mark", [kinetoscope.marker, None], ids=["kinetoscope.marker", "profiler.marker"])
def test_functions_marked_without_parentheses_compile_into_one_graph_and_run(running, mark):
    mark = mark or running.marker

    @mark
    def inner(x):
        return torch.sin(x)

    class Model:
        @mark
        def method(self, x):
            return torch.cos(x)

        @mark
        @staticmethod
        def static(x):
            return torch.tan(x)

        @mark
        @classmethod
        def of_class(cls, x):
            return torch.exp(x)

    model = Model()

    def step(x):
        @mark
        def within(x):
            return inner(x) + 1

        return within(x) + model.method(x) + model.static(x) + model.of_class(x)

    assert count_graphs(step) == 1
    assert count_graphs(mark(plain)) == 1
    assert torch.equal(step(torch.zeros(1)), torch.full((1,), 3.0))


def test_each_marker_method_used_in_compiled_code_compiles_into_one_graph(running):
    for mark in (kinetoscope.marker, running.marker):

        def step(x, mark=mark):
            stretch = mark("stretch")
            stretch.start()
            y = torch.sin(x)
            stretch.finish()
            mark("moment").instant()
            mark("values").counter({"a": 1.0})
            stretch.end(stretch.begin())
            with mark("block", categories=("a",)):
                return y * 2 + 1

        assert count_graphs(step) == 1


def test_markers_compile_into_one_graph_though_no_profiler_ever_ran():
    marker = kinetoscope.marker("idle")

    @marker
    def inner(x):
        return torch.sin(x)

    def step(x):
        with marker:
            return inner(x) * 2 + 1

    assert count_graphs(step) == 1
