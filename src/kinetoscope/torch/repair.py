"""torch: what Kineto's file gets wrong. Its events and the true names flow in, a trace with all of it right flows out.

Kineto writes a name with a quote as it is, a backslash as a slash, drops newlines, and calls anything else outside
printable ASCII "unknown". Its spans may overlap on one track, of which viewers then lose some.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kinetoscope.formats.chrome import ChromeWriter, choose_base_ns, read_chrome
from kinetoscope.formats.nesting import nest
from kinetoscope.torch.export import trace_stream

_CHANGED_BY_KINETO = re.compile(r"[^ !#-\[\]-~]")

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
    events = kineto_results.events()
    return Faults(_changed_names(events), _have_overlaps(events))


def rewrite_trace(source: Path, changed_names: NamesBySpan, target: Path, additions: Mapping[str, Any]) -> None:
    """Writes Kineto's file ``source`` as ``target``, with its true names, nested, ``additions`` in the header."""
    trace = read_chrome(source)
    for event in trace.events if changed_names else ():
        _restore_name(event, changed_names.get((event.get("ts", 0), event.get("dur", 0)), ()))
    nest(trace.events)
    earliest_ns = min((event["ts"] for event in trace.events if "ts" in event), default=trace.base_ns)
    header = trace.header | dict(additions)
    with (
        trace_stream(target) as stream,
        ChromeWriter(stream, base_ns=choose_base_ns(earliest_ns), header=header) as writer,
    ):
        writer.write(trace.events)


def _restore_name(event: dict[str, Any], true_names: Iterable[str]) -> None:
    for name in true_names:
        if event["name"] == _as_kineto_writes(name):
            event["name"] = name


def _as_kineto_writes(name: str) -> str:
    written = name.replace("\\", "/").replace("\n", "")
    return written if written.isascii() and written.isprintable() else "unknown"


def _changed_names(events: Iterable[Any]) -> NamesBySpan:
    odd = {name for name in {event.name() for event in events} if _CHANGED_BY_KINETO.search(name)}
    names: NamesBySpan = {}
    for event in events if odd else ():
        if (name := event.name()) in odd:
            names.setdefault((event.start_ns(), event.duration_ns()), []).append(name)
    return names


def _have_overlaps(events: Iterable[Any]) -> bool:
    """Whether two spans of a thread overlap without one holding the other."""
    open_until: list[int] = []
    thread_before = None
    for thread, begin, minus_duration in sorted((e.start_thread_id(), e.start_ns(), -e.duration_ns()) for e in events):
        end = begin - minus_duration
        if thread != thread_before:
            thread_before, open_until = thread, []
        while open_until and open_until[-1] <= begin:
            open_until.pop()
        if open_until and end > open_until[-1]:
            return True
        open_until.append(end)
    return False
