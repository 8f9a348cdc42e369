"""torch: what Kineto's file gets wrong. Its events and the true names flow in, a trace with all of it right flows out.

Kineto writes a name with a quote as it is, a backslash as a slash, drops newlines, and calls anything else outside
printable ASCII "unknown". Its spans may overlap on one track, of which viewers then lose some.
"""

import json
import re
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

from kinetoscope.formats.chrome import ChromeTrace, ChromeWriter, Event, choose_base_ns, read_chrome
from kinetoscope.formats.nesting import nest
from kinetoscope.torch.export import trace_stream
from kinetoscope.torch.kineto_library import odd_names
from kinetoscope.torch.own_frames import OwnFrames, drop_own_frames
from kinetoscope.torch.strays import STRAY_TID, move_strays, stray_name
from kinetoscope.torch.trace_text import Renamed, TraceText

_CHANGED_BY_KINETO = re.compile(r"[^ !#-\[\]-~]")
# Kineto gives each field a line; that of torch before 2.7 or so all of these fields one.
_AFTER_A_NAME = (",\n", ', "pid": ')
_FLOW_BITS = 40  # ids of one window stay below, and all together exact in a double
_SLICE = 2_000  # names that are read before other threads get their turn: about a millisecond's worth
_PAUSE_S = 0.0001

NamesBySpan = dict[tuple[int, int], list[str]]
"""The true names of the spans that begin at a unix nanosecond and last so many."""


@dataclass(frozen=True, slots=True)
class TrueNames:
    """The names that Kineto does not write as they were: by when they are, and by the number of the activity.

    Versions of torch before 2.13 do not tell the order in which Kineto writes: then ``in_order`` is None.
    """

    by_span: NamesBySpan = field(default_factory=dict)
    in_order: list[Renamed] | None = field(default_factory=list)


def find_true_names(kineto_results: Any) -> TrueNames:
    """The true names of what Kineto's file will call otherwise."""
    odd = odd_names(kineto_results)
    if odd is not None:
        return _collected(odd)
    if hasattr(kineto_results, "trace_activities"):
        return _true_names(kineto_results.trace_activities(), "timestamp", "duration")
    names = _true_names(kineto_results.events(), "start_ns", "duration_ns")
    return TrueNames(names.by_span, None) if names.by_span else names


def _collected(odd: Iterable[tuple[int, str, int, int]]) -> TrueNames:
    names = TrueNames({}, in_order := [])
    for number, name, begin_ns, duration_ns in odd:
        names.by_span.setdefault((begin_ns, duration_ns), []).append(name)
        in_order.append(Renamed(number, name, _as_kineto_writes(name)))
    return names


def _true_names(events: list[Any], begin: str, duration: str) -> TrueNames:
    """Uses ``events`` up, from the last to the first, so that giving them back takes its time in slices as well."""
    by_span: NamesBySpan = {}
    in_order: list[Renamed] = []
    # Through the class, since looking a method up on each object costs more than the call.
    name_of = type(events[0]).name if events else str
    known: set[str] = set()
    changed: set[str] = set()
    while events:
        part = events[-_SLICE:]
        del events[-_SLICE:]
        names = list(map(name_of, part))
        new = set(names) - known
        known |= new
        changed.update(filter(_CHANGED_BY_KINETO.search, new))
        for place, name in enumerate(names) if not changed.isdisjoint(names) else ():
            if name in changed:
                span = getattr(part[place], begin)(), getattr(part[place], duration)()
                by_span.setdefault(span, []).append(name)
                in_order.append(Renamed(len(events) + place, name, _as_kineto_writes(name)))
        del part
        time.sleep(_PAUSE_S)
    return TrueNames(by_span, sorted(in_order, key=attrgetter("number")))


def rewrite_trace(sources: Sequence[tuple[TraceText, NamesBySpan]], target: Path, additions: Mapping[str, Any]) -> None:
    """Writes Kineto's texts as one ``target``, with their true names, nested, ``additions`` in the header.

    ``sources`` are texts, each with the names that Kineto changed in it, the newest first: its header is the trace's.
    """
    traces = [_read_true(text, changed_names) for text, changed_names in sources]
    for number, trace in enumerate(traces[1:], 1):
        _renumber_flows(trace.events, number)
    events = _joined(trace.events for trace in traces)
    if any(event.get("tid") == STRAY_TID and event.get("ph") == "X" for event in events):
        events = _joined([events, [stray_name()]])
    nest(events)
    earliest_ns = min((event["ts"] for event in events if "ts" in event), default=traces[0].base_ns)
    header = traces[0].header | dict(additions)
    with (
        trace_stream(target) as stream,
        ChromeWriter(stream, base_ns=choose_base_ns(earliest_ns), header=header) as writer,
    ):
        writer.write(events)


def _read_true(text: TraceText, changed_names: NamesBySpan) -> ChromeTrace:
    trace, *more = (_read(_escaped(document, changed_names)) for document in text.documents())
    for other in more:
        trace.events += other.events
    move_strays(trace.events)
    for event in trace.events if changed_names else ():
        _restore_name(event, changed_names.get((event.get("ts", 0), event.get("dur", 0)), ()))
    drop_own_frames(trace.events, OwnFrames(dict(text.own_frames)))
    return trace


def _read(document: bytes) -> ChromeTrace:
    with tempfile.TemporaryFile() as file:  # which has no name, but a path that opens it
        file.write(document)
        file.flush()
        file.seek(0)  # where /dev/fd is a duplicate, it shares the position
        return read_chrome(f"/dev/fd/{file.fileno()}")


def _escaped(text: bytes, changed_names: NamesBySpan) -> bytes:
    """The text with its names escaped that Kineto writes with their quotes as they are."""
    written = {it for names in changed_names.values() for name in names for it in _ways_to_write(name)}
    for name in filter(lambda name: '"' in name, written):
        for after in _AFTER_A_NAME:  # a name has no line breaks: so the line is found for certain
            text = text.replace(f'"name": "{name}"{after}'.encode(), f'"name": {json.dumps(name)}{after}'.encode())
    return text


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
        if event["name"] in _ways_to_write(name):
            event["name"] = name


def _as_kineto_writes(name: str) -> str:
    return _ways_to_write(name)[0]


def _ways_to_write(name: str) -> tuple[str, ...]:
    """The newest first: older versions wrote what is not printable, too."""
    written = name.replace("\\", "/").replace("\n", "")
    return (written,) if written.isascii() and written.isprintable() else ("unknown", written)
