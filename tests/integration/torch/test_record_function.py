"""record_function: the same spans as torch's, in traces and execution traces, and almost no cost when off."""

import json
import threading
from pathlib import Path

import pytest
import torch
import torch.profiler

from kinetoscope.torch import ExecutionTraceObserver, profile, record_function
from support.torch_versions import experimental_config

FACTS = ("name", "activity_type", "scope", "is_user_annotation", "device_type")
FACTS = tuple(fact for fact in FACTS if hasattr(torch._C._autograd._KinetoEvent, fact))


def work() -> None:
    torch.ones(3) + 1


def nested_spans(factory) -> None:
    with factory("outer"):
        with factory("inner", "some text"):
            work()


def recorded(factory, **options) -> list[dict]:
    with profile(**options) as profiler:
        nested_spans(factory)
    events = profiler.profiler.kineto_results.events()
    return [{fact: str(getattr(event, fact)()) for fact in FACTS} for event in events]


@pytest.mark.parametrize("options", [{}, {"record_shapes": True}, {"with_stack": True}], ids=str)
def test_the_same_events_as_stocks(options):
    replacement, stock = recorded(record_function, **options), recorded(torch.profiler.record_function, **options)
    if options.get("with_stack"):  # the Python frames inside the two differ
        replacement, stock = (
            [event for event in events if event.get("activity_type") != "python_function"]
            for events in (replacement, stock)
        )
    assert replacement == stock


def annotations_in_the_trace(path: Path, factory) -> list[dict]:
    with profile(record_shapes=True) as profiler:
        nested_spans(factory)
    profiler.export_chrome_trace(path)
    events = json.loads(path.read_text())["traceEvents"]
    return [
        {"name": event["name"], "args": sorted(event["args"]), "tid": event["tid"]}
        for event in events
        if event.get("cat") == "user_annotation"
    ]


def test_the_same_spans_in_the_trace_as_stocks(tmp_path):
    replacement = annotations_in_the_trace(tmp_path / "ours.json", record_function)
    assert replacement == annotations_in_the_trace(tmp_path / "stock.json", torch.profiler.record_function)
    assert [span["name"] for span in replacement] == ["outer", "inner"]


def test_an_execution_trace_has_the_span_though_no_profiler_runs(tmp_path):
    observer = ExecutionTraceObserver().register_callback(str(tmp_path / "trace.et.json"))
    observer.start()
    with record_function("forward"):
        work()
    observer.stop()
    with record_function("after"):
        work()
    observer.cleanup()
    nodes = json.loads((tmp_path / "trace.et.json").read_text())["nodes"]
    [span] = [node for node in nodes if node["name"] in ("forward", "after")]
    scopes = [attribute["value"] for attribute in span["attrs"] if attribute["name"] == "scope"]
    assert (span["name"], scopes) == ("forward", [7])
    assert span["id"] in {node["ctrl_deps"] for node in nodes if node["name"].startswith("aten::")}


def test_a_thread_that_a_profiler_of_all_threads_records_has_its_spans():
    def work_beside() -> None:
        with record_function("beside"):
            work()

    config = experimental_config(profile_all_threads=True)
    with profile(experimental_config=config) as profiler:
        thread = threading.Thread(target=work_beside)
        thread.start()
        thread.join()
    assert "beside" in {event.name() for event in profiler.profiler.kineto_results.events()}


def test_one_object_may_be_open_inside_itself():
    span = record_function("again")
    with profile() as profiler:
        with span, span:
            work()
        with span:
            work()
    assert [event.name() for event in profiler.profiler.kineto_results.events()].count("again") == 3


def test_a_decorated_function_is_a_span_at_each_call_also_when_it_calls_itself():
    @record_function("count down")
    def count_down(n: int) -> int:
        return n if n == 0 else count_down(n - 1)

    with profile() as profiler:
        assert count_down(2) == 0
    assert [event.name() for event in profiler.profiler.kineto_results.events()].count("count down") == 3
    assert count_down.__name__ == "count_down"


def test_a_span_that_waits_for_a_future_ends_when_that_is_done():
    future = torch.futures.Future()
    with profile() as profiler:
        with record_function("asynchronous") as span:
            done = span._call_end_callbacks_on_future(future)
        with record_function("meanwhile"):
            work()
        future.set_result(3)
        assert done.wait() == 3
        with pytest.raises(RuntimeError, match="once"):
            span._call_end_callbacks_on_future(future)
    spans = {event.name(): event for event in profiler.profiler.kineto_results.events()}
    assert spans["asynchronous"].end_ns() > spans["meanwhile"].end_ns()


def test_future_is_returned_unmodified_without_a_profiler():
    future = torch.futures.Future()
    with record_function("no observer") as span:
        assert span._call_end_callbacks_on_future(future) is future


def test_a_compiled_function_with_a_span_has_one_graph():
    def step(x):
        with record_function("inside"):
            y = x + 1
        return y * 2

    compiled = torch.compile(step, backend="eager", fullgraph=True)
    assert compiled(torch.ones(2)).tolist() == [4, 4]


def test_an_error_inside_a_span_is_raised_and_the_span_ends():
    with profile() as profiler:
        with pytest.raises(ZeroDivisionError), record_function("fails"):
            1 / 0
        work()
    spans = {event.name(): event for event in profiler.profiler.kineto_results.events()}
    assert spans["fails"].end_ns() <= spans["aten::add"].start_ns()
