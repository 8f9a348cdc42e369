"""The contract of a run with its handlers and sources: what they are told, what they may ask, how they are called."""

import logging
import os
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from kinetoscope.clock.clock import Anchor, Clock, ClockLine
from kinetoscope.errors import KinetoscopeError
from kinetoscope.live.folders import TraceRecipe
from kinetoscope.pulse.own_pulse import StepTimes
from kinetoscope.recording.cycle import Contributions, Cycle
from kinetoscope.recording.marker import Marker
from kinetoscope.recording.native_recorder import NativeRecorder
from kinetoscope.recording.recorder import NameTable
from kinetoscope.recording.run_redaction import redact_name
from kinetoscope.recording.schedule import ProfilerAction
from kinetoscope.recording.source_events import SourceEvent
from kinetoscope.texts.redactor import Redactor
from kinetoscope.training.event import Callback, overrides
from kinetoscope.training.ranks import Attempt, Ranks
from kinetoscope.training.state import RunState
from kinetoscope.training.timestamp import Moment

_log = logging.getLogger("kinetoscope")
_PACKAGE = __name__.partition(".")[0]


class TraceHandler(Callback):
    """Decides what happens to recorded data. Override any of the methods, and any event of `Callback`.

    The three per-event methods are called on the recording thread, one call at a time. They are only called on handlers
    that override them, so that other handlers cost nothing. They must be quick. If one raises, the handler is switched
    off and training goes on. `process_cycle` and `process_chrome_json_trace_file` are called on the writer thread.
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


class TrainingLoop(Protocol):
    """The loop that a run records: it calls the run at each event, and the run calls these methods as it closes."""

    def end(self, clean: bool) -> None:
        """Fires the run's last events, before the last window is saved."""
        ...

    def close_handlers(self) -> None:
        """Waits until everything is written, and closes handlers and sources, if this loop has to close them."""
        ...

    def close_abandoned(self) -> None:
        """Closes a run that was left open, and its handlers and sources."""
        ...


def run_folder_of(handlers: Iterable[object]) -> Path | None:
    """The run folder of the first handler that has one."""
    folders = (getattr(handler, "run_folder", None) for handler in handlers)
    return next((folder for folder in folders if isinstance(folder, Path)), None)


def recipe_of(handler: object) -> TraceRecipe | None:
    """What `recover` needs to make a handler's traces, once the run has begun; None if it cannot make them."""
    recipe = getattr(handler, "recipe", None)
    return recipe if isinstance(recipe, TraceRecipe) else None


class RunInside(Protocol):
    """The part of a run that sources and handlers may use: ``state.profiler.run``."""

    ranks: Ranks
    attempt: Attempt
    upload_to: str | None
    remote_store: Any
    uploads: dict[Path, Any]
    clock: Clock
    redactor: Redactor | None
    """What may be written instead of a text, which each file must ask for; None if everything may be written."""

    @property
    def sources(self) -> list[Any]:
        """The sources of the run, in the order in which they get events."""
        ...

    @property
    def command_pid(self) -> int:
        """The process of the command that was recorded, this one or one above it; 0 if that is unknown."""
        ...

    @property
    def is_paused(self) -> bool:
        """Whether recording is paused, during an evaluation between batches."""
        ...

    @property
    def recorder(self) -> NativeRecorder:
        """What markers record into, for spans that no marker can record."""
        ...

    @property
    def is_recording(self) -> bool:
        """Whether markers record now: a window is open, and neither paused nor skipped."""
        ...

    def call(self, owner: object, method: Callable[..., Any], *arguments: object) -> Any:
        """Calls a method of a source or handler. An error is logged, and switches ``owner`` off."""
        ...

    def report(self, message: str) -> None:
        """Logs a warning, once."""
        ...

    def call_in_hook(self, source: object, method: Callable[..., Any], *arguments: object) -> Any:
        """Calls a method of a source in a hook that other code calls, such as the garbage collector. An error is never
        raised there: it is logged, and switches ``source`` off."""
        ...

    def note(self, event: SourceEvent) -> None:
        """Adds a span or an instant to the cycle of the open window. Any thread may call it."""
        ...

    def name_track(self, tid: int, name: str) -> None:
        """Names a track of that cycle, for events whose tid is no thread."""
        ...

    def contribute(self, make: Callable[[Contributions], object]) -> None:
        """Calls ``make`` on the writer thread, where it adds files to the cycle that is being recorded now."""
        ...

    def temporary_folder(self, cycle: int) -> Path:
        """On the writer thread: the folder for files that are needed only until the cycle is saved."""
        ...

    def take_attempt(self, attempt: Attempt) -> None:
        """Before the run begins: this is its attempt, with the number that the folder of its traces gives it."""
        ...

    def agree_on_attempt(self, folder: Path, take: Callable[[str], object]) -> None:
        """Before the run begins: lets all ranks of this attempt that write into ``folder`` agree on an id. ``take`` is
        called with it on another thread; never if there is no store through which they can agree."""
        ...

    def seconds_to_close(self) -> float:
        """How much of the time that closing may take is left."""
        ...

    def times_of_steps(self, first: int, end: int) -> list[StepTimes]:
        """How long the steps from number ``first`` to before ``end`` took, in nanoseconds: all in all, and by phase.
        Any thread may call it."""
        ...


class ProfilerInside(Protocol):
    """The part of a profiler that sources and handlers may use: ``state.profiler``."""

    @property
    def run(self) -> RunInside:
        """The run that the profiler records."""
        ...

    def get_action(self) -> ProfilerAction:
        """The action of the current batch."""
        ...

    def marker(self, name: str, *, categories: Iterable[str] = ()) -> Marker:
        """The marker with that name, made once."""
        ...


class ProfiledState(RunState, Protocol):
    """The `RunState` that sources and handlers get, with the type of its profiler. Their methods may ask for it."""

    @property
    def profiler(self) -> ProfilerInside:
        """The profiler that records the run."""
        ...


class FindsFirst(Protocol):
    """Finds out what is wrong with a run that was saved, for what is said at its end."""

    @property
    def writes_report(self) -> bool:
        """Whether `find` also writes a report, which is wanted even if nothing is said."""
        ...

    def find(self, folder: Path, timeout_s: float, *, is_watching: bool = False) -> str:
        """The first finding on the traces in ``folder``, as a sentence; "" if there is none, or none in time. It may
        take longer if somebody ``is_watching`` the terminal."""
        ...

    def give_up(self) -> None:
        """Ends `find` at once, also in a signal handler; later calls find nothing."""
        ...


class Guard:
    """Calls sources, handlers and schedules, so that their errors do not reach training. One that raises is reported
    once, switched off, and not called again until the run ends.

    With ``strict`` the error is raised as well. On the writer thread no code of the user's could catch it, and once the
    run is ``closing`` the rest must still be done. Then the first error is kept for `raise_first`, without its
    traceback, whose frames would keep records alive.
    """

    def __init__(self, strict: bool) -> None:
        self.strict = strict
        self.closing = False
        self.wait_for: Callable[..., Any] | None = None
        """While the run ends, calls are made through this, so that Ctrl-C can end them."""
        self._first: BaseException | None = None
        self._off: list[object] = []

    def __call__(self, owner: object, method: Callable[..., Any], arguments: tuple[object, ...] = ()) -> Any:
        """The method's result, or None if it raised or its owner is switched off."""
        if self._off and self.is_off(owner):
            return None
        try:
            return self._call(method, arguments)
        except Exception as error:
            self.switch_off(owner, error)
            if self.strict and not self.closing:
                raise
            self.keep(error)
            return None

    def in_hook(self, owner: object, method: Callable[..., Any], arguments: tuple[object, ...]) -> Any:
        """The same in a hook that other code calls and that must not raise: with ``strict`` the error is kept."""
        if self._off and self.is_off(owner):
            return None
        try:
            return method(*arguments)
        except Exception as error:
            self.switch_off(owner, error)
            self.keep(error)
            return None

    def end(self, owner: object, method: Callable[..., Any], arguments: tuple[object, ...] = ()) -> None:
        """Calls a closing method of ``owner``, even if it was switched off."""
        try:
            self._call(method, arguments)
        except Exception as error:
            self.report(f"Closing {name_of(owner)}", error)

    def _call(self, method: Callable[..., Any], arguments: tuple[object, ...]) -> Any:
        wait_for = self.wait_for  # read once: the run may end on another thread meanwhile
        return method(*arguments) if wait_for is None else wait_for(method, *arguments)

    def is_off(self, owner: object) -> bool:
        return any(other is owner for other in self._off)

    def switch_off(self, owner: object, error: BaseException) -> None:
        """Logs what failed, and makes sure that ``owner`` is not called again."""
        if not self.is_off(owner):
            self._off.append(owner)
            is_ours = type(owner).__module__.partition(".")[0] == _PACKAGE
            _log.error(
                "%s failed and is switched off for the rest of this run. Training continues. %s",
                name_of(owner),
                _in_one_line(error) if is_ours else _told(error),
            )
            if is_ours:
                _log.debug("Where %s failed: %s", name_of(owner), _text_of(error))

    def report(self, job: str, error: BaseException) -> None:
        """Logs and keeps an error that cannot be raised to the user, such as one on the writer thread."""
        with suppress(OSError):  # a log that goes to a terminal which is gone
            _log.error("%s failed: %s", job, _told(error))
        self.keep(error)

    def keep(self, error: BaseException) -> None:
        """With ``strict``: keeps a reported error for `raise_first`."""
        if self.strict and self._first is None:
            error.add_note(_text_of(error))
            error.__traceback__ = error.__cause__ = error.__context__ = None
            self._first = error

    def raise_first(self) -> None:
        """With ``strict``, raises the first error that was kept, once."""
        first, self._first = self._first, None
        if first is not None:
            raise first


def name_of(owner: object) -> str:
    """The name of a source, a handler or a schedule in messages."""
    return getattr(owner, "__qualname__", None) or type(owner).__name__


def _told(error: BaseException) -> str:
    """What is logged of an error. Ours say what to do, and where they come from says no more."""
    return f"{type(error).__name__}: {error}" if isinstance(error, KinetoscopeError) else _text_of(error)


def _in_one_line(error: BaseException) -> str:
    """Return an error of our own code for a log that is the user's: what it is, and the line that raised it."""
    lines = str(error).splitlines()
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}{f': {lines[0]}' if lines else ''}{place}"


def _text_of(error: BaseException) -> str:
    """The error and its traceback as text, which unlike the traceback keeps no records alive."""
    return f"{type(error).__name__}: {error}\n{''.join(traceback.format_exception(error)).rstrip()}"


class Listeners:
    """Calls the per-event methods of the handlers that override them, one event at a time.

    It is the recorder's `SpanListener`. ``anchor`` turns nanoseconds into unix time; ``guard(handler, method,
    arguments)`` makes the calls, and ``note_taken()`` is told of each that succeeded. If there is a ``redactor``,
    handlers get what it says instead of names.
    """

    def __init__(
        self,
        handlers: Iterable[object],
        names: NameTable,
        state: RunState,
        anchor: Anchor,
        guard: Guard,
        redactor: Redactor | None = None,
        note_taken: Callable[[], object] = lambda: None,
    ) -> None:
        handlers = list(handlers)
        self._note_taken = note_taken
        self._on_duration = _methods(handlers, "process_duration_event")
        self._on_instant = _methods(handlers, "process_instant_event")
        self._on_counter = _methods(handlers, "process_counter_event")
        self._names = names
        self._redactor = redactor
        self._clock = ClockLine(anchor, anchor)
        self._guard = guard
        # Reentrant: a signal handler, or a marker in a trace handler, may record during a call.
        self._lock = threading.RLock()
        self._reported: dict[str, tuple[int, Any]] = {}
        self._state = state

    def __bool__(self) -> bool:
        return bool(self._on_duration or self._on_instant or self._on_counter)

    def on_begin(self, name: int, begin_ns: int, entry: Any) -> None:
        with self._lock:
            text = self._names.names[name].name
            if text not in self._reported:
                self._reported[text] = (name, entry)
                self._tell(self._on_duration, name, begin_ns, is_start=True)

    def on_end(self, name: int, end_ns: int, entry: Any) -> None:
        with self._lock:
            text = self._names.names[name].name
            if self._reported.get(text, (0, None))[1] is entry:
                del self._reported[text]
                self._tell(self._on_duration, name, end_ns, is_start=False)

    def on_instant(self, name: int, now_ns: int) -> None:
        with self._lock:
            self._tell(self._on_instant, name, now_ns)

    def on_counter(self, name: int, now_ns: int, values: Mapping[str, int | float]) -> None:
        with self._lock:
            ask = self._redactor or str
            self._tell(self._on_counter, name, now_ns, values={ask(series): value for series, value in values.items()})

    def cut(self, now_ns: int) -> None:
        """Reports the end of every span whose begin was reported, because the window closes or the run ends."""
        with self._lock:
            reported, self._reported = self._reported, {}
            for name, _ in reported.values():
                self._tell(self._on_duration, name, now_ns, is_start=False)

    def _tell(self, methods: list[tuple[object, Callable[..., object]]], name: int, at_ns: int, **what: object) -> None:
        """Passes arguments by name, as Composer does, so that handlers may have them in any order."""
        span = self._names.names[name]
        if self._redactor is not None:
            span = redact_name(span, self._redactor)
        what |= {"name": span.name, "categories": span.categories, "timestamp": self._state.timestamp}
        what["wall_clock_time_ns"] = self._clock.unix_ns(at_ns)
        for handler, method in methods:
            self._guard(handler, partial(method, **what), ())
            if not self._guard.is_off(handler):
                self._note_taken()


def _methods(handlers: list[object], name: str) -> list[tuple[object, Callable[..., object]]]:
    return [(handler, getattr(handler, name)) for handler in handlers if overrides(handler, name, TraceHandler)]
