"""kinetoscope.torch on a GPU: kernels, their launches, memory, CUDA graphs, and one clock."""

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import kinetoscope
from kinetoscope import JSONTraceHandler, Profiler, TorchProfiler, cyclic_schedule
from support.trace_processor import trace_processor

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("there is no CUDA device here", allow_module_level=True)

from kinetoscope.torch import ProfilerActivity, profile, record_function  # noqa: E402 - only where there is a GPU
from kinetoscope.torch.kineto_stream import can_save_without_gil  # noqa: E402

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


def correlations_of_launches(events: list[dict[str, Any]], *names: str) -> set[int]:
    """Return the correlations of calls of the CUDA runtime or driver, of all or of those with one of the names."""
    calls = [*of_category(events, "cuda_runtime"), *of_category(events, "cuda_driver")]
    return {event["args"].get("correlation") for event in calls if not names or event["name"] in names}


def of_category(events: list[dict[str, Any]], category: str) -> list[dict[str, Any]]:
    return [event for event in events if event.get("cat") == category]


every_option = pytest.mark.parametrize(
    "options", [{}, {"with_stack": True, "record_shapes": True, "profile_memory": True}], ids=["default", "all"]
)


@every_option
def test_kernels_are_in_the_trace_linked_to_their_launches(tmp_path, options):
    events = events_of(recorded(**options), tmp_path / "trace.json")
    kernels = of_category(events, "kernel")
    assert kernels
    assert {kernel["args"]["correlation"] for kernel in kernels} <= correlations_of_launches(events)


@every_option
def test_perfetto_finds_no_error_in_an_export(tmp_path, options):
    recorded(**options).export_chrome_trace(tmp_path / "trace.json")
    with trace_processor.load(tmp_path / "trace.json") as trace:
        assert trace.errors() == {}


def test_an_export_with_a_device_is_made_from_lines(tmp_path):
    profiler = recorded()
    assert can_save_without_gil(profiler.profiler.kineto_results)
    results = profiler.pop_results()
    assert results is not None
    results.export_chrome_trace(tmp_path / "trace.json")
    [window] = results.windows
    assert window.text(tmp_path, None).is_valid


def test_training_continues_while_kineto_saves(tmp_path, record_property):
    with profile(activities=[CPU, CUDA]) as profiler:
        for _ in range(300):
            work()
    results = profiler.pop_results()
    assert results is not None
    writer = threading.Thread(target=results.export_chrome_trace, args=(tmp_path / "saved.json.gz",))
    begin = time.perf_counter()
    writer.start()
    num_steps = 0
    while writer.is_alive():
        work()
        num_steps += 1
    writer.join()
    record_property("save_ms", round(1e3 * (time.perf_counter() - begin), 1))
    record_property("steps_during_save", num_steps)
    assert num_steps > 1


def test_tables_have_stocks_rows_and_the_time_of_the_device():
    profiler = recorded(record_shapes=True)
    replacement, stock = profiler.key_averages(), profiler.profiler.key_averages()
    fields = ("key", "count", "device_time_total", "self_device_time_total", "cpu_time_total", "self_cpu_time_total")
    rows = [[[getattr(row, field) for field in fields] for row in rows] for rows in (replacement, stock)]
    assert rows[0] == rows[1]
    assert sum(row.self_device_time_total for row in replacement) > 0
    assert replacement.table() == stock.table()


def test_events_have_stocks_kernels():
    profiler = recorded()
    replacement, stock = profiler.events(), profiler.profiler.function_events
    assert [event.kernels for event in replacement] == [event.kernels for event in stock]
    assert any(event.kernels for event in replacement)


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


def captured(num_kernels: int) -> Any:
    """Capture a graph of so many kernels."""
    graph, value = torch.cuda.CUDAGraph(), torch.ones(64, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        value.mul_(1)
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph):
        for _ in range(num_kernels):
            value.mul_(2)
    return graph


def test_kernels_of_a_cuda_graph_are_linked_to_its_launch(tmp_path):
    graph = captured(3)
    with profile(activities=[CPU, CUDA]) as profiler:
        for _ in range(2):
            graph.replay()
        torch.cuda.synchronize()
    events = events_of(profiler, tmp_path / "trace.json")
    launches = correlations_of_launches(events, "cudaGraphLaunch", "cuGraphLaunch")
    kernels = [kernel["args"]["correlation"] for kernel in of_category(events, "kernel")]
    assert len(launches) == 2
    assert sorted(kernels) == sorted([*launches] * 3)


def test_a_cuda_graph_can_be_captured_in_a_window_of_a_profiler_that_diagnoses(tmp_path):
    schedule = cyclic_schedule(warmup=1, active=6, per="run")
    with kinetoscope.profile(tmp_path, schedule=schedule, diagnose=True, quiet=True, strict=True) as profiler:
        for _ in range(8):
            captured(3).replay()  # another thread that used CUDA meanwhile would break the capture
            profiler.step()
    torch.cuda.synchronize()


def test_kernels_and_markers_are_on_one_clock(tmp_path, record_property):
    """A kernel that was launched and waited for inside a marker runs inside of it: that bounds the clocks' offset."""
    torch_profiler = TorchProfiler(folder=str(tmp_path / "torch"))
    handler = JSONTraceHandler(folder=str(tmp_path / "traces"))
    value = torch.ones(64, device="cuda")
    with Profiler(cyclic_schedule(warmup=1, active=20), handler, sources=[torch_profiler], strict=True) as profiler:
        marker = profiler.marker("step")
        for _ in profiler.batches(range(22)):
            with marker:
                value.mul_(1)
                torch.cuda.synchronize()
    [path] = (tmp_path / "traces").glob("ep*.json")
    events = json.loads(path.read_text())["traceEvents"]
    markers = sorted(interval_ns(event) for event in events if event.get("name") == "step" and event.get("ph") == "X")
    kernels = sorted(interval_ns(event) for event in of_category(events, "kernel"))
    pairs = [nearest(kernel, markers) for kernel in kernels]
    assert len(pairs) >= 20
    least = max(marker[0] - kernel[0] for kernel, marker in zip(kernels, pairs, strict=True))
    most = min(marker[1] - kernel[1] for kernel, marker in zip(kernels, pairs, strict=True))
    record_property("offset_of_device_clock_us", [round(least / 1e3, 1), round(most / 1e3, 1)])
    assert least <= SLACK_NS
    assert most >= -SLACK_NS


def interval_ns(event: dict[str, Any]) -> tuple[float, float]:
    return event["ts"] * 1000, (event["ts"] + event["dur"]) * 1000


def nearest(kernel: tuple[float, float], markers: list[tuple[float, float]]) -> tuple[float, float]:
    return min(markers, key=lambda marker: abs(sum(marker) - sum(kernel)))
