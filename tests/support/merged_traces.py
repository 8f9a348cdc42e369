"""Shared by tests and fuzzers of merging: the meaning of a merged trace, to compare."""

from typing import Any


def meaning(trace: dict[str, Any]) -> dict[str, Any]:
    """Return the trace, with each track named as in its own file, since the numbers of new tracks do not matter."""
    events: list[dict[str, Any]] = trace["traceEvents"]
    origins = [(event, event["args"].get("origin")) for event in events if is_metadata(event, "thread_name")]
    tracks: dict[Any, Any] = {(event["pid"], event["tid"]): origin for event, origin in origins}
    ranks = ("process_name", "process_sort_index")
    shown = [
        event | {"tid": None if is_metadata(event, *ranks) else tracks[event["pid"], event["tid"]]} for event in events
    ]
    return trace | {"traceEvents": shown}


def is_metadata(event: dict[str, Any], *names: str) -> bool:
    return event.get("ph") == "M" and event.get("name") in names
