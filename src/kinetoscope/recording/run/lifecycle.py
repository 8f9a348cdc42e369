"""Lifecycle of a run: it starts, is the active run of the process, and is closed and saved.

Signals and the exit of the interpreter close it too. A training loop reports the position of training to its windows
(`window_controller.py`). A run is used once.
"""

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar

from kinetoscope.core.clock.clock import SystemClock, process_base_ns
from kinetoscope.core.job.state import RunState
from kinetoscope.core.job.timestamp import plain_count
from kinetoscope.errors import ProfilerStateError
from kinetoscope.native import require_recorder, why_not_recorded
from kinetoscope.pulse.pulse_recorder import TrainingFacts
from kinetoscope.recording.hangs.hang_watchdog import HangWatchdog
from kinetoscope.recording.markers.marker import ProfilerMarkers, attach_library_markers, detach_library_markers
from kinetoscope.recording.markers.process import hold_signals, this_process
from kinetoscope.recording.markers.schedule import ProfilerAction
from kinetoscope.recording.messages.end_report import EndReport, FindingSearch, RunCounts, is_ended_by_exception
from kinetoscope.recording.run.plugin_api import RunContext
from kinetoscope.recording.run.services import RunServices, make_services
from kinetoscope.recording.run.settings import SAVE_TIMEOUT_S, RunSettings
from kinetoscope.recording.run.shutdown import RunShutdown, ShutdownSteps
from kinetoscope.recording.run.window_controller import WindowController
from kinetoscope.recording.window.run_redaction import redact_training
from kinetoscope.recording.window.trace_handler import recipe_of, run_folder_of
from kinetoscope.spool.folders import SpoolOwner

_log = logging.getLogger("kinetoscope")
P = ParamSpec("P")
T = TypeVar("T")


class Phase(Enum):
    """Phase of a run's lifecycle."""

    NEW = 1
    RUNNING = 2
    CLOSING = 3
    CLOSED = 4


TRANSITIONS: dict[Phase, frozenset[Phase]] = {
    Phase.NEW: frozenset({Phase.RUNNING, Phase.CLOSING, Phase.CLOSED}),  # CLOSED: another run is active
    Phase.RUNNING: frozenset({Phase.CLOSING}),
    Phase.CLOSING: frozenset({Phase.CLOSED}),
    Phase.CLOSED: frozenset({Phase.CLOSING}),  # another close finishes the rest of the first one
}
"""Phases that may follow each phase."""

# Looked up once: Python 3.11 takes 0.2 microseconds each time, and each event of a batch compares the phase.
_RUNNING = Phase.RUNNING


class TrainingLoop(Protocol):
    """Loop that a run records. The lifecycle calls these methods as it closes the run."""

    def end(self, clean: bool) -> None:
        """Fire the run's last events, before the last window is saved."""
        ...

    def close_handlers(self) -> None:
        """Wait until everything is written, and close handlers and sources, if this loop has to."""
        ...

    def close_abandoned(self) -> None:
        """Close a run that was left open, and its handlers and sources."""
        ...


class RunLifecycle:
    """Lifecycle of one run of a ``profiler``, with whose ``markers`` it records.

    ``state`` is the run's state; the training loop advances it. ``sources`` and ``handlers`` get events, and handlers
    also get the cycles.
    """

    loop: TrainingLoop
    """The training loop, which sets this itself."""

    def __init__(
        self,
        profiler: object,
        settings: RunSettings,
        markers: ProfilerMarkers,
        state: RunState,
        sources: list[Any],
        handlers: list[Any],
    ) -> None:
        self.profiler: object = profiler
        self.settings: RunSettings = settings
        self.state: RunState = state
        self.services: RunServices = make_services(settings, markers, state, sources, handlers)
        self.windows: WindowController = WindowController(self.services)
        self._shutdown = RunShutdown(self.services)
        self.context: RunContext = RunContext(self.services, self.windows, self._shutdown)
        self.is_in_context: bool = False
        """True inside the profiler's `with` block."""
        self.tolerates_active_run: bool = False
        """True if it records nothing, and raises nothing, where another run is active."""
        self.requires_recorder: bool = True
        """False if it only counts steps, also where nothing can be recorded."""
        self._phase, self._pid = Phase.NEW, os.getpid()
        self._facts: TrainingFacts | None = None
        self._num_past_steps = 0
        self._watchdog: HangWatchdog | None = None
        self._search: FindingSearch | None = None
        self._has_reported = False

    # -- phases -----------------------------------------------------------------------------------------------

    def _enter(self, phase: Phase) -> None:
        """Enter a phase. Raises `ProfilerStateError` if it may not follow the current one."""
        self._check_following(phase)
        self._phase = phase

    def _check_following(self, phase: Phase) -> None:
        if phase not in TRANSITIONS[self._phase]:
            raise ProfilerStateError(f"A run that is {self._phase.name} cannot be {phase.name}.")

    @property
    def is_new(self) -> bool:
        """True until it starts."""
        return self._phase is Phase.NEW

    @property
    def is_running(self) -> bool:
        """True from its start until it is closed."""
        return self._phase is _RUNNING

    @property
    def is_closed(self) -> bool:
        """True once it was closed. Another close may finish what that one could not."""
        return self._phase is Phase.CLOSED

    @property
    def is_forked(self) -> bool:
        """True for the copy, in a forked child, of its parent's run. It records and saves nothing."""
        return self._pid != os.getpid()

    def get_action(self) -> ProfilerAction:
        """Return the action of the current batch."""
        return self.windows.action if self._phase is _RUNNING else self.windows.schedule(self.state)

    # -- its start --------------------------------------------------------------------------------------------

    def set_search(self, search: FindingSearch | None) -> None:
        """Search the traces for the top finding when the run ends; None for no search."""
        self._search = search

    def set_facts(self, training: TrainingFacts | None) -> None:
        """Set the facts that distinguish this run from others of its process, before it starts."""
        self._facts = training
        self.context.command_pid = 0 if training is None else training.command_pid

    def prepare_to_start(self) -> bool:
        """Return whether the run can start. Another active run is closed.

        If it cannot start, it is closed without a record, and one line in the log gives the reason.

        Raises:
            ProfilerStateError: if it has started before, or if another run is active that cannot be closed, unless it
                ``tolerates_active_run``.
            NativeExtensionError: where the native extension cannot record.
        """
        if self._phase is not Phase.NEW:
            raise ProfilerStateError("This Profiler has been started before. Create a new one for another run.")
        if self.requires_recorder:
            require_recorder()
        try:
            if this_process.run is not None:
                this_process.run.close_for_next_run()
        except ProfilerStateError as error:
            if not self.tolerates_active_run:
                raise
            self._enter(Phase.CLOSED)
            _log.warning("Nothing is recorded; training continues. %s", error)
        return self._phase is Phase.NEW

    def close_for_next_run(self) -> None:
        """Close and save this run, which was left open, because another one starts.

        Raises `ProfilerStateError` inside its profiler's `with` block.
        """
        if self.is_in_context:
            raise ProfilerStateError("Another Profiler is active in this process. Close it before starting this one.")
        _log.warning(
            "The Profiler of run %r was not closed. It is closed and saved now, because another one starts. Use `with "
            "profiler:`, or call close() at the end of the run.",
            self.state.run_name,
        )
        self.loop.close_abandoned()

    def start(self) -> None:
        """Become the process's active run. Handlers and sources must be set up."""
        self._check_following(Phase.RUNNING)  # before anything is opened
        self.windows.first_batch = plain_count(self.state.timestamp.batch)
        can_record = not why_not_recorded()  # else it only counts
        if can_record:
            self._open_spool()
            self._open_pulse()
        for uploads in self.context.uploads.values():
            self.context.call(uploads, uploads.resume)
        attach_library_markers(self.services.recorder)
        self._enter(Phase.RUNNING)
        if self.settings.slow_steps:
            self.windows.watch_slow_steps()
        this_process.make_active(self)
        self.services.clocks.start()
        if can_record:
            self._start_watchdog()

    def _open_spool(self) -> None:
        services, handlers = self.services, self.context.handlers
        chosen = self.settings.spool_folder
        folder = run_folder_of(handlers) if chosen in (None, True) else chosen
        services.live.start_preparing()
        if folder:
            recipes = [recipe for handler in handlers if (recipe := recipe_of(handler))]
            run = SpoolOwner(
                self.state.run_name,
                services.ranks,
                self.context.attempt,
                recipes,
                base_ns=process_base_ns(),
                redacts=services.redactor is not None,
            )
            with hold_signals():  # an unregistered folder would be left behind
                services.live.open(Path(str(folder)), run, self.context.attempt, self.settings.live_bytes_max)

    def _open_pulse(self) -> None:
        services = self.services
        training = redact_training(self._facts, services.redactor)
        services.pulse.open(run_folder_of(self.context.handlers), services.ranks, self.context.attempt, training)

    def _start_watchdog(self) -> None:
        """Watch the thread that trains, which is the calling one. A test's clock cannot measure durations of phases."""
        services = self.services
        if isinstance(services.clock, SystemClock):
            self._watchdog = HangWatchdog(
                services.pulse,
                services.ranks,
                self.context.attempt,
                self.windows.on_demand.accept,
                with_gil_stacks=self.settings.hangs,
                redactor=services.redactor,
            )
            self._watchdog.start()

    def add_past_steps(self, ends_ns: Sequence[int]) -> None:
        """Add the steps before the first batch to the pulse, which ended at these monotonic times in nanoseconds.

        Their phases are unknown, and so is the start of the first one. Without an open pulse they are only counted.
        """
        self._num_past_steps = len(ends_ns)
        first, writer = self.windows.first_batch - len(ends_ns), self.services.pulse.writer
        if writer is not None:
            for number, (begin_ns, end_ns) in enumerate(pairwise([*ends_ns[:1], *ends_ns])):
                writer.add_step(first + number, begin_ns, end_ns)

    # -- its end ----------------------------------------------------------------------------------------------

    def drain(self, timeout_s: float) -> bool:
        """Wait until every closed window is written. Return False if that takes too long."""
        self.services.clocks.finish_windows(timeout_s)
        return self.services.delivery.writer.drain(timeout_s)

    def close(self, *, clean: bool, has_failed: bool = False) -> None:
        """End the run, or finish the rest of an earlier close.

        With ``clean``, the run was not ended by an error. Then, with ``strict``, the first kept error is raised. The
        state of a run is failed if an exception that is being handled has ended it, or if it ``has_failed``.
        """
        has_failed |= not clean and isinstance(sys.exc_info()[1], Exception)
        self._close(self.settings.close_timeout_s, SAVE_TIMEOUT_S, clean=clean, has_failed=has_failed)
        if clean:
            self.services.guard.raise_first()

    def close_failed_setup(self) -> None:
        """End a run whose setup has failed. The error gives the reason, so there is no report of what was recorded."""
        self._has_reported = True
        self._close(self.settings.grace_s, clean=False)

    def save_on_signal(self) -> bool:
        """End the run because the process is being terminated. Return False if it is being closed already."""
        if self._search is not None:
            self._search.give_up()
        if self._phase is Phase.CLOSING:
            return False
        self._close(self.settings.grace_s, clean=False)
        return True

    def save_at_exit(self) -> None:
        """End the run because the interpreter exits. Ctrl-C only ends its waits.

        No caller is left to handle a KeyboardInterrupt, and Python would print a traceback of our code.
        """
        with contextlib.suppress(KeyboardInterrupt):
            self._close(self.settings.grace_s, clean=False, has_failed=is_ended_by_exception(), at_exit=True)

    def _close(
        self, timeout_s: float, save_s: float = 0.0, *, clean: bool, has_failed: bool = False, at_exit: bool = False
    ) -> None:
        """Run all steps of the close. The error of a step is reported, and the other steps still run."""
        is_over = self._phase is Phase.CLOSED and not self._shutdown.is_unfinished
        if self._phase is Phase.CLOSING or is_over or self.is_forked:
            return
        if self._search is not None and isinstance(sys.exc_info()[1], KeyboardInterrupt):
            self._search.give_up()  # after Ctrl-C nothing may take long
        with self._shutdown.begin(timeout_s, save_s) as steps:
            was_running = self.is_running
            try:
                self._enter(Phase.CLOSING)
                self._run_close_steps(
                    steps, was_running=was_running, clean=clean, has_failed=has_failed, at_exit=at_exit
                )
            except BaseException:  # a signal's handler may raise between two steps: another close runs the others
                self._shutdown.is_unfinished = True
                if self._phase is Phase.CLOSING:
                    self._enter(Phase.CLOSED)
                raise

    def _run_close_steps(
        self, steps: ShutdownSteps, *, was_running: bool, clean: bool, has_failed: bool, at_exit: bool
    ) -> None:
        """Run the steps of the close in their order."""
        services = self.services
        steps.run_step(self._shutdown.start_saving, self._watchdog)
        steps.run_step(self.windows.stop_slow_steps)
        if at_exit:
            steps.run_step(self._shutdown.stop_writer)
        # In the phase CLOSING no batch can end; an epoch can, without ending its batch.
        steps.run_step(services.callbacks.notify_window, is_open=False)
        if was_running:
            steps.run_step(self.loop.end, clean)
        steps.run_step(self._shutdown.close_sources)
        steps.run_step(self.windows.save, measure=clean)
        steps.run_step(self._shutdown.finish_windows)
        steps.run_step(self.loop.close_handlers)
        steps.run_step(self._shutdown.finish_clocks)
        steps.run_step(self._shutdown.finish_files)
        steps.run_step(detach_library_markers, services.recorder)
        if self._watchdog is not None:
            steps.run_step(self._watchdog.stop)
        steps.run_step(services.pulse.close, has_failed=has_failed)
        self._enter(Phase.CLOSED)  # a signal deferred until the close takes effect in the next step
        steps.run_step(this_process.make_inactive, self)

    def close_callbacks(self) -> None:
        """Wait, while closing, until everything is written, and close handlers, sources and uploads."""
        if not self.drain_or_give_up() or not self._shutdown.has_new_saves():
            return
        self.services.callbacks.close_handlers()
        self.finish_uploads()

    def drain_or_give_up(self) -> bool:
        """Wait, while closing, until everything is written, and retry failed saves.

        Return False and log it if the time is up before.
        """
        return self._shutdown.drain_or_give_up()

    def finish_uploads(self) -> None:
        """Report the result of the run, wait for uploads, and report the top finding, while closing.

        Raises nothing, and waits even if another step fails.
        """
        report = self._try_to_report(self._make_end_report)
        if report is not None:
            self._try_to_report(report.show)
        for uploads in self.context.uploads.values():
            self.context.call(uploads, uploads.finish, self._shutdown.seconds_left)
        if report is not None:
            writes_report = self._search is not None and self._search.writes_report
            self._try_to_report(report.show_finding, self._find_top_finding, always=writes_report)

    def _try_to_report(self, step: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T | None:
        """Return the result of a step of the report; None if it failed, which is logged."""
        try:
            return step(*arguments, **options)
        except Exception as error:
            self.services.guard.report("The report on the run", error)
            return None

    def _make_end_report(self) -> EndReport | None:
        """Return the report of this run, once, on rank 0."""
        services, handlers = self.services, self.context.handlers
        if self._has_reported or services.ranks.rank != 0 or not handlers:
            return None
        self._has_reported = True
        schedule, is_quiet = self.settings.schedule, self.settings.is_quiet
        return EndReport(self._make_counts(), schedule, handlers, services.redactor, is_quiet=is_quiet)

    def _find_top_finding(self, *, is_watching: bool) -> str:
        folder = next((recipe.folder for handler in self.context.handlers if (recipe := recipe_of(handler))), None)
        search = self._search
        if search is None or folder is None:
            return ""
        find = partial(search.find, is_watching=is_watching)
        return self.context.call(search, find, Path(folder), self._shutdown.seconds_to_search) or ""

    def _make_counts(self) -> RunCounts:
        delivery = self.services.delivery
        return RunCounts(
            num_batches=plain_count(self.state.timestamp.batch) - self.windows.first_batch + self._num_past_steps,
            num_past=self._num_past_steps,
            longest_epoch=self.windows.longest_epoch,
            num_windows=self.services.window.num_cycles,
            num_saved=delivery.num_recorded,
            num_unsaved=len(delivery.unsaved),
            num_missed=delivery.num_missed,
            num_delivered=delivery.num_events_delivered + delivery.num_files_delivered,
        )
