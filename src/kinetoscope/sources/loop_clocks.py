"""Running time and run-queue delay of the loop's thread in each batch."""

import threading
import weakref
from typing import Any, Self

from kinetoscope.core.clock.thread_times import SCHEDSTAT
from kinetoscope.formats.trace_names import LOOP_CLOCKS, PROCESSORS
from kinetoscope.native import native
from kinetoscope.recording.run.plugin_api import ProfilerContext, RunContext
from kinetoscope.recording.window.source_events import SourceEvent
from kinetoscope.sources.cpu_use import cpu_use_since, read_cpu_use

_runs_being_read: "weakref.WeakSet[RunContext]" = weakref.WeakSet()
"""Runs whose open window has a source that reads the loop's clocks."""


class LoopClocks:
    """Reader of the clocks of the calling thread, the loop's, while a window of ``run`` is open."""

    @classmethod
    def open(cls, run: RunContext) -> Self | None:
        """Return the clocks of a window that has just opened; None if another source of the run reads them."""
        if run in _runs_being_read:
            return None
        _runs_being_read.add(run)
        return cls(run)

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._native_id = threading.get_native_id()  # after `os.fork`, the main thread's attribute is its parent's
        self._counter: Any = None
        self._before = read_cpu_use(self._native_id, run.command_pid)
        self._clocks = native.ThreadClocks(SCHEDSTAT.format(self._native_id))

    def read(self, profiler: ProfilerContext) -> None:
        """Record the time since the last reading; do nothing on another thread."""
        values = self._clocks.read()
        if values is None:
            return
        if self._counter is None:
            self._counter = profiler.marker(LOOP_CLOCKS, categories=("system",))
        self._counter.counter(values)

    def record_cpu_use(self) -> None:
        """Record the CPU time of the process and the machine since the window opened."""
        used = cpu_use_since(self._before, self._native_id, self._run.command_pid)
        now_ns = self._run.clock.monotonic_ns()
        self._run.add_event(SourceEvent(PROCESSORS, PROCESSORS, now_ns, None, threading.get_native_id(), used))

    def close(self) -> None:
        """Close the file of the clocks."""
        _runs_being_read.discard(self._run)
        self._clocks.close()
