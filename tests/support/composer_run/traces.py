"""tests: reads traces in Composer's layout."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

Event = dict[str, Any]


def read_events(path: str | Path = "run/traces/merged_trace.json") -> list[Event]:
    """Return the events of a file that is a bare list."""
    events = json.loads(Path(path).read_text())
    assert isinstance(events, list)
    return events


def spans_of(events: list[Event]) -> dict[str, list[Event]]:
    """Return the start events of spans by name, each with its ``end``. Raise AssertionError unless all pairs match."""
    found: dict[str, list[Event]] = defaultdict(list)
    open_spans: dict[tuple[Any, Any], list[Event]] = defaultdict(list)
    for event in events:
        track = open_spans[event.get("pid"), event.get("tid")]
        if event["ph"] == "B":
            track.append(event)
            found[event["name"]].append(event)
        elif event["ph"] == "E":
            begun = track.pop()
            assert begun["name"] == event["name"], f"{begun['name']} is ended by {event['name']}"
            assert event["ts"] >= begun["ts"]
            begun["end"] = event["ts"]
    assert not any(open_spans.values())
    return found
