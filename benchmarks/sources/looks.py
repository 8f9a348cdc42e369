"""benchmarks: how long a look at memory takes, with `GrowingMemory` and `Float64Tensors` on."""

from collections.abc import Callable
from statistics import median

from benchmarks.suite import Measure
from kinetoscope import Float64Tensors, GrowingMemory, Profiler, ProfilerAction
from kinetoscope.testing import MemoryTraceHandler


def look_at_memory(train: Callable[[Profiler], object], num_windows: int) -> Measure:
    """A look within the loop of ``train``, the median of all looks in so many windows."""
    handler = MemoryTraceHandler()
    for _ in range(num_windows):
        sources = [GrowingMemory(), Float64Tensors()]
        with Profiler(lambda state: ProfilerAction.ACTIVE, handler, sources=sources, live_folder=False) as profiler:
            train(profiler)
    looks = [event for event in handler.events("kinetoscope") if event.name == "kinetoscope/look at memory"]
    return Measure("a look at memory", median((look.end_ns or 0) - look.begin_ns for look in looks) / 1e3, "us")
