"""handlers: a thread's records straight into a Chrome JSON file, in C and without the GIL. Records flow in, lines out.

The lines mean the same as what `thread_events` and `ChromeWriter` make of the records. Only a thread whose spans nest,
and on which nobody else has events, can go this way.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kinetoscope.formats.chrome import ChromeWriter, encode_text
from kinetoscope.formats.record import RECORD_BYTES
from kinetoscope.handlers.cycle_events import category_of, thread_events
from kinetoscope.recording.cycle import Cycle
from kinetoscope.recording.recorder import PartInMemory, ThreadRecords
from kinetoscope.recording.recorder_choice import IS_PURE

if TYPE_CHECKING or not IS_PURE:
    from kinetoscope import _native

_ROOM_BYTES = 1 << 20
Packed = bytes | memoryview


class StandIn(dict[str, Any]):
    """An event without a time, in place of all those of its name on its thread: it gives the thread its track."""


class Drain:
    """Drains threads of one cycle. ``taken_tids``, as text, are those of threads on which others have events too."""

    def __init__(self, cycle: Cycle, taken_tids: Collection[str] = ()) -> None:
        self._cycle = cycle
        self._taken_tids = taken_tids
        self._num_tracks = Counter(thread.tid for thread in cycle.threads)
        self._planned: list[tuple[ThreadRecords, list[StandIn]]] = []

    def plan(self, thread: ThreadRecords) -> list[StandIn]:
        """Takes on a thread, and returns events to stand for it meanwhile; none if its events must be made in Python.

        The thread's events get the pid and tid that these have by the time of `write`.
        """
        is_shared = str(thread.tid) in self._taken_tids or self._num_tracks[thread.tid] > 1
        if IS_PURE or is_shared or not self._keeps_order():
            return []
        stand_ins = self._stand_ins(thread, self._one_of_each(thread))
        if stand_ins:
            self._planned.append((thread, stand_ins))
        return stand_ins

    def write(self, writer: ChromeWriter) -> None:
        """Writes the events of all threads that were taken on."""
        start, (drift, elapsed) = self._cycle.clock.start, self._cycle.clock.slope_ns
        clock = start.monotonic_ns, start.unix_ns - writer.base_ns, drift, elapsed
        for thread, (stand_in, *_) in self._planned:
            place, rest = b'"pid":%d,"tid":%d' % (stand_in["pid"], stand_in["tid"]), b""
            for part in thread.parts:
                packed = part.read()
                rest = self._write(writer, b"".join((rest, packed)) if rest else packed, False, place, clock)
            self._write(writer, rest, True, place, clock)

    def _write(
        self, writer: ChromeWriter, packed: Packed, are_last: bool, place: bytes, clock: tuple[int, int, int, int]
    ) -> bytes:
        """Writes the lines of some records, and returns those that wait for what follows them."""
        room, next_one = bytearray(_ROOM_BYTES), 0
        while next_one < len(packed) // RECORD_BYTES:
            num_bytes, next_one, is_waiting = _native.drain_chrome(
                packed, next_one, are_last, room, self._names, self._categories, place, clock
            )
            writer.write_lines(memoryview(room)[:num_bytes])
            if is_waiting:
                break
            if num_bytes == 0:  # one event is longer than all that
                room = bytearray(2 * len(room))
        return bytes(packed[next_one * RECORD_BYTES :])

    def _keeps_order(self) -> bool:
        """Whether what nests on the monotonic clock nests in unix time. Within a few microseconds it may not."""
        drift, elapsed = self._cycle.clock.slope_ns
        return abs(drift) < elapsed

    def _one_of_each(self, thread: ThreadRecords) -> bytes:
        """One record of each name and kind; none if there are records that need Python's care."""
        sample = _native.Sample(len(self._names))
        all_plain = all(sample.add(part.read()) for part in reversed(thread.parts))
        return sample.firsts() if all_plain else b""

    def _stand_ins(self, thread: ThreadRecords, one_of_each: bytes) -> list[StandIn]:
        """An event of each name and phase, without its time."""
        events = thread_events(self._cycle, replace(thread, parts=(PartInMemory(one_of_each),)))
        return [StandIn({key: event[key] for key in ("ph", "name", "cat", "pid", "tid")}) for event in events]

    @cached_property
    def _names(self) -> tuple[bytes, ...]:
        return tuple(encode_text(it.name) for it in list(self._cycle.names))

    @cached_property
    def _categories(self) -> tuple[bytes, ...]:
        return tuple(encode_text(category_of(it)) for it in self._cycle.names[: len(self._names)])
