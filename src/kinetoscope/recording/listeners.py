"""recording: tells trace handlers of single events, as their contract promises. Records flow in, calls flow out."""

import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from kinetoscope.clock.clock import Anchor, ClockLine
from kinetoscope.recording.contract import overrides
from kinetoscope.recording.recorder import NameTable
from kinetoscope.training.state import RunState

Call = Callable[..., None]
Guard = Callable[[object, Call, tuple[object, ...]], object]


class Listeners:
    """The handlers that override per-event methods, called one event at a time.

    A `SpanListener` of the recorder. ``anchor`` turns its nanoseconds into unix time; ``guard(handler, method,
    arguments)`` makes the calls.
    """

    def __init__(
        self, handlers: Iterable[object], names: NameTable, state: RunState, anchor: Anchor, guard: Guard
    ) -> None:
        handlers = list(handlers)
        self._on_duration = _methods(handlers, "process_duration_event")
        self._on_instant = _methods(handlers, "process_instant_event")
        self._on_counter = _methods(handlers, "process_counter_event")
        self._names = names
        self._clock = ClockLine(anchor, anchor)
        self._guard = guard
        # Reentrant: a signal handler, or a handler's own marker, may record while an event is being told.
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
            self._tell(self._on_counter, name, now_ns, values=dict(values))

    def cut(self, now_ns: int) -> None:
        """Reports the end of every span whose begin was reported: the window closes, or the run ends."""
        with self._lock:
            reported, self._reported = self._reported, {}
            for name, _ in reported.values():
                self._tell(self._on_duration, name, now_ns, is_start=False)

    def _tell(self, methods: list[tuple[object, Call]], name: int, at_ns: int, **what: object) -> None:
        """Arguments go by name, as Composer passes them: its handlers need not keep their order."""
        span = self._names.names[name]
        what |= {"name": span.name, "categories": span.categories, "timestamp": self._state.timestamp}
        what["wall_clock_time_ns"] = self._clock.unix_ns(at_ns)
        for handler, method in methods:
            self._guard(handler, partial(method, **what), ())


def _methods(handlers: list[object], name: str) -> list[tuple[object, Call]]:
    return [(handler, getattr(handler, name)) for handler in handlers if overrides(handler, name)]
