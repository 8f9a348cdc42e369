"""Trace handlers: the base class of consumers of recorded data, and the attributes that a run reads of them."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from kinetoscope.core.job.event import Callback
from kinetoscope.core.job.timestamp import Moment
from kinetoscope.recording.window.cycle import Cycle
from kinetoscope.spool.folders import TraceRecipe


class TraceHandler(Callback):
    """Consumer of recorded data. Override any of the methods, and any event of `Callback`.

    The three per-event methods are called on the recording thread, one call at a time. They are only called on handlers
    that override them, so that other handlers cost nothing. They must be fast. If one raises, the handler is switched
    off and training continues. `process_cycle` and `process_chrome_json_trace_file` are called on the writer thread.
    """

    def process_duration_event(
        self, name: str, categories: tuple[str, ...], is_start: bool, timestamp: Moment, wall_clock_time_ns: int
    ) -> None:
        """Handle the start or the end of a span.

        Of recursive or concurrent spans with one name, the first is reported.

        Args:
            name: the name of the marker.
            categories: its categories.
            is_start: whether the span begins.
            timestamp: the position of training.
            wall_clock_time_ns: unix time in nanoseconds.
        """

    def process_instant_event(
        self, name: str, categories: tuple[str, ...], timestamp: Moment, wall_clock_time_ns: int
    ) -> None:
        """Handle an instant of a marker."""

    def process_counter_event(
        self,
        name: str,
        categories: tuple[str, ...],
        timestamp: Moment,
        wall_clock_time_ns: int,
        values: Mapping[str, int | float],
    ) -> None:
        """Handle the values of a counter."""

    def process_chrome_json_trace_file(self, filepath: Path) -> None:
        """Handle a complete file of Chrome JSON events from a source or the user. It exists during this call."""

    def process_cycle(self, cycle: Cycle) -> None:
        """Handle a window that has closed, when everything that belongs to it is complete.

        If this raises an OSError or MemoryError, it is called with the same cycle again later, perhaps after later
        cycles; so it should delete its incomplete files. Any other error switches the handler off.
        """

    def process_slow_step(self, cycle: Cycle) -> None:
        """Handle a step that was an outlier while nothing was recorded, with ``slow_steps``.

        ``cycle`` is a window of this step, with its phases, the training thread's spans of markers and samples of its
        stack; ``cycle.slow_step`` has its facts. If this raises, the step is left out, and one message is logged.
        """


def run_folder_of(handlers: Iterable[object]) -> Path | None:
    """Return the run folder of the first handler that has one."""
    folders = (getattr(handler, "run_folder", None) for handler in handlers)
    return next((folder for folder in folders if isinstance(folder, Path)), None)


def recipe_of(handler: object) -> TraceRecipe | None:
    """Return the recipe with which `recover` can write a handler's traces, once the run has started; else None."""
    recipe = getattr(handler, "recipe", None)
    return recipe if isinstance(recipe, TraceRecipe) else None
