"""recording: markers, which a user puts around the code to be seen: those of a Profiler, and those of library code."""

import contextlib
import functools
import inspect
import os
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar, cast, overload

from kinetoscope.clock.clock import Clock
from kinetoscope.errors import MarkerError
from kinetoscope.recording import compiler
from kinetoscope.recording.process import find_parents_run, this_process
from kinetoscope.recording.recorder import ACTION_BITS, INSTANT_ON_BEGIN, INSTANT_ON_END, MOST_NAMES, NO_NAME, SpanName
from kinetoscope.recording.recorder_choice import ProcessRecorder, ProcessSpan
from kinetoscope.recording.schedule import ProfilerAction
from kinetoscope.training.once_log import OnceLog
from kinetoscope.writing.own_thread import after_fork_in_child

P = ParamSpec("P")
T = TypeVar("T")

MOST_IDLE = 4096
RECORDING_ACTIONS = (ProfilerAction.WARMUP, ProfilerAction.ACTIVE, ProfilerAction.ACTIVE_AND_SAVE)


class MarkerSettings:
    """What a marker is asked for with. Two settings are equal when a user could not tell their markers apart."""

    __slots__ = ("actions", "args", "categories", "edges", "name")

    def __init__(
        self,
        name: str,
        actions: Iterable[ProfilerAction] = RECORDING_ACTIONS,
        record_instant_on_start: bool = False,
        record_instant_on_finish: bool = False,
        categories: Iterable[str] = (),
        args: Iterable[tuple[str, int]] = (),
    ) -> None:
        self.name = str(name)
        self.args = tuple(args)
        self.actions = frozenset(map(ProfilerAction, actions))
        self.categories = (categories,) if isinstance(categories, str) else tuple(categories)
        self.edges = record_instant_on_start * INSTANT_ON_BEGIN + record_instant_on_finish * INSTANT_ON_END

    @property
    def mask(self) -> int:
        """The bits of the actions under which the marker records."""
        return sum(ACTION_BITS[action] for action in self.actions)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MarkerSettings) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        return self.name, self.actions, self.categories, self.edges, self.args

    @property
    def key(self) -> Any:
        """What tells the markers of one profiler apart: the name, with the args that every event of it carries."""
        return (self.name, self.args) if self.args else self.name

    @property
    def span_name(self) -> SpanName:
        """What a recorder knows of the marker."""
        return SpanName(self.name, self.categories, self.args)

    def __str__(self) -> str:
        actions = ", ".join(action for action in ProfilerAction if action in self.actions)
        return f"actions=({actions}), categories={self.categories}, instants={self.edges}"


class Marker(ProcessSpan):
    """A named span, instant or counter. Got from `Profiler.marker` or `kinetoscope.marker`, never built by hand.

    with marker: ...                                # a span around a block
    @marker                                         # around each call of a function, coroutine or generator
    marker.start(); marker.finish()                 # around a stretch of one thread
    token = marker.begin(); marker.end(token)       # across threads and tasks
    marker.instant()                                # a moment
    marker.counter({"loss": 0.25})                  # values at this moment

    It records in the batches whose action is among its actions. What lies between windows is not recorded.
    """

    __slots__ = ("__weakref__", "settings")

    def __init__(self, recorder: ProcessRecorder, settings: MarkerSettings) -> None:
        super().__init__(recorder, NO_NAME, settings.mask, settings.edges)
        self.settings = settings

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def categories(self) -> tuple[str, ...]:
        return self.settings.categories

    def record_into(self, recorder: ProcessRecorder) -> None:
        """Makes the marker record into another recorder from now on."""
        self.attach(recorder, NO_NAME)

    def rest(self) -> None:
        """Lets go of what makes the next ``with`` quick: then nothing keeps a marker that nobody else holds."""
        self.attach(self._recorder, self.name_id)

    def intern(self) -> int:
        """The id of the name in the recorder: asked for when the marker records for the first time."""
        settings = self.settings
        return self._recorder.names.intern(settings.name, settings.categories, settings.args)

    def start(self) -> None:
        """Begins a span that `finish` on the same thread will end.

        Raises `MarkerError` if this thread has started the marker already; nest with ``with`` instead.
        """
        if compiler.is_compiling():
            return
        started = _started_here()
        if self in started:
            raise MarkerError(
                f"Marker {self.name!r} was started on this thread and not finished. To nest a marker in itself use "
                "`with marker:`, and `token = marker.begin()`, `marker.end(token)` across threads or tasks."
            )
        started[self] = self.begin()

    def finish(self) -> None:
        """Ends the span that `start` began on this thread.

        Raises `MarkerError` if there is none.
        """
        if compiler.is_compiling():
            return
        started = _started_here()
        if self not in started:
            raise MarkerError(
                f"Marker {self.name!r} cannot finish: this thread has not started it. If another thread or task did, "
                "use `token = marker.begin()` there and `marker.end(token)` here."
            )
        self.end(started.pop(self))

    def plain_values(self, values: Mapping[str, Any] | float) -> dict[str, int | float]:
        """What ``counter(values)`` records: of a mapping its numbers; one number is named after the marker.

        Numbers may be ints, floats, booleans, or scalars of numpy or torch. What is no number is left out, with one
        warning in the log: a counter never raises into training.
        """
        if type(values) is float or type(values) is int:
            return {self.settings.name: values}
        if not isinstance(values, Mapping):
            values = {self.name: values}
        return dict(_numbers(self.name, values))

    @overload
    def __call__(self, func: None = None) -> "Marker": ...
    @overload
    def __call__(self, func: Callable[P, T]) -> Callable[P, T]: ...
    def __call__(self, func: Callable[..., Any] | None = None) -> Any:
        """Decorates ``func``: each call is a span. With no function, gives the decorator (``@marker()``)."""
        if func is None:
            return self
        return functools.wraps(func)(self._wrapper(func))

    def _wrapper(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if _is(inspect.isasyncgenfunction, function):
            return _around_async_generator(self, function)
        if _is(inspect.iscoroutinefunction, function):
            return _around_coroutine(self, function)
        if _is(inspect.isgeneratorfunction, function):
            return _around_generator(self, function)
        return _around_function(self, function)

    def __copy__(self) -> "Marker":
        return self

    def __deepcopy__(self, memo: object) -> "Marker":
        return self

    def __reduce__(self) -> Any:
        it = self.settings
        on_start, on_finish = bool(it.edges & INSTANT_ON_BEGIN), bool(it.edges & INSTANT_ON_END)
        return marker, (it.name, tuple(sorted(it.actions)), on_start, on_finish, it.categories)

    def __repr__(self) -> str:
        return f"<Marker {self.name!r} {self.settings}>"


class _Started(threading.local):
    """What this thread has started and not finished: the token of each marker. It goes with the thread."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.tokens: dict[Marker, Any] = {}


_started = _Started()


def _started_here() -> dict[Marker, Any]:
    if _started.pid != os.getpid():  # a forked child has started nothing
        _started.__init__()
    return _started.tokens


def _is(kind: Callable[[Any], bool], function: Any) -> bool:
    """Whether a call of ``function`` is of that kind: a function's own, or that of an object's ``__call__``."""
    while isinstance(function, functools.partial):
        function = function.func
    return kind(function) or kind(type(function).__call__)


def _around_function(marker: Marker, function: Callable[..., Any]) -> Callable[..., Any]:
    # Looked up here and not in each call, which makes this quicker than `with marker:`.
    begin, end = marker.begin, marker.end

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if compiler.is_compiling():
            return function(*args, **kwargs)
        token = begin()
        try:
            return function(*args, **kwargs)
        finally:
            end(token)

    return wrapper


@contextmanager
def _span(marker: Marker) -> Iterator[None]:
    """The span as a token, since the block may be left on another thread than it was entered on."""
    token = marker.begin()
    try:
        yield
    finally:
        marker.end(token)


def _around_coroutine(marker: Marker, function: Callable[..., Any]) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        with _span(marker):
            return await function(*args, **kwargs)

    return wrapper


def _around_generator(marker: Marker, function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        with _span(marker):
            return (yield from function(*args, **kwargs))

    return wrapper


def _around_async_generator(marker: Marker, function: Callable[..., Any]) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        with _span(marker):
            generator = function(*args, **kwargs)
            advance = generator.asend(None)
            try:
                while True:
                    try:
                        item = await advance
                    except StopAsyncIteration:
                        return
                    try:
                        sent = yield item
                    except GeneratorExit:
                        raise
                    except BaseException as error:
                        advance = generator.athrow(error)
                    else:
                        advance = generator.asend(sent)
            finally:
                await generator.aclose()

    return wrapper


def _numbers(marker_name: str, values: Mapping[str, Any]) -> Iterator[tuple[str, int | float]]:
    for name, value in values.items():
        try:
            yield str(name), _number(value)
        except (TypeError, ValueError, RuntimeError) as error:
            message = "Counter %r leaves out %r: %r is not a number (%s)."
            this_process.once.warn(message, marker_name, name, value, error, about=("no number", marker_name))


def _number(value: Any) -> int | float:
    """``value`` as a plain number; scalars of numpy and torch give theirs up through ``item()``."""
    if isinstance(value, int | float):
        return value + 0
    value = value.item() if hasattr(value, "item") else float(value)
    return value if isinstance(value, int | float) else float(value)


# -- the markers of a profiler -----------------------------------------------------------------------------------------


class KnownMarkers:
    """Each marker that somebody holds, has started or is in, and of the others some thousands: the latest.

    ``recent`` has those that are held here, so that the usual look-up is one in a dict.
    """

    def __init__(self) -> None:
        self.recent: dict[Any, Marker] = {}
        self._living: weakref.WeakValueDictionary[Any, Marker] = weakref.WeakValueDictionary()

    def get(self, key: object) -> Marker | None:
        """The marker of that key, if it is still known."""
        known = self.recent.get(key)
        if known is None and (known := self._living.get(key)) is not None:
            known = self.add(key, known)
        return known

    def add(self, key: object, marker: Marker) -> Marker:
        """The marker that stands for ``key`` from now on: ``marker``, unless another thread was quicker."""
        if len(self.recent) >= MOST_IDLE:
            self._forget_idle(marker.name)
        known = self.recent.setdefault(key, marker)
        self._living[key] = known
        return known

    def living(self) -> list[Marker]:
        """All markers there are."""
        return [marker for reference in self._living.valuerefs() if (marker := reference()) is not None]

    def _forget_idle(self, name: str) -> None:
        """Lets go of those that nobody else holds."""
        _warn_of_many(name)
        recent, self.recent = self.recent, {}
        for marker in recent.values():
            marker.rest()


class ProfilerMarkers:
    """The markers of one profiler, and the recorder that they record into. They last as long as the profiler."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.recorder = ProcessRecorder(clock)
        self._known = KnownMarkers()
        self._once = OnceLog()

    def get(self, asked: MarkerSettings, kind: type[Marker] = Marker) -> Marker:
        """The marker with these settings, of ``kind`` where it is made now. Of one that is there, the settings stay; if
        others are asked for, a warning says so once."""
        known = self._known.get(asked.key)
        if known is None:
            compiler.teach_dynamo(kind)
            return self._known.add(asked.key, kind(self.recorder, asked))
        if asked not in (known.settings, MarkerSettings(asked.name, args=asked.args)):
            message = "Marker %r exists with %s; now asked for with %s: the first stay."
            subject = (asked, known.settings)
            self._once.warn(message, asked.name, known.settings, asked, about=subject)
        return known


def _warn_of_many(name: str) -> None:
    this_process.once.warn(
        "More than %d different markers were asked for; the latest is %r. Each new name takes time and memory, and "
        "once %d have been recorded, the digits of further ones become #. Give such markers one name, and put what "
        'changes into a counter, as in marker("step").counter({"number": 7}). The batch is in the args of every '
        "span anyway.",
        MOST_IDLE,
        name,
        MOST_NAMES,
    )


# -- the markers of library code ---------------------------------------------------------------------------------------

_idle = ProcessRecorder()
_home = _current = _idle  # where library markers record while this process has no active profiler, and where now
_known = KnownMarkers()
_nothing = contextlib.nullcontext()


def marker(
    name: str,
    actions: Iterable[ProfilerAction] = RECORDING_ACTIONS,
    record_instant_on_start: bool = False,
    record_instant_on_finish: bool = False,
    categories: Iterable[str] = (),
) -> Marker:
    """The marker of that name for code that has no profiler at hand: it records into the process's active Profiler.

    Takes what `Profiler.marker` takes, and costs as much as a skipped span when no profiler is active. May be called
    each time (``with kinetoscope.marker("parse"):``) or once, ahead of time.
    """
    if compiler.is_compiling():
        return cast("Marker", _nothing)
    if actions is RECORDING_ACTIONS and not (record_instant_on_start or record_instant_on_finish or categories):
        return _known.recent.get(name) or _library_marker(MarkerSettings(name))
    settings = MarkerSettings(name, actions, record_instant_on_start, record_instant_on_finish, categories)
    return _library_marker(settings)


def _library_marker(settings: MarkerSettings) -> Marker:
    compiler.teach_dynamo(Marker)
    key = settings.name if settings == MarkerSettings(settings.name) else settings
    return _known.get(key) or _known.add(key, Marker(_current, settings))


def begin_library_markers(recorder: ProcessRecorder) -> None:
    """Has library markers record into the ``recorder`` of the run that begins."""
    _move_to(recorder)


def end_library_markers(recorder: ProcessRecorder) -> None:
    """Makes library markers idle again, unless they record into another recorder since."""
    if _current is recorder:
        _move_to(_home)


def _move_to(recorder: ProcessRecorder) -> None:
    global _current
    _current = recorder
    for known in _known.living():
        known.record_into(recorder)


def _join_parents_run() -> None:
    """Records into the run of which this process is a worker, if it is one and has no profiler of its own."""
    run_file = find_parents_run() if _idle.keeps_files and _current is _idle else None
    if run_file is not None:
        _idle.follow(run_file)


def _forget_parent() -> None:
    """A child has no profiler yet. Where its parent has one, that one's recorder goes on recording for the parent."""
    global _home
    _home = _current
    this_process.forget_parents_run()
    _join_parents_run()


_join_parents_run()
after_fork_in_child(_forget_parent)
