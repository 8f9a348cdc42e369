"""Markers, which users put around code to see it in the trace: those of a Profiler, and those of library code."""

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ParamSpec, TypeVar, cast, overload

from kinetoscope.core.background.fork_resets import reset_after_fork
from kinetoscope.core.clock.clock import Clock
from kinetoscope.core.text.once_log import OnceLog
from kinetoscope.errors import MarkerError
from kinetoscope.recording.markers import compiler
from kinetoscope.recording.markers.marked_function import mark_function, marked
from kinetoscope.recording.markers.native_recorder import NativeRecorder, NativeSpan
from kinetoscope.recording.markers.process import find_parents_run, this_process
from kinetoscope.recording.markers.recorder import (
    ACTION_BITS,
    INSTANT_ON_BEGIN,
    INSTANT_ON_END,
    MOST_NAMES,
    NO_NAME,
    SpanName,
)
from kinetoscope.recording.markers.schedule import ProfilerAction

P = ParamSpec("P")
T = TypeVar("T")

MOST_IDLE = 4096
RECORDING_ACTIONS = (ProfilerAction.WARMUP, ProfilerAction.ACTIVE, ProfilerAction.ACTIVE_AND_SAVE)


AskedMarker = tuple[str, Iterable[ProfilerAction], bool, bool, Iterable[str]]
"""What a face was asked for: the arguments of its ``marker``, in their order, with which `MarkerSettings` begins."""


class MarkerSettings:
    """The settings of a marker. They are equal if their markers record the same."""

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
        self.name: str = str(name)
        self.args: tuple[tuple[str, int], ...] = tuple(args)
        self.actions: frozenset[ProfilerAction] = frozenset(map(ProfilerAction, actions))
        self.categories: tuple[str, ...] = (categories,) if isinstance(categories, str) else tuple(categories)
        self.edges: int = record_instant_on_start * INSTANT_ON_BEGIN + record_instant_on_finish * INSTANT_ON_END

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
        """The key of a marker in its profiler: its name, with the args that all its events have."""
        return (self.name, self.args) if self.args else self.name

    @property
    def span_name(self) -> SpanName:
        """The marker's name as the recorder keeps it."""
        return SpanName(self.name, self.categories, self.args)

    def __str__(self) -> str:
        actions = ", ".join(action for action in ProfilerAction if action in self.actions)
        return f"actions=({actions}), categories={self.categories}, instants={self.edges}"


class Marker(NativeSpan):
    """A named span, instant or counter. `Profiler.marker` and `kinetoscope.marker` make it.

    with marker: ...                                # a span around a block
    @marker                                         # around each call of a function, coroutine or generator
    marker.start(); marker.finish()                 # around a stretch of one thread
    token = marker.begin(); marker.end(token)       # across threads and tasks
    marker.instant()                                # a moment
    marker.counter({"loss": 0.25})                  # values at this moment

    It records in the batches whose action is among its actions. Nothing is recorded between windows.
    """

    __slots__ = ("__weakref__", "settings")

    def __init__(self, recorder: NativeRecorder, settings: MarkerSettings) -> None:
        super().__init__(recorder, NO_NAME, settings.mask, settings.edges)
        self.settings: MarkerSettings = settings

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def categories(self) -> tuple[str, ...]:
        return self.settings.categories

    def record_into(self, recorder: NativeRecorder) -> None:
        """Makes the marker record into another recorder from now on."""
        self.attach(recorder, NO_NAME)

    def rest(self) -> None:
        """Drops what makes the next ``with`` quick and keeps the marker alive, so that an unused marker is freed."""
        self.attach(self._recorder, self.name_id)

    def intern(self) -> int:
        """The id of the name in the recorder, which is needed when the marker first records."""
        settings = self.settings
        return self._recorder.names.intern(settings.name, settings.categories, settings.args)

    def start(self) -> None:
        """Begins a span that `finish` on the same thread will end.

        Raises `MarkerError` if this thread has started the marker already; nest with ``with`` instead.
        """
        if compiler.is_compiling():
            return
        started = _started_here()
        if started.get(self, _BY_PARENT) is not _BY_PARENT:
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
        token = started.pop(self)
        if token is not _BY_PARENT:
            self.end(token)

    def plain_values(self, values: Mapping[str, Any] | float) -> dict[str, int | float]:
        """What ``counter(values)`` records: the numbers of a mapping, or one number under the marker's name.

        Numbers may be ints, floats, booleans, or scalars of numpy or torch. Other values are left out, with one warning
        in the log, because a counter must not raise into training.
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
        """Decorates ``func``: each call is a span. Without a function, returns the decorator (``@marker()``).

        A ``staticmethod`` or ``classmethod`` stays one. Raises `SettingsError` for what cannot be called.
        """
        return self if func is None else marked(self, func)

    def __copy__(self) -> "Marker":
        return self

    def __deepcopy__(self, memo: object) -> "Marker":
        return self

    def __reduce__(self) -> Any:
        settings = self.settings
        on_start, on_finish = bool(settings.edges & INSTANT_ON_BEGIN), bool(settings.edges & INSTANT_ON_END)
        return marker, (settings.name, tuple(sorted(settings.actions)), on_start, on_finish, settings.categories)

    def __repr__(self) -> str:
        return f"<Marker {self.name!r} {self.settings}>"


_BY_PARENT = object()
"""In a forked child, in place of the token of a span that is its parent's: the child may finish it, without effect."""


class _Started(threading.local):
    """The markers that this thread has started and not finished, each with its token."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.tokens: dict[Marker, Any] = {}


_started = _Started()


def _started_here() -> dict[Marker, Any]:
    if _started.pid != os.getpid():
        _started.pid, _started.tokens = os.getpid(), dict.fromkeys(_started.tokens, _BY_PARENT)
    return _started.tokens


_empty_context = cast("Marker", contextlib.nullcontext())


def compiled_marker() -> Marker:
    """What code gets for any marker while torch's compiler traces it: one that never records, if Dynamo knows markers;
    else an empty context, which Dynamo always knows."""
    return _inert if compiler.is_known(Marker) else _empty_context


def _numbers(marker_name: str, values: Mapping[str, Any]) -> Iterator[tuple[str, int | float]]:
    for name, value in values.items():
        try:
            yield str(name), _number(value)
        except (TypeError, ValueError, RuntimeError) as error:
            message = "Counter %r leaves out %r: %r is not a number (%s)."
            this_process.once.warn(message, marker_name, name, value, error, about=("no number", marker_name))


def _number(value: Any) -> int | float:
    """``value`` as a plain number; scalars of numpy and torch return it from ``item()``."""
    if isinstance(value, int | float):
        return value + 0
    value = value.item() if hasattr(value, "item") else float(value)
    return value if isinstance(value, int | float) else float(value)


# -- the markers of a profiler -----------------------------------------------------------------------------------------


class KnownMarkers:
    """Remembers all markers in use, and the latest few thousand others.

    Those in ``recent`` are kept alive here, so that finding one is usually one look-up in a dict.
    """

    def __init__(self) -> None:
        self.recent: dict[Any, Marker] = {}
        self._living: weakref.WeakValueDictionary[Any, Marker] = weakref.WeakValueDictionary()

    def get(self, key: object) -> Marker | None:
        """The marker with that key, if it is still known."""
        known = self.recent.get(key)
        if known is None and (known := self._living.get(key)) is not None:
            known = self.add(key, known)
        return known

    def add(self, key: object, marker: Marker) -> Marker:
        """Remembers and returns ``marker`` for ``key``, or the marker that another thread has just added."""
        if len(self.recent) >= MOST_IDLE:
            self._forget_idle(marker.name)
        known = self.recent.setdefault(key, marker)
        self._living[key] = known
        return known

    def living(self) -> list[Marker]:
        """All markers that exist."""
        return [marker for reference in self._living.valuerefs() if (marker := reference()) is not None]

    def _forget_idle(self, name: str) -> None:
        """Frees the markers that are not in use."""
        _warn_of_many(name)
        recent, self.recent = self.recent, {}
        for marker in recent.values():
            marker.rest()


class ProfilerMarkers:
    """The markers of one profiler, and the recorder into which they record. They live as long as the profiler."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.recorder: NativeRecorder = NativeRecorder(clock)
        self._known = KnownMarkers()
        self._once = OnceLog()

    def find(self, asked: AskedMarker) -> Marker:
        """The marker for which a face was asked."""
        return self.get(MarkerSettings(*asked))

    def get(self, asked: MarkerSettings, kind: type[Marker] = Marker) -> Marker:
        """The marker with the key of ``asked``. If there is none, it is made, of class ``kind``. If there is one with
        other settings, those stay, and one warning says so.
        """
        known = self._known.get(asked.key)
        if known is None:
            compiler.teach_dynamo(kind)
            return self._known.add(asked.key, kind(self.recorder, asked))
        if asked not in (known.settings, MarkerSettings(asked.name, args=asked.args)):
            message = "Marker %r was made with %s and is now asked for with %s. It keeps the first settings."
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

# Libraries call `kinetoscope.marker` and do not know the user's Profiler, so the recorder of library markers must be
# global. A run that begins makes them record into its own recorder; before and after that they record into `_home`.
_idle = NativeRecorder()
_inert = Marker(_idle, MarkerSettings("inert", actions=()))
_home = _current = _idle
_known = KnownMarkers()


@overload
def marker(
    name: str,
    actions: Iterable[ProfilerAction] = RECORDING_ACTIONS,
    record_instant_on_start: bool = False,
    record_instant_on_finish: bool = False,
    categories: Iterable[str] = (),
) -> Marker: ...
@overload
def marker(
    name: Callable[P, T],
    actions: Iterable[ProfilerAction] = RECORDING_ACTIONS,
    record_instant_on_start: bool = False,
    record_instant_on_finish: bool = False,
    categories: Iterable[str] = (),
) -> Callable[P, T]: ...
def marker(
    name: Any,
    actions: Iterable[ProfilerAction] = RECORDING_ACTIONS,
    record_instant_on_start: bool = False,
    record_instant_on_finish: bool = False,
    categories: Iterable[str] = (),
) -> Any:
    """The marker with that name for code that has no Profiler at hand. It records into the process's active Profiler.

    The parameters are those of `Profiler.marker`. While no Profiler is active, a span costs as much as a skipped one.
    May be called each time (``with kinetoscope.marker("parse"):``) or once, ahead of time, or put above a function
    (``@kinetoscope.marker``). Raises `SettingsError` for what is neither a text nor a function.
    """
    if not isinstance(name, str):
        options = (actions, record_instant_on_start, record_instant_on_finish, categories)
        return mark_function(name, lambda text: marker(text, *options))
    if compiler.is_compiling():
        return compiled_marker()
    if actions is RECORDING_ACTIONS and not (record_instant_on_start or record_instant_on_finish or categories):
        return _known.recent.get(name) or _library_marker(MarkerSettings(name))
    settings = MarkerSettings(name, actions, record_instant_on_start, record_instant_on_finish, categories)
    return _library_marker(settings)


def _library_marker(settings: MarkerSettings) -> Marker:
    compiler.teach_dynamo(Marker)
    key = settings.name if settings == MarkerSettings(settings.name) else settings
    return _known.get(key) or _known.add(key, Marker(_current, settings))


def library_recorder() -> NativeRecorder:
    """What library markers record into now: in a child process, such as a DataLoader worker, for the parent's run."""
    return _current


def begin_library_markers(recorder: NativeRecorder) -> None:
    """Makes library markers record into the ``recorder`` of the run that begins."""
    _move_to(recorder)


def end_library_markers(recorder: NativeRecorder) -> None:
    """Makes library markers idle again, unless they record into another recorder by now."""
    if _current is recorder:
        _move_to(_home)


def _move_to(recorder: NativeRecorder) -> None:
    global _current
    _current = recorder
    for known in _known.living():
        known.record_into(recorder)


def _join_parents_run() -> None:
    """Records into the run of the parent process, if there is one and this process has no profiler of its own."""
    run_file = find_parents_run() if _current is _idle else None
    if run_file is not None:
        _idle.follow(run_file)


@reset_after_fork
def _keep_recorder() -> None:
    """In a forked child, which has no profiler yet, let markers record for the parent's run if there is one."""
    global _home
    _home = _current
    _join_parents_run()


_join_parents_run()
