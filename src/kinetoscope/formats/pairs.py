"""formats: spans in pairs. Events with durations flow in; each marker's span flows out as its begin and its end.

A viewer reads pairs of one track as it reads brackets, so each track comes out in the order in which things happened:
what ends at a moment before what begins then, and what encloses before what is inside.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

Event = dict[str, Any]


def in_pairs(events: Iterable[Event], is_ours: Callable[[Event], bool]) -> Iterator[Event]:
    """``events``, whose spans nest, with each span for which ``is_ours`` holds as a ``B`` and an ``E`` event.

    Others stay as they are. Times are integers of nanoseconds. Events without a time come first.
    """
    tracks: dict[tuple[Any, Any], list[Event]] = defaultdict(list)
    for event in events:
        if event.get("ph") == "M" or "ts" not in event:
            yield event
        else:
            tracks[event.get("pid"), event.get("tid")].append(event)
    for track in tracks.values():
        track.sort(key=lambda event: (event["ts"], -event.get("dur", 0)))
        yield from _brackets(track, is_ours)


def _brackets(track: list[Event], is_ours: Callable[[Event], bool]) -> Iterator[Event]:
    open_ends: list[Event] = []
    for event in track:
        while open_ends and open_ends[-1]["ts"] <= event["ts"]:
            yield open_ends.pop()
        if event["ph"] == "X" and is_ours(event):
            end = {key: event[key] for key in ("ph", "name", "cat", "pid", "tid", "ts", "args") if key in event}
            end |= {"ph": "E", "ts": event["ts"] + event.pop("dur")}
            event["ph"] = "B"
            open_ends.append(end)
        yield event
    yield from reversed(open_ends)
