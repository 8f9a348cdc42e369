"""One pid for all events of a rank, its number, and a tid for each of its tracks.

Kineto gives each GPU its own pid (0 to 7, which may be ranks as well) and puts annotations under pids such as "Spans".
Perfetto reads tids as 32 bits, treats anything else as 0, and draws tid 0 on the main thread: no track gets such a tid.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from types import NoneType
from typing import Any

from kinetoscope.formats.device_events import DEVICE_CATEGORIES
from kinetoscope.formats.trace_names import BATCH, STEP

Event = dict[str, Any]
TrackKey = tuple[Any, ...]

_FIRST_FREE_TID = 1 << 24  # above every pid and tid of Linux (2**22)
_CONSUMED = frozenset(
    {
        *("process_name", "process_labels", "process_sort_index", "thread_name", "thread_sort_index"),
        *(
            "global_rank",
            "clock_sync_timestamp_us",
            "clock_sync_error_bound",
        ),  # Composer's; they are true only in their own file
    }
)
_INSTANTS = ("i", "I", "R")
_WIDE_SCOPES = ("g", "p")  # viewers put such instants on a nameless track
_NUMBER = re.compile("[0-9]{1,18}")
_LOOP_SPANS = (STEP, BATCH)
_BACKWARD_SPANS = ("autograd::engine::evaluate_function",)


class Role(IntEnum):
    """The content of a track, in the order in which tracks are sorted."""

    LOOP = 0
    BACKWARD = 1
    THREAD = 2
    STREAM = 3
    NOTES = 4


@dataclass(slots=True)
class Track:
    """One track of a rank: its tid in the output, and its metadata for viewers."""

    tid: int
    key: TrackKey
    original_tid: Any
    role: Role
    device: Any = None
    name: str = ""
    given_sort_index: int | None = None
    overlap: int = 0

    def title(self) -> str:
        """The name that viewers show."""
        if self.role is Role.STREAM and self.device is not None:
            suffix = f" (overlap {self.overlap})" if self.overlap else ""
            return f"GPU {self.device} stream {number_of_tid(self.original_tid)}{suffix}"
        name = self.name or f"thread {self.original_tid}"
        return without_number(name, self.tid) if self.tid == self.original_tid else name

    def sort_index(self, place: int) -> int:
        """Return the sort index of the track at index ``place``; an overlap track comes after its origin."""
        if self.given_sort_index is not None:
            return self.given_sort_index
        return self.role * 10_000_000 + place * 100 + min(self.overlap, 99)


def without_number(name: str, tid: int) -> str:
    """Return a thread's name without its tid, as in Kineto's ``thread 7 (python)``."""
    match = re.fullmatch(rf"thread {tid} \((.+)\)", name)
    return match[1] if match else name.removesuffix(f" {tid}")


class RankTracks:
    """The tracks of one rank in all its files; a track of a process has the same tid in each file."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self._host = ""
        self._tracks: dict[TrackKey, Track] = {}
        self._taken: set[int] = set()

    def adopt(self, events: Iterable[Event], *, host: str = "", is_kinetoscope: bool = False) -> list[Event]:
        """Give the events of one file this rank's pid and tids, in place, and store the names of tracks.

        ``is_kinetoscope``: the file was written by Kinetoscope, so its names and sort indexes are kept.
        """
        events = list(events)
        described = Descriptions(events)
        self.set_host(host)
        return [event for event in events if self.adopt_one(event, described, is_kinetoscope=is_kinetoscope)]

    def set_host(self, host: str) -> None:
        """Store the host of the rank; the first file with a host counts."""
        self._host = self._host or host

    def adopt_one(self, event: Event, described: "Descriptions", *, is_kinetoscope: bool = False) -> bool:
        """Give one event this rank's pid and tid, in place; return False if `metadata` replaces it."""
        if is_track_metadata(event):
            return False
        name = str(event.get("name")) if event.get("ph") == "X" else ""
        event["tid"] = self.assign_track(
            event.get("pid"), event.get("tid"), described, role_of(name), is_kinetoscope=is_kinetoscope
        )
        event["pid"] = self.rank
        if event.get("s") in _WIDE_SCOPES and event.get("ph") in _INSTANTS:
            event["s"] = "t"
        return True

    def assign_track(
        self, pid: Any, tid: Any, described: "Descriptions", role: "Role | None", *, is_kinetoscope: bool
    ) -> int:
        """Return the tid of a file's track ``(pid, tid)`` in this rank.

        ``role`` is the thread's role by its spans.
        """
        track = self._track(pid, plain_tid(tid), described, is_kinetoscope)
        if role is not None and track.role is Role.THREAD and not is_kinetoscope:
            track.role = role
        return track.tid

    def metadata(self) -> list[Event]:
        """Return the ``M`` events that name and order the rank and its tracks.

        Viewers add a process's pid and a thread's tid to its name, so neither is in the name.
        """
        title = f"{self._host} · rank" if self._host else "rank"
        events = [
            self._describe("process_name", 0, name=title),
            self._describe("process_sort_index", 0, sort_index=self.rank),
        ]
        for track in self._tracks.values():
            origin = self._tracks.get(track.key[:-1]) if track.overlap else None
            track.role = origin.role if origin else track.role
        for place, track in enumerate(sorted(self._tracks.values(), key=_order)):
            events.append(self._describe("thread_name", track.tid, name=track.title(), origin=list(track.key)))
            events.append(self._describe("thread_sort_index", track.tid, sort_index=track.sort_index(place)))
        return events

    def composer_metadata(self, base_ns: int) -> list[Event]:
        """Return the metadata that Composer's own merger needs, for times that count from ``base_ns``.

        It is the rank, and a moment that is the same on every rank.
        """
        return [
            self._describe("global_rank", 0, value=self.rank),
            self._describe("clock_sync_timestamp_us", 0, value=-base_ns // 1000),
        ]

    def _describe(self, name: str, tid: int, /, **args: Any) -> Event:
        tid = tid or next((track.tid for track in self._tracks.values()), 1)
        return {"ph": "M", "name": name, "pid": self.rank, "tid": tid, "args": args}

    def _track(self, pid: Any, tid: Any, described: "Descriptions", is_kinetoscope: bool) -> Track:
        pid = plain_pid(pid)
        key = described.keys.get((pid, tid), (pid, tid))
        track = self._tracks.get(key)
        if track is None:
            track = self._tracks[key] = self._new_track(key, pid, tid, described, is_kinetoscope)
        return track

    def _new_track(self, key: TrackKey, pid: Any, tid: Any, described: "Descriptions", is_kinetoscope: bool) -> Track:
        origin, overlap = described.overlaps.get((pid, tid), (tid, 0))
        role, name = _role(pid, origin, described, is_kinetoscope), described.names.get((pid, tid), "")
        if role is Role.NOTES:
            name = " · ".join(str(part) for part in (pid, tid) if part not in ("", None)) or "profiler"
        elif role is Role.LOOP and not is_kinetoscope and not overlap and (not name or name.startswith("thread ")):
            name = f"thread {tid} (main)"  # Kineto's own name is that of the program
        keep = role in (Role.LOOP, Role.THREAD) or is_kinetoscope
        track = Track(self._tid(tid, keep), key, origin, role, described.devices.get(pid), name, overlap=overlap)
        if is_kinetoscope:
            track.given_sort_index = described.sort_indexes.get((pid, tid))
        return track

    def _tid(self, wanted: Any, keep: bool) -> int:
        fits = keep and isinstance(wanted, int) and 0 < wanted < _FIRST_FREE_TID and wanted not in self._taken
        tid = wanted if fits else _FIRST_FREE_TID + len(self._taken)
        self._taken.add(tid)
        return tid


class Descriptions:
    """The names and the order of a file's processes and threads, from its metadata events.

    ``events`` are all events of the file, or only the metadata; then ``kernel_pids`` are the pids with kernels.
    """

    def __init__(self, events: Iterable[Event], kernel_pids: Iterable[Any] = ()) -> None:
        self.names: dict[tuple[Any, Any], str] = {}
        self.sort_indexes: dict[tuple[Any, Any], int] = {}
        self.devices: dict[Any, Any] = {}
        self.overlaps: dict[tuple[Any, Any], tuple[Any, int]] = {}
        self.keys: dict[tuple[Any, Any], TrackKey] = {}
        self._kernel_pids: set[Any] = set(map(plain_pid, kernel_pids))
        for event in events:
            if event.get("ph") == "M":
                self._add_description(event, event.get("args"))
            elif isinstance(category := event.get("cat"), str) and category in DEVICE_CATEGORIES:
                self._kernel_pids.add(plain_pid(event.get("pid")))

    def _add_description(self, event: Event, args: Any) -> None:
        if not isinstance(args, dict):
            return
        pid, tid = plain_pid(event.get("pid")), plain_tid(event.get("tid"))
        label = str(args.get("labels", ""))
        match event.get("name"):
            case "thread_name":
                self._add_name(pid, tid, args)
            case "thread_sort_index" if isinstance(index := args.get("sort_index"), int):
                self.sort_indexes[pid, tid] = index
            case "process_labels" if label.startswith("GPU "):
                self.devices[pid] = label.removeprefix("GPU ")

    def _add_name(self, pid: Any, tid: Any, args: Event) -> None:
        self.names[pid, tid] = str(args.get("name", ""))
        origin, overlap = args.get("origin"), args.get("overlap", 1)
        if isinstance(origin, list) and {*map(type, origin)} <= {int, str, NoneType}:
            self.keys[pid, tid] = tuple(origin)  # a track of a merged file: its key before merging
        elif "overlap_of" in args and type(overlap) is int:
            origin = plain_tid(args["overlap_of"])
            self.overlaps[pid, tid] = origin, overlap
            self.keys[pid, tid] = pid, origin, overlap

    def is_device(self, pid: Any) -> bool:
        """Return whether ``pid`` is that of a GPU and not of a process."""
        return pid in self.devices or (pid in self._kernel_pids and isinstance(pid, int) and pid < 16)


def is_track_metadata(event: Event) -> bool:
    """Return whether it is metadata that names or orders tracks, or is true only in its own file."""
    return event.get("ph") == "M" and str(event.get("name")) in _CONSUMED


def _role(pid: Any, tid: Any, described: Descriptions, is_kinetoscope: bool) -> Role:
    if is_kinetoscope:
        return Role.STREAM if "stream" in described.names.get((pid, tid), "") else Role.THREAD
    if described.is_device(pid):
        return Role.STREAM
    if not isinstance(pid, int):
        return Role.NOTES
    return Role.LOOP if pid == tid else Role.THREAD


def role_of(name: str) -> Role | None:
    """Return the role of a thread that has a span of that name; None if the name does not show it."""
    if name.startswith(_LOOP_SPANS):
        return Role.LOOP
    return Role.BACKWARD if name.startswith(_BACKWARD_SPANS) else None


def _order(track: Track) -> tuple[Any, ...]:
    number = track.original_tid if isinstance(track.original_tid, int) else 0
    return track.role, str(track.device), number, str(track.original_tid), track.overlap, str(track.key)


def plain_pid(pid: Any) -> Any:
    """Return a pid as a value that can be a key."""
    return pid if type(pid) in (int, str) or pid is None else str(pid)


def plain_tid(tid: Any) -> Any:
    """Return a tid as a number if it is one.

    Old Kineto wrote "123" for spans and 123 for flows of the same thread.
    """
    if isinstance(tid, str):
        number = tid.removeprefix("stream ")
        return int(number) if _NUMBER.fullmatch(number) else tid
    return tid if type(tid) is int or tid is None else str(tid)


def normalize_ids(event: Event) -> Event:
    """Return the event with pid and tid as integers or text: viewers round fractions and drop other types."""
    other_ids = {key: str(event[key]) for key in ("pid", "tid") if type(event.get(key)) not in (int, str, NoneType)}
    return event | other_ids if other_ids else event


def number_of_tid(tid: Any) -> str:
    """Return a tid of any writer as text: some write 123 and "123", or 7 and "stream 7", for one track."""
    return str(tid).removeprefix("stream ")


_ID_PHASES = frozenset("stf" + "bne" + "STpF" + "NOD")
_WIDEST_IDS = 2**40


class IdNumbers:
    """Allocator of new ids for the flows and async spans of one file, from ``first`` on.

    If all ids of the file are integers, from ``lowest`` to ``highest``, all are shifted by the same number, without a
    table; other ids, and all of a file that has an ``id2``, are numbered in the order in which they come.
    """

    def __init__(self, first: int, lowest: int | None = None, highest: int | None = None) -> None:
        self._first = first
        self._numbers: dict[str, int] = {}
        self.lowest, self.are_plain = lowest or 0, lowest is not None and highest is not None
        self._count = 1 + highest - lowest if lowest is not None and highest is not None else 0
        if self._count > _WIDEST_IDS:
            self.are_plain, self._count = False, 0

    @property
    def next_first(self) -> int:
        """The next free id."""
        return self._first + (self._count if self.are_plain else len(self._numbers))

    def renumber(self, event: Event) -> None:
        """Give one event its new ids, in place."""
        if str(event.get("ph")) in _ID_PHASES:
            for name in ("id", "id2"):
                if name in event:
                    event[name] = self._renumber(event[name])
        if "bind_id" in event:
            event["bind_id"] = self.number(event["bind_id"])

    def number(self, given: Any) -> int:
        """Return the new id for an id of the file."""
        if self.are_plain:
            return self._first + int(given) - self.lowest
        return self._numbers.setdefault(str(given), self._first + len(self._numbers))

    def _renumber(self, given: Any) -> Any:
        if isinstance(given, dict):  # id2 has the scope of the id: a process, or all
            return {scope: hex(self.number(value)) for scope, value in given.items()}
        return self.number(given)
