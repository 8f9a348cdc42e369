"""kinetoscope.torch on a GPU: kernels, their launches, memory, CUDA graphs, and one clock."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from kinetoscope import JSONTraceHandler, Profiler, TorchProfiler, cyclic_schedule
from trace_processor import trace_processor

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("there is no CUDA device here", allow_module_level=True)

from kinetoscope.torch import ProfilerActivity, profile, record_function  # noqa: E402 - only where there is a GPU
from kinetoscope.torch.kineto_stream import saves_without_gil  # noqa: E402

CPU, CUDA = ProfilerActivity.CPU, ProfilerActivity.CUDA
SLACK_NS = 50_000  # between the clocks of the host and the device


def work() -> None:
    with record_function("multiply"):
        left = torch.randn(256, 256, device="cuda")
        (left @ left).sum()
    torch.cuda.synchronize()


@pytest.fixture(autouse=True)
def warm() -> None:
    work()  # the first launch loads the kernels


def recorded(**options: Any) -> profile:
    with profile(activities=[CPU, CUDA], **options) as profiler:
        work()
    return profiler


def events_of(profiler: profile, path: Path) -> list[dict[str, Any]]:
    profiler.export_chrome_trace(path)
    return json.loads(path.read_text())["traceEvents"]


def of_category(events: list[dict[str, Any]], category: str) -> list[dict[str, Any]]:
    return [event for event in events if event.get("cat") == category]


@pytest.mark.parametrize("options", [{}, {"with_stack": True, "record_shapes": True, "profile_memory": True}], ids=str)
def test_kernels_are_in_the_trace_linked_to_their_launches_and_perfetto_finds_no_error(tmp_path, options):
    events = events_of(recorded(**options), tmp_path / "trace.json")
    launches = {event["args"].get("correlation") for event in of_category(events, "cuda_runtime")}
    kernels = of_category(events, "kernel")
    assert kernels
    assert {kernel["args"]["correlation"] for kernel in kernels} <= launches
    with trace_processor.load(tmp_path / "trace.json") as trace:
        assert trace.errors() == {}


def test_an_export_with_a_device_is_made_from_lines(tmp_path):
    profiler = recorded()
    assert saves_without_gil(profiler.profiler.kineto_results)
    results = profiler.take_results()
    results.export_chrome_trace(tmp_path / "trace.json")
    [window] = results.windows
    assert window.text(tmp_path).is_right


def test_training_goes_on_while_kineto_saves(tmp_path):
    with profile(activities=[CPU, CUDA]) as profiler:
        for _ in range(300):
            work()
    results = profiler.take_results()
    writer = threading.Thread(target=results.export_chrome_trace, args=(tmp_path / "trace.json.gz",))
    writer.start()
    num_steps = 0
    while writer.is_alive():
        work()
        num_steps += 1
    writer.join()
    assert num_steps > 1


def test_tables_have_stocks_rows_and_the_time_of_the_device():
    profiler = recorded(record_shapes=True)
    ours, stock = profiler.key_averages(), profiler.profiler.key_averages()
    fields = ("key", "count", "device_time_total", "self_device_time_total", "cpu_time_total", "self_cpu_time_total")
    rows = [[[getattr(row, field) for field in fields] for row in rows] for rows in (ours, stock)]
    assert rows[0] == rows[1]
    assert sum(row.self_device_time_total for row in ours) > 0
    assert ours.table() == stock.table()


def test_events_have_stocks_kernels():
    profiler = recorded()
    ours, stock = profiler.events(), profiler.profiler.function_events
    assert [event.kernels for event in ours] == [event.kernels for event in stock]
    assert any(event.kernels for event in ours)


def test_memory_of_the_device_is_in_tables_and_in_the_timeline(tmp_path):
    kept = []
    with profile(activities=[CPU, CUDA], record_shapes=True, profile_memory=True, with_stack=True) as profiler:
        kept.append(torch.ones(1 << 20, device="cuda"))
    assert sum(row.self_device_memory_usage for row in profiler.key_averages()) >= 4 << 20
    profiler.export_memory_timeline(tmp_path / "memory.json")
    times, sizes = json.loads((tmp_path / "memory.json").read_text())
    assert times
    assert max(map(sum, sizes)) >= 4 << 20


def test_collection_on_the_device_can_be_switched_off_and_on_again():
    with profile(activities=[CPU, CUDA]) as profiler:
        profiler.toggle_collection_dynamic(False, [CUDA])
        work()
        profiler.toggle_collection_dynamic(True, [CUDA])
        torch.zeros(7, device="cuda").cos_()
        torch.cuda.synchronize()
    kernels = [event.name for event in profiler.events() if event.device_type.name == "CUDA"]
    assert any("cos" in name for name in kernels)
    assert not any("gemm" in name for name in kernels)


def test_a_step_in_a_cuda_graph_has_its_kernels():
    graph, value = torch.cuda.CUDAGraph(), torch.ones(64, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        value.mul_(1)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        value.mul_(2)
    with profile(activities=[CPU, CUDA]) as profiler:
        graph.replay()
        torch.cuda.synchronize()
    assert any(event.device_type.name == "CUDA" for event in profiler.events())


def test_kernels_are_inside_the_markers_around_them(tmp_path):
    torch_profiler = TorchProfiler(folder=str(tmp_path / "torch"))
    handler = JSONTraceHandler(folder=str(tmp_path / "traces"))
    with Profiler(cyclic_schedule(warmup=1, active=2), handler, sources=[torch_profiler], strict=True) as profiler:
        marker = profiler.marker("step")
        for _ in profiler.batches(range(4)):
            with marker:
                work()
    [path] = (tmp_path / "traces").glob("ep*.json")
    events = json.loads(path.read_text())["traceEvents"]
    spans = [
        (event["ts"] * 1000, (event["ts"] + event["dur"]) * 1000) for event in events if event.get("name") == "step"
    ]
    kernels = [(event["ts"] * 1000, (event["ts"] + event["dur"]) * 1000) for event in of_category(events, "kernel")]
    assert kernels
    for begin, end in kernels:
        assert any(first - SLACK_NS <= begin and end <= last + SLACK_NS for first, last in spans)
