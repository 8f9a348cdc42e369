"""Traces as HolisticTraceAnalysis reads them."""

import gzip
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Event = dict[str, Any]

_HOST_OPERATORS = ("cpu_op", "Operator")
_SYNCHRONISATIONS = ("Event Sync", "Context Sync")
_STEP = "ProfilerStep"


def read_trace(path: Path) -> dict[str, Any]:
    """Return the JSON of a trace. A list of events is made an object, since HTA takes nothing else."""
    data = path.read_bytes()
    found = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    return found if isinstance(found, dict) else {"traceEvents": found}


def write_trace(trace: dict[str, Any], events: Iterable[Event], path: Path) -> Path:
    """Write a trace with other events, and return its path."""
    path.write_text(json.dumps(trace | {"traceEvents": list(events)}), encoding="utf-8")
    return path


def without_miscounts(path: Path, folder: Path) -> Path:
    """Return the trace without events that HTA wrongly counts as device work, or as negative.

    These are events of category ``cuda_sync``, the streams in the args of CPU operators, and spans of devices that
    begin and end within one microsecond, whose rounded duration is -1.
    """
    trace = read_trace(path)
    is_rounded = _is_rounded(trace["traceEvents"])
    events = []
    for event in trace["traceEvents"]:
        if event.get("cat") == "cuda_sync":
            continue
        if event.get("cat") in _HOST_OPERATORS:
            event = event | {"args": {key: value for key, value in _args(event).items() if key != "stream"}}
        elif is_rounded and _is_span(event) and _is_on_device(event) and _rounded(event)["dur"] < 0:
            continue
        events.append(event)
    return write_trace(trace, events, folder / f"{_stem(path)}-clean.json")


def as_hta_reads(path: Path, folder: Path) -> Path:
    """Return the spans of a trace in whole microseconds, and without the last step, if there are several.

    Spans of devices within one microsecond are left out, as in `without_miscounts`.
    """
    trace = read_trace(path)
    events = [event for event in trace["traceEvents"] if _is_span(event)]
    if _is_rounded(trace["traceEvents"]):
        events = [event for event in map(_rounded, events) if event["dur"] >= 0 or not _is_on_device(event)]
    others = [event for event in trace["traceEvents"] if event.get("ph") == "M"]
    kept = [*others, *_without_last_step(events)]
    return write_trace(trace, kept, folder / f"{_stem(path)}-as-hta-reads-it.json")


def _without_last_step(events: list[Event]) -> list[Event]:
    """Return CPU events before the last step, and the device events that they launched."""
    if len({event["name"] for event in events if _STEP in event["name"]}) < 2:
        return events
    host = [event for event in events if not _is_on_device(event)]
    until = max(event["ts"] for event in host if _STEP in event["name"])
    host = [event for event in host if event["ts"] < until]
    launched = {_args(event).get("correlation", -1) for event in host}
    device = [event for event in events if _is_on_device(event) and _args(event)["correlation"] in launched]
    return [*host, *device]


def _is_span(event: Event) -> bool:
    return event.get("dur") is not None and event.get("cat") not in (None, "Trace")


def _is_on_device(event: Event) -> bool:
    args = _args(event)
    has_place = _number(args.get("stream")) >= 0 and _number(args.get("correlation")) >= 0
    return has_place or event["name"] in _SYNCHRONISATIONS


def _number(value: Any) -> int:
    return int(value) if isinstance(value, (int, str)) and str(value).isdecimal() else -1


def _is_rounded(events: list[Event]) -> bool:
    """HTA rounds where any time has a fraction, or is missing."""
    return any(not isinstance(event.get("ts"), int) for event in events)


def _rounded(event: Event) -> Event:
    begin, end = math.ceil(event["ts"]), math.floor(event["ts"] + event["dur"])
    return event | {"ts": begin, "dur": end - begin}


def _args(event: Event) -> dict[str, Any]:
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def _stem(path: Path) -> str:
    return path.name.partition(".")[0]
