"""A running profiler to measure."""

from collections.abc import Iterator
from contextlib import contextmanager

from kinetoscope import Profiler, ProfilerAction
from kinetoscope.testing import MemoryTraceHandler


@contextmanager
def recording(action: ProfilerAction, handler: MemoryTraceHandler | None = None) -> Iterator[Profiler]:
    """Yield a running profiler whose batches all have ``action``; its window closes and is delivered at the end."""
    with Profiler(lambda state: action, handler or MemoryTraceHandler(), strict=True) as profiler:
        yield profiler


def recorder_name() -> str:
    """Return the recorder that our markers use: the name of a marker's base class."""
    base = type(Profiler(lambda state: ProfilerAction.SKIP).marker("recorder")).__base__
    return base.__name__ if base is not None else "unknown"
