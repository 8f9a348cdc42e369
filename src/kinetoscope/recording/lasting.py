"""recording: spans that outlast windows: the fit, its epochs, evaluations.

A span that is open when recording starts is not recorded. These are drawn all the same, clipped to the window.
"""

import threading
from dataclasses import dataclass, field, replace

from kinetoscope.clock.clock import Clock
from kinetoscope.recording.marker import Marker
from kinetoscope.recording.recorder import SpanName
from kinetoscope.recording.recorder_choice import ProcessRecorder


@dataclass(slots=True)
class LastingSpan:
    """A span in monotonic nanoseconds; ``end_ns`` is None while it is open. ``recorded_in`` is the number of the window
    whose records have it, 0 if none has."""

    name: SpanName
    begin_ns: int
    recorded_in: int
    end_ns: int | None = None
    tid: int = field(default_factory=threading.get_native_id)


class LastingSpans:
    """The lasting spans of one run that may concern a window which is open or to come."""

    def __init__(self, recorder: ProcessRecorder, clock: Clock) -> None:
        self._recorder = recorder
        self._now = clock.monotonic_ns
        self._spans: list[LastingSpan] = []

    def begin(self, marker: Marker, *, is_recorded: bool) -> None:
        """A span of ``marker`` has begun on this thread."""
        window = self._recorder.window if is_recorded else 0
        self._spans.append(LastingSpan(marker.settings.span_name, self._now(), window))

    def end(self, marker: Marker, *, is_one: bool = True) -> None:
        """The latest open span of ``marker`` has ended, or turned out to be none."""
        name = marker.settings.span_name
        span = next((span for span in reversed(self._spans) if span.end_ns is None and span.name == name), None)
        if span is not None:
            span.end_ns = self._now()
            if not is_one or not self._recorder.window:
                self._spans.remove(span)

    def take(self, window: int) -> list[LastingSpan]:
        """What the window that closes now has to show besides its records."""
        shown = [replace(span) for span in self._spans if span.recorded_in != window]
        self._spans = [span for span in self._spans if span.end_ns is None]
        return shown
