"""benchmarks: our own profiler as something to measure. An action flows in, a running profiler flows out."""

from collections.abc import Iterator
from contextlib import contextmanager

from kinetoscope import Profiler, ProfilerAction
from kinetoscope.testing import MemoryTraceHandler


@contextmanager
def recording(action: ProfilerAction, handler: MemoryTraceHandler | None = None) -> Iterator[Profiler]:
    """A running profiler all of whose batches have ``action``. Its window closes, and is handed over, at the end."""
    with Profiler(lambda state: action, handler or MemoryTraceHandler(), strict=True) as profiler:
        yield profiler


def recorder_name() -> str:
    """Which recorder our markers record with: the class that a marker is built upon."""
    base = type(Profiler(lambda state: ProfilerAction.SKIP).marker("recorder")).__base__
    return base.__name__ if base is not None else "unknown"
