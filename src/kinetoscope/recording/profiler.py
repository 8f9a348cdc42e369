"""recording: the Profiler. A run's events flow in; cycles flow to the trace handlers, on the writer thread."""

import atexit
import contextlib
import logging
import os
from collections.abc import Callable, Iterable
from enum import Enum
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from kinetoscope.clock.anchor import take_anchor
from kinetoscope.clock.clock import Clock, SystemClock
from kinetoscope.errors import ProfilerStateError, SettingsError
from kinetoscope.recording import active, compiler
from kinetoscope.recording.action import ProfilerAction
from kinetoscope.recording.arguments import check_callbacks, check_schedule, check_settings, check_state
from kinetoscope.recording.clock_comparison import ClockComparison
from kinetoscope.recording.cycle import Contributions
from kinetoscope.recording.delivery import Delivery
from kinetoscope.recording.guard import Guard
from kinetoscope.recording.known_markers import KnownMarkers
from kinetoscope.recording.lasting import LastingSpans
from kinetoscope.recording.listeners import Listeners
from kinetoscope.recording.live_folder import LIVE_BYTES_MAX, LiveFolder, live_run, recipe_of, run_folder_of
from kinetoscope.recording.loop import Batches, Loop
from kinetoscope.recording.marker import RECORDING_ACTIONS, Marker, MarkerSettings
from kinetoscope.recording.outcome import RunCounts, say_outcome, what_there_is, why_nothing
from kinetoscope.recording.recorder import ACTION_BITS
from kinetoscope.recording.recorder_choice import ProcessRecorder, say_if_slow
from kinetoscope.recording.run_end import RunEnd
from kinetoscope.recording.schedule import Schedule
from kinetoscope.recording.temporary_files import TemporaryFiles
from kinetoscope.recording.termination import TerminationHandler
from kinetoscope.recording.window import Window
from kinetoscope.training.attempt import current_attempt
from kinetoscope.training.callback import Callback, wanted_events
from kinetoscope.training.event import Event
from kinetoscope.training.ranks import current_ranks
from kinetoscope.training.state import State
from kinetoscope.writing.atomic_file import working_folder

_log = logging.getLogger("kinetoscope")
T = TypeVar("T")


class _Phase(Enum):
    NEW = 1
    RUNNING = 2
    CLOSING = 3
    CLOSED = 4


class Profiler(Callback):
    """Records a training run by a schedule and hands each finished cycle to its trace handlers.

        with Profiler(cyclic_schedule(warmup=1, active=4), [JSONTraceHandler()]) as profiler:
            for batch in profiler.batches(loader):
                train(batch)

    Arguments may also come in the order ``Profiler(state, schedule, trace_handlers)``.

    - ``schedule``: a function from the run's `State` to a `ProfilerAction`, such as `cyclic_schedule`'s.
    - ``trace_handlers``: one `TraceHandler` or several; they get what was recorded.
    - ``state``: the run's state; one is made if none is given, with ``run_name`` as its name.
    - ``sources``: what records by itself (`TorchProfiler`, `SystemProfiler`).
    - ``upload_to``: the URL below which finished files are uploaded, such as ``s3://bucket/runs``; anything fsspec
      knows. A process beside training does it, and `close` waits for it. Without it, only files whose remote name has a
      scheme of its own are uploaded.
    - ``strict``: raise errors of sources and handlers instead of logging them and going on.
    - ``grace_s``: how long saving may take after SIGTERM, in seconds; ``close_timeout_s``: at a regular close.
    - ``live_folder``: where what is not yet saved is kept, so that a kill loses none of it; by default ``live`` in the
      run folder of the first handler that has one. False keeps it in memory. ``live_bytes_max`` bounds it: what is
      recorded beyond that, until something is saved, is dropped, and the trace says how much. Windows that could not be
      saved stay as well, and are tried again; before anything is dropped, the oldest of these goes.
    - ``quiet``: do not say at the end of the run what was recorded and where. Otherwise rank 0 prints that line on
      stderr if it is a terminal, and else logs it. A run that recorded nothing always says why.
    - ``clock``: where time comes from; for tests.

    Raises `SettingsError` for an argument that cannot work.
    """

    @overload
    def __init__(
        self,
        schedule: Schedule,
        trace_handlers: Any = (),
        *,
        state: Any = None,
        sources: Iterable[Any] = (),
        run_name: str | None = None,
        upload_to: str | None = None,
        strict: bool = False,
        grace_s: float = 10.0,
        close_timeout_s: float = 300.0,
        live_folder: str | os.PathLike[str] | bool | None = None,
        live_bytes_max: int = LIVE_BYTES_MAX,
        quiet: bool = False,
        clock: Clock | None = None,
    ) -> None: ...
    @overload
    def __init__(self, state: Any, schedule: Schedule, trace_handlers: Any = (), **settings: Any) -> None: ...

    def __init__(  # pyright: ignore[reportInconsistentOverload] - positional arguments come in either order
        self,
        *arguments: Any,
        schedule: Any = None,
        trace_handlers: Any = (),
        state: Any = None,
        sources: Iterable[Any] = (),
        run_name: str | None = None,
        upload_to: str | None = None,
        strict: bool = False,
        grace_s: float = 10.0,
        close_timeout_s: float = 300.0,
        live_folder: str | os.PathLike[str] | bool | None = None,
        live_bytes_max: int = LIVE_BYTES_MAX,
        quiet: bool = False,
        clock: Clock | None = None,
    ) -> None:
        positional = list(arguments)
        if positional and hasattr(positional[0], "timestamp"):
            state = positional.pop(0)
        schedule = positional.pop(0) if positional else schedule
        trace_handlers = positional.pop(0) if positional else trace_handlers
        if positional:
            raise SettingsError(f"A Profiler takes a state, a schedule and trace handlers, not also {positional[0]!r}.")
        check_schedule(schedule)
        if state is not None:
            check_state(state)
        check_settings(run_name, upload_to, grace_s, close_timeout_s, live_folder, live_bytes_max)
        self.upload_to = upload_to
        self.remote_store: Any = None
        """Where remote names without a scheme go when there is no ``upload_to``: a `RemoteStore`, or None."""
        self._schedule: Any = schedule
        self._clock = clock or SystemClock()
        self._grace_s, self.close_timeout_s = grace_s, close_timeout_s
        self.ranks = current_ranks()
        self.attempt = current_attempt(self.ranks)
        self.state: Any = State(run_name=run_name or "run") if state is None else state
        self.state.profiler = self
        self.sources = check_callbacks(sources, "sources")
        self.resumption_epoch = self._resumption_batch = 0
        self.first_batch = 0
        """The batch of the run at which it began here: above 0 where it was resumed."""
        self._note_first_batch()
        self._recorder = ProcessRecorder(self._clock)
        if live_folder and isinstance(live_folder, str | os.PathLike):
            live_folder = working_folder() / live_folder
        self._live_folder, self._live_bytes_max = live_folder, live_bytes_max
        self._is_quiet = quiet
        self._markers = KnownMarkers()
        self._warned: set[str] = set()
        self._pid = os.getpid()
        self._wanted: dict[Event, list[tuple[Any, Callable[..., Any]]]] = {}
        self._make_run(strict)
        self.trace_handlers = trace_handlers

    def _make_run(self, strict: bool) -> None:
        """Everything that belongs to one run, from its beginning to its close."""
        self._guard = Guard(strict)
        self._window = Window(self._recorder, self._clock, self.ranks, self.attempt)
        self.lasting = LastingSpans(self._recorder, self._clock)
        """For what drives a run: spans that may outlast windows."""
        self._action = ProfilerAction.SKIP
        self._is_paused = self._is_entered = self._has_told = False
        self._longest_epoch = 0
        self._phase = _Phase.NEW
        self._unclosed = list(self.sources)
        self._termination = TerminationHandler(self._save_on_signal)
        save_cost = self.marker("kinetoscope/save", categories=("kinetoscope",))
        self._delivery = Delivery(self._guard, lambda: self._trace_handlers, save_cost, self._live_bytes_max)
        self._clocks = ClockComparison(self._clock, self.ranks, self.attempt)
        self._live = LiveFolder(self._recorder, self._delivery.writer.submit, self._delivery.make_room)
        self._temporary = TemporaryFiles(lambda: self._live.path)
        self._end = RunEnd(self._guard, self._clocks, self._delivery, self._live, self._temporary)
        self.uploads: dict[Path, Any] = {}
        """For handlers and sources: what uploads from each run folder, so that they share it."""

    # -- what a user touches ----------------------------------------------------------------------------------

    @property
    def trace_handlers(self) -> list[Any]:
        """The trace handlers. May be set to one or several."""
        return self._trace_handlers

    @trace_handlers.setter
    def trace_handlers(self, handlers: Any) -> None:
        self._trace_handlers = check_callbacks(handlers, "trace_handlers")
        self._connect()

    def marker(
        self,
        name: str,
        actions: Iterable[ProfilerAction] = RECORDING_ACTIONS,
        record_instant_on_start: bool = False,
        record_instant_on_finish: bool = False,
        categories: Iterable[str] = (),
    ) -> Marker:
        """The marker of that name, created once.

        Records while the action is among ``actions``; with the two flags, also an instant where a span begins or ends;
        ``categories`` are words to filter by in a viewer. Asked again without options it is the same marker; asked with
        other options, the first ones stay, and a warning says so once. Of markers that nobody holds, the latest some
        thousands are remembered: for what changes from batch to batch, use one name and a counter.
        """
        return self.marker_with(
            MarkerSettings(name, actions, record_instant_on_start, record_instant_on_finish, categories)
        )

    def marker_with(self, asked: MarkerSettings, kind: type[Marker] = Marker) -> Marker:
        """For faces: the marker with these settings, of a ``kind`` of the face's own where it is made now."""
        known = self._markers.get(asked.key)
        if known is None:
            compiler.teach_dynamo(kind)
            return self._markers.add(asked.key, kind(self._recorder, asked))
        if asked not in (known.settings, MarkerSettings(asked.name, args=asked.args)):
            settings = known.settings
            self.report(f"Marker {asked.name!r} exists with {settings}; now asked for with {asked}: the first stay.")
        return known

    def batches(self, iterable: Iterable[T], *, length: int | None = None) -> Batches[T]:
        """An iterable over the batches of one epoch: records the wait for each and the batch itself as spans.

        ``length`` is the number of batches, taken from ``len(iterable)`` if it has one; a schedule needs it to save
        at the epoch's last batch. Inside a batch, or inside `eval`, the batches are an evaluation's: they are recorded
        as such, and not counted.
        """
        return Batches(self._loop, iterable, length)

    def step(self, *, samples: int = 0, tokens: int = 0) -> None:
        """Ends a batch of ``samples`` samples and ``tokens`` tokens, in a loop that does not use `batches`.

        The wait for a torch DataLoader is recorded as in `batches`. In a loop that uses `batches`, this only says how
        many samples and tokens the batch had.
        """
        self._loop.step(samples, tokens)

    def epoch(self, length: int | None = None) -> contextlib.AbstractContextManager[None]:
        """A context around one epoch of ``length`` batches, in a loop that uses `step`."""
        return self._loop.epoch(length)

    def eval(self) -> contextlib.AbstractContextManager[None]:
        """A context around an evaluation: a span, and so are its batches if `batches` gives them.

        Inside a training batch it is recorded as that batch is. Between batches only the evaluation's own span is
        recorded: its batches, markers and torch operators are not. Nothing in it counts as a batch of the run.
        """
        return self._loop.evaluation()

    def get_action(self) -> ProfilerAction:
        """The action of the current batch."""
        return self._action if self._phase is _Phase.RUNNING else self.schedule(self.state)

    def schedule(self, state: Any) -> ProfilerAction:
        """The schedule's answer for ``state``; SKIP, with one report in the log, if it raises or answers nonsense."""
        action = self._guard(self._schedule, self._ask_schedule, (state,))
        return ProfilerAction.SKIP if action is None else action

    def record_chrome_json_trace_file(self, filepath: str | os.PathLike[str]) -> None:
        """Adds a file of Chrome JSON events, such as one of Kineto's, to the cycle that is being recorded.

        The file is kept by a second link (or a copy, where there can be none), so the caller may delete it. Nothing
        is read in the training thread. A file that is not there is reported in the log.
        """
        try:
            contribution = self._temporary.keep(Path(filepath), self._window.num_cycles)
        except OSError as error:
            self._guard.report(f"Taking over the trace file {filepath}", error)
        else:
            self.contribute(contribution)

    def contribute(self, make: Callable[[Contributions], object]) -> None:
        """For sources: calls ``make`` on the writer thread, to add files to the cycle that is being recorded now."""
        self._delivery.contribution(make, self._window.contributions)

    def temporary_folder(self, cycle: int) -> Path:
        """For sources, on the writer thread: where files lie that last only until the cycle is saved."""
        return self._temporary.folder(cycle)

    def report(self, message: str) -> None:
        """For sources: says something in the log, once."""
        if message not in self._warned:
            self._warned.add(message)
            _log.warning(message)

    def agree_on_attempt(self, folder: Path, take: Callable[[str], object]) -> None:
        """For handlers, before the run begins: ``take`` gets the id that all ranks of this attempt agree on which write
        into ``folder``, on another thread; never, where there is no store to agree through."""
        self._clocks.agree(str(folder), take)

    def seconds_to_close(self) -> float:
        """For handlers: how much of the time that closing may take is left."""
        return self._end.seconds_left

    @property
    def resumption_batch_idx(self) -> int:
        """The batch of its epoch at which the run was resumed; 0 if it was not. A schedule's skip counts from it."""
        return self._resumption_batch

    @resumption_batch_idx.setter
    def resumption_batch_idx(self, batch: int) -> None:
        self._resumption_batch = int(batch)
        self._note_first_batch()
        epoch = self.state.timestamp.epoch
        self.resumption_epoch = int(getattr(epoch, "value", epoch))

    def _note_first_batch(self) -> None:
        batch = self.state.timestamp.batch
        self.first_batch = int(getattr(batch, "value", batch))

    # -- beginning and end ------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.start()
        self._is_entered = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_entered = False
        self._close(self.close_timeout_s, clean=kind is None)
        if kind is None:
            self._guard.raise_first()

    def start(self) -> Self:
        """Begins the run: what ``with profiler:`` does on entry.

        Raises what a source or handler raises while it sets up, and `ProfilerStateError` if this profiler was used
        before or another one is active.
        """
        self.check_is_startable()
        try:
            self.fire(Event.INIT, setup=True)
            self.begin_run()
            self.next_action()
            self.fire(Event.FIT_START, setup=True)
        except BaseException:
            self._close(self._grace_s, clean=False)
            raise
        self.apply_action()
        self._loop.begin()
        return self

    def close(self, state: Any = None, logger: Any = None) -> None:
        """Saves what was recorded, waits for it to be written, and lets go of every thread and hook.

        Ctrl-C meanwhile ends the waiting. What is not saved by then stays in the live folder, for another `close` or
        for ``kinetoscope recover``.
        """
        self.__exit__(None, None, None)

    def post_close(self) -> None:
        """Nothing is left to do: `close` has let go of everything."""

    # -- events -----------------------------------------------------------------------------------------------

    def fire(self, event: Event, *, setup: bool = False) -> None:
        """Tells sources, then handlers, of an event. During ``setup`` what they raise is raised."""
        for callback, method in self._wanted.get(event, ()):
            if setup:
                method(self.state, None)
            else:
                self._guard(callback, method, (self.state, None))

    @property
    def is_running(self) -> bool:
        """Between start and close."""
        return self._phase is _Phase.RUNNING

    @property
    def is_new(self) -> bool:
        """Before start."""
        return self._phase is _Phase.NEW

    @property
    def is_paused(self) -> bool:
        """Whether nothing is recorded for the time of an evaluation between batches."""
        return self._is_paused

    @property
    def is_forked(self) -> bool:
        """Whether this is a child process's copy of its parent's profiler: it records nothing and saves nothing."""
        return self._pid != os.getpid()

    def epoch_started(self, left_at: Any = None) -> None:
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

    # -- for what drives a run: the loop, or the face of a trainer --------------------------------------------

    def check_is_startable(self) -> None:
        """Raises `ProfilerStateError` if this profiler was used before or another one is active."""
        if self._phase is not _Phase.NEW:
            raise ProfilerStateError("This Profiler has been started before. Make a new one for another run.")
        if (other := active.active_profiler()) is not None:
            other.give_way()

    def give_way(self) -> None:
        """Another profiler starts: this one is closed and saved if it was left open.

        Raises `ProfilerStateError` inside this one's `with` block.
        """
        if self._is_entered:
            raise ProfilerStateError("Another Profiler is active in this process. Close it before starting this one.")
        _log.warning(
            "The Profiler of run %r was not closed. It is closed and saved now, since another one starts. Use `with "
            "profiler:`, or call close() at the end of the run.",
            self.state.run_name,
        )
        self.close_abandoned()

    def close_abandoned(self) -> None:
        """For faces: closes all that belongs to a run which nobody else will close."""
        self._close(self.close_timeout_s, clean=False)

    def renew(self) -> None:
        """Makes a profiler that is closed ready for another run; does nothing to one that is not."""
        if self._phase is _Phase.CLOSED:
            self.attempt = current_attempt(self.ranks)
            self._make_run(self._guard.strict)
            self._connect()

    def show_action(self) -> None:
        """Before the run begins: lets handlers be told of events as the current action says. Nothing is kept."""
        if self._recorder.listener is not None and self._phase is _Phase.NEW:
            self._recorder.action = ACTION_BITS[self.schedule(self.state)]

    def begin_run(self) -> None:
        """Begins to be this process's profiler, once handlers and sources are set up."""
        self._note_first_batch()
        self._open_live_folder()
        for uploads in self.uploads.values():
            self._guard(uploads, uploads.resume)
        active.activate(self, self._recorder)
        self._phase = _Phase.RUNNING
        self._termination.install()
        atexit.register(self._at_exit)
        self._clocks.begin()
        say_if_slow()

    def bind(self, state: Any) -> None:
        """Makes ``state`` the run's: a trainer's own, which is there only after the profiler."""
        self.state = state
        self.ranks = current_ranks()
        self.attempt = current_attempt(self.ranks)
        self._window = Window(self._recorder, self._clock, self.ranks, self.attempt)
        self._clocks = ClockComparison(self._clock, self.ranks, self.attempt)
        self._end = RunEnd(self._guard, self._clocks, self._delivery, self._live, self._temporary)
        self._connect()

    def call(self, owner: Any, method: Callable[..., Any], *arguments: Any) -> Any:
        """Calls a method of a source or handler; if it raises, that is logged and ``owner`` switched off."""
        return self._guard(owner, method, arguments)

    def next_action(self) -> ProfilerAction:
        """Asks the schedule about where the state now is; returns the action there was before.

        Spans follow once sources and handlers have had their event: see `apply_action`.
        """
        before, self._action = self._action, self.schedule(self.state)
        in_epoch = self.state.timestamp.batch_in_epoch
        self._longest_epoch = max(self._longest_epoch, int(getattr(in_epoch, "value", in_epoch)))
        return before

    def is_broken_off(self, before: ProfilerAction) -> bool:
        """Whether recording, which was ``before``, ends here without a batch that saves."""
        return before is ProfilerAction.ACTIVE and self._action in (ProfilerAction.SKIP, ProfilerAction.WARMUP)

    def apply_action(self) -> None:
        """Lets the current action take effect on every span that begins from now on."""
        timestamp = self.state.timestamp
        self._recorder.batch = int(getattr(timestamp.batch, "value", timestamp.batch))
        if began := self._window.enter_epoch(int(getattr(timestamp.epoch, "value", timestamp.epoch))):
            self._live.note_epoch(*began)
        if self._window.set_action(self._action, timestamp):
            self._live.note_opened(self._window.num_cycles, timestamp)
        compiler.teach_dynamo(Marker)

    def pause(self) -> None:
        """Records nothing until `resume`. An open window stays open, and spans that are open now do too."""
        self._is_paused = True
        self._recorder.action = 0

    def resume(self) -> None:
        """Records again what the current action says."""
        self._is_paused = False
        if self.is_running:
            self._recorder.action = ACTION_BITS[self._action]

    def save_window(self, *, measure: bool = True, timestamp: Any = None) -> None:
        """Closes the window, at ``timestamp`` or where the run now is, and hands its cycle to the writer thread;
        ``measure`` its clock once more before."""
        listener = self._recorder.listener
        timestamp = self.state.timestamp if timestamp is None else timestamp
        cycle = self._window.close(self.state.run_name, timestamp, self.lasting.take(self._recorder.window))
        if isinstance(listener, Listeners):
            listener.cut(self._clock.monotonic_ns())
        if cycle is not None:
            self._live.note_closed(cycle)
            self._clocks.pass_on(cycle, self._delivery.cycle, measure=measure)

    def drain(self, timeout_s: float) -> bool:
        """Waits until every window that has closed is written; False if that took too long."""
        self._clocks.finish_windows(timeout_s)
        return self._delivery.writer.drain(timeout_s)

    @cached_property
    def _loop(self) -> Loop:
        """The plain loop, for those who have no trainer."""
        return Loop(self)

    # -- inside -----------------------------------------------------------------------------------------------

    def _open_live_folder(self) -> None:
        asked = self._live_folder
        folder = run_folder_of(self._trace_handlers) if asked in (None, True) else asked
        self._live.prepare_ahead()
        if folder:
            recipes = [recipe for it in self._trace_handlers if (recipe := recipe_of(it))]
            run = live_run(self.state.run_name, self.attempt, self.ranks, recipes)
            self._live.open(Path(folder), run, self.attempt, self._live_bytes_max)

    def _ask_schedule(self, state: Any) -> ProfilerAction:
        return ProfilerAction(self._schedule(state))

    def _connect(self) -> None:
        """Looks up once which callback wants which event, so that events nobody wants cost nothing."""
        self._wanted = wanted_events([*self.sources, *self._trace_handlers])
        state, names = self.state, self._recorder.names
        listeners = Listeners(self._trace_handlers, names, state, take_anchor(self._clock), self._guard)
        self._recorder.listener = listeners if listeners else None

    def _close(self, timeout_s: float, *, clean: bool, at_exit: bool = False) -> None:
        """Ends the run, or finishes what an earlier close could not. Whatever fails in here is reported, and the rest
        is done all the same."""
        is_over = self._phase is _Phase.CLOSED and not self._end.is_unfinished
        if self._phase is _Phase.CLOSING or is_over or self.is_forked:
            return
        with self._end.begin(timeout_s) as ending:
            was_running, self._phase = self._phase is _Phase.RUNNING, _Phase.CLOSING
            if at_exit:
                ending.take(self._end.stop_writer)
            # In the phase CLOSING no batch can end any more: an epoch that does, does so without one.
            if was_running:
                ending.take(self.end_run, clean)
            ending.take(self._close_sources)
            ending.take(self.save_window, measure=clean)
            ending.take(self._end.finish_windows)
            ending.take(self.close_handlers)
            ending.take(self._end.finish_clocks)
            ending.take(lambda: self._end.finish_files(is_window_open=self._window.is_open))
            ending.take(active.deactivate, self._recorder)
            ending.take(atexit.unregister, self._at_exit)
            self._phase = _Phase.CLOSED
            ending.take(self._termination.remove)

    def _close_sources(self) -> None:
        while self._unclosed:
            source = self._unclosed.pop(0)
            self._end_callback(source, "close", self.state, None)

    def _end_callback(self, callback: Any, method: str, *arguments: Any) -> None:
        """Calls a method of a source or handler, if it has one, although the run is ending."""
        found = getattr(callback, method, None)
        if found is not None:
            self._guard.end(callback, found, arguments)

    def end_run(self, clean: bool) -> None:
        """While closing: the run's last events, before the last window is saved."""
        self._loop.end(clean)
        self.fire(Event.FIT_END)

    def close_handlers(self) -> None:
        """While closing: waits for what is being written, and lets handlers, sources and uploads end."""
        if not self.drain_or_give_up() or not self._end.is_there_news_for_handlers():
            return
        for handler in self._trace_handlers:
            self._end_callback(handler, "close", self.state, None)
        for callback in (*self.sources, *self._trace_handlers):
            self._end_callback(callback, "post_close")
        self.finish_uploads()

    def drain_or_give_up(self) -> bool:
        """While closing: waits until everything is written, and tries again what could not be saved; False, and a word
        in the log, if time is up before."""
        return self._end.drain_or_give_up()

    def finish_uploads(self) -> None:
        """While closing: waits for uploads."""
        for uploads in self.uploads.values():
            self._guard(uploads, lambda uploads=uploads: uploads.finish(self.seconds_to_close()))
        self._tell_outcome()

    def _tell_outcome(self) -> None:
        """Once, on rank 0: says what there is and where, or why there is nothing."""
        if self._has_told or self.ranks.rank or not self._trace_handlers:
            return
        self._has_told = True
        batch = self.state.timestamp.batch
        counts = RunCounts(
            num_batches=int(getattr(batch, "value", batch)) - self.first_batch,
            longest_epoch=self._longest_epoch,
            num_windows=self._window.num_cycles,
            num_saved=self._delivery.num_recorded,
            num_unsaved=len(self._delivery.unsaved),
        )
        if not counts.num_saved:
            _log.warning(why_nothing(self._schedule, counts))
        elif not self._is_quiet:
            say_outcome(what_there_is(counts, self._trace_handlers))

    def _save_on_signal(self) -> bool:
        if self._phase is _Phase.CLOSING:
            return False
        self._close(self._grace_s, clean=False)
        return True

    def _at_exit(self) -> None:
        self._close(self._grace_s, clean=False, at_exit=True)
