"""sources: how long the loop's thread ran in each batch, and how long it was ready but had no processor."""

import os
import sys
import threading
import time
from typing import Any

from kinetoscope.recording.contract import RunInside
from kinetoscope.recording.source_events import SourceEvent
from kinetoscope.sources.processor_use import processor_use, processor_use_since

COUNTER = "loop thread"
"""The counter's name. Its values are the nanoseconds since the reading before: ``running_ns``, ``starved_ns`` (ready,
but without a processor), ``blocked_ns`` (all other time); ``waiting_ns`` instead of the last two where the system does
not tell them apart."""

PROCESSORS = "processors"
"""The name and category of the instant that says what the machine's processors did during a window."""


class LoopClocks:
    """Reads the clocks of the calling thread, the loop's, while a window of ``run`` is open.

    Linux counts the time without a processor in ``/proc/self/task/TID/schedstat``; elsewhere, and where that file
    cannot be read, it is not known.
    """

    def __init__(self, run: RunInside) -> None:
        self._run, self._ident = run, threading.get_ident()
        self._native_id = threading.get_native_id()  # after `os.fork`, the main thread's attribute is its parent's
        self._counter: Any = None
        self._file = _open_schedstat(self._native_id)
        self._before = processor_use(self._native_id)
        self._last = time.monotonic_ns(), time.thread_time_ns(), self._delay_ns()

    def read(self, profiler: Any) -> None:
        """Records the time since the last reading. Nothing happens on another thread."""
        if threading.get_ident() != self._ident:
            return
        now = now_ns, ran_ns, delay_ns = time.monotonic_ns(), time.thread_time_ns(), self._delay_ns()
        (last_now_ns, last_ran_ns, last_delay_ns), self._last = self._last, now
        running_ns = ran_ns - last_ran_ns
        rest_ns = max(0, now_ns - last_now_ns - running_ns)
        if delay_ns is None or last_delay_ns is None:
            values = {"running_ns": running_ns, "waiting_ns": rest_ns}
        else:
            starved_ns = min(rest_ns, delay_ns - last_delay_ns)
            values = {"running_ns": running_ns, "starved_ns": starved_ns, "blocked_ns": rest_ns - starved_ns}
        if self._counter is None:
            self._counter = profiler.marker(COUNTER, categories=("system",))
        self._counter.counter(values)

    def note_processors(self) -> None:
        """Notes what the processors did since the window opened."""
        used = processor_use_since(self._before, self._native_id)
        now_ns = self._run.clock.monotonic_ns()
        self._run.note(SourceEvent(PROCESSORS, PROCESSORS, now_ns, None, threading.get_native_id(), used))

    def close(self) -> None:
        """Closes the file."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _delay_ns(self) -> int | None:
        if self._file is None:
            return None
        try:
            return int(os.pread(self._file, 64, 0).split(b" ", 2)[1])
        except (OSError, ValueError, IndexError):
            return None


def _open_schedstat(native_id: int | None) -> int | None:
    if sys.platform != "linux" or native_id is None:
        return None
    try:
        return os.open(f"/proc/self/task/{native_id}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
