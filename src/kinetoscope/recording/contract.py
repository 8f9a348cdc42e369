"""recording: the contract between a run and who takes part in it: what a trace handler is told, and what it may ask."""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from kinetoscope.live.folders import TraceRecipe
from kinetoscope.recording.cycle import Contributions, Cycle
from kinetoscope.recording.marker import RECORDING_ACTIONS, Marker
from kinetoscope.recording.schedule import ProfilerAction
from kinetoscope.training.event import Callback
from kinetoscope.training.ranks import Attempt, Ranks
from kinetoscope.training.state import RunState
from kinetoscope.training.timestamp import Moment


class TraceHandler(Callback):
    """Decides what happens to what was recorded. Override any of the methods, and any event of `Callback`.

    The three per-event methods are called on the recording thread, one call at a time, and only on handlers that
    override them: nobody else pays. They must be quick, and what they raise switches the handler off, not the
    training. `process_cycle` and `process_chrome_json_trace_file` are called on the writer thread.
    """

    def process_duration_event(
        self, name: str, categories: tuple[str, ...], is_start: bool, timestamp: Moment, wall_clock_time_ns: int
    ) -> None:
        """A span begins (``is_start``) or ends. Of recursive or concurrent spans of one name, the first is reported.

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
        """Somebody contributed a complete file of Chrome JSON events; it is there during this call."""

    def process_cycle(self, cycle: Cycle) -> None:
        """A window has closed, and everything that belongs to it is complete.

        If this raises an OSError or MemoryError, the same cycle comes again, behind later ones: what was written of it
        by then should be gone. Any other error switches the handler off.
        """


def overrides(handler: object, method: str) -> bool:
    """Whether a handler wants ``method`` called: it overrides `TraceHandler`'s, or is no TraceHandler but has one."""
    own = getattr(type(handler), method, None) or getattr(handler, method, None)
    return own is not None and own is not getattr(TraceHandler, method)


def run_folder_of(handlers: Iterable[object]) -> Path | None:
    """The run folder of the first handler that has one."""
    folders = (getattr(handler, "run_folder", None) for handler in handlers)
    return next((folder for folder in folders if isinstance(folder, Path)), None)


def recipe_of(handler: object) -> TraceRecipe | None:
    """How `recover` can make the traces of a handler, once the run has begun; None if it cannot."""
    recipe = getattr(handler, "recipe", None)
    return recipe if isinstance(recipe, TraceRecipe) else None


class RunInside(Protocol):
    """What sources and handlers may ask of the run they take part in: ``state.profiler.run``."""

    ranks: Ranks
    attempt: Attempt
    upload_to: str | None
    remote_store: Any
    uploads: dict[Path, Any]

    @property
    def is_paused(self) -> bool:
        """Whether nothing is recorded for the time of an evaluation between batches."""
        ...

    def report(self, message: str) -> None:
        """Says something in the log, once."""
        ...

    def contribute(self, make: Callable[[Contributions], object]) -> None:
        """Calls ``make`` on the writer thread, to add files to the cycle that is being recorded now."""
        ...

    def temporary_folder(self, cycle: int) -> Path:
        """On the writer thread: where files lie that last only until the cycle is saved."""
        ...

    def agree_on_attempt(self, folder: Path, take: Callable[[str], object]) -> None:
        """Before the run begins: ``take`` gets the id that all ranks of this attempt agree on which write into
        ``folder``, on another thread; never, where there is no store to agree through."""
        ...

    def seconds_to_close(self) -> float:
        """How much of the time that closing may take is left."""
        ...


class AnyProfiler(Protocol):
    """What every face of the profiler has: ``state.profiler`` for callbacks, and `kinetoscope.active_profiler()`."""

    @property
    def run(self) -> RunInside: ...
    @property
    def state(self) -> Any: ...

    def marker(
        self,
        name: str,
        actions: Iterable[ProfilerAction] = RECORDING_ACTIONS,
        record_instant_on_start: bool = False,
        record_instant_on_finish: bool = False,
        categories: Iterable[str] = (),
    ) -> Marker: ...
    def get_action(self) -> ProfilerAction: ...
    def schedule(self, state: RunState) -> ProfilerAction: ...
    def record_chrome_json_trace_file(self, filepath: str | os.PathLike[str]) -> None: ...
