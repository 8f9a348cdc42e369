"""Marker under Composer's module path, and the marker for Composer's engine."""

from collections.abc import Callable
from typing import Any

from kinetoscope.recording.markers.marker import Marker, MarkerSettings
from kinetoscope.recording.markers.native_recorder import NativeRecorder

__all__ = ["EngineMarker", "Marker"]


class EngineMarker(Marker):
    """Marker that Composer's engine starts and finishes at its events, on the training thread.

    An event may begin again before it ended: when an interrupted Trainer fits again, or a resumed one skips batches.
    Then the earlier span ends where the next one begins, and nothing is raised. ``on_start`` and ``on_finish`` are
    called, if set, once a span has begun and ended.
    """

    __slots__ = ("_token", "on_finish", "on_start")

    def __init__(self, recorder: NativeRecorder, settings: MarkerSettings) -> None:
        super().__init__(recorder, settings)
        self._token: Any = None
        self.on_start: Callable[[], object] | None = None
        self.on_finish: Callable[[], object] | None = None

    @property
    def is_recorded(self) -> bool:
        """True if it was started while recording, and has not finished."""
        return self._token is not None

    def start(self) -> None:
        """Begin a span; end the one before, if that was never finished."""
        if self._token is not None:
            self.end(self._token)
        self._token = self.begin()
        if self.on_start is not None:
            self.on_start()

    def finish(self) -> None:
        """End the span that `start` began, if any."""
        token, self._token = self._token, None
        if token is not None:
            self.end(token)
        if self.on_finish is not None:
            self.on_finish()
