"""Services of a run: its parts that depend neither on its windows nor on its phase, made by one factory."""

from dataclasses import dataclass

from kinetoscope.core.clock.clock import Clock, read_anchor
from kinetoscope.core.job.ranks import Attempt, Ranks, detect_attempt, detect_ranks
from kinetoscope.core.job.state import RunState
from kinetoscope.core.text.once_log import OnceLog
from kinetoscope.formats.redactor import Redactor
from kinetoscope.pulse.pulse_recorder import PulseRecorder
from kinetoscope.recording.markers.marker import Marker, MarkerSettings, ProfilerMarkers
from kinetoscope.recording.markers.native_recorder import NativeRecorder
from kinetoscope.recording.markers.process import this_process
from kinetoscope.recording.markers.recorder_types import PROFILER_CATEGORY
from kinetoscope.recording.messages.saving_progress import SavingProgress
from kinetoscope.recording.run.clock_comparison import ClockComparison
from kinetoscope.recording.run.delivery import Delivery
from kinetoscope.recording.run.settings import RunSettings
from kinetoscope.recording.window.callbacks import Callbacks
from kinetoscope.recording.window.cycle import LastingSpans, Window
from kinetoscope.recording.window.event_listeners import EventListeners
from kinetoscope.recording.window.guard import Guard
from kinetoscope.recording.window.run_redaction import redact_attempt
from kinetoscope.spool.spool_folder import SpoolFolder, TemporaryFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class RunServices:
    """Services of one run."""

    settings: RunSettings
    state: RunState
    markers: ProfilerMarkers
    ranks: Ranks
    guard: Guard
    redactor: Redactor | None
    callbacks: Callbacks
    pulse: PulseRecorder
    """The log of step times, and the current phase of training, in a file."""
    window: Window
    lasting: LastingSpans
    delivery: Delivery
    clocks: ClockComparison
    live: SpoolFolder
    temporary: TemporaryFiles
    saving_progress: SavingProgress
    once: OnceLog

    @property
    def recorder(self) -> NativeRecorder:
        """The recorder of the markers."""
        return self.markers.recorder

    @property
    def clock(self) -> Clock:
        """The clock of the run."""
        return self.markers.clock

    def marker(self, name: str, category: str) -> Marker:
        """Return a marker for spans of the profiler itself, such as the loop's and its own costs."""
        return _get_profiler_marker(self.markers, name, category)

    def report(self, message: str) -> None:
        """Log a warning, once."""
        self.once.warn("%s", message, about=message)

    def set_handlers(self, handlers: list[object]) -> None:
        """Deliver events and cycles to these handlers from now on."""
        self.callbacks.set_handlers(handlers)
        self.pulse.stop_counting()
        anchor, count = read_anchor(self.clock), self.delivery.count_event
        names = self.recorder.names
        listeners = EventListeners(handlers, names, self.state, anchor, self.guard, self.redactor, count)
        self.recorder.listener = listeners if listeners else None

    def set_attempt(self, attempt: Attempt) -> None:
        """Set the restart attempt of the run, before it starts."""
        self.window.attempt = self.clocks.attempt = attempt


def make_services(
    settings: RunSettings,
    markers: ProfilerMarkers,
    state: RunState,
    sources: list[object],
    handlers: list[object],
) -> RunServices:
    """Return the services of a new run."""
    recorder, clock = markers.recorder, markers.clock
    guard = Guard(settings.strict)
    redactor = None if settings.redact is None else Redactor(settings.redact, guard.keep)
    ranks = detect_ranks()
    attempt = redact_attempt(detect_attempt(ranks), redactor)
    callbacks = Callbacks(sources, state, guard)
    cost = _get_profiler_marker(markers, "kinetoscope/save", PROFILER_CATEGORY)
    delivery = Delivery(guard, callbacks, cost, settings.live_bytes_max, redactor)
    live = SpoolFolder(recorder, delivery.writer.submit, delivery.free_space, this_process.export_run_file)
    is_quiet = settings.is_quiet or ranks.rank != 0
    services = RunServices(
        settings=settings,
        state=state,
        markers=markers,
        ranks=ranks,
        guard=guard,
        redactor=redactor,
        callbacks=callbacks,
        pulse=PulseRecorder(clock, lambda: recorder.loss),
        window=Window(recorder, clock, ranks, attempt),
        lasting=LastingSpans(recorder, clock),
        delivery=delivery,
        clocks=ClockComparison(clock, ranks, attempt),
        live=live,
        temporary=TemporaryFiles(live),
        saving_progress=SavingProgress(lambda: delivery.unsaved.num_records, is_quiet=is_quiet),
        once=OnceLog(),
    )
    services.set_handlers(handlers)
    return services


def _get_profiler_marker(markers: ProfilerMarkers, name: str, category: str) -> Marker:
    return markers.get(MarkerSettings(name, categories=(category,)))
