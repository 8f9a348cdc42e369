"""Plugin API for sources and trace handlers: a run, as ``state.profiler.run``."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from kinetoscope.core.clock.clock import Clock
from kinetoscope.core.job.ranks import Attempt, Ranks
from kinetoscope.core.job.state import RunState
from kinetoscope.formats.redactor import Redactor
from kinetoscope.pulse.pulse_recorder import StepTimes
from kinetoscope.recording.markers.marker import Marker
from kinetoscope.recording.markers.native_recorder import NativeRecorder
from kinetoscope.recording.markers.schedule import ProfilerAction
from kinetoscope.recording.run.services import RunServices
from kinetoscope.recording.run.shutdown import RunShutdown
from kinetoscope.recording.run.window_controller import WindowController
from kinetoscope.recording.window.cycle import Contributions
from kinetoscope.recording.window.run_redaction import add_redacted
from kinetoscope.recording.window.source_events import SourceEvent

T = TypeVar("T")


class RunContext:
    """Run for its sources and handlers: its facts, and the ways to add to its windows."""

    def __init__(self, services: RunServices, windows: WindowController, end: RunShutdown) -> None:
        self._services, self._windows, self._end = services, windows, end
        self.ranks: Ranks = services.ranks
        self.upload_to: str | None = services.settings.upload_to
        self.remote_store: Any = None
        """A `RemoteStore` for remote names without a scheme, if there is no ``upload_to``; or None."""
        self.uploads: dict[Path, Any] = {}
        """The `RankUploads` of each run folder, which handlers and sources share."""
        self.command_pid: int = 0
        """The process of the command that was recorded, this one or one above it; 0 if that is unknown."""

    # -- facts ------------------------------------------------------------------------------------------------

    @property
    def clock(self) -> Clock:
        """The clock of the markers."""
        return self._services.clock

    @property
    def redactor(self) -> Redactor | None:
        """The function that replaces a string, which each file must apply; None if every string may be written."""
        return self._services.redactor

    @property
    def recorder(self) -> NativeRecorder:
        """The recorder of the markers, for spans that no marker can record."""
        return self._services.recorder

    @property
    def attempt(self) -> Attempt:
        """The restart attempt."""
        return self._services.window.attempt

    @property
    def sources(self) -> list[Any]:
        """The sources of the run, in the order in which they get events."""
        return self._services.callbacks.sources

    @property
    def handlers(self) -> list[Any]:
        """The trace handlers, which get events after the sources."""
        return self._services.callbacks.handlers

    @property
    def first_batch(self) -> int:
        """The batch at which this process started: above 0 if the run was resumed."""
        return self._windows.first_batch

    @property
    def resumption_epoch(self) -> int:
        """The epoch in which the run was resumed, or 0."""
        return self._windows.resumption_epoch

    @property
    def is_paused(self) -> bool:
        """True while recording is paused, during an evaluation between batches."""
        return self._windows.scopes.is_paused

    @property
    def is_recording(self) -> bool:
        """True while markers record: a window is open, and neither paused nor skipped."""
        return self._windows.is_recording

    def step_times(self, first: int, end: int) -> list[StepTimes]:
        """Return the times of the steps from ``first`` to before ``end`` in nanoseconds: in total, and by phase.

        Any thread may call it.
        """
        return self._services.pulse.read_step_times(first, end)

    def seconds_to_close(self) -> float:
        """Return the seconds that are left for closing."""
        return self._end.seconds_left

    # -- calls ------------------------------------------------------------------------------------------------

    def call(self, owner: object, method: Callable[..., T], *arguments: object) -> T | None:
        """Call a method of a source or handler. An error is logged, and switches ``owner`` off."""
        return self._services.guard(owner, method, arguments)

    def call_in_hook(self, source: object, method: Callable[..., T], *arguments: object) -> T | None:
        """Call a method of a source in a hook that other code calls, such as the garbage collector.

        An error is never raised there: it is logged, and switches ``source`` off.
        """
        return self._services.guard.call_in_hook(source, method, arguments)

    def report(self, message: str) -> None:
        """Log a warning, once."""
        self._services.report(message)

    # -- additions to the open window -------------------------------------------------------------------------

    def add_event(self, event: SourceEvent) -> None:
        """Add a span or an instant to the cycle of the open window. Any thread may call it."""
        self._services.window.contributions.events.add(event)

    def name_track(self, tid: int, name: str) -> None:
        """Name a track of that cycle, for events whose tid is no thread."""
        self._services.window.contributions.events.tracks[tid] = name

    def contribute(self, add_files: Callable[[Contributions], object]) -> None:
        """Call ``add_files`` on the writer thread, where it adds files to the cycle that is being recorded now."""
        self._services.delivery.submit_contribution(add_files, self._services.window.contributions)

    def temporary_folder(self, cycle: int) -> Path:
        """Return, on the writer thread, the folder for files that are needed only until the cycle is saved."""
        return self._services.temporary.folder(cycle)

    def add_trace_file(self, path: Path) -> None:
        """Add a file of Chrome JSON events to the cycle that is being recorded.

        See `Profiler.record_chrome_json_trace_file`.
        """
        try:
            kept = self._services.temporary.keep(path, self._services.window.num_cycles)
        except OSError as error:
            self._services.guard.report(f"Adding the trace file {path}", error)
        else:
            self.contribute(lambda contributions: self._add_file(kept(), contributions))

    def _add_file(self, file: Path, contributions: Contributions) -> None:
        if self.redactor is None:
            contributions.add_temporary(file)
        else:
            add_redacted(file, contributions, self.redactor)

    # -- before the run starts --------------------------------------------------------------------------------

    def replace_attempt(self, attempt: Attempt) -> None:
        """Set the restart attempt, with the number that the folder of its traces gives it."""
        self._services.set_attempt(attempt)

    def agree_on_attempt(self, folder: Path, set_id: Callable[[str], object]) -> None:
        """Let all ranks of this attempt that write into ``folder`` agree on an id.

        ``set_id`` is called with it on another thread; never if there is no store through which they can agree.
        """
        self._services.clocks.agree_on_id(str(folder), set_id)


class ProfilerContext(Protocol):
    """Profiler for its sources and handlers: ``state.profiler``."""

    @property
    def run(self) -> RunContext:
        """The run that the profiler records."""
        ...

    def get_action(self) -> ProfilerAction:
        """Return the action of the current batch."""
        ...

    def marker(self, name: str, *, categories: Iterable[str] = ()) -> Marker:
        """Return the marker with that name, created once."""
        ...


class ProfiledState(RunState, Protocol):
    """`RunState` that sources and handlers get, with the type of its profiler. Their methods may require it."""

    @property
    def profiler(self) -> ProfilerContext:
        """The profiler that records the run."""
        ...
