"""handlers: a Cycle as Chrome events. Records flow in; dicts with unix nanoseconds flow out."""

from collections.abc import Iterator
from typing import Any

from kinetoscope.formats.record import Flag, Kind, Record
from kinetoscope.recording.cycle import Cycle
from kinetoscope.recording.recorder import SpanName, ThreadRecords


class MarkerEvent(dict[str, Any]):
    """An event that a marker recorded: its times are ours and exact, so nothing may alter them."""


def marker_events(cycle: Cycle) -> Iterator[dict[str, Any]]:
    """Every span, instant and counter of a cycle, and names for its process and threads."""
    yield from _names_of_tracks(cycle)
    unix_ns = cycle.clock.unix_ns
    counter: MarkerEvent | None = None
    for thread, record, name in cycle.records():
        event = _event(cycle.pid, thread, record, name)
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


def _event(pid: int, thread: ThreadRecords, record: Record, name: SpanName) -> MarkerEvent:
    args: dict[str, Any] = {"batch": record.batch}
    if record.flags & Flag.CUT:
        args["cut"] = "open when its window closed"
    category = ",".join(name.categories) or "marker"
    event = MarkerEvent(ph=_PHASES[Kind(record.kind)], name=name.name, cat=category, pid=pid, tid=thread.tid, args=args)
    if record.kind == Kind.INSTANT:
        event["s"] = "t"
    return event


def _same_moment(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two counter events are two values of one call."""
    return other["ph"] == "C" and all(one[key] == other[key] for key in ("name", "ts", "tid"))


def _names_of_tracks(cycle: Cycle) -> Iterator[dict[str, Any]]:
    rank = cycle.ranks.rank
    yield _metadata(cycle, 0, "process_name", {"name": f"rank {rank}"})
    yield _metadata(cycle, 0, "process_sort_index", {"sort_index": rank})
    for position, thread in enumerate(sorted(cycle.threads, key=lambda it: (not it.is_main, it.tid))):
        yield _metadata(cycle, thread.tid, "thread_name", {"name": thread.name})
        yield _metadata(cycle, thread.tid, "thread_sort_index", {"sort_index": position})


def _metadata(cycle: Cycle, tid: int, name: str, args: dict[str, Any]) -> dict[str, Any]:
    tid = tid or cycle.pid
    return MarkerEvent(ph="M", name=name, pid=cycle.pid, tid=tid, ts=cycle.begin.unix_ns, args=args)
