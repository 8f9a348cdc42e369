"""A reference for the packets that C writes: events as dicts, encoded in Python.

Every span is two packets, its start and its end, on a track of its thread or stream. Names, categories and keys of args
are written once, and then referred to by number. Flows and asynchronous spans are written in Chrome's legacy form. A
counter has a track for each of its series, in the group of its subject: the part of its name before the first slash.
"""

import heapq
import itertools
import math
import struct
import sys
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from kinetoscope.formats.perfetto import PerfettoWriter, counter_uuid, fnv, process_uuid, track_uuid

Event = dict[str, Any]
_Moment = tuple[int, int, float, int, int, bytes]  # time, track, order (kind, order, serial), packet

_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4  # TrackEvent.Type
_NEEDS_STATE = 2  # of TracePacket.SequenceFlags
_CATEGORIES, _NAMES, _KEYS = 1, 2, 3  # fields of InternedData
_OWN_SEQUENCE = 1
# The order of packets at one moment of one track.
_ENDS, _BEGINS, _EMPTY_ENDS, _WITHIN, _FLOWS = 0, 1, 1.5, 2, 3
_SERIES_MARK, _GROUP_MARK = b"\xff", b"\xfe"  # bytes that UTF-8 does not use, between the parts of a key
_UNCHANGED = "unchanged"
_SHORTEST = [bytes([number]) for number in range(128)]


def varint(number: int) -> bytes:
    """Return a whole number of up to 64 bits; negative ones as two's complement."""
    if 0 <= number < 128:
        return _SHORTEST[number]
    number &= 2**64 - 1
    encoded = bytearray()
    while number >= 128:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def number_field(number: int, value: int) -> bytes:
    """Return a field with a whole number."""
    return varint(number << 3) + varint(value)


def bytes_field(number: int, value: bytes) -> bytes:
    """Return a field with a message or a string."""
    return varint(number << 3 | 2) + varint(len(value)) + value


def double_field(number: int, value: float) -> bytes:
    """Return a field with a floating-point number."""
    return varint(number << 3 | 1) + struct.pack("<d", value)


def counter_numbers(event: Event) -> Iterator[tuple[str, float]]:
    """The series of a counter event whose value is a finite number."""
    args = event.get("args")
    for series, value in args.items() if isinstance(args, dict) else ():
        if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max:
            yield series, float(value)


def series_hash(name: str, series: str) -> int:
    """Return a hash of a counter's series, without its process."""
    return fnv(_utf8(name) + _SERIES_MARK + _utf8(series))


def subject_hash(name: str) -> int:
    """Return a hash of the group of a counter's subject, without its process."""
    return fnv(_utf8(_subject(name)) + _GROUP_MARK)


class ReferencePerfettoWriter(PerfettoWriter):
    """Writes events of all kinds. Spans of a track come in the order of their starts over several calls of `write`."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__(stream)
        self._interned: dict[tuple[int, str], int] = {}
        self._sizes = {_CATEGORIES: 0, _NAMES: 0, _KEYS: 0}
        self._pending = bytearray()
        self._counter_tracks: dict[tuple[int, str, str], int] = {}
        self._groups: set[int] = set()
        self._descriptions: dict[int, dict[str, Any]] = {}
        self._serial = itertools.count()

    def write(self, events: Iterable[Event]) -> None:
        """Add events, whose ``ts`` (unix) and ``dur`` are integers of nanoseconds."""
        self.write_in_order(sorted(events, key=_when))

    def write_in_order(self, events: Iterable[Event]) -> None:
        """Add events in the order of their starts. Only open spans are kept in memory."""
        waiting: list[_Moment] = []
        for event in events:
            if event.get("ph") == "M":
                self._describe(event)
            while waiting and waiting[0][0] < _when(event):
                self._put_next(waiting)
            for moment in self._moments(event):
                heapq.heappush(waiting, moment)
        while waiting:
            self._put_next(waiting)
        self._write_descriptions()

    def _put_next(self, waiting: list[_Moment]) -> None:
        """Write all packets of the next moment of a track."""
        together = [heapq.heappop(waiting)]
        while waiting and waiting[0][:2] == together[0][:2]:
            together.append(heapq.heappop(waiting))
        for time_ns, *_, body in _with_flows(together):
            self._put(number_field(8, time_ns) + number_field(13, _NEEDS_STATE) + bytes_field(11, body))

    def _put(self, packet: bytes) -> None:
        self.write_packets(bytes_field(1, number_field(10, _OWN_SEQUENCE) + packet))

    # -- events --

    def _moments(self, event: Event) -> list[_Moment]:
        if "ts" not in event:
            return []
        uuid = track_uuid(event["pid"], event["tid"])
        moments = [
            (when, uuid, kind, order, next(self._serial), body) for when, kind, order, body in self._packets(event)
        ]
        self._put_interned()
        return moments

    def _packets(self, event: Event) -> Iterator[tuple[int, float, int, bytes]]:
        begin, phase = event["ts"], event.get("ph")
        uuid = track_uuid(event["pid"], event["tid"])
        match phase:
            case "X":
                dur = max(0, event.get("dur", 0))
                end = number_field(9, _END) + number_field(11, uuid)
                yield begin, _BEGINS, -dur, self._header(event, _BEGIN, uuid) + self._args(event)
                yield begin + dur, _ENDS if dur else _EMPTY_ENDS, 0, end
            case "B":
                yield begin, _BEGINS, -(2**62), self._header(event, _BEGIN, uuid) + self._args(event)
            case "E":
                yield begin, _ENDS, 0, number_field(9, _END) + number_field(11, uuid) + self._args(event)
            case "i" | "I":
                yield begin, _WITHIN, 0, self._header(event, _INSTANT, uuid) + self._args(event)
            case "C":
                yield from ((begin, _WITHIN, 0, body) for body in self._counters(event))
            case "s" | "t" | "f" | "b" | "n" | "e":
                body = self._header(event, 0, uuid) + self._legacy(event, phase) + self._args(event)
                yield begin, _FLOWS if phase in "stf" else _WITHIN, 0, body

    def _header(self, event: Event, kind: int, uuid: int) -> bytes:
        header = number_field(9, kind) if kind else b""
        header += number_field(11, uuid) + number_field(10, self._intern(_NAMES, str(event.get("name", ""))))
        if "cat" in event:
            header += number_field(3, self._intern(_CATEGORIES, str(event["cat"])))
        return header

    def _legacy(self, event: Event, phase: str) -> bytes:
        legacy = number_field(2, ord(phase))
        if isinstance(event.get("id"), int):
            legacy += number_field(6, event["id"])
        return bytes_field(6, legacy + (number_field(12, 1) if event.get("bp") == "e" else b""))

    def _counters(self, event: Event) -> Iterator[bytes]:
        for series, value in counter_numbers(event):
            uuid = self._counter_track(event["pid"], str(event.get("name", "")), series)
            yield number_field(9, _COUNTER) + number_field(11, uuid) + double_field(44, value)

    def _args(self, event: Event) -> bytes:
        args = event.get("args")
        members = args.items() if isinstance(args, dict) else ()
        return b"".join(bytes_field(4, self._key(key) + self._value(value)) for key, value in members)

    def _key(self, key: str) -> bytes:
        return number_field(1, self._intern(_KEYS, key))

    def _value(self, value: Any) -> bytes:
        match value:
            case bool():
                return number_field(2, value)
            case int() if -(2**63) <= value < 2**63:
                return number_field(4, value)
            case int() | float():
                return double_field(5, _double(value))
            case dict():
                return b"".join(bytes_field(11, self._key(str(key)) + self._value(item)) for key, item in value.items())
            case list() | tuple():
                return b"".join(bytes_field(12, self._value(item)) for item in value)
            case None:
                return bytes_field(6, b"null")
        return bytes_field(6, _utf8(str(value)))

    # -- names --

    def _intern(self, field: int, text: str) -> int:
        number = self._interned.get((field, text))
        if number is None:
            self._sizes[field] += 1
            number = self._interned[field, text] = self._sizes[field]
            entry = number_field(1, number) + bytes_field(2, _utf8(text))
            self._pending += bytes_field(field, entry)
        return number

    def _put_interned(self) -> None:
        """Write the new names, before the packets that use them."""
        if self._pending:
            self._put(number_field(13, _NEEDS_STATE) + bytes_field(12, bytes(self._pending)))
            self._pending.clear()

    # -- tracks --

    def _describe(self, event: Event) -> None:
        """Store the description of a process or thread in a metadata event."""
        args, name = event.get("args"), event.get("name")
        if not isinstance(args, dict) or not isinstance(name, str):
            return
        pid, tid = event["pid"], event["tid"]
        is_process = name.startswith("process_")
        uuid = process_uuid(pid) if is_process else track_uuid(pid, tid)
        description = self._descriptions.setdefault(uuid, {"pid": pid, "tid": None if is_process else tid})
        if name in ("process_name", "thread_name"):
            description["name"] = str(args.get("name"))
        elif name in ("process_sort_index", "thread_sort_index") and isinstance(args.get("sort_index"), int):
            description["sort_index"] = args["sort_index"]

    def _write_descriptions(self) -> None:
        for uuid, description in self._descriptions.items():
            self._put(bytes_field(60, number_field(1, uuid) + _description(**description)))
        self._descriptions.clear()

    def _counter_track(self, pid: int, name: str, series: str) -> int:
        """Return the track of a series; a new one is described, with its groups."""
        uuid = self._counter_tracks.get((pid, name, series))
        if uuid is None:
            uuid = self._counter_tracks[pid, name, series] = counter_uuid(series_hash(name, series), pid)
            parent, subject = process_uuid(pid), _subject(name)
            if subject and uuid not in self.counter_tracks.alone:
                parent = self._group(subject_hash(name), pid, parent, subject)
                name = name.removeprefix(subject).removeprefix("/")
                if uuid in self.counter_tracks.unchanged:
                    hashed = fnv(_utf8(subject) + 2 * _GROUP_MARK)
                    parent = self._group(hashed, pid, parent, _UNCHANGED)
            self._put_track(
                uuid, parent, f"{name} {series}" if name and series else name or series, bytes_field(8, b"")
            )
        return uuid

    def _group(self, hashed: int, pid: int, parent: int, name: str) -> int:
        uuid = counter_uuid(hashed, pid)
        if uuid not in self._groups:
            self._groups.add(uuid)
            self._put_track(uuid, parent, name)
        return uuid

    def _put_track(self, uuid: int, parent: int, name: str, kind: bytes = b"") -> None:
        track = number_field(1, uuid) + number_field(5, parent) + bytes_field(2, _utf8(name)) + kind
        self._put(bytes_field(60, track))


def _double(value: float) -> float:
    """Return the nearest double; of an integer beyond all of them, infinity."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _when(event: Event) -> int:
    return event.get("ts", 0)


def _with_flows(moments: list[_Moment]) -> list[_Moment]:
    """Order the packets of one moment of one track. A flow belongs to the span that begins at that moment, or else to
    one that ends then: so it must come before that end."""
    flows = [moment for moment in moments if moment[2] == _FLOWS]
    begins = [moment for moment in moments if moment[2] == _BEGINS]
    if flows and not begins:
        return flows + [moment for moment in moments if moment[2] != _FLOWS]
    ends = [moment for moment in moments if moment[2] == _EMPTY_ENDS]
    if flows or not ends:
        return [moment for moment in moments if moment[2] != _EMPTY_ENDS] + ends
    # Without flows, each span of no duration ends before the next one begins.
    empty = [moment for moment in begins if moment[3] == 0]
    rest = [moment for moment in moments if moment not in empty and moment not in ends]
    before = [moment for moment in rest if moment[2] <= _BEGINS]
    return before + [half for pair in zip(empty, ends, strict=False) for half in pair] + rest[len(before) :]


def _description(*, pid: int, tid: int | None, name: str = "", sort_index: int | None = None) -> bytes:
    """Return the rest of the descriptor of a process's or thread's track."""
    title = _utf8(name)
    order = number_field(3, sort_index) if sort_index is not None else b""
    if tid is None:
        return bytes_field(3, number_field(1, pid) + order + bytes_field(6, title))
    thread = number_field(1, pid) + number_field(2, tid) + order + bytes_field(5, title)
    rank = number_field(12, sort_index) if sort_index is not None and 0 <= sort_index < 2**31 else b""
    return number_field(5, process_uuid(pid)) + bytes_field(4, thread) + rank


def _subject(name: str) -> str:
    """Return the subject by which counters are grouped: the name up to its first slash, or all of it."""
    return name.partition("/")[0] or name


def _utf8(text: str) -> bytes:
    return text.encode(errors="replace")
