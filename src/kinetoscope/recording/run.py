"""A Run: it begins, opens and closes windows, hands their cycles to the trace handlers, and ends.

A loop reports the position of training: the plain loop (`loop.py`) or that of a Trainer. A Run is used once.
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
from typing import Any, ParamSpec, TypeVar

from kinetoscope.clock.clock import Clock, SystemClock, process_base_ns, take_anchor
from kinetoscope.errors import ProfilerStateError
from kinetoscope.formats.own_names import WATCHED_PHASE
from kinetoscope.live.folders import LiveRun
from kinetoscope.live.own_folder import LiveFolder, TemporaryFiles
from kinetoscope.native import require_recorder, why_not_recorded
from kinetoscope.pulse.own_pulse import OwnPulse, StepTimes, TrainingFacts
from kinetoscope.recording import compiler
from kinetoscope.recording.asked_recording import AskedRecording
from kinetoscope.recording.callbacks import Callbacks
from kinetoscope.recording.clock_comparison import ClockComparison
from kinetoscope.recording.contract import FindsFirst, Guard, Listeners, TrainingLoop, recipe_of, run_folder_of
from kinetoscope.recording.cycle import Contributions, Cycle, LastingSpans, Window
from kinetoscope.recording.delivery import Delivery
from kinetoscope.recording.ending import Ending, RunEnd
from kinetoscope.recording.marker import (
    Marker,
    MarkerSettings,
    ProfilerMarkers,
    begin_library_markers,
    end_library_markers,
)
from kinetoscope.recording.memory_limit import MemoryLimit
from kinetoscope.recording.native_recorder import NativeRecorder
from kinetoscope.recording.outcome import Outcome, RunCounts
from kinetoscope.recording.process import signals_held, this_process
from kinetoscope.recording.recorder import ACTION_BITS, OWN_CATEGORY
from kinetoscope.recording.run_redaction import add_redacted, redact_attempt, redact_training
from kinetoscope.recording.schedule import CyclicSchedule, ProfilerAction
from kinetoscope.recording.settings import SAVE_TIMEOUT_S, RunSettings
from kinetoscope.recording.slow_step_watch import SlowStepWatch
from kinetoscope.recording.source_events import PHASE_NAMES, PHASES_TID, PHASES_TRACK, SourceEvent
from kinetoscope.recording.watch import TrainingWatch
from kinetoscope.texts.once_log import OnceLog
from kinetoscope.texts.redactor import Redactor
from kinetoscope.training.event import Event
from kinetoscope.training.ranks import Attempt, Ranks, current_attempt, current_ranks
from kinetoscope.training.state import RunState
from kinetoscope.training.timestamp import Moment, plain_count

_log = logging.getLogger("kinetoscope")
P = ParamSpec("P")
T = TypeVar("T")


class _Phase(Enum):
    NEW = 1
    RUNNING = 2
    CLOSING = 3
    CLOSED = 4


# Looked up once: Python 3.11 takes 0.2 microseconds each time, and each event of a batch asks for it.
_RUNNING = _Phase.RUNNING


class Run:
    """One run of a ``profiler``, with whose ``markers`` it records.

    ``state`` says where training is; the loop advances it. ``sources`` and ``handlers`` get events, and handlers also
    get the cycles.
    """

    loop: TrainingLoop
    """The loop sets this itself."""
    profiler: object
    settings: RunSettings
    markers: ProfilerMarkers
    state: RunState
    clock: Clock
    redactor: Redactor | None
    resumption_batch: int
    resumption_epoch: int
    is_held: bool
    is_paused: bool
    tolerates_active_run: bool
    """Whether it records nothing, and raises nothing, where another run is active."""

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
        self._guard = Guard(settings.strict)
        self.redactor = None if settings.redact is None else Redactor(settings.redact, self._guard.keep)
        self.ranks: Ranks = current_ranks()
        self.attempt: Attempt = redact_attempt(current_attempt(self.ranks), self.redactor)
        self.resumption_batch = self.resumption_epoch = 0
        self.first_batch: int = plain_count(state.timestamp.batch)
        """The batch at which this process began: above 0 if the run was resumed."""
        self.upload_to: str | None = settings.upload_to
        self.remote_store: Any = None
        """A `RemoteStore` for remote names without a scheme, if there is no ``upload_to``; or None."""
        self.uploads: dict[Path, Any] = {}
        """The `Uploads` of each run folder, which handlers and sources share."""
        self.action: ProfilerAction = ProfilerAction.SKIP
        """The action of the current batch, once the run has begun."""
        self.notes_phases: bool = False
        """Whether windows have the phases that the pulse is told of as spans: in a loop without spans of its own."""
        self.is_held = self.is_paused = self.tolerates_active_run = self._has_told = False
        """``is_held``: inside the profiler's `with` block. ``is_paused``: recording is paused, during an evaluation
        between batches."""
        self._slow_steps: SlowStepWatch | None = None
        self._search: FindsFirst | None = None
        self._phase, self._pid, self._once = _Phase.NEW, os.getpid(), OnceLog()
        self._longest_epoch = self._num_taken = self._skips_until = 0
        self.training: TrainingFacts | None = None
        """What tells this run from others of its process, to be set before it begins."""
        self._num_past_steps = 0
        self.callbacks: Callbacks = Callbacks(sources, state, self._guard)
        """Calls the sources and handlers."""
        self._make_parts()
        self.set_handlers(handlers)

    def _make_parts(self) -> None:
        self._recorder, self.clock = recorder, clock = self.markers.recorder, self.markers.clock
        self._window = Window(recorder, clock, self.ranks, self.attempt)
        self.lasting: LastingSpans = LastingSpans(recorder, clock)
        save_cost = self.marker("kinetoscope/save", OWN_CATEGORY)
        limit_bytes = self.settings.live_bytes_max
        self._delivery = Delivery(self._guard, self.callbacks, save_cost, limit_bytes, self.redactor)
        self._clocks = ClockComparison(clock, self.ranks, self.attempt)
        submit, make_room = self._delivery.writer.submit, self._delivery.make_room
        self._live = LiveFolder(recorder, submit, make_room, this_process.tell_children)
        self._temporary = TemporaryFiles(self._live)
        self.pulse: OwnPulse = OwnPulse(clock, lambda: recorder.loss)
        """What training does now, and how long its steps take, in a file."""
        self._asked = AskedRecording(self.pulse, self.ranks.rank)
        self.memory_limit: MemoryLimit = MemoryLimit()
        self._watch: TrainingWatch | None = None
        is_quiet = self.settings.is_quiet or self.ranks.rank != 0
        self._end = RunEnd(self._guard, self._clocks, self._delivery, self._live, self._temporary, is_quiet=is_quiet)

    def set_handlers(self, handlers: list[Any]) -> None:
        """From now on, these handlers get the events and the cycles."""
        self.callbacks.set_handlers(handlers)
        self.pulse.count_no_more()
        names, anchor = self._recorder.names, take_anchor(self.clock)
        listeners = Listeners(handlers, names, self.state, anchor, self._guard, self.redactor, self._note_taken)
        self._recorder.listener = listeners if listeners else None

    def set_search(self, search: FindsFirst | None) -> None:
        """Let this search the traces for the first finding when the run ends; None for no search."""
        self._search = search

    def _note_taken(self) -> None:
        self._num_taken += 1  # events that handlers have got, one at a time

    # -- its state --------------------------------------------------------------------------------------------

    @property
    def sources(self) -> list[Any]:
        """The sources, in the order in which they get events."""
        return self.callbacks.sources

    @property
    def handlers(self) -> list[Any]:
        """The trace handlers, which get events after the sources."""
        return self.callbacks.handlers

    @property
    def is_new(self) -> bool:
        """Whether it has not begun."""
        return self._phase is _Phase.NEW

    @property
    def is_running(self) -> bool:
        """Whether it has begun and is not being closed."""
        return self._phase is _RUNNING

    @property
    def is_closed(self) -> bool:
        """Whether it was closed. Another close may finish what that one could not."""
        return self._phase is _Phase.CLOSED

    @property
    def is_recording(self) -> bool:
        """Whether markers record now: a window is open, and neither paused nor skipped."""
        return self._window.is_open and bool(self._recorder.action)

    @property
    def is_asked(self) -> bool:
        """Whether somebody has asked for a recording from outside, which is not over."""
        return self._asked.request is not None

    @property
    def command_pid(self) -> int:
        """The process of the command that was recorded; 0 if that is unknown."""
        return 0 if self.training is None else self.training.command_pid

    @property
    def is_forked(self) -> bool:
        """Whether this is the copy, in a forked child, of its parent's run. It records and saves nothing."""
        return self._pid != os.getpid()

    def get_action(self) -> ProfilerAction:
        """The action of the current batch."""
        return self.action if self._phase is _Phase.RUNNING else self.schedule(self.state)

    def schedule(self, state: RunState) -> ProfilerAction:
        """The schedule's action for ``state``. If the schedule raises or returns no action: SKIP, and one report in the
        log.
        """
        action = self._guard(self.settings.schedule, self._ask_schedule, (state,))
        return ProfilerAction.SKIP if action is None else action

    def _ask_schedule(self, state: RunState) -> ProfilerAction:
        own = ProfilerAction(self.settings.schedule(state))
        return self.memory_limit.next_action(self._asked.action(plain_count(state.timestamp.batch), own))

    def resume_at(self, batch_in_epoch: object) -> None:
        """Notes that the run was resumed at this batch of the epoch, so that a schedule's skip counts from here."""
        self.resumption_batch = plain_count(batch_in_epoch)
        self.resumption_epoch = plain_count(self.state.timestamp.epoch)
        self._skips_until = 0
        self.pulse.count_no_more()
        self.first_batch = plain_count(self.state.timestamp.batch)

    # -- its beginning ----------------------------------------------------------------------------------------

    def can_begin(self) -> bool:
        """Return whether it can begin. If not, it is over without a record, and one line in the log gives the reason.

        Raises `ProfilerStateError` if it has begun before, and if another run is active that cannot be closed, unless
        it ``tolerates_active_run``. Raises `NativeExtensionError` where it cannot record.
        """
        if self._phase is not _Phase.NEW:
            raise ProfilerStateError("This Profiler has been started before. Make a new one for another run.")
        if self.handlers or self.sources:
            require_recorder()
        try:
            if this_process.run is not None:
                this_process.run.give_way()
        except ProfilerStateError as error:
            if not self.tolerates_active_run:
                raise
            self._phase = _Phase.CLOSED
            _log.warning("Nothing is recorded; training continues. %s", error)
        return self._phase is _Phase.NEW

    def give_way(self) -> None:
        """Closes and saves this run, which was left open, because another one begins.

        Raises `ProfilerStateError` inside its profiler's `with` block.
        """
        if self.is_held:
            raise ProfilerStateError("Another Profiler is active in this process. Close it before starting this one.")
        _log.warning(
            "The Profiler of run %r was not closed. It is closed and saved now, because another one starts. Use `with "
            "profiler:`, or call close() at the end of the run.",
            self.state.run_name,
        )
        self.loop.close_abandoned()

    def show_action(self) -> None:
        """Before it begins: handlers with per-event methods get events, as the current action says. Nothing is kept."""
        if self._recorder.listener is not None and self._phase is _Phase.NEW:
            self._recorder.action = ACTION_BITS[self.schedule(self.state)]

    def begin(self) -> None:
        """Becomes the process's active run. Handlers and sources must be set up."""
        self.first_batch = plain_count(self.state.timestamp.batch)
        can_record = not why_not_recorded()  # else it only counts
        if can_record:
            self._open_live_folder()
            self._open_pulse()
        for uploads in self.uploads.values():
            self._guard(uploads, uploads.resume)
        begin_library_markers(self._recorder)
        self._phase = _Phase.RUNNING
        if self.settings.slow_steps:
            self._watch_slow_steps()
        this_process.make_active(self)
        self._clocks.begin()
        if can_record:
            self._begin_watch()

    def _open_live_folder(self) -> None:
        asked = self.settings.live_folder
        folder = run_folder_of(self.handlers) if asked in (None, True) else asked
        self._live.prepare_ahead()
        if folder:
            recipes = [recipe for handler in self.handlers if (recipe := recipe_of(handler))]
            redacts = self.redactor is not None
            run = LiveRun(
                self.state.run_name, self.ranks, self.attempt, recipes, base_ns=process_base_ns(), redacts=redacts
            )
            with signals_held():  # a folder that nobody knows of would be left behind
                self._live.open(Path(str(folder)), run, self.attempt, self.settings.live_bytes_max)

    def _open_pulse(self) -> None:
        training = redact_training(self.training, self.redactor)
        self.pulse.open(run_folder_of(self.handlers), self.ranks, self.attempt, training)

    def _begin_watch(self) -> None:
        """Watches the thread that trains, which is this one. A test's clock says nothing of how long things take."""
        if isinstance(self.clock, SystemClock):
            with_held_stacks, take = self.settings.hangs, self._asked.take
            self._watch = TrainingWatch(
                self.pulse, self.ranks, self.attempt, take, with_held_stacks=with_held_stacks, redactor=self.redactor
            )
            self._watch.start()

    def _watch_slow_steps(self) -> None:
        self._slow_steps = SlowStepWatch(
            self.pulse.writer,
            self._recorder,
            self.clock,
            lambda: (self.state.run_name, self.ranks, self.attempt),
            self._delivery.slow_step,
            self.report,
        )

    # -- events -----------------------------------------------------------------------------------------------

    def call(self, owner: object, method: Callable[..., Any], *arguments: object) -> Any:
        """Calls a method of a source or handler. An error is logged, and switches ``owner`` off."""
        return self._guard(owner, method, arguments)

    def add_past_steps(self, ends_ns: Sequence[int]) -> None:
        """Add the steps before its first batch to the pulse, which ended at these monotonic times, in phases that are
        unknown. Of the first one, the start is unknown too."""
        self._num_past_steps = len(ends_ns)
        for number, (begin_ns, end_ns) in enumerate(pairwise([*ends_ns[:1], *ends_ns])):
            self.pulse.writer.add_step(self.first_batch - len(ends_ns) + number, begin_ns, end_ns)

    def epoch_started(self, left_at: Moment | None = None) -> None:
        """Handles the begin of an epoch. If the epoch before ended while recording was on, its window is saved, with
        the timestamp ``left_at`` if that epoch was left in its middle.
        """
        before = self.next_action()
        if self.is_broken_off(before):
            self._end.time_stop(self.callbacks.fire, Event.EPOCH_START)
            self.save_window(timestamp=left_at, continues=True)
        else:
            self.callbacks.fire(Event.EPOCH_START)
        self.apply_action()

    def batch_ended(self, end_ns: int | None = None) -> None:
        """Handle the end of a batch, now or at ``end_ns``, which the timestamp counts. Save a window that ends."""
        timestamp = self.state.timestamp
        self.end_step_of_pulse(end_ns)
        if plain_count(timestamp.batch) < self._skips_until and not self.is_asked:  # nothing changes: a step is cheap
            self.note_length(timestamp)
            self.callbacks.fire(Event.BATCH_END)
            compiler.teach_dynamo(Marker)
            return
        self.action = self.memory_limit.last_action(self.action)
        before = self.next_action()
        if saves := before is ProfilerAction.ACTIVE_AND_SAVE:
            self._end.time_stop(self.callbacks.fire, Event.BATCH_END)
            self.save_window(continues=True)
        else:
            self.callbacks.fire(Event.BATCH_END)
        self.apply_action()
        if saves or before is not self.action:  # what a window takes to begin or to end is no step's
            self.pulse.begin_step()

    def end_step_of_pulse(self, end_ns: int | None = None) -> None:
        """End a step in the pulse, now or at ``end_ns``. The timestamp counts it already."""
        self.pulse.end_step(self.state.timestamp, is_recorded=self.is_recording, end_ns=end_ns)

    # -- its windows ------------------------------------------------------------------------------------------

    def next_action(self) -> ProfilerAction:
        """Asks the schedule for the action of the current batch; returns the action before it.

        It takes effect in `apply_action`, after sources and handlers have had their event.
        """
        before, self.action = self.action, self.schedule(self.state)
        self.note_length(self.state.timestamp)
        return before

    def note_length(self, timestamp: Moment) -> None:
        """Notes how long the epoch is by now."""
        self._longest_epoch = max(self._longest_epoch, plain_count(timestamp.batch_in_epoch))

    def _batch_until_which_it_skips(self) -> int:
        """The batch up to which the schedule need not be asked, where it is one of ours and skips; else 0."""
        schedule = self.settings.schedule
        if not isinstance(schedule, CyclicSchedule) or self.action is not ProfilerAction.SKIP:
            return 0
        return plain_count(self.state.timestamp.batch) + schedule.num_skipped(self.state)

    def num_idle_steps(self) -> int:
        """How many of the next steps need nothing but to be counted: the run surely skips them, and nobody wants to be
        told of their batches.
        """
        if self.callbacks.needs_all_batches or not self._skips_until or self.is_asked:
            return 0
        return self._skips_until - plain_count(self.state.timestamp.batch) - 1

    def is_broken_off(self, before: ProfilerAction) -> bool:
        """Whether recording ends here without a batch that saves; ``before`` is the last batch's action."""
        return before is ProfilerAction.ACTIVE and self.action in (ProfilerAction.SKIP, ProfilerAction.WARMUP)

    def apply_action(self) -> None:
        """From now on, spans are recorded as the current action says."""
        timestamp = self.state.timestamp
        self._recorder.batch = plain_count(timestamp.batch)
        if began := self._window.enter_epoch(plain_count(timestamp.epoch)):
            self._live.note_epoch(*began)
        if self._window.set_action(self.action, timestamp):
            if self.notes_phases:
                self.pulse.note_phases()
            self._live.note_opened(self._window.num_cycles, timestamp)
            self.callbacks.tell_of_window(is_open=True)
        if self._window.notes_active(self.action, self._recorder.batch):
            self._live.note_active(self._recorder.batch)
        if self._slow_steps is not None:
            self._slow_steps.judge(self.action is ProfilerAction.SKIP)
        self._skips_until = self._batch_until_which_it_skips()
        compiler.teach_dynamo(Marker)

    def pause(self) -> None:
        """Records nothing until `resume`. An open window and open spans stay open."""
        self.is_paused = True
        self._recorder.action = 0

    def resume(self) -> None:
        """Records again as the current action says."""
        self.is_paused = False
        if self.is_running:
            self._recorder.action = ACTION_BITS[self.action]

    def save_window(self, *, measure: bool = True, timestamp: Moment | None = None, continues: bool = False) -> None:
        """Close the window, with ``timestamp`` or the current one, and hand its cycle to the writer thread.

        With ``measure``, the clocks are compared once more before. ``continues``: `apply_action` comes next, and
        unless it skips, the next window opens in the moment in which this one closes. DataLoader workers and other
        threads record all the time: a span that began while nothing is recorded would be lost.
        """
        self.callbacks.tell_of_window(is_open=False)
        continues = continues and self.action is not ProfilerAction.SKIP and not self.is_paused
        if not continues:
            self._recorder.action = 0
        if isinstance(listener := self._recorder.listener, Listeners):
            listener.cut(self.clock.monotonic_ns())
        with signals_held():  # nobody has what is taken out of the recorder until the writer thread gets it
            self._hand_over(self.state.timestamp if timestamp is None else timestamp, measure, continues)

    def _hand_over(self, timestamp: Moment, measure: bool, continues: bool) -> None:
        if self.notes_phases and self._window.is_open:
            self._note_phases()
        lasting = self.lasting.take(self._recorder.window)
        following = (self.action, self.state.timestamp) if continues else None
        cycle = self._window.close(self.state.run_name, timestamp, lasting, following)
        if cycle is not None:
            self._note_closed(cycle)
            self._clocks.pass_on(cycle, self._delivery.cycle, measure=measure)

    def _note_phases(self) -> None:
        """Adds spans of the phases on a track of their own: a forward pass need not nest in spans of the loop's."""
        stretches, num_left_out = self.pulse.take_phases()
        self._window.contributions.events.num_left_out += num_left_out
        if stretches:
            self.name_track(PHASES_TID, PHASES_TRACK)
        for phase, begin_ns, end_ns in stretches:
            self.note(SourceEvent(PHASE_NAMES[phase], WATCHED_PHASE, begin_ns, end_ns, PHASES_TID, {}))

    def _note_closed(self, cycle: Cycle) -> None:
        recorded = cycle.recorded
        self._live.note_closed(recorded.window, recorded.closed_ns, cycle.timestamp, recorded.num_written)
        cycle.contributions.afterwards.append(partial(self._live.note_saved, recorded.window))
        if (request := self._asked.closed()) is not None:
            cycle.contributions.afterwards.append(partial(self._asked.saved, request))

    def drain(self, timeout_s: float) -> bool:
        """Waits until every closed window is written. Returns False if that takes too long."""
        self._clocks.finish_windows(timeout_s)
        return self._delivery.writer.drain(timeout_s)

    # -- for sources and handlers: see `RunInside` ------------------------------------------------------------

    @property
    def recorder(self) -> NativeRecorder:
        """What markers record into."""
        return self._recorder

    def marker(self, name: str, category: str) -> Marker:
        """A marker for spans of the profiler itself, such as the loop's and its own costs."""
        return self.markers.get(MarkerSettings(name, categories=(category,)))

    def report(self, message: str) -> None:
        """Logs a warning, once."""
        self._once.warn("%s", message, about=message)

    def call_in_hook(self, source: object, method: Callable[..., Any], *arguments: object) -> Any:
        """Calls a method of a source in a hook that other code calls, such as the garbage collector. An error is never
        raised there: it is logged, and switches ``source`` off."""
        return self._guard.in_hook(source, method, arguments)

    def note(self, event: SourceEvent) -> None:
        """Adds a span or an instant of a source to the cycle of the open window. Any thread may call it."""
        self._window.contributions.events.add(event)

    def name_track(self, tid: int, name: str) -> None:
        """Names a track of that cycle, for events whose tid is no thread."""
        self._window.contributions.events.tracks[tid] = name

    def take_over_file(self, path: Path) -> None:
        """Adds a file of Chrome JSON events to the cycle that is being recorded; see
        `Profiler.record_chrome_json_trace_file`."""
        try:
            kept = self._temporary.keep(path, self._window.num_cycles)
        except OSError as error:
            self._guard.report(f"Taking over the trace file {path}", error)
        else:
            self.contribute(lambda contributions: self._add(kept(), contributions))

    def _add(self, file: Path, contributions: Contributions) -> None:
        if self.redactor is None:
            contributions.add_temporary(file)
        else:
            add_redacted(file, contributions, self.redactor)

    def contribute(self, make: Callable[[Contributions], object]) -> None:
        """Calls ``make`` on the writer thread, where it adds files to the cycle that is being recorded now."""
        self._delivery.contribution(make, self._window.contributions)

    def temporary_folder(self, cycle: int) -> Path:
        """On the writer thread: the folder for files that are needed only until the cycle is saved."""
        return self._temporary.folder(cycle)

    def take_attempt(self, attempt: Attempt) -> None:
        """Before it begins: this is its attempt, with the number that the folder of its traces gives it."""
        self.attempt = self._window.attempt = self._clocks.attempt = attempt

    def agree_on_attempt(self, folder: Path, take: Callable[[str], object]) -> None:
        """Before it begins: lets all ranks of this attempt that write into ``folder`` agree on an id. ``take`` is
        called with it on another thread; never if there is no store through which they can agree.
        """
        self._clocks.agree(str(folder), take)

    def seconds_to_close(self) -> float:
        """How much of the time that closing may take is left."""
        return self._end.seconds_left

    def times_of_steps(self, first: int, end: int) -> list[StepTimes]:
        """How long the steps from number ``first`` to before ``end`` took, in nanoseconds: all in all, and by phase.
        Any thread may call it."""
        return self.pulse.times_of(first, end)

    # -- its end ----------------------------------------------------------------------------------------------

    def close(self, *, clean: bool) -> None:
        """Ends the run, or finishes what an earlier close could not.

        ``clean``: the run was not ended by an error. Then, with ``strict``, the first kept error is raised.
        """
        self._close(self.settings.close_timeout_s, SAVE_TIMEOUT_S, clean=clean)
        if clean:
            self._guard.raise_first()

    def close_failed_setup(self) -> None:
        """Ends a run whose setup has failed. The error says why, so nothing is said about what was recorded."""
        self._has_told = True
        self._close(self.settings.grace_s, clean=False)

    def save_on_signal(self) -> bool:
        """Ends the run because the process is being terminated. Returns False if it is being closed already."""
        if self._search is not None:
            self._search.give_up()
        if self._phase is _Phase.CLOSING:
            return False
        self._close(self.settings.grace_s, clean=False)
        return True

    def save_at_exit(self) -> None:
        """Ends the run because the interpreter exits. Ctrl-C ends its waits; of those who could handle it nobody is
        left, and Python would print where in our code it was raised."""
        with contextlib.suppress(KeyboardInterrupt):
            self._close(self.settings.grace_s, clean=False, at_exit=True)

    def _close(self, timeout_s: float, save_s: float = 0.0, *, clean: bool, at_exit: bool = False) -> None:
        """Takes all steps of the close. If one fails, that is reported, and the rest is done all the same."""
        is_over = self._phase is _Phase.CLOSED and not self._end.is_unfinished
        if self._phase is _Phase.CLOSING or is_over or self.is_forked:
            return
        if self._search is not None and isinstance(sys.exc_info()[1], KeyboardInterrupt):
            self._search.give_up()  # whoever pressed Ctrl-C does not wait
        with self._end.begin(timeout_s, save_s) as ending:
            was_running, self._phase = self._phase is _Phase.RUNNING, _Phase.CLOSING
            try:
                self._take_steps_of_close(ending, was_running=was_running, clean=clean, at_exit=at_exit)
            except BaseException:  # a signal's handler may raise between two steps: then another close takes the rest
                self._end.is_unfinished, self._phase = True, _Phase.CLOSED
                raise

    def _take_steps_of_close(self, ending: Ending, *, was_running: bool, clean: bool, at_exit: bool) -> None:
        ending.take(self._end.note_saving, self.pulse, self._watch)
        if self._slow_steps is not None:
            ending.take(self._slow_steps.stop)
        if at_exit:
            ending.take(self._end.stop_writer)
        # In the phase CLOSING no batch can end; an epoch can, without ending its batch.
        ending.take(self.callbacks.tell_of_window, is_open=False)
        if was_running:
            ending.take(self.loop.end, clean)
        ending.take(self._end.close_sources, self.callbacks)
        ending.take(self.save_window, measure=clean)
        ending.take(self._end.finish_windows)
        ending.take(self.loop.close_handlers)
        ending.take(self._end.finish_clocks)
        ending.take(self._end.finish_files, is_window_open=self._window.is_open)
        ending.take(end_library_markers, self._recorder)
        if self._watch is not None:
            ending.take(self._watch.stop)
        ending.take(self.pulse.close)
        self._phase = _Phase.CLOSED  # a signal that has waited for the close takes effect in the next step
        ending.take(this_process.make_inactive, self)

    def close_callbacks(self) -> None:
        """While closing: waits until everything is written, and closes handlers, sources and uploads."""
        if not self.drain_or_give_up() or not self._end.is_there_news_for_handlers():
            return
        self.callbacks.close_handlers()
        self.finish_uploads()

    def drain_or_give_up(self) -> bool:
        """While closing: waits until everything is written, and tries again to save what could not be saved. Returns
        False and logs it if time is up before."""
        return self._end.drain_or_give_up()

    def finish_uploads(self) -> None:
        """While closing: says what was recorded, or why nothing was; waits for uploads, and says what was found. Raises
        nothing, and waits whatever else fails."""
        outcome = self._try_to_tell(self._outcome)
        if outcome is not None:
            self._try_to_tell(outcome.tell)
        for uploads in self.uploads.values():
            self._guard(uploads, uploads.finish, (self.seconds_to_close(),))
        if outcome is not None:
            writes_report = self._search is not None and self._search.writes_report
            self._try_to_tell(outcome.tell_found, self._find_first, always=writes_report)

    def _try_to_tell(self, step: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T | None:
        """The result of a step of telling what the run came to; None if it failed, which is reported."""
        try:
            return step(*arguments, **options)
        except Exception as error:
            self._guard.report("Saying what was recorded", error)
            return None

    def _outcome(self) -> Outcome | None:
        """What this run came to, once, on rank 0."""
        if self._has_told or self.ranks.rank != 0 or not self.handlers:
            return None
        self._has_told = True
        schedule, is_quiet = self.settings.schedule, self.settings.is_quiet
        return Outcome(self._counts(), schedule, self.handlers, self.redactor, is_quiet=is_quiet)

    def _find_first(self, *, is_watching: bool) -> str:
        folder = next((recipe.folder for handler in self.handlers if (recipe := recipe_of(handler))), None)
        search = self._search
        if search is None or folder is None:
            return ""
        find = partial(search.find, is_watching=is_watching)
        return self._guard(search, find, (Path(folder), self._end.seconds_to_search)) or ""

    def _counts(self) -> RunCounts:
        return RunCounts(
            num_batches=plain_count(self.state.timestamp.batch) - self.first_batch + self._num_past_steps,
            num_past=self._num_past_steps,
            longest_epoch=self._longest_epoch,
            num_windows=self._window.num_cycles,
            num_saved=self._delivery.num_recorded,
            num_unsaved=len(self._delivery.unsaved),
            num_missed=self._delivery.num_missed,
            num_given=self._num_taken + self._delivery.num_files_taken,
        )
