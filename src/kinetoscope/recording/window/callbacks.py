"""Sources and handlers of a run: their events, and the order in which they are called and closed."""

from typing import Any

from kinetoscope.core.job.event import Event, collect_event_methods, overrides
from kinetoscope.core.job.state import RunState
from kinetoscope.recording.window.guard import Guard

_BATCH_EVENTS = (Event.BEFORE_DATALOADER, Event.AFTER_DATALOADER, Event.BATCH_START, Event.BATCH_END)


class Callbacks:
    """Call the sources, then the handlers of a run, through its ``guard`` with its ``state``."""

    def __init__(self, sources: list[Any], state: RunState, guard: Guard) -> None:
        self.sources: list[Any] = sources
        self._unclosed = list(sources)
        self._state, self._guard = state, guard
        self._is_window_open = False
        self.set_handlers([])

    def set_handlers(self, handlers: list[Any]) -> None:
        """Set the handlers, and look up once which callback handles which event, so that other events cost nothing."""
        self.handlers: list[Any] = handlers
        callbacks = [*self.sources, *handlers]
        self._wanted = collect_event_methods(callbacks)
        self._in_windows = [callback for callback in callbacks if overrides(callback, "window_opened")]
        methods = [method for event in _BATCH_EVENTS for _, method in self._wanted[event]]
        self.needs_all_batches: bool = not all(getattr(method, "is_skippable", False) for method in methods)
        """True if one of them needs events also of batches that are skipped: see `skippable`."""

    def fire(self, event: Event, *, setup: bool = False) -> None:
        """Call the callbacks that handle an event. During ``setup`` their errors are raised."""
        for callback, method in self._wanted.get(event, ()):
            if setup:
                method(self._state, None)
            else:
                self._guard(callback, method, (self._state, None))

    def notify_window(self, *, is_open: bool) -> None:
        """Notify them that a window has opened, or that it closes, once."""
        if is_open is not self._is_window_open:
            self._is_window_open = is_open
            for callback in self._in_windows:
                self._guard(callback, callback.window_opened if is_open else callback.window_closing, (self._state,))

    def close_sources(self) -> None:
        """Close each source that is not closed yet."""
        while self._unclosed:
            self._call_closing(self._unclosed.pop(0), "close", self._state, None)

    def close_handlers(self) -> None:
        """Close the handlers; then call ``post_close`` of all."""
        for handler in self.handlers:
            self._call_closing(handler, "close", self._state, None)
        for callback in (*self.sources, *self.handlers):
            self._call_closing(callback, "post_close")

    def _call_closing(self, callback: object, method: str, *arguments: object) -> None:
        """Call a closing method, if the callback has it, even if the callback was switched off."""
        method_of_callback = getattr(callback, method, None)
        if method_of_callback is not None:
            self._guard.call_closing(callback, method_of_callback, arguments)
