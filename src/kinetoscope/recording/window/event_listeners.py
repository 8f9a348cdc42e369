"""Calls of the per-event methods of trace handlers, while markers record."""

import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from kinetoscope.core.clock.clock import Anchor, ClockLine
from kinetoscope.core.job.event import overrides
from kinetoscope.core.job.state import RunState
from kinetoscope.formats.redactor import Redactor
from kinetoscope.recording.markers.recorder_types import NameTable
from kinetoscope.recording.window.guard import Guard
from kinetoscope.recording.window.run_redaction import redact_name
from kinetoscope.recording.window.trace_handler import TraceHandler


class EventListeners:
    """Call the per-event methods of the handlers that override them, one event at a time.

    It is the recorder's `SpanListener`.

    Args:
        handlers: the handlers of the run.
        names: the names of the recorder.
        state: the state of the run.
        anchor: converts nanoseconds to unix time.
        guard: makes the calls.
        redactor: replaces names for handlers; None to leave them unchanged.
        count_event: called after each call that succeeded.
    """

    def __init__(
        self,
        handlers: Iterable[object],
        names: NameTable,
        state: RunState,
        anchor: Anchor,
        guard: Guard,
        redactor: Redactor | None = None,
        count_event: Callable[[], object] = lambda: None,
    ) -> None:
        handlers = list(handlers)
        self._count_event = count_event
        self._on_duration = _find_methods(handlers, "process_duration_event")
        self._on_instant = _find_methods(handlers, "process_instant_event")
        self._on_counter = _find_methods(handlers, "process_counter_event")
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
        """Report the start of a span, if none of that name is open."""
        with self._lock:
            text = self._names.names[name].name
            if text not in self._reported:
                self._reported[text] = (name, entry)
                self._call(self._on_duration, name, begin_ns, is_start=True)

    def on_end(self, name: int, end_ns: int, entry: Any) -> None:
        """Report the end of a span whose start was reported."""
        with self._lock:
            text = self._names.names[name].name
            if self._reported.get(text, (0, None))[1] is entry:
                del self._reported[text]
                self._call(self._on_duration, name, end_ns, is_start=False)

    def on_instant(self, name: int, now_ns: int) -> None:
        """Report an instant."""
        with self._lock:
            self._call(self._on_instant, name, now_ns)

    def on_counter(self, name: int, now_ns: int, values: Mapping[str, int | float]) -> None:
        """Report the values of a counter."""
        with self._lock:
            redact = self._redactor or str
            self._call(
                self._on_counter, name, now_ns, values={redact(series): value for series, value in values.items()}
            )

    def close_spans(self, now_ns: int) -> None:
        """Report the end of every span whose start was reported, because the window closes or the run ends."""
        with self._lock:
            reported, self._reported = self._reported, {}
            for name, _ in reported.values():
                self._call(self._on_duration, name, now_ns, is_start=False)

    def _call(
        self, methods: list[tuple[object, Callable[..., object]]], name: int, at_ns: int, **arguments: object
    ) -> None:
        """Pass arguments by name, as Composer does, so that handlers may have them in any order."""
        span = self._names.names[name]
        if self._redactor is not None:
            span = redact_name(span, self._redactor)
        arguments |= {"name": span.name, "categories": span.categories, "timestamp": self._state.timestamp}
        arguments["wall_clock_time_ns"] = self._clock.unix_ns(at_ns)
        for handler, method in methods:
            self._guard(handler, partial(method, **arguments), ())
            if not self._guard.is_off(handler):
                self._count_event()


def _find_methods(handlers: list[object], name: str) -> list[tuple[object, Callable[..., object]]]:
    return [(handler, getattr(handler, name)) for handler in handlers if overrides(handler, name, TraceHandler)]
