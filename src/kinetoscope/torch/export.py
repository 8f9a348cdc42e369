"""torch: a finished window to a Chrome trace file."""

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from kinetoscope.formats.chrome import ChromeTrace, ChromeWriter, Event, read_chrome
from kinetoscope.formats.compression import compressed_by_name
from kinetoscope.formats.nesting import nest
from kinetoscope.formats.trace_base import choose_base_ns, process_base_ns
from kinetoscope.torch.kineto_text import KinetoText
from kinetoscope.torch.python_frames import (
    ORPHAN_TID,
    OwnFrames,
    drop_own_frames,
    move_orphan_frames,
    orphan_track_name,
)
from kinetoscope.torch.true_names import NamesBySpan, ways_to_write
from kinetoscope.writing.atomic_file import atomic_file


def copy_trace(text: KinetoText, path: Path, additions: Mapping[str, Any]) -> None:
    """Writes ``path`` with the events of a text that is right, under its header with ``additions``."""
    header = json.dumps(text.header | dict(additions), indent=2).removesuffix("\n}")
    text.lines.save(path, header.encode() + b',\n"traceEvents": [', b"\n]\n}\n")


@contextmanager
def trace_stream(path: Path) -> Iterator[BinaryIO]:
    """A stream that becomes ``path`` when all went well; compressed when its name ends in ``.gz`` or ``.zst``."""
    with atomic_file(path) as stream, compressed_by_name(stream, path) as packed:
        yield packed


# Kineto gives each field a line; that of torch before 2.7 or so all of these fields one.
_AFTER_A_NAME = (",\n", ', "pid": ')
_FLOW_BITS = 40  # ids of one window stay below, and all together exact in a double


def rewrite_trace(
    sources: Sequence[tuple[KinetoText, NamesBySpan]], target: Path, additions: Mapping[str, Any]
) -> None:
    """Writes Kineto's texts as one ``target``, with their true names, nested, ``additions`` in the header.

    ``sources`` are texts, each with the names that Kineto changed in it, the newest first: its header is the trace's.
    """
    traces = [_read_true(text, changed_names) for text, changed_names in sources]
    for number, trace in enumerate(traces[1:], 1):
        _renumber_flows(trace.events, number)
    events = _joined(trace.events for trace in traces)
    if any(event.get("tid") == ORPHAN_TID and event.get("ph") == "X" for event in events):
        events = _joined([events, [orphan_track_name()]])
    nest(events)
    earliest_ns = min((event["ts"] for event in events if "ts" in event), default=traces[0].base_ns)
    header = traces[0].header | dict(additions)
    with (
        trace_stream(target) as stream,
        ChromeWriter(stream, base_ns=choose_base_ns(earliest_ns, process_base_ns()), header=header) as writer,
    ):
        writer.write(events)


def _read_true(text: KinetoText, changed_names: NamesBySpan) -> ChromeTrace:
    trace, *more = (_read(_escaped(document, changed_names)) for document in text.documents())
    for other in more:
        trace.events += other.events
    move_orphan_frames(trace.events)
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
    written = {it for names in changed_names.values() for name in names for it in ways_to_write(name)}
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
        if event["name"] in ways_to_write(name):
            event["name"] = name
