"""torch: what Kineto's file gets wrong. Its events and the true names flow in, a trace with all of it right flows out.

Kineto writes a name with a quote as it is, a backslash as a slash, drops newlines, and calls anything else outside
printable ASCII "unknown". Its spans may overlap on one track, of which viewers then lose some.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from kinetoscope.formats.chrome import ChromeTrace, ChromeWriter, Event, choose_base_ns, read_chrome
from kinetoscope.formats.nesting import nest
from kinetoscope.torch.export import trace_stream

_CHANGED_BY_KINETO = re.compile(r"[^ !#-\[\]-~]")
_DURATION_BITS = 62  # of a number that orders spans by begin, the longer first
_FLOW_BITS = 40  # ids of one window stay below, and all together exact in a double

NamesBySpan = dict[tuple[int, int], list[str]]
"""The true names of the spans that begin at a unix nanosecond and last so many."""


@dataclass(frozen=True, slots=True)
class Faults:
    """What Kineto's file does not say as it was: names that it changed, and whether spans overlap."""

    changed_names: NamesBySpan = field(default_factory=dict)
    overlaps: bool = False

    def raw_names(self) -> set[str]:
        """The names as they stand in Kineto's file, of those whose quotes make it invalid."""
        written = {_as_kineto_writes(name) for names in self.changed_names.values() for name in names}
        return {name for name in written if '"' in name}

    def __bool__(self) -> bool:
        return bool(self.changed_names) or self.overlaps


def find_faults(kineto_results: Any) -> Faults:
    """The faults that Kineto's file of these results will have."""
    spans = _spans_of(kineto_results)
    return Faults(_changed_names(spans), _have_overlaps(spans))


@dataclass(frozen=True, slots=True)
class Spans:
    """Columns: names, unix nanoseconds of begin, how many each lasts, and the track."""

    names: list[str]
    begins_ns: list[int]
    durations_ns: list[int]
    tracks: list[Any]


def _spans_of(kineto_results: Any) -> Spans:
    if not hasattr(kineto_results, "trace_activities"):  # before torch 2.13; it takes ten times as long, and more
        events = kineto_results.events()
        begins_ns, durations_ns = _column(events, "start_ns"), _column(events, "duration_ns")
        return Spans(_column(events, "name"), begins_ns, durations_ns, _column(events, "start_thread_id"))
    activities = kineto_results.trace_activities()
    tracks = list(zip(_column(activities, "device_id"), _column(activities, "resource_id"), strict=True))
    begins_ns, durations_ns = _column(activities, "timestamp"), _column(activities, "duration")
    return Spans(_column(activities, "name"), begins_ns, durations_ns, tracks)


def _column(objects: list[Any], method: str) -> list[Any]:
    # Through the class, since looking a method up on each object costs more than the call.
    return list(map(getattr(type(objects[0]), method), objects)) if objects else []


def rewrite_trace(sources: Sequence[tuple[Path, NamesBySpan]], target: Path, additions: Mapping[str, Any]) -> None:
    """Writes Kineto's files as one ``target``, with their true names, nested, ``additions`` in the header.

    ``sources`` are files, each with the names that Kineto changed in it, the newest first: its header is the trace's.
    """
    traces = [_read_true(path, changed_names) for path, changed_names in sources]
    for number, trace in enumerate(traces[1:], 1):
        _renumber_flows(trace.events, number)
    events = _joined(trace.events for trace in traces)
    nest(events)
    earliest_ns = min((event["ts"] for event in events if "ts" in event), default=traces[0].base_ns)
    header = traces[0].header | dict(additions)
    with (
        trace_stream(target) as stream,
        ChromeWriter(stream, base_ns=choose_base_ns(earliest_ns), header=header) as writer,
    ):
        writer.write(events)


def _read_true(path: Path, changed_names: NamesBySpan) -> ChromeTrace:
    trace = read_chrome(path)
    for event in trace.events if changed_names else ():
        _restore_name(event, changed_names.get((event.get("ts", 0), event.get("dur", 0)), ()))
    return trace


def _renumber_flows(events: Iterable[Event], number: int) -> None:
    """Kineto counts the flows of each window from 1; in one trace they must not meet."""
    for event in events:
        if event.get("ph") in ("s", "t", "f") and isinstance(event.get("id"), int):
            event["id"] += number << _FLOW_BITS


def _joined(parts: Iterable[list[Event]]) -> list[Event]:
    """All events; what is said of the same process or thread in each part, once."""
    said: set[tuple[Any, ...]] = set()
    events: list[Event] = []
    for event in chain.from_iterable(parts):
        if event.get("ph") == "M":
            fact = (event.get("name"), event.get("pid"), event.get("tid"))
            if fact in said:
                continue
            said.add(fact)
        events.append(event)
    return events


def _restore_name(event: dict[str, Any], true_names: Iterable[str]) -> None:
    for name in true_names:
        if event["name"] == _as_kineto_writes(name):
            event["name"] = name


def _as_kineto_writes(name: str) -> str:
    written = name.replace("\\", "/").replace("\n", "")
    return written if written.isascii() and written.isprintable() else "unknown"


def _changed_names(spans: Spans) -> NamesBySpan:
    odd = {name for name in set(spans.names) if _CHANGED_BY_KINETO.search(name)}
    names: NamesBySpan = {}
    if odd:
        for name, begin, duration in zip(spans.names, spans.begins_ns, spans.durations_ns, strict=True):
            if name in odd:
                names.setdefault((begin, duration), []).append(name)
    return names


def _have_overlaps(spans: Spans) -> bool:
    """Whether two spans of a track overlap without one holding the other."""
    begins, durations, tracks = spans.begins_ns, spans.durations_ns, spans.tracks
    order_keys = [(begin << _DURATION_BITS) - duration for begin, duration in zip(begins, durations, strict=True)]
    open_by_track: dict[Any, list[int]] = {}
    for index in sorted(range(len(begins)), key=order_keys.__getitem__):
        begin = begins[index]
        end = begin + durations[index]
        open_until = open_by_track.setdefault(tracks[index], [])
        while open_until and open_until[-1] <= begin:
            open_until.pop()
        if open_until and end > open_until[-1]:
            return True
        open_until.append(end)
    return False
