"""Current batch of a loop, and spans that one call begins and a later one ends."""

from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from typing import Any

from kinetoscope.recording.markers.marker import Marker
from kinetoscope.recording.window.cycle import LastingSpans


class OpenSpan:
    """Span of the loop that one call begins and a later one ends or abandons.

    A span that may outlast windows is also added to ``lasting``.
    """

    __slots__ = ("_lasting", "_marker", "_token", "is_open")

    def __init__(self, marker: Marker, lasting: LastingSpans | None = None) -> None:
        self._marker, self._lasting = marker, lasting
        self._token: Any = None
        self.is_open = False

    def begin(self) -> None:
        """Begin the span."""
        self._token = self._marker.begin()
        self.is_open = True
        if self._lasting is not None:
            self._lasting.begin(self._marker, is_recorded=self._token is not None)

    def end(self, end_ns: int | None = None) -> None:
        """End the span, now or at an earlier monotonic time in nanoseconds."""
        token, self._token, self.is_open = self._token, None, False
        if end_ns is None:
            self._marker.end(token)
        else:
            self._marker.end_at(token, end_ns)
        if self._lasting is not None:
            self._lasting.end(self._marker)

    def abandon(self) -> None:
        """Discard the span."""
        token, self._token, self.is_open = self._token, None, False
        self._marker.abandon(token)
        if self._lasting is not None:
            self._lasting.end(self._marker, is_valid=False)


class BatchPhase(Enum):
    """Position of the loop in its batch.

    In a loop that calls `step`, the start of a batch is unknown. The batch is *expected* from the end of the one
    before, and starts again when a DataLoader has delivered.
    """

    NONE = 1
    EXPECTED = 2
    UNANNOUNCED = 3  # started; sources and handlers get the event when the loop calls `step`
    ANNOUNCED = 4


# Looked up once: Python 3.11 takes 0.1 microseconds each time, several times per batch.
NONE, EXPECTED, UNANNOUNCED, ANNOUNCED = BatchPhase


class Batch:
    """The current batch."""

    __slots__ = ("_now", "added_counts", "phase", "span", "start_ns")

    def __init__(self, marker: Marker, now: Callable[[], int]) -> None:
        self.span, self._now = OpenSpan(marker), now
        self.phase = NONE
        self.start_ns = 0
        self.added_counts: tuple[int, int] = (0, 0)
        """Samples and tokens that `step` added in a loop over `batches`."""

    @property
    def has_started(self) -> bool:
        """True if it has started, and is not only expected."""
        return self.phase is ANNOUNCED or self.phase is UNANNOUNCED

    def begin(self, phase: BatchPhase) -> None:
        """Start the batch in this phase."""
        self.phase = phase
        self.start_ns = self._now()
        self.span.begin()

    def discard(self) -> None:
        """Discard the batch, since it was none."""
        self.span.abandon()
        self.phase = NONE

    def end(self, end_ns: int | None = None) -> timedelta:
        """End the batch, now or at an earlier monotonic time, and return its duration."""
        self.span.end(end_ns)
        self.phase = NONE
        return timedelta(microseconds=max(0, (self._now() if end_ns is None else end_ns) - self.start_ns) / 1000)
