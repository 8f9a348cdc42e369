"""Trace handlers: the base class of consumers of what a run records, and what a run reads of them."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from kinetoscope.core.job.event import Callback
from kinetoscope.core.job.timestamp import Moment
from kinetoscope.recording.window.cycle import Cycle
from kinetoscope.spool.folders import TraceRecipe


class TraceHandler(Callback):
    """Decides what happens to recorded data. Override any of the methods, and any event of `Callback`.

    The three per-event methods are called on the recording thread, one call at a time. They are only called on handlers
    that override them, so that other handlers cost nothing. They must be quick. If one raises, the handler is switched
    off and training continues. `process_cycle` and `process_chrome_json_trace_file` are called on the writer thread.
    """

    def process_duration_event(
        self, name: str, categories: tuple[str, ...], is_start: bool, timestamp: Moment, wall_clock_time_ns: int
    ) -> None:
        """A span begins (``is_start``) or ends. Of recursive or concurrent spans with one name, the first is reported.

        ``timestamp`` says where the run is; ``wall_clock_time_ns`` is unix time in nanoseconds.
        """

    def process_instant_event(
        self, name: str, categories: tuple[str, ...], timestamp: Moment, wall_clock_time_ns: int
    ) -> None:
        """A marker recorded a moment."""

    def process_counter_event(
        self,
        name: str,
        categories: tuple[str, ...],
        timestamp: Moment,
        wall_clock_time_ns: int,
        values: Mapping[str, int | float],
    ) -> None:
        """A marker recorded values."""

    def process_chrome_json_trace_file(self, filepath: Path) -> None:
        """A source or the user contributed a complete file of Chrome JSON events. It exists during this call."""

    def process_cycle(self, cycle: Cycle) -> None:
        """A window has closed, and everything that belongs to it is complete.

        If this raises an OSError or MemoryError, it is called with the same cycle again later, perhaps after later
        cycles; so it should delete what it wrote. Any other error switches the handler off.
        """

    def process_slow_step(self, cycle: Cycle) -> None:
        """With ``slow_steps``, a step was slow while nothing was recorded: ``cycle`` is a window of this step, and
        ``cycle.slow_step`` says in what it was slow.

        It has the step's phases, the training thread's spans of markers and samples of its stack. If this raises, the
        step is left out, and one message in the log says so.
        """


def run_folder_of(handlers: Iterable[object]) -> Path | None:
    """Return the run folder of the first handler that has one."""
    folders = (getattr(handler, "run_folder", None) for handler in handlers)
    return next((folder for folder in folders if isinstance(folder, Path)), None)


def recipe_of(handler: object) -> TraceRecipe | None:
    """Return what `recover` needs to make a handler's traces, once the run has begun; None if it cannot make them."""
    recipe = getattr(handler, "recipe", None)
    return recipe if isinstance(recipe, TraceRecipe) else None
