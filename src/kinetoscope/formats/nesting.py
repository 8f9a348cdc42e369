"""Proper nesting of the spans of each track, and nested spans as pairs of begin and end.

Viewers draw a track as a stack and drop spans that do not fit on it (Perfetto counts them as
``slice_drop_overlapping_complete_event``). Kineto leaves such spans wherever two of its clocks meet: a Python frame
``__enter__`` ends after the span that it opened began, a ``cuda_sync`` begins before the copy that it waits for ended.
"""

import heapq
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from kinetoscope.formats.track_ids import plain_pid, plain_tid

Event = dict[str, Any]
Track = tuple[Any, Any]

# How much may be cut off an event of Kineto's to make it fit, by category. Python frames around record_function were
# cut by 0.2 to 24 us in quiet runs of torch 2.13 with stacks; on a loaded machine the interpreter may be stopped for
# longer. Device events share one clock, so their overlaps are real: a microsecond allows for rounding in old files.
# For other events the limit allows for the difference between our clock and Kineto's, some 2 us.
_FRAME_NS = 1_000_000
_DEVICE_NS = 1_000
_OTHER_NS = 5_000
_LAST_OVERLAP_TRACK = 1000  # on the last one, spans that do not fit are cut until they do
_LIMITS_NS = {
    "python_function": _FRAME_NS,
    "kernel": _DEVICE_NS,
    "gpu_memcpy": _DEVICE_NS,
    "gpu_memset": _DEVICE_NS,
}


@dataclass(slots=True)
class NestingCounts:
    """The numbers of spans that were clipped, and that were moved to another track, to make all nest."""

    clipped: int = 0
    moved: int = 0


def plain_track(pid: Any, tid: Any) -> Track:
    """Return the track of an event with that pid and tid."""
    return plain_pid(pid), plain_tid(tid)


def nest(
    events: list[Event],
    is_fixed: Callable[[Event], bool] = lambda event: False,
    find_track: Callable[[Any, Any], Track] = plain_track,
) -> NestingCounts:
    """Make the ``X`` events of each (pid, tid) track nest properly, in place; no event is lost.

    Times are integers of nanoseconds. An event that overlaps another is clipped if little must be clipped; otherwise it
    moves to a track ``<thread name> (overlap k)``, whose metadata events are appended to ``events``. Its args record
    the change under ``kinetoscope``. Takes O(n log n) for each overlap track.

    Args:
        events: the events.
        is_fixed: whether an event must keep its times: where two of them overlap, the later one moves.
        find_track: returns the track of a pid and tid.
    """
    tracks = OverlapTracks(events, find_track)
    counts = NestingCounts()
    for track, spans in _spans_by_track(events, find_track).items():
        changes: dict[int, _Change] = {}
        moved = _TrackNester(is_fixed, changes).nest(spans)
        for k in itertools.count(1):
            if not moved:
                break
            number = tracks.move(moved, track, k)
            for span in moved:
                changes[id(span)].overlap = number
            moved = _TrackNester(is_fixed, changes, k == _LAST_OVERLAP_TRACK).nest(moved)
        for change in changes.values():
            change.add_note(str(track[1]))
            counts.clipped += bool(change.cut_begin_ns or change.cut_end_ns)
            counts.moved += bool(change.overlap)
    return counts


def _spans_by_track(events: Iterable[Event], find_track: Callable[[Any, Any], Track]) -> dict[Track, list[Event]]:
    tracks: dict[Track, list[Event]] = defaultdict(list)
    for event in events:
        if event.get("ph") == "X" and "ts" in event:
            event.setdefault("dur", 0)
            tracks[find_track(event.get("pid"), event.get("tid"))].append(event)
    return tracks


@dataclass(slots=True)
class _Change:
    """The changes that nesting made to one span."""

    span: Event
    cut_begin_ns: int = 0
    cut_end_ns: int = 0
    overlap: int = 0
    """The number of the overlap track to which it moved; 0 if it did not move."""
    overlapped_name: Any = None
    """The name of the span that it overlapped on its track."""

    def add_note(self, thread: str) -> None:
        """Add a note on the change to the span's args."""
        for cut_ns, where in ((self.cut_begin_ns, "begin"), (self.cut_end_ns, "end")):
            if cut_ns:
                _add_note(self.span, f"clipped {_microseconds(cut_ns)} at its {where} to nest")
        if self.overlap:
            other = self.overlapped_name if isinstance(self.overlapped_name, str) else "another span"
            _add_note(self.span, f"moved from thread {thread} to overlap {self.overlap}: it overlaps {other}")


class _TrackNester:
    """A nester of spans on one track, in the order of their start; ``_open`` enclose the current moment."""

    def __init__(self, is_fixed: Callable[[Event], bool], changes: dict[int, _Change], is_last: bool = False) -> None:
        self._is_fixed = is_fixed
        self._changes = changes
        self._is_last = is_last
        self._open: list[Event] = []
        self._moved: list[Event] = []
        self._serial = itertools.count()
        self._cut: list[tuple[int, int, int, Event]] = []

    def nest(self, spans: list[Event]) -> list[Event]:
        """Make ``spans`` nest; return those that must move to another track."""
        outermost_first = sorted(spans, key=itemgetter("dur"), reverse=True)
        for span in sorted(outermost_first, key=itemgetter("ts")):
            self._place_clipped(before=(span["ts"], -span["dur"]))
            self._place(span)
        self._place_clipped(before=(math.inf, 0))
        return self._moved

    def _place_clipped(self, before: tuple[float, int]) -> None:
        """Place the spans whose start was cut and that come before the given (start, -duration)."""
        while self._cut and self._cut[0][:2] < before:
            self._place(heapq.heappop(self._cut)[-1])

    def _place(self, span: Event) -> None:
        while self._open and _end(self._open[-1]) <= span["ts"]:
            self._open.pop()
        while self._open and _end(self._open[-1]) < _end(span):
            if not self._resolve(self._open[-1], span):
                return
        self._open.append(span)

    def _resolve(self, outer: Event, span: Event) -> bool:
        """Resolve one overlap with the smallest cut; return whether ``span`` keeps its start."""
        late, early = _end(span) - _end(outer), _end(outer) - span["ts"]
        choices = [
            (late, 0, span, self._cut_end),
            (early, 1, outer, self._cut_outer),
            (early, 2, span, self._cut_begin),
        ]
        allowed = [choice for choice in choices if choice[0] <= self._limit_ns(choice[2])]
        if self._is_last and choices[0] not in allowed:
            allowed.append(choices[0])
        if allowed:
            cut_ns, _, shortened, cut = min(allowed, key=lambda choice: choice[:2])
            return cut(shortened, cut_ns)
        return self._move(outer, span)

    def _limit_ns(self, event: Event) -> int:
        return -1 if self._is_fixed(event) else _LIMITS_NS.get(str(event.get("cat")), _OTHER_NS)

    def _change_of(self, span: Event) -> _Change:
        return self._changes.setdefault(id(span), _Change(span))

    def _cut_end(self, span: Event, cut_ns: int) -> bool:
        span["dur"] -= cut_ns
        self._change_of(span).cut_end_ns += cut_ns
        return True

    def _cut_outer(self, outer: Event, cut_ns: int) -> bool:
        self._open.pop()
        return self._cut_end(outer, cut_ns)

    def _cut_begin(self, span: Event, cut_ns: int) -> bool:
        span["ts"] += cut_ns
        span["dur"] -= cut_ns
        self._change_of(span).cut_begin_ns += cut_ns
        heapq.heappush(self._cut, (span["ts"], -span["dur"], next(self._serial), span))
        return False

    def _move(self, outer: Event, span: Event) -> bool:
        """Move one of the two to another track: the later one, unless only that one is fixed."""
        outer_moves = self._is_fixed(span) and not self._is_fixed(outer)
        leaving, staying = (self._open.pop(), span) if outer_moves else (span, outer)
        change = self._change_of(leaving)
        if not change.overlap:
            change.overlapped_name = staying.get("name")
        self._moved.append(leaving)
        return outer_moves


def _end(span: Event) -> int:
    return span["ts"] + span["dur"]


def _microseconds(duration_ns: int) -> str:
    return f"{duration_ns // 1000}.{duration_ns % 1000:03} us"


def _add_note(event: Event, note: str) -> None:
    """Add a note to a copy of the event's args: events of one recorder may share their args."""
    args = event.get("args")
    args = {} if args is None else args
    if not isinstance(args, dict) or not isinstance(before := args.get("kinetoscope", ""), str):
        return
    event["args"] = args | {"kinetoscope": f"{before}; {note}" if "kinetoscope" in args else note}


class OverlapTracks:
    """Allocator of overlap tracks, with tids that no other track has."""

    def __init__(self, events: list[Event], find_track: Callable[[Any, Any], Track] = plain_track) -> None:
        """``events`` has at least one event of each track of a file; the metadata of new tracks is added to it."""
        self._events = events
        self._find_track = find_track
        self._names: dict[Track, str] = {}
        self._sort_indexes: dict[Track, int] = {}
        self._tids: set[int] = set()
        self._num_before: dict[Track, int] = {}
        for event in events:
            self._add_event(event)

    def _add_event(self, event: Event) -> None:
        pid, tid = self._find_track(event.get("pid"), event.get("tid"))
        if isinstance(tid, int):
            self._tids.add(tid)
        if event.get("ph") != "M" or not isinstance(args := event.get("args"), dict):
            return
        if event.get("name") == "thread_name":
            if (name := args.get("name")) is not None:
                self._names[pid, tid] = str(name)
            if type(overlap := args.get("overlap", 1)) is int and "overlap_of" in args:
                track = self._find_track(pid, args["overlap_of"])
                self._num_before[track] = max(overlap, self._num_before.get(track, 0))
        elif event.get("name") == "thread_sort_index" and isinstance(index := args.get("sort_index"), int):
            self._sort_indexes[pid, tid] = index

    def move(self, spans: Iterable[Event], track: Track, k: int) -> int:
        """Make the k-th new overlap track of ``track``, move ``spans`` to it, and return its number."""
        overlap_tid, number = self.add(track, k)
        for span in spans:
            span["tid"] = overlap_tid
        return number

    def add(self, track: Track, k: int) -> tuple[int, int]:
        """Make the k-th new overlap track of ``track``.

        Returns:
            Its tid, and its number among all overlap tracks of ``track``.
        """
        pid, tid = track
        k += self._num_before.get(track, 0)
        overlap_tid = self._free_tid()
        name = self._names.get(track, f"thread {tid}")
        # Viewers order by sort index, then by name: the same index puts the overlap track right after its origin.
        sort_index = self._sort_indexes.get(track, tid if isinstance(tid, int) else 0)
        self._describe(pid, overlap_tid, "thread_name", name=f"{name} (overlap {k})", overlap_of=tid, overlap=k)
        self._describe(pid, overlap_tid, "thread_sort_index", sort_index=sort_index)
        return overlap_tid, k

    def _free_tid(self) -> int:
        """Return a free tid above all pids of Linux (2**22); Perfetto reads tids as 32 bits."""
        tid = next(tid for tid in itertools.count(1 << 24 | len(self._tids)) if tid not in self._tids)
        self._tids.add(tid)
        return tid

    def _describe(self, pid: Any, tid: int, name: str, /, **args: Any) -> None:
        self._events.append({"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args})


def in_pairs(events: Iterable[Event], is_kinetoscope: Callable[[Event], bool]) -> Iterator[Event]:
    """Yield nested ``events``, with each span that ``is_kinetoscope`` selects as a ``B`` and an ``E`` event.

    Other events are unchanged. Times are integers of nanoseconds. Events without a time come first; then come the
    tracks, each in the order in which viewers read pairs: the end of a span before the start of the next one at that
    moment, and outer spans before inner ones.
    """
    tracks: dict[tuple[Any, Any], list[Event]] = defaultdict(list)
    for event in events:
        if event.get("ph") == "M" or "ts" not in event:
            yield event
        else:
            tracks[event.get("pid"), event.get("tid")].append(event)
    for track in tracks.values():
        track.sort(key=lambda event: (event["ts"], -event.get("dur", 0)))
        yield from _brackets(track, is_kinetoscope)


def _brackets(track: list[Event], is_kinetoscope: Callable[[Event], bool]) -> Iterator[Event]:
    open_ends: list[Event] = []
    for event in track:
        while open_ends and open_ends[-1]["ts"] <= event["ts"]:
            yield open_ends.pop()
        if event["ph"] == "X" and is_kinetoscope(event):
            end = {key: event[key] for key in ("ph", "name", "cat", "pid", "tid", "ts", "args") if key in event}
            end |= {"ph": "E", "ts": event["ts"] + event.pop("dur")}
            event["ph"] = "B"
            open_ends.append(end)
        yield event
    yield from reversed(open_ends)
