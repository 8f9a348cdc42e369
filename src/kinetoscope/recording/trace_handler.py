"""recording: the contract of a trace handler. What was recorded flows in, event by event or cycle by cycle."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kinetoscope.recording.cycle import Cycle
from kinetoscope.training.callback import Callback


class TraceHandler(Callback):
    """Decides what happens to what was recorded. Override any of the methods, and any event of `Callback`.

    The three per-event methods are called on the recording thread, one call at a time, and only on handlers that
    override them: nobody else pays. They must be quick, and what they raise switches the handler off, not the
    training. `process_cycle` and `process_chrome_json_trace_file` are called on the writer thread.
    """

    def process_duration_event(
        self, name: str, categories: tuple[str, ...], is_start: bool, timestamp: Any, wall_clock_time_ns: int
    ) -> None:
        """A span begins (``is_start``) or ends. Of recursive or concurrent spans of one name, the first is reported.

        ``timestamp`` says where the run is; ``wall_clock_time_ns`` is unix time in nanoseconds.
        """

    def process_instant_event(
        self, name: str, categories: tuple[str, ...], timestamp: Any, wall_clock_time_ns: int
    ) -> None:
        """A marker recorded a moment."""

    def process_counter_event(
        self,
        name: str,
        categories: tuple[str, ...],
        timestamp: Any,
        wall_clock_time_ns: int,
        values: Mapping[str, int | float],
    ) -> None:
        """A marker recorded values."""

    def process_chrome_json_trace_file(self, filepath: Path) -> None:
        """Somebody contributed a complete file of Chrome JSON events; it is there during this call."""

    def process_cycle(self, cycle: Cycle) -> None:
        """A window has closed, and everything that belongs to it is complete.

        If this raises an OSError or MemoryError, the same cycle comes again, behind later ones: what was written of it
        by then should be gone. Any other error switches the handler off.
        """
