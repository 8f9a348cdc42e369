"""Shared by tests of the scanner: a trace that it or its reference has read, as plain Python values to compare."""

import io
from typing import Any, NamedTuple

from kinetoscope.errors import TraceFileError
from kinetoscope.formats.chrome_scan import ChromeScan, Scanner, decode_json_text
from kinetoscope.formats.compression import UnpackedStream
from kinetoscope.frames.events import block_frame, build_events


class Reading(NamedTuple):
    """A trace as `kinetoscope.load` returns it, or only the error."""

    rows: list[dict[str, Any]]
    tracks: list[Any]
    header: dict[str, Any]
    repairs: list[str]
    error: str = ""


def read_with(scanner: Scanner, content: bytes) -> Reading:
    """Return the trace in ``content``, read by ``scanner``."""
    try:
        scan, frames = ChromeScan(scanner), []
        stream = UnpackedStream(io.BytesIO(content), "trace")
        scan.read(stream, "trace", lambda block: frames.append(block_frame(block)))
        trace = build_events(frames, scan.texts(), scan.header, scan.repairs, "trace")
    except TraceFileError as error:
        return Reading([], [], {}, [], str(error))
    rows = [row | {name: _decoded(row[name]) for name in ("args", "fields")} for row in trace.frame.to_dicts()]
    return Reading(rows, trace.about.tracks, trace.about.header, trace.about.repairs)


def _decoded(value: bytes | None) -> Any:
    """Return the object in ``value``; the order of its members does not matter."""
    decoded = None if value is None else decode_json_text(value)
    return dict(sorted(decoded.items())) if isinstance(decoded, dict) else decoded
