"""Test doubles for our tests and users': a clock and a trace handler."""

from collections import defaultdict
from typing import Any

from kinetoscope.recording.window.cycle import Cycle
from kinetoscope.recording.window.source_events import SourceEvent
from kinetoscope.recording.window.trace_handler import TraceHandler
from kinetoscope.spool.record import Flag, Kind


class FakeClock:
    """Clock that advances only by `advance`; unix time has a fixed offset.

    >>> clock = FakeClock(monotonic_ns=1000)
    >>> clock.advance(250)
    >>> clock.monotonic_ns()
    1250
    """

    def __init__(self, monotonic_ns: int = 1, unix_ns: int = 1_700_000_000_000_000_000, tick_ns: int = 0) -> None:
        self._monotonic_ns = monotonic_ns
        self._unix_offset_ns = unix_ns - monotonic_ns
        self._tick_ns = tick_ns

    def monotonic_ns(self) -> int:
        """Return the time in nanoseconds; each reading advances the clock by ``tick_ns``."""
        now = self._monotonic_ns
        self._monotonic_ns += self._tick_ns
        return now

    def unix_ns(self) -> int:
        """Return unix time in nanoseconds."""
        return self._monotonic_ns + self._unix_offset_ns

    def advance(self, nanoseconds: int) -> None:
        """Advance the clock."""
        self._monotonic_ns += nanoseconds

    def step_unix(self, nanoseconds: int) -> None:
        """Step unix time, as an administrator or NTP would."""
        self._unix_offset_ns += nanoseconds


class MemoryTraceHandler(TraceHandler):
    """Trace handler that keeps its cycles in memory, and returns their contents."""

    def __init__(self) -> None:
        self.cycles: list[Cycle] = []

    def process_cycle(self, cycle: Cycle) -> None:
        """Keep a cycle."""
        assert cycle.threads is not None  # reads them from the recorder now, as a handler that writes does
        self.cycles.append(cycle)

    def spans(self, name: str | None = None) -> list[tuple[str, int, int]]:
        """Return ``(name, begin_ns, end_ns)`` of all spans, or those of one name, by start; monotonic nanoseconds."""
        found = [
            (span_name.name, record.begin, int(record.end))
            for _, record, span_name in self._records(Kind.SPAN)
            if name in (None, span_name.name)
        ]
        return sorted(found, key=lambda span: span[1])

    def cut_spans(self) -> list[str]:
        """Return the names of the spans that were open when their window closed."""
        return [name.name for _, record, name in self._records(Kind.SPAN) if record.flags & Flag.CUT]

    def instants(self) -> list[tuple[str, int]]:
        """Return ``(name, nanoseconds)`` of all instants."""
        return [(name.name, record.begin) for _, record, name in self._records(Kind.INSTANT)]

    def counters(self) -> dict[str, list[tuple[int, str, float]]]:
        """Return ``(nanoseconds, series, value)`` of all counter values, by counter name."""
        found: dict[str, list[tuple[int, str, float]]] = defaultdict(list)
        for cycle in self.cycles:
            for _, record, name in cycle.records():
                if record.kind == Kind.COUNTER:
                    found[name.name].append((record.begin, cycle.names[record.series].name, record.end))
        return dict(found)

    def events(self, category: str) -> list[SourceEvent]:
        """Return the spans and instants of sources with that category; monotonic nanoseconds."""
        return [event for cycle in self.cycles for event in cycle.events if event.category == category]

    def _records(self, kind: Kind) -> list[tuple[Any, ...]]:
        return [row for cycle in self.cycles for row in cycle.records() if row[1].kind == kind]
