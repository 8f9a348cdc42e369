"""recording: delivery. Cycles and contributed files flow in; trace handlers get them on the writer thread, in order."""

from collections.abc import Callable
from typing import Any

from kinetoscope.recording.cycle import Contributions, Cycle
from kinetoscope.recording.guard import Guard
from kinetoscope.recording.listeners import overrides
from kinetoscope.recording.marker import Marker
from kinetoscope.writing.writer_thread import WriterThread


class Delivery:
    """Hands what was recorded to the handlers that ``get_handlers`` names, through one `WriterThread`.

    What a save costs is a span of ``cost``, in the trace of the next window if that is open by then.
    """

    def __init__(self, guard: Guard, get_handlers: Callable[[], list[Any]], cost: Marker) -> None:
        self._guard = guard
        self._get_handlers = get_handlers
        self._cost = cost
        self.writer = WriterThread(on_error=guard.keep)

    def cycle(self, cycle: Cycle) -> None:
        """Delivers a finished cycle, after everything that was contributed to it."""
        self.writer.submit(f"Saving cycle {cycle.number}", lambda: self._deliver(cycle))

    def contribution(self, make: Callable[[Contributions], object], to: Contributions) -> None:
        """Lets a source add trace files to a cycle's contributions."""
        self.writer.submit("Taking over a trace file", lambda: self._contribute(make, to))

    def _deliver(self, cycle: Cycle) -> None:
        if not cycle.is_empty:
            with self._cost:
                self._tell("process_cycle", cycle)
        cycle.release()

    def _contribute(self, make: Callable[[Contributions], object], to: Contributions) -> None:
        num_before = len(to.files)
        with self._cost:
            make(to)
        for file in to.files[num_before:]:
            self._tell("process_chrome_json_trace_file", file)

    def _tell(self, method: str, argument: Any) -> None:
        for handler in self._get_handlers():
            if overrides(handler, method):
                self._guard(handler, getattr(handler, method), (argument,))
