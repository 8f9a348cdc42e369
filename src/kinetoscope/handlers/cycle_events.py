"""handlers: a Cycle as Chrome events. Records flow in; dicts with unix nanoseconds flow out."""

from collections.abc import Iterator
from typing import Any

from kinetoscope.live.record import Flag, Kind, Record, ThreadRecords
from kinetoscope.recording.cycle import Cycle
from kinetoscope.recording.recorder import SpanName


class MarkerEvent(dict[str, Any]):
    """An event that a marker recorded: its times are ours and exact, so nothing may alter them."""


def thread_events(cycle: Cycle, thread: ThreadRecords) -> Iterator[MarkerEvent]:
    """Every span, instant and counter of one thread of a cycle; pid and tid are the system's."""
    unix_ns = cycle.clock.unix_ns
    counter: MarkerEvent | None = None
    for record in thread.records():
        event = _event(cycle, thread, record)
        event["ts"] = unix_ns(record.begin)
        if record.kind == Kind.SPAN:
            event["dur"] = unix_ns(int(record.end)) - event["ts"]
        elif record.kind == Kind.COUNTER:
            values = {cycle.names[record.series].name: record.end}
            if counter is not None and _same_moment(counter, event):
                counter["args"].update(values)
                continue
            event["args"] = values
        if counter is not None:
            yield counter
        counter = event if record.kind == Kind.COUNTER else None
        if counter is None:
            yield event
    if counter is not None:
        yield counter


_PHASES = {Kind.SPAN: "X", Kind.INSTANT: "i", Kind.COUNTER: "C"}


def _event(cycle: Cycle, thread: ThreadRecords, record: Record) -> MarkerEvent:
    pid, name = cycle.pid, cycle.names[record.name]
    args: dict[str, Any] = {"epoch": cycle.epoch_at(record.begin), "batch": record.batch, **dict(name.args)}
    if record.flags & Flag.CUT:
        args["cut"] = "open when its window closed"
    category = category_of(name)
    event = MarkerEvent(ph=_PHASES[Kind(record.kind)], name=name.name, cat=category, pid=pid, tid=thread.tid, args=args)
    if record.kind == Kind.INSTANT:
        event["s"] = "t"
    return event


def category_of(name: SpanName) -> str:
    """The categories of a name as Chrome's ``cat``."""
    return ",".join(name.categories) or "marker"


def _same_moment(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two counter events are two values of one call."""
    return other["ph"] == "C" and all(one[key] == other[key] for key in ("name", "ts"))


def lasting_events(cycle: Cycle) -> Iterator[MarkerEvent]:
    """The spans that began before a cycle's window, clipped to it; what they really are is in their args."""
    unix_ns, window = cycle.clock.unix_ns, (cycle.begin.monotonic_ns, cycle.end.monotonic_ns)
    for span in cycle.lasting:
        begin, end = max(span.begin_ns, window[0]), min(window[1] if span.end_ns is None else span.end_ns, window[1])
        args: dict[str, Any] = {"cut": "open when its window opened or closed", "begin_ns": unix_ns(span.begin_ns)}
        if span.end_ns is not None:
            args["end_ns"] = unix_ns(span.end_ns)
        event = MarkerEvent(ph="X", name=span.name.name, cat=category_of(span.name), pid=cycle.pid, tid=span.tid)
        yield MarkerEvent(event, ts=unix_ns(begin), dur=unix_ns(end) - unix_ns(begin), args=args)


def thread_names(cycle: Cycle) -> Iterator[dict[str, Any]]:
    """The events that name a cycle's threads."""
    for thread in cycle.threads:
        args = {"name": thread.name}
        yield {"ph": "M", "name": "thread_name", "pid": cycle.pid, "tid": thread.tid, "args": args}
