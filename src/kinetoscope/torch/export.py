"""Finished windows as Chrome trace files.

A valid text is copied below Kinetoscope's header. Any other is read, repaired and written anew: a quote in a name may
be unescaped, names may be altered (`original_names`), and spans may overlap, which makes viewers drop some.
"""

import json
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from kinetoscope.core.background.writer_thread import is_in_background
from kinetoscope.core.clock.clock import choose_base_ns, process_base_ns
from kinetoscope.core.paths.atomic_file import atomic_file
from kinetoscope.formats.chrome import ChromeTrace, ChromeWriter, Event, read_chrome
from kinetoscope.formats.compression import compressed_by_name
from kinetoscope.formats.nesting import nest
from kinetoscope.formats.trace_redaction import Replace, TraceRedactor
from kinetoscope.torch.kineto_text import KinetoText
from kinetoscope.torch.original_names import NamesBySpan, possible_spellings
from kinetoscope.torch.python_frames import (
    ORPHAN_TID,
    ProfilerFrames,
    drop_profiler_frames,
    move_orphan_frames,
    orphan_track_name,
)

# Text after a name in Kineto's text: a new line; before about torch 2.7, the next field.
_AFTER_A_NAME = (",\n", ', "pid": ')
_PAUSE_S = 0.001  # about the time of one batch of lines; without it, steps of small operators took six times as long
_FLOW_BITS = 40  # flow ids of one window have fewer bits; with the window's number they still fit a double


def copy_trace(text: KinetoText, path: Path, additions: Mapping[str, Any], redact: Replace | None = None) -> None:
    """Write a valid text to ``path``.

    Args:
        text: The text of the window.
        path: The file to write.
        additions: Fields for the header.
        redact: Returns the replacement of each string; None writes all strings unmodified.
    """
    fields, lines = text.header | dict(additions), text.lines
    if redact is not None:
        redactor = TraceRedactor(redact)
        fields, lines = redactor.header(fields), lines.rewrite_lines(redactor.lines, _yield_gil)
    header = json.dumps(fields, indent=2).removesuffix("\n}")
    lines.save(path, header.encode() + b',\n"traceEvents": [', b"\n]\n}\n")


def _yield_gil() -> None:
    """Let the training thread take the GIL."""
    if is_in_background():
        time.sleep(_PAUSE_S)


@contextmanager
def open_trace_file(path: Path) -> Iterator[BinaryIO]:
    """Open a stream that becomes ``path`` if the block succeeds; compressed if the name ends in ``.gz`` or ``.zst``."""
    with atomic_file(path) as stream, compressed_by_name(stream, path) as compressed:
        yield compressed


def rewrite_trace(
    sources: Sequence[tuple[KinetoText, NamesBySpan]],
    target: Path,
    additions: Mapping[str, Any],
    redact: Replace | None = None,
) -> None:
    """Repair Kineto's texts and write them as one trace.

    Args:
        sources: The windows' texts, newest first, each with the names that Kineto altered. The newest text's header
            becomes the trace's.
        target: The file to write.
        additions: Fields for the header.
        redact: Returns the replacement of each string; None writes all strings unmodified.
    """
    traces = [_read_and_repair(text, altered_names) for text, altered_names in sources]
    for number, trace in enumerate(traces[1:], 1):
        _renumber_flows(trace.events, number)
    events = _concatenate(trace.events for trace in traces)
    if any(event.get("tid") == ORPHAN_TID and event.get("ph") == "X" for event in events):
        events = _concatenate([events, [orphan_track_name()]])
    nest(events)
    earliest_ns = min((event["ts"] for event in events if "ts" in event), default=traces[0].base_ns)
    header = traces[0].header | dict(additions)
    if redact is not None:
        redactor = TraceRedactor(redact)
        header, events = redactor.header(header), [redactor.event(event) for event in events]
    with (
        open_trace_file(target) as stream,
        ChromeWriter(stream, base_ns=choose_base_ns(earliest_ns, process_base_ns()), header=header) as writer,
    ):
        writer.write(events)


def _read_and_repair(text: KinetoText, altered_names: NamesBySpan) -> ChromeTrace:
    """Return the trace of a text with its names, frames and tracks repaired."""
    trace, *more = (_read_document(_escape_quotes(document, altered_names)) for document in text.documents())
    for other in more:
        trace.events += other.events
    move_orphan_frames(trace.events)
    for event in trace.events if altered_names else ():
        _restore_name(event, altered_names.get((event.get("ts", 0), event.get("dur", 0)), ()))
    drop_profiler_frames(trace.events, ProfilerFrames(dict(text.profiler_frames)))
    return trace


def _read_document(document: bytes) -> ChromeTrace:
    with tempfile.TemporaryFile() as file:  # it has no name, but /dev/fd opens it
        file.write(document)
        file.flush()
        file.seek(0)  # on some systems /dev/fd shares the position
        return read_chrome(f"/dev/fd/{file.fileno()}")


def _escape_quotes(text: bytes, altered_names: NamesBySpan) -> bytes:
    """Return the text with the quotes in names escaped."""
    written = {spelling for names in altered_names.values() for name in names for spelling in possible_spellings(name)}
    for name in filter(lambda name: '"' in name, written):
        for after in _AFTER_A_NAME:  # a name has no line breaks, so this matches nothing else
            text = text.replace(f'"name": "{name}"{after}'.encode(), f'"name": {json.dumps(name)}{after}'.encode())
    return text


def _renumber_flows(events: Iterable[Event], number: int) -> None:
    """Make a window's flow ids unique in the trace: Kineto counts them from 1 in each window."""
    for event in events:
        if event.get("ph") in ("s", "t", "f") and isinstance(event.get("id"), int):
            event["id"] += number << _FLOW_BITS


def _concatenate(parts: Iterable[list[Event]]) -> list[Event]:
    """Return the events of all parts, with repeated metadata of a process or thread once."""
    known: set[tuple[Any, ...]] = set()
    events: list[Event] = []
    for event in chain.from_iterable(parts):
        if event.get("ph") == "M":
            fact = (event.get("name"), event.get("pid"), event.get("tid"))
            if fact in known:
                continue
            known.add(fact)
        events.append(event)
    return events


def _restore_name(event: dict[str, Any], original_names: Iterable[str]) -> None:
    for name in original_names:
        if event["name"] in possible_spellings(name):
            event["name"] = name
