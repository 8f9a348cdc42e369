"""Markers that Composer's engine requests by name, many times per batch."""

from collections.abc import Callable
from typing import Any

from kinetoscope.composer.marker import EngineMarker
from kinetoscope.recording.markers.marker import MAX_CACHED_MARKERS, Marker, MarkerArguments, MarkerSettings
from kinetoscope.recording.markers.schedule import ProfilerAction
from kinetoscope.recording.window.cycle import LastingSpans

_PARTS = ("forward", "loss", "backward")
_MICROBATCH_EVENTS = frozenset(prefix + part for prefix in ("", "before_", "after_") for part in _PARTS)
_LASTING_EVENTS = frozenset(("fit", "epoch", "eval"))
_ENGINE = "event/"

MakeMarker = Callable[[MarkerSettings, type[Marker]], Marker]


class EngineMarkers:
    """Cache of the markers of the engine and their settings, so that another request costs one lookup.

    Each microbatch has its own markers, so the spans of a microbatch (forward, loss, backward, and callbacks around
    them) have its number in their args. A microbatch starts with a batch, or where the backward pass before it ends;
    the engine's own markers report both.

    Args:
        make: returns the marker with given settings.
        lasting: returns the `LastingSpans` of the run, which contain fits, epochs and evaluations.
    """

    def __init__(self, make: MakeMarker, lasting: Callable[[], LastingSpans]) -> None:
        self._make = make
        self._lasting = lasting
        self._cached_by_microbatch: list[dict[str, tuple[Marker, tuple[Any, ...]]]] = [{}]
        self._microbatch = 0
        self._cached = self._cached_by_microbatch[0]

    def find(self, arguments: MarkerArguments) -> Marker:
        """Return the marker for the arguments of ``Profiler.marker``."""
        cached = self._cached.get(arguments[0])
        return cached[0] if cached is not None and cached[1] == arguments else self._make_marker(arguments)

    def finish_open(self) -> None:
        """End the spans that the engine left open because the Trainer was interrupted."""
        for cached in list(self._cached_by_microbatch):
            for marker, _ in cached.values():
                if isinstance(marker, EngineMarker):
                    marker.finish()
        self._switch_to(0)

    def _start_batch(self) -> None:
        self._switch_to(0)

    def _end_microbatch(self) -> None:
        self._switch_to(self._microbatch + 1)

    def _switch_to(self, microbatch: int) -> None:
        if microbatch == len(self._cached_by_microbatch):
            self._cached_by_microbatch.append({})
        self._microbatch, self._cached = microbatch, self._cached_by_microbatch[microbatch]

    def _make_marker(self, arguments: MarkerArguments) -> Marker:
        name, actions, on_start, on_finish, categories = arguments
        event = name.rpartition(_ENGINE)[2] if _ENGINE in name else ""
        # Callbacks after a backward pass belong to the microbatch that has just ended.
        microbatch = max(0, self._microbatch - (event == "after_backward"))
        args = (("microbatch", microbatch),) if event in _MICROBATCH_EVENTS else ()
        is_engine = name == _ENGINE + event
        recorded = {ProfilerAction(action) for action in actions}
        if is_engine:
            # The engine leaves out ACTIVE_AND_SAVE, and passes different actions at the start and the end of a span.
            saves = {ProfilerAction.ACTIVE_AND_SAVE} if ProfilerAction.ACTIVE in recorded else set()
            recorded = (recorded | saves) - {ProfilerAction.SKIP}
        settings = MarkerSettings(name, recorded, on_start, on_finish, categories, args)
        marker = self._make(settings, EngineMarker if is_engine else Marker)
        if isinstance(marker, EngineMarker):
            self._connect(marker, event)
        if len(self._cached) >= MAX_CACHED_MARKERS:
            self._drop_other_markers()
        self._cached[name] = marker, tuple(list(value) if isinstance(value, list) else value for value in arguments)
        return marker

    def _drop_other_markers(self) -> None:
        """Drop markers that are not the engine's: the engine uses few names, but a callback may use unlimited ones."""
        for name, cached in list(self._cached.items()):
            if not isinstance(cached[0], EngineMarker):
                del self._cached[name]

    def _connect(self, marker: EngineMarker, event: str) -> None:
        """Let the start and end of a marker of the engine update the microbatch or the lasting spans."""
        if event in _LASTING_EVENTS:
            marker.on_start = lambda: self._start_lasting(marker)
            marker.on_finish = lambda: self._lasting().end(marker)
        else:
            marker.on_start = self._start_batch if event == "batch" else None
            marker.on_finish = self._end_microbatch if event == "backward" else None

    def _start_lasting(self, marker: EngineMarker) -> None:
        """Add the span of a fit, an epoch or an evaluation to the lasting spans."""
        self._lasting().end(marker)  # the engine never ended it
        self._lasting().begin(marker, is_recorded=marker.is_recorded)
