"""Events that sources record besides markers: spans and instants with any args, and tracks that are no threads."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kinetoscope.pulse.layout import Phase

PHASES_TID, PHASES_TRACK = 1 << 30, "phases of the loop"
"""Track of the loop's phases, which is no thread's: Linux numbers these up to 1 << 22."""

PHASE_NAMES = {int(phase): f"event/{phase.name.lower()}" for phase in Phase}
"""Names of their spans."""

MAX_EVENTS = 200_000
"""Number of events of sources that one window keeps."""


class SourceEvent(NamedTuple):
    """Span of a source in monotonic nanoseconds, or an instant if ``end_ns`` is None.

    Spans of one ``tid`` nest. ``args`` are strings and numbers, and lists of these.
    """

    name: str
    category: str
    begin_ns: int
    end_ns: int | None
    tid: int
    args: dict[str, Any]


@dataclass(slots=True)
class SourceEvents:
    """Events of sources in one window. ``tracks`` has the names of tids that are no threads of this process."""

    kept: list[SourceEvent] = field(default_factory=list)
    tracks: dict[int, str] = field(default_factory=dict)
    num_left_out: int = 0

    def add(self, event: SourceEvent) -> None:
        """Keep one event, up to `MAX_EVENTS`. Any thread may call it."""
        if len(self.kept) < MAX_EVENTS:
            self.kept.append(event)
        else:
            self.num_left_out += 1
