"""recording: a Run, which has a beginning, windows and an end. Events flow in; cycles flow to the trace handlers.

A driver tells it where training is: the plain loop (`loop.py`), or the face of a trainer. A run is driven once.
"""

import logging
import os
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

from kinetoscope.clock.clock import take_anchor
from kinetoscope.errors import ProfilerStateError
from kinetoscope.live.folders import live_run
from kinetoscope.live.own_folder import LiveFolder, TemporaryFiles
from kinetoscope.recording import compiler
from kinetoscope.recording.clock_comparison import ClockComparison
from kinetoscope.recording.contract import Guard, Listeners, RunSettings, recipe_of, run_folder_of
from kinetoscope.recording.cycle import Contributions, Cycle, LastingSpans, Window
from kinetoscope.recording.delivery import Delivery
from kinetoscope.recording.ending import RunCounts, RunEnd, tell_outcome
from kinetoscope.recording.marker import (
    Marker,
    MarkerSettings,
    ProfilerMarkers,
    begin_library_markers,
    end_library_markers,
)
from kinetoscope.recording.process import this_process
from kinetoscope.recording.recorder import ACTION_BITS
from kinetoscope.recording.recorder_choice import say_if_slow
from kinetoscope.recording.schedule import ProfilerAction
from kinetoscope.training.event import Event, wanted_events
from kinetoscope.training.once_log import OnceLog
from kinetoscope.training.ranks import current_attempt, current_ranks
from kinetoscope.training.state import RunState
from kinetoscope.training.timestamp import Moment, plain_count

_log = logging.getLogger("kinetoscope")


class Driver(Protocol):
    """What drives a run: it tells of the run's events, and is asked while the run closes."""

    def end(self, clean: bool) -> None:
        """Tells of the run's last events, before the last window is saved."""
        ...

    def close_handlers(self) -> None:
        """Everything is handed over: sees to it that it is written, and closes handlers and sources, if they are this
        driver's to close."""
        ...

    def close_abandoned(self) -> None:
        """Closes all that belongs to a run which nobody else will close."""
        ...


class _Phase(Enum):
    NEW = 1
    RUNNING = 2
    CLOSING = 3
    CLOSED = 4


class Run:
    """One run of a ``profiler``, in whose ``markers`` it records.

    ``state`` says where training is; the driver advances it. ``sources`` and ``handlers`` are told of events; handlers
    get the cycles.
    """

    driver: Driver
    """Set by the driver itself."""

    def __init__(
        self,
        profiler: object,
        settings: RunSettings,
        markers: ProfilerMarkers,
        state: RunState,
        sources: list[Any],
        handlers: list[Any],
    ) -> None:
        self.profiler, self.settings, self.markers, self.state = profiler, settings, markers, state
        self.ranks = current_ranks()
        self.attempt = current_attempt(self.ranks)
        self.resumption_batch = self.resumption_epoch = 0
        self.first_batch = plain_count(state.timestamp.batch)
        """The batch of the run at which it began here: above 0 where it was resumed."""
        self.upload_to = settings.upload_to
        self.remote_store: Any = None
        """Where remote names without a scheme go when there is no ``upload_to``: a `RemoteStore`, or None."""
        self.uploads: dict[Path, Any] = {}
        """What uploads from each run folder, so that handlers and sources share it."""
        self.action = ProfilerAction.SKIP
        """The action of the current batch, once the run has begun."""
        self.is_held = self.is_paused = False
        """``is_held``: within the profiler's `with` block. ``is_paused``: nothing is recorded for the time of an
        evaluation between batches."""
        self._phase, self._pid = _Phase.NEW, os.getpid()
        self._once = OnceLog()
        self._longest_epoch = 0
        self._has_told = False
        self.sources, self._unclosed = sources, list(sources)
        self._make_parts()
        self.set_handlers(handlers)

    def _make_parts(self) -> None:
        recorder, clock = self.markers.recorder, self.markers.clock
        self._recorder, self._clock = recorder, clock
        self._guard = Guard(self.settings.strict)
        self._window = Window(recorder, clock, self.ranks, self.attempt)
        self.lasting = LastingSpans(recorder, clock)
        save_cost = self.marker("kinetoscope/save", "kinetoscope")
        self._delivery = Delivery(self._guard, lambda: self.handlers, save_cost, self.settings.live_bytes_max)
        self._clocks = ClockComparison(clock, self.ranks, self.attempt)
        submit, make_room = self._delivery.writer.submit, self._delivery.make_room
        self._live = LiveFolder(recorder, submit, make_room, this_process.tell_children)
        self._temporary = TemporaryFiles(lambda: self._live.path)
        self._end = RunEnd(self._guard, self._clocks, self._delivery, self._live, self._temporary)

    def set_handlers(self, handlers: list[Any]) -> None:
        """Looks up once which callback wants which event, so that events nobody wants cost nothing."""
        self.handlers = handlers
        self._wanted = wanted_events([*self.sources, *handlers])
        listeners = Listeners(handlers, self._recorder.names, self.state, take_anchor(self._clock), self._guard)
        self._recorder.listener = listeners if listeners else None

    # -- where it stands --------------------------------------------------------------------------------------

    @property
    def is_new(self) -> bool:
        """Before it begins."""
        return self._phase is _Phase.NEW

    @property
    def is_running(self) -> bool:
        """Between its beginning and its close."""
        return self._phase is _Phase.RUNNING

    @property
    def is_closed(self) -> bool:
        """After its close; another close may finish what that could not."""
        return self._phase is _Phase.CLOSED

    @property
    def is_forked(self) -> bool:
        """Whether this is a child process's copy of its parent's run: it records nothing and saves nothing."""
        return self._pid != os.getpid()

    def get_action(self) -> ProfilerAction:
        """The action of the current batch."""
        return self.action if self._phase is _Phase.RUNNING else self.schedule(self.state)

    def schedule(self, state: RunState) -> ProfilerAction:
        """The schedule's answer for ``state``; SKIP, with one report in the log, if it raises or answers nonsense."""
        action = self._guard(self.settings.schedule, self._ask_schedule, (state,))
        return ProfilerAction.SKIP if action is None else action

    def _ask_schedule(self, state: RunState) -> ProfilerAction:
        return ProfilerAction(self.settings.schedule(state))

    def resume_at(self, batch_in_epoch: object) -> None:
        """The run was resumed at this batch of the epoch: a schedule's skip counts from here, in this epoch."""
        self.resumption_batch = plain_count(batch_in_epoch)
        self.resumption_epoch = plain_count(self.state.timestamp.epoch)
        self._note_first_batch()

    def _note_first_batch(self) -> None:
        self.first_batch = plain_count(self.state.timestamp.batch)

    # -- its beginning ----------------------------------------------------------------------------------------

    def check_can_begin(self) -> None:
        """Raises `ProfilerStateError` if it was begun before, or another run is active that cannot be closed."""
        if self._phase is not _Phase.NEW:
            raise ProfilerStateError("This Profiler has been started before. Make a new one for another run.")
        if this_process.run is not None:
            this_process.run.give_way()

    def give_way(self) -> None:
        """Another run begins: this one is closed and saved if it was left open.

        Raises `ProfilerStateError` inside its profiler's `with` block.
        """
        if self.is_held:
            raise ProfilerStateError("Another Profiler is active in this process. Close it before starting this one.")
        _log.warning(
            "The Profiler of run %r was not closed. It is closed and saved now, since another one starts. Use `with "
            "profiler:`, or call close() at the end of the run.",
            self.state.run_name,
        )
        self.driver.close_abandoned()

    def show_action(self) -> None:
        """Before it begins: lets handlers be told of events as the current action says. Nothing is kept."""
        if self._recorder.listener is not None and self._phase is _Phase.NEW:
            self._recorder.action = ACTION_BITS[self.schedule(self.state)]

    def begin(self) -> None:
        """Becomes the process's active run, once handlers and sources are set up."""
        self._note_first_batch()
        self._open_live_folder()
        for uploads in self.uploads.values():
            self._guard(uploads, uploads.resume)
        begin_library_markers(self._recorder)
        self._phase = _Phase.RUNNING
        this_process.lend_to(self)
        self._clocks.begin()
        say_if_slow()

    def _open_live_folder(self) -> None:
        asked = self.settings.live_folder
        folder = run_folder_of(self.handlers) if asked in (None, True) else asked
        self._live.prepare_ahead()
        if folder:
            recipes = [recipe for handler in self.handlers if (recipe := recipe_of(handler))]
            run = live_run(self.state.run_name, self.attempt, self.ranks, recipes)
            self._live.open(Path(str(folder)), run, self.attempt, self.settings.live_bytes_max)

    # -- events -----------------------------------------------------------------------------------------------

    def fire(self, event: Event, *, setup: bool = False) -> None:
        """Tells sources, then handlers, of an event. During ``setup`` what they raise is raised."""
        for callback, method in self._wanted.get(event, ()):
            if setup:
                method(self.state, None)
            else:
                self._guard(callback, method, (self.state, None))

    def call(self, owner: object, method: Callable[..., Any], *arguments: object) -> Any:
        """Calls a method of a source or handler; if it raises, that is logged and ``owner`` switched off."""
        return self._guard(owner, method, arguments)

    def epoch_started(self, left_at: Moment | None = None) -> None:
        """Acts on the first batch of an epoch. An active stretch that the epoch's end has cut short is saved, at the
        timestamp ``left_at`` if the epoch before was left in its middle."""
        before = self.next_action()
        self.fire(Event.EPOCH_START)
        if self.is_broken_off(before):
            self.save_window(timestamp=left_at)
        self.apply_action()

    def batch_ended(self) -> None:
        """Acts on the end of a batch: the timestamp already counts it. Saves if it was the last of its window."""
        before = self.next_action()
        self.fire(Event.BATCH_END)
        if before is ProfilerAction.ACTIVE_AND_SAVE:
            self.save_window()
        self.apply_action()

    # -- its windows ------------------------------------------------------------------------------------------

    def next_action(self) -> ProfilerAction:
        """Asks the schedule about where the state now is; returns the action there was before.

        Spans follow once sources and handlers have had their event: see `apply_action`.
        """
        before, self.action = self.action, self.schedule(self.state)
        self._longest_epoch = max(self._longest_epoch, plain_count(self.state.timestamp.batch_in_epoch))
        return before

    def is_broken_off(self, before: ProfilerAction) -> bool:
        """Whether recording, which was ``before``, ends here without a batch that saves."""
        return before is ProfilerAction.ACTIVE and self.action in (ProfilerAction.SKIP, ProfilerAction.WARMUP)

    def apply_action(self) -> None:
        """Lets the current action take effect on every span that begins from now on."""
        timestamp = self.state.timestamp
        self._recorder.batch = plain_count(timestamp.batch)
        if began := self._window.enter_epoch(plain_count(timestamp.epoch)):
            self._live.note_epoch(*began)
        if self._window.set_action(self.action, timestamp):
            self._live.note_opened(self._window.num_cycles, timestamp)
        compiler.teach_dynamo(Marker)

    def pause(self) -> None:
        """Records nothing until `resume`. An open window stays open, and spans that are open now do too."""
        self.is_paused = True
        self._recorder.action = 0

    def resume(self) -> None:
        """Records again what the current action says."""
        self.is_paused = False
        if self.is_running:
            self._recorder.action = ACTION_BITS[self.action]

    def save_window(self, *, measure: bool = True, timestamp: Moment | None = None) -> None:
        """Closes the window, at ``timestamp`` or where the run now is, and hands its cycle to the writer thread;
        ``measure`` its clock once more before."""
        listener = self._recorder.listener
        timestamp = self.state.timestamp if timestamp is None else timestamp
        cycle = self._window.close(self.state.run_name, timestamp, self.lasting.take(self._recorder.window))
        if isinstance(listener, Listeners):
            listener.cut(self._clock.monotonic_ns())
        if cycle is not None:
            self._note_closed(cycle)
            self._clocks.pass_on(cycle, self._delivery.cycle, measure=measure)

    def _note_closed(self, cycle: Cycle) -> None:
        recorded = cycle.recorded
        self._live.note_closed(recorded.window, recorded.closed_ns, cycle.timestamp)
        cycle.contributions.afterwards.append(lambda: self._live.note_saved(recorded.window))

    def drain(self, timeout_s: float) -> bool:
        """Waits until every window that has closed is written; False if that took too long."""
        self._clocks.finish_windows(timeout_s)
        return self._delivery.writer.drain(timeout_s)

    # -- for those who take part in it: see `RunInside` -------------------------------------------------------

    def marker(self, name: str, category: str) -> Marker:
        """A marker of the engine's own."""
        return self.markers.get(MarkerSettings(name, categories=(category,)))

    def report(self, message: str) -> None:
        """Says something in the log, once."""
        self._once.warn("%s", message, about=message)

    def take_over_file(self, path: Path) -> None:
        """Adds a file of Chrome JSON events to the cycle that is being recorded. It is kept by a second link (or a
        copy, where there can be none); nothing is read on this thread. One that is not there is reported in the log."""
        try:
            kept = self._temporary.keep(path, self._window.num_cycles)
        except OSError as error:
            self._guard.report(f"Taking over the trace file {path}", error)
        else:
            self.contribute(lambda contributions: contributions.add_temporary(kept()))

    def contribute(self, make: Callable[[Contributions], object]) -> None:
        """Calls ``make`` on the writer thread, to add files to the cycle that is being recorded now."""
        self._delivery.contribution(make, self._window.contributions)

    def temporary_folder(self, cycle: int) -> Path:
        """On the writer thread: where files lie that last only until the cycle is saved."""
        return self._temporary.folder(cycle)

    def agree_on_attempt(self, folder: Path, take: Callable[[str], object]) -> None:
        """Before it begins: ``take`` gets the id that all ranks of this attempt agree on which write into ``folder``,
        on another thread; never, where there is no store to agree through."""
        self._clocks.agree(str(folder), take)

    def seconds_to_close(self) -> float:
        """How much of the time that closing may take is left."""
        return self._end.seconds_left

    # -- its end ----------------------------------------------------------------------------------------------

    def close(self, *, clean: bool, timeout_s: float | None = None) -> None:
        """Ends the run, or finishes what an earlier close could not, within ``close_timeout_s`` or ``timeout_s``.

        ``clean``: no error has ended it; then, with ``strict``, the first error that was kept is raised.
        """
        self._close(self.settings.close_timeout_s if timeout_s is None else timeout_s, clean=clean)
        if clean:
            self._guard.raise_first()

    def save_on_signal(self) -> bool:
        """Ends the run since the process is about to be ended; False if it is being closed already."""
        if self._phase is _Phase.CLOSING:
            return False
        self._close(self.settings.grace_s, clean=False)
        return True

    def save_at_exit(self) -> None:
        """Ends the run since the interpreter exits."""
        self._close(self.settings.grace_s, clean=False, at_exit=True)

    def _close(self, timeout_s: float, *, clean: bool, at_exit: bool = False) -> None:
        """Whatever fails in here is reported, and the rest is done all the same."""
        is_over = self._phase is _Phase.CLOSED and not self._end.is_unfinished
        if self._phase is _Phase.CLOSING or is_over or self.is_forked:
            return
        with self._end.begin(timeout_s) as ending:
            was_running, self._phase = self._phase is _Phase.RUNNING, _Phase.CLOSING
            if at_exit:
                ending.take(self._end.stop_writer)
            # In the phase CLOSING no batch can end any more: an epoch that does, does so without one.
            if was_running:
                ending.take(self.driver.end, clean)
            ending.take(self._close_sources)
            ending.take(self.save_window, measure=clean)
            ending.take(self._end.finish_windows)
            ending.take(self.driver.close_handlers)
            ending.take(self._end.finish_clocks)
            ending.take(lambda: self._end.finish_files(is_window_open=self._window.is_open))
            ending.take(end_library_markers, self._recorder)
            self._phase = _Phase.CLOSED
            ending.take(this_process.take_back_from, self)

    def _close_sources(self) -> None:
        while self._unclosed:
            source = self._unclosed.pop(0)
            self._end_callback(source, "close", self.state, None)

    def _end_callback(self, callback: object, method: str, *arguments: object) -> None:
        """Calls a method of a source or handler, if it has one, although the run is ending."""
        found = getattr(callback, method, None)
        if found is not None:
            self._guard.end(callback, found, arguments)

    def close_callbacks(self) -> None:
        """While closing: waits for what is being written, and lets handlers, sources and uploads end."""
        if not self.drain_or_give_up() or not self._end.is_there_news_for_handlers():
            return
        for handler in self.handlers:
            self._end_callback(handler, "close", self.state, None)
        for callback in (*self.sources, *self.handlers):
            self._end_callback(callback, "post_close")
        self.finish_uploads()

    def drain_or_give_up(self) -> bool:
        """While closing: waits until everything is written, and tries again what could not be saved; False, and a word
        in the log, if time is up before."""
        return self._end.drain_or_give_up()

    def finish_uploads(self) -> None:
        """While closing: waits for uploads, and says what the run came to."""
        for uploads in self.uploads.values():
            self._guard(uploads, lambda uploads=uploads: uploads.finish(self.seconds_to_close()))
        if not self._has_told and self.ranks.rank == 0 and self.handlers:
            self._has_told = True
            tell_outcome(self._counts(), self.settings.schedule, self.handlers, is_quiet=self.settings.is_quiet)

    def _counts(self) -> RunCounts:
        return RunCounts(
            num_batches=plain_count(self.state.timestamp.batch) - self.first_batch,
            longest_epoch=self._longest_epoch,
            num_windows=self._window.num_cycles,
            num_saved=self._delivery.num_recorded,
            num_unsaved=len(self._delivery.unsaved),
        )
