"""The memory over time of a page."""

from kinetoscope.pages.page_data import Allocation, StepEnd
from support.page_data import page_of, read_column, span, write_trace


def memory(ts, num_bytes, total, address, tid=1):
    """Return an allocation on a GPU or, with fewer than 0 bytes, a release."""
    arguments = {"Total Allocated": total, "Bytes": num_bytes, "Device Id": 0, "Device Type": 1, "Addr": address}
    return {"ph": "i", "s": "t", "name": "[memory]", "cat": "cpu_instant_event", "pid": 1, "tid": tid, "ts": ts} | {
        "args": arguments
    }


def test_memory_is_stacked_by_allocator_and_the_peak_lists_them(tmp_path):
    events = [
        span("ProfilerStep#7", 0, 100, category="user_annotation"),
        span("aten::mm", 10, 10),
        memory(12, 1000, 1500, 1),
        memory(14, 200, 1700, 2),
        span("Optimizer.step#SGD.step", 50, 20, category="user_annotation"),
        span("aten::zeros", 52, 5),
        memory(53, 50, 1750, 3),
        memory(80, -1000, 750, 1),
    ]
    (graph,) = page_of(write_trace(tmp_path / "rank0.json", events)).memory

    assert (graph.rank, graph.device) == (0, "device 0")
    sizes = {name: read_column(column) for name, column in zip(graph.categories, graph.sizes, strict=True)}
    assert sizes == {
        "before_recording": [500, 500, 500, 500],
        "forward": [1000, 1200, 1200, 200],
        "optimizer": [0, 0, 50, 50],
    }
    assert read_column(graph.times) == [12_000, 14_000, 53_000, 80_000]
    assert read_column(graph.totals) == [1500, 1700, 1750, 750]
    assert (graph.peak, graph.peak_bytes) == (2, 1750)
    assert graph.step_ends == [StepEnd(step=7, time=100_000, size_bytes=750)]
    assert graph.alive_at_peak == [
        allocation("forward", "aten::mm", 1200, 2, step=7),
        allocation("before_recording", "", 500, 1),
        allocation("optimizer", "aten::zeros", 50, 1, step=7),
    ]


def allocation(category, name, size_bytes, num_allocations, step=None):
    return Allocation(
        category=category, name=name, line=None, step=step, size_bytes=size_bytes, num_allocations=num_allocations
    )


def test_equal_peaks_are_sorted_by_step(tmp_path):
    events = []
    for step in range(60):
        begin = 100 * step
        events += [
            span(f"ProfilerStep#{step}", begin, 90, category="user_annotation"),
            span("aten::mm", begin + 10, 10),
        ]
        events.append(memory(begin + 12, 1000, 1000 * (step + 1), step + 1))
    (graph,) = page_of(write_trace(tmp_path / "rank0.json", events)).memory

    steps = [one.step for one in graph.alive_at_peak]
    assert len(steps) > 10
    assert steps == list(range(len(steps)))


def test_a_short_peak_among_many_allocations_is_kept(tmp_path):
    events = [span("ProfilerStep#0", 0, 40_000, category="user_annotation")]
    for at in range(10_000):
        size = 10**9 if at == 5001 else 1
        events += [memory(2 * at, size, size, 1), memory(2 * at + 1, -size, 0, 1)]
    (graph,) = page_of(write_trace(tmp_path / "rank0.json", events)).memory

    assert len(graph.times) < 10_000
    assert sum(read_column(column)[graph.peak] for column in graph.sizes) == 10**9


def test_a_run_without_recorded_memory_has_no_graph_of_it(tmp_path):
    assert page_of(write_trace(tmp_path / "rank0.json", [span("aten::mm", 10, 10)])).memory == []
