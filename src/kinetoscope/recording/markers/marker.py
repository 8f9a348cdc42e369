"""Markers for code of interest: those of a Profiler, and those of library code."""

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
from kinetoscope.recording.markers.marker_decorator import mark_function, wrap_in_spans
from kinetoscope.recording.markers.native_recorder import NativeRecorder, NativeSpan
from kinetoscope.recording.markers.process import find_parent_run_file, this_process
from kinetoscope.recording.markers.recorder_types import (
    ACTION_BITS,
    INSTANT_ON_BEGIN,
    INSTANT_ON_END,
    MAX_NAMES,
    NO_NAME,
    SpanName,
)
from kinetoscope.recording.markers.schedule import ProfilerAction

P = ParamSpec("P")
T = TypeVar("T")

MAX_CACHED_MARKERS = 4096
RECORDING_ACTIONS = (ProfilerAction.WARMUP, ProfilerAction.ACTIVE, ProfilerAction.ACTIVE_AND_SAVE)


MarkerArguments = tuple[str, Iterable[ProfilerAction], bool, bool, Iterable[str]]
"""Arguments of a public ``marker`` function in their order; `MarkerSettings` begins with the same."""


class MarkerSettings:
    """Settings of a marker. Markers with equal settings record the same."""

    __slots__ = ("actions", "args", "categories", "edges", "name")

    def __init__(
        self,
        name: str,
        actions: Iterable[ProfilerAction] = RECORDING_ACTIONS,
        record_instant_on_start: bool = False,
        record_instant_on_finish: bool = False,
        categories: Iterable[str] = (),
        args: Iterable[tuple[str, str | int]] = (),
    ) -> None:
        self.name: str = str(name)
        self.args: tuple[tuple[str, str | int], ...] = tuple(args)
        self.actions: frozenset[ProfilerAction] = frozenset(map(ProfilerAction, actions))
        self.categories: tuple[str, ...] = (categories,) if isinstance(categories, str) else tuple(categories)
        self.edges: int = record_instant_on_start * INSTANT_ON_BEGIN + record_instant_on_finish * INSTANT_ON_END

    @property
    def mask(self) -> int:
        """The bits of the actions under which the marker records."""
        return sum(ACTION_BITS[action] for action in self.actions)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MarkerSettings) and self._comparison_key() == other._comparison_key()

    def __hash__(self) -> int:
        return hash(self._comparison_key())

    def _comparison_key(self) -> tuple[Any, ...]:
        return self.name, self.actions, self.categories, self.edges, self.args

    @property
    def key(self) -> Any:
        """The key of a marker in its profiler: its name, with the args of all its events."""
        return (self.name, self.args) if self.args else self.name

    @property
    def span_name(self) -> SpanName:
        """The name, categories and args for the recorder."""
        return SpanName(self.name, self.categories, self.args)

    def __str__(self) -> str:
        actions = ", ".join(action for action in ProfilerAction if action in self.actions)
        return f"actions=({actions}), categories={self.categories}, instants={self.edges}"


class Marker(NativeSpan):
    """A named span, instant or counter. `Profiler.marker` and `kinetoscope.marker` create it.

        with marker: ...                                # a span around a block
        @marker                                         # around each call of a function, coroutine or generator
        marker.start(); marker.finish()                 # around a part of one thread's work
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
        """The name of the span."""
        return self.settings.name

    @property
    def categories(self) -> tuple[str, ...]:
        """The categories, by which viewers can filter."""
        return self.settings.categories

    def record_into(self, recorder: NativeRecorder) -> None:
        """Record into another recorder from now on."""
        self.attach(recorder, NO_NAME)

    def unpin(self) -> None:
        """Drop the reference that the recorder keeps for a fast ``with``, so that an unused marker can be freed."""
        self.attach(self._recorder, self.name_id)

    def intern(self) -> int:
        """Return the id of the name in the recorder. C calls this when the marker first records."""
        settings = self.settings
        return self._recorder.names.intern(settings.name, settings.categories, settings.args)

    def start(self) -> None:
        """Begin a span that `finish` on the same thread ends.

        Raises:
            MarkerError: if this thread has started the marker already. Nest with ``with`` instead.
        """
        if compiler.is_compiling():
            return
        started = _get_started_markers()
        if started.get(self, _STARTED_BY_PARENT) is not _STARTED_BY_PARENT:
            raise MarkerError(
                f"Marker {self.name!r} was started on this thread and not finished. To nest a marker in itself use "
                "`with marker:`, and `token = marker.begin()`, `marker.end(token)` across threads or tasks."
            )
        started[self] = self.begin()

    def finish(self) -> None:
        """End the span that `start` began on this thread.

        Raises:
            MarkerError: if this thread has not started the marker.
        """
        if compiler.is_compiling():
            return
        started = _get_started_markers()
        if self not in started:
            raise MarkerError(
                f"Marker {self.name!r} cannot finish: this thread has not started it. If another thread or task did, "
                "use `token = marker.begin()` there and `marker.end(token)` here."
            )
        token = started.pop(self)
        if token is not _STARTED_BY_PARENT:
            self.end(token)

    def plain_values(self, values: Mapping[str, Any] | float) -> dict[str, int | float]:
        """Return the values that ``counter(values)`` records: a mapping's, or one number under the marker's name.

        Numbers may be ints, floats, booleans, or scalars of numpy or torch. Other values are left out with one warning
        in the log, since a counter must not raise into training.
        """
        if type(values) is float or type(values) is int:
            return {self.settings.name: values}
        if not isinstance(values, Mapping):
            values = {self.name: values}
        return dict(_convert_values(self.name, values))

    @overload
    def __call__(self, func: None = None) -> "Marker": ...
    @overload
    def __call__(self, func: Callable[P, T]) -> Callable[P, T]: ...
    def __call__(self, func: Callable[..., Any] | None = None) -> Any:
        """Decorate ``func``: each call is a span. Without a function, return the decorator (``@marker()``).

        A ``staticmethod`` or ``classmethod`` keeps its kind. Raises `SettingsError` for an object that is not callable.
        """
        return self if func is None else wrap_in_spans(self, func)

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


_STARTED_BY_PARENT = object()
"""Token of a span that a forked child's parent has started. The child may finish it, without effect."""


class _Started(threading.local):
    """Markers that this thread has started and not finished, each with its token."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.tokens: dict[Marker, Any] = {}


_started = _Started()


def _get_started_markers() -> dict[Marker, Any]:
    """Return the markers that this thread has started, with their tokens; without those of a forked child's parent."""
    if _started.pid != os.getpid():
        _started.pid, _started.tokens = os.getpid(), dict.fromkeys(_started.tokens, _STARTED_BY_PARENT)
    return _started.tokens


_empty_context = cast("Marker", contextlib.nullcontext())


def inert_marker() -> Marker:
    """Return the marker for code that torch's compiler traces.

    It never records. Without support by Dynamo it is an empty context, which Dynamo always supports.
    """
    return _inert_marker if compiler.is_registered(Marker) else _empty_context


def _convert_values(marker_name: str, values: Mapping[str, Any]) -> Iterator[tuple[str, int | float]]:
    for name, value in values.items():
        try:
            yield str(name), _to_number(value)
        except (TypeError, ValueError, RuntimeError) as error:
            message = "Counter %r leaves out %r: %r is not a number (%s)."
            this_process.once.warn(message, marker_name, name, value, error, about=("no number", marker_name))


def _to_number(value: Any) -> int | float:
    """Return ``value`` as a plain number; scalars of numpy and torch return it from ``item()``."""
    if isinstance(value, int | float):
        return value + 0
    value = value.item() if hasattr(value, "item") else float(value)
    return value if isinstance(value, int | float) else float(value)


# -- the markers of a profiler -----------------------------------------------------------------------------------------


class MarkerCache:
    """Cache of all markers in use, and of the latest few thousand others.

    Markers in ``recent`` are kept alive here, so that a lookup usually takes one access to a dict.
    """

    def __init__(self) -> None:
        self.recent: dict[Any, Marker] = {}
        self._alive: weakref.WeakValueDictionary[Any, Marker] = weakref.WeakValueDictionary()

    def get(self, key: object) -> Marker | None:
        """Return the marker with this key, or None."""
        cached = self.recent.get(key)
        if cached is None and (cached := self._alive.get(key)) is not None:
            cached = self.add(key, cached)
        return cached

    def add(self, key: object, marker: Marker) -> Marker:
        """Add and return ``marker``, or return the marker that another thread has just added."""
        if len(self.recent) >= MAX_CACHED_MARKERS:
            self._unpin_all(marker.name)
        cached = self.recent.setdefault(key, marker)
        self._alive[key] = cached
        return cached

    def list_alive(self) -> list[Marker]:
        """Return all markers that exist."""
        return [marker for reference in self._alive.valuerefs() if (marker := reference()) is not None]

    def _unpin_all(self, name: str) -> None:
        """Free the markers that are not in use."""
        _warn_about_many_names(name)
        recent, self.recent = self.recent, {}
        for marker in recent.values():
            marker.unpin()


class ProfilerMarkers:
    """Markers of one profiler and the recorder into which they record. They live as long as the profiler."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.recorder: NativeRecorder = NativeRecorder(clock)
        self._cache = MarkerCache()
        self._once = OnceLog()

    def find(self, marker_arguments: MarkerArguments) -> Marker:
        """Return the marker for the arguments of ``Profiler.marker``."""
        return self.get(MarkerSettings(*marker_arguments))

    def get(self, requested: MarkerSettings, marker_type: type[Marker] = Marker) -> Marker:
        """Return the marker with the key of ``requested``, or create one of class ``marker_type``.

        An existing marker keeps its settings; if they differ, one warning is logged.
        """
        cached = self._cache.get(requested.key)
        if cached is None:
            compiler.register_with_dynamo(marker_type)
            return self._cache.add(requested.key, marker_type(self.recorder, requested))
        if requested not in (cached.settings, MarkerSettings(requested.name, args=requested.args)):
            message = "Marker %r was created with %s and is now requested with %s. It keeps the first settings."
            subject = (requested, cached.settings)
            self._once.warn(message, requested.name, cached.settings, requested, about=subject)
        return cached


def _warn_about_many_names(name: str) -> None:
    this_process.once.warn(
        "More than %d different markers were requested; the latest is %r. Each new name takes time and memory, and "
        "once %d have been recorded, the digits of further ones become #. Give such markers one name, and put what "
        'changes into a counter, as in marker("step").counter({"number": 7}). The batch is in the args of every '
        "span anyway.",
        MAX_CACHED_MARKERS,
        name,
        MAX_NAMES,
    )


# -- the markers of library code ---------------------------------------------------------------------------------------

# Libraries call `kinetoscope.marker` without the user's Profiler, so the recorder of library markers must be
# global. A run that starts makes them record into its recorder; otherwise they use `_default_recorder`.
_idle_recorder = NativeRecorder()
_inert_marker = Marker(_idle_recorder, MarkerSettings("inert", actions=()))
_default_recorder = _current_recorder = _idle_recorder
_cache = MarkerCache()


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
    """Return the marker with this name for library code. It records into the active Profiler of the process.

    The parameters are the same as for `Profiler.marker`. While no Profiler is active, a span costs as much as a skipped
    one. May be called each time (``with kinetoscope.marker("parse"):``), once ahead of time, or above a function
    (``@kinetoscope.marker``). Raises `SettingsError` for anything but a string or a function.
    """
    if not isinstance(name, str):
        options = (actions, record_instant_on_start, record_instant_on_finish, categories)
        return mark_function(name, lambda text: marker(text, *options))
    if compiler.is_compiling():
        return inert_marker()
    if actions is RECORDING_ACTIONS and not (record_instant_on_start or record_instant_on_finish or categories):
        return _cache.recent.get(name) or _get_library_marker(MarkerSettings(name))
    settings = MarkerSettings(name, actions, record_instant_on_start, record_instant_on_finish, categories)
    return _get_library_marker(settings)


def _get_library_marker(settings: MarkerSettings) -> Marker:
    """Return the library marker with these settings, created once."""
    compiler.register_with_dynamo(Marker)
    key = settings.name if settings == MarkerSettings(settings.name) else settings
    return _cache.get(key) or _cache.add(key, Marker(_current_recorder, settings))


def current_library_recorder() -> NativeRecorder:
    """Return the recorder of library markers. In a DataLoader worker it records for the run of the parent process."""
    return _current_recorder


def attach_library_markers(recorder: NativeRecorder) -> None:
    """Let library markers record into the ``recorder`` of the run that starts."""
    _set_recorder(recorder)


def detach_library_markers(recorder: NativeRecorder) -> None:
    """Make library markers idle again, unless they record into another recorder by now."""
    if _current_recorder is recorder:
        _set_recorder(_default_recorder)


def _set_recorder(recorder: NativeRecorder) -> None:
    """Let library markers record into ``recorder``."""
    global _current_recorder
    _current_recorder = recorder
    for library_marker in _cache.list_alive():
        library_marker.record_into(recorder)


def _follow_parent_run() -> None:
    """Record into the run of the parent process, if there is one and this process has no profiler."""
    run_file = find_parent_run_file() if _current_recorder is _idle_recorder else None
    if run_file is not None:
        _idle_recorder.follow(run_file)


@reset_after_fork
def _reset_in_child() -> None:
    """Let markers of a forked child, which has no profiler yet, record for the parent's run if there is one."""
    global _default_recorder
    _default_recorder = _current_recorder
    _follow_parent_run()


_follow_parent_run()
