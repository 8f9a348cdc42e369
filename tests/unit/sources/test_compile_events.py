"""CompileEvents: what is recorded of torch.compile, in which words, and what is left behind."""

import pytest

from kinetoscope import CompileEvents, ProfilerAction
from kinetoscope.core.paths.source_files import source_name
from kinetoscope.recording.profiler import Profiler
from kinetoscope.sources.compile_events import format_guard
from kinetoscope.testing import MemoryTraceHandler
from support.failing_clock import FailingClock

torch = pytest.importorskip("torch")

BATCHES = [ProfilerAction.SKIP, ProfilerAction.ACTIVE, ProfilerAction.ACTIVE, ProfilerAction.ACTIVE_AND_SAVE]


@pytest.fixture
def dynamo():
    import torch._dynamo

    torch._dynamo.reset()
    yield torch._dynamo
    torch._dynamo.reset()


def scaled_sum(rows, scale):
    return (rows * scale).sum()


LINE = scaled_sum.__code__.co_firstlineno


def record(work):
    """Return the compilations while ``work(number)`` was called in each of four batches; the last three count."""
    handler = MemoryTraceHandler()
    with Profiler(
        lambda state: BATCHES[state.timestamp.batch % 4], handler, sources=[CompileEvents()], strict=True
    ) as profiler:
        for number in profiler.batches(range(4)):
            work(number)
    return handler.events("compile")


def test_each_compilation_in_a_window_is_a_span_with_function_line_and_guard(dynamo):
    compiled = torch.compile(scaled_sum, backend="eager")
    spans = record(lambda number: compiled(torch.ones((32, 17, 18, 19)[number], 4), 2.0 + (number == 3)))
    assert [span.name for span in spans] == ["compile/scaled_sum"] * 2
    assert {span.args["line"] for span in spans} == {f"{source_name(__file__)}:{LINE}"}
    assert [span.args["guard"] for span in spans] == [
        "`rows.size()[0]` was 32, is 17",
        "`scale == 2.0` no longer holds",
    ]
    assert all(span.end_ns > span.begin_ns for span in spans)


def test_the_first_compilation_has_no_guard(dynamo):
    compiled = torch.compile(scaled_sum, backend="eager")
    (span,) = record(lambda number: number and compiled(torch.ones(4), 2.0))
    assert (span.args["function"], "guard" in span.args) == ("scaled_sum", False)


def test_torch_has_the_same_callbacks_before_during_skipped_batches_and_after_a_run(dynamo):
    handler = dynamo.callback.callback_handler
    before, inside = (list(handler.start_callbacks), list(handler.end_callbacks)), []
    record(lambda number: inside.append((len(handler.start_callbacks), len(handler.end_callbacks))))
    num_start, num_end = map(len, before)
    assert inside == [(num_start, num_end)] + [(num_start + 1, num_end + 1)] * 3
    assert (handler.start_callbacks, handler.end_callbacks) == before


def test_a_reset_of_the_compiler_in_the_loop_is_no_error(dynamo):
    record(lambda number: dynamo.reset())


def compile_with_a_broken_clock(dynamo, results, *, begins_broken, strict=False):
    """Train with a clock that breaks before a compilation, or in it; return what was recorded."""
    clock = FailingClock()

    def breaking(graph, inputs):
        clock.is_broken = True
        return graph.forward

    compiled, handler = torch.compile(scaled_sum, backend=breaking), MemoryTraceHandler()
    with Profiler(
        lambda state: ProfilerAction.ACTIVE, handler, sources=[CompileEvents()], clock=clock, strict=strict
    ) as profiler:
        for number in profiler.batches(range(4)):
            dynamo.reset_code_caches()
            clock.is_broken = begins_broken
            results.append(float(compiled(torch.ones(number + 1), 2.0)))
            clock.is_broken = False
    return handler.events("compile")


@pytest.mark.parametrize("begins_broken", [True, False])
def test_internal_error_in_a_compilation_is_logged_once_and_hidden_from_training(dynamo, caplog, begins_broken):
    results = []
    assert compile_with_a_broken_clock(dynamo, results, begins_broken=begins_broken) == []
    assert results == [2.0, 4.0, 6.0, 8.0]
    assert len([text for text in caplog.messages if "CompileEvents failed and is switched off" in text]) == 1
    assert not dynamo.callback.callback_handler.start_callbacks


def test_a_strict_run_raises_such_an_error_at_its_end_and_not_in_the_compilation(dynamo):
    results = []
    with pytest.raises(OSError, match="the clock is broken"):
        compile_with_a_broken_clock(dynamo, results, begins_broken=True, strict=True)
    assert results == [2.0, 4.0, 6.0, 8.0]


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("0/0: tensor 'x' size mismatch at index 0. expected 32, actual 17", "`x.size()[0]` was 32, is 17"),
        ("12/3: tensor 'x' dtype mismatch. expected Float, actual Double", "dtype of `x` was Float, is Double"),
        (
            "1/1: self.training == True      # if self.training:  # /home/ann/a.py:3 in f\nUser stack trace:\n  File",
            "`self.training == True` no longer holds",
        ),
        ("0/1: something in /home/ann/model.py unforeseen", "something in model.py unforeseen"),
    ],
)
def test_failed_guard_is_described_without_paths_and_stacks(reason, words):
    assert format_guard(reason) == words
