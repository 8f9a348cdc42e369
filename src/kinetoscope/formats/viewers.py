"""Rules of viewers: the events that Perfetto's trace processor draws, and changes that make others drawable.

The trace processor does not draw an event that breaks one of these rules, and counts it in its error statistics.
"""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from kinetoscope.formats.chrome import has_phase
from kinetoscope.formats.perfetto import fnv
from kinetoscope.formats.track_ids import plain_pid, plain_tid

Event = dict[str, Any]
TrackId = tuple[Any, Any]

MAX_TIME_NS = 2**43 * 1000
"""Viewers read microseconds as doubles, which cannot hold nanoseconds from here on."""

_INSTANTS, _ASYNCHRONOUS, _FLOWS = frozenset("iIR"), frozenset("bne"), frozenset("stf")
_FLOW_ID = re.compile("(0x)?[0-9a-fA-F]{1,16}")
_NUMBER = re.compile("-?[0-9]+([.][0-9]+)?([eE][-+]?[0-9]+)?")
_NAMES = ("thread_name", "process_name")
_MAX_TID = 2**32 - 1
_MAX_ID = 2**63 - 1
_ID_BITS = 2**48 - 1


def adapt_to_viewers(event: Event) -> Event | None:
    """Return the event, changed if needed so that viewers show it; None if that is impossible."""
    if not has_phase(event) or (event["ph"] != "M" and "ts" not in event):
        return None
    changes = _changes(event, event["ph"])
    if changes is None:
        return None
    if "bind_id" in event and event.get("flow_in") is not True and event.get("flow_out") is not True:
        event = {"unbound_id" if key == "bind_id" else key: value for key, value in event.items()}
    return event | changes if changes else event


def _changes(event: Event, phase: str) -> Event | None:
    """Return the fields that must change; None if the event cannot be shown."""
    if phase == "X":
        return {} if "dur" in event else {"dur": 0}
    if phase == "C":
        return _of_counter(event.get("args"))
    if phase == "M":
        return _of_name(event)
    if phase in _INSTANTS:
        return _of_instant(event)
    if phase in _ASYNCHRONOUS:
        return _of_asynchronous(event)
    return _of_flow(event.get("id")) if phase in _FLOWS else {}


def _of_counter(args: Any) -> Event:
    if not isinstance(args, dict):
        return {"args": {}, "not_numbers": args}
    misread = {series: value for series, value in args.items() if not _is_number(value)}
    kept = {series: value for series, value in args.items() if series not in misread}
    return {"args": kept, "not_numbers": misread} if misread else {}


def _is_number(value: Any) -> bool:
    """Return whether it is a number; NaN counts, since the writer records it beside the counter."""
    return type(value) in (int, float) or (isinstance(value, str) and _NUMBER.fullmatch(value) is not None)


def _of_name(event: Event) -> Event:
    args = event.get("args")
    if event.get("name") not in _NAMES or not isinstance(args, dict) or isinstance(args.get("name", ""), str):
        return {}
    return {"args": args | {"name": str(args["name"])}}


def _of_instant(event: Event) -> Event:
    has_pid, has_tid, scope = event.get("pid") is not None, event.get("tid") is not None, event.get("s")
    if scope == "g" or (scope == "p" and has_pid) or (scope != "p" and has_tid):
        return {}
    return {"s": "p" if has_pid else "g"}


def _of_asynchronous(event: Event) -> Event | None:
    given, local = event.get("id"), event.get("id2")
    if given in (None, "") and not (isinstance(local, dict) and local):
        return None
    changes: Event = {} if event.get("pid") is not None else {"pid": 0}
    is_fine = given in (None, "") or isinstance(given, str) or (type(given) is int and abs(given) <= _MAX_ID)
    return changes if is_fine else changes | {"id": str(given)}


def _of_flow(given: Any) -> Event | None:
    if given is None or given == "":
        return None
    if (type(given) is int and abs(given) <= _MAX_ID) or (isinstance(given, str) and _FLOW_ID.fullmatch(given)):
        return {}
    return {"id": flow_id(str(given))}


def flow_id(text: str) -> int:
    """Return a numeric id to replace an id that is text."""
    return fnv(text.encode(errors="replace")) & _ID_BITS


# -- tracks --


def find_viewer_track(pid: Any, tid: Any) -> TrackId:
    """Return the track on which viewers show an event; a tid of 0 or None means the main thread."""
    pid = plain_pid(pid) if pid is not None else 0
    tid = plain_tid(tid)
    return pid, pid if tid is None or tid == 0 else tid


def find_misread_tids(places: Iterable[TrackId], tracks: Iterable[TrackId]) -> dict[TrackId, Any]:
    """Return the ``tracks`` that viewers mistake for others or split, with a tid to write for each.

    ``places`` are pids and tids as written, and ``tracks`` are from `find_viewer_track`. To viewers "7" and 7 are two
    threads, and a tid that is not a 32-bit number is the main thread.
    """
    are_texts: dict[TrackId, set[bool]] = {track: set() for track in tracks}
    for pid, tid in places:
        track = find_viewer_track(pid, tid)
        if track in are_texts and type(plain_tid(tid)) is type(track[1]) is int:
            are_texts[track].add(isinstance(tid, str))
    return {
        (pid, tid): tid if 0 <= tid <= _MAX_TID else str(tid)
        for (pid, tid), kinds in are_texts.items()
        if len(kinds) > 1 or (kinds == {False} and not 0 <= tid <= _MAX_TID)
    }


# -- flows --


def flow_number(given: Any) -> int:
    """Return the number that viewers read in the id of a flow: a text is hexadecimal."""
    number = given if type(given) is int else int(given, 16) if _FLOW_ID.fullmatch(str(given)) else flow_id(str(given))
    return (number + _MAX_ID + 1) % 2**64 - _MAX_ID - 1


class BoundFlows:
    """Flows between spans that have a ``bind_id``, as Chrome writes them, in the order of the file."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self.num_repeated = 0
        """The number of flows that begin with an id that was used before."""

    def part(self, event: Event) -> Event:
        """Return the event, with a new id if its flow begins with an id that was used before."""
        if "bind_id" not in event:
            return event
        number = flow_number(event["bind_id"])
        is_begin = event.get("flow_out") is True and event.get("flow_in") is not True
        self._counts[number] += is_begin
        if self._counts[number] < 2:
            return event
        self.num_repeated += is_begin
        return event | {"bind_id": flow_id(f"{number}#{self._counts[number]}")}
