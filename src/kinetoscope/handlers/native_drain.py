"""handlers: a thread's records straight into a Chrome JSON file, in C and without the GIL. Records flow in, lines out.

The lines mean the same as what `thread_events` and `ChromeWriter` make of the records. Only a thread whose spans nest,
and on which nobody else has events, can go this way.
"""

from array import array
from collections import Counter
from collections.abc import Collection, Iterator
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

from kinetoscope.formats.chrome import ChromeWriter, encode_text
from kinetoscope.formats.tracks import role_of
from kinetoscope.handlers.cycle_events import category_of
from kinetoscope.live.record import RECORD_BYTES, Kind, ThreadRecords, unpack_records
from kinetoscope.recording.cycle import Cycle
from kinetoscope.recording.recorder_choice import IS_PURE

if TYPE_CHECKING or not IS_PURE:
    from kinetoscope import _native

_MOST_ROOM_BYTES = 1 << 20
_ROOM_PER_RECORD = 512  # of a line, which grows if that is not enough
Packed = bytes | memoryview


class StandIn(dict[str, Any]):
    """An event without a time, in place of all events of its thread: it gives the thread its track."""


class Drain:
    """Drains threads of one cycle. ``taken_tids``, as text, are those of threads on which others have events too; with
    ``in_pairs``, a span is a ``B`` and an ``E`` event."""

    def __init__(self, cycle: Cycle, taken_tids: Collection[str] = (), *, in_pairs: bool = False) -> None:
        self._cycle = cycle
        self._in_pairs = in_pairs
        self._taken_tids = taken_tids
        self._num_tracks = Counter(thread.tid for thread in cycle.threads)
        self._planned: list[tuple[ThreadRecords, StandIn]] = []

    def plan(self, thread: ThreadRecords) -> StandIn | None:
        """Takes on a thread, and returns an event to stand for it meanwhile; None if its events must be made in Python.

        The thread's events get the pid and tid that this one has by the time of `write`.
        """
        is_shared = str(thread.tid) in self._taken_tids or self._num_tracks[thread.tid] > 1
        if IS_PURE or is_shared or not self._keeps_order():
            return None
        one_of_each = self._one_of_each(thread)
        if not one_of_each:
            return None
        stand_in = StandIn(ph="X", name=self._telling_name(one_of_each), pid=self._cycle.pid, tid=thread.tid)
        self._planned.append((thread, stand_in))
        return stand_in

    def write(self, writer: ChromeWriter) -> None:
        """Writes the events of all threads that were taken on."""
        start, (drift, elapsed) = self._cycle.clock.start, self._cycle.clock.slope_ns
        clock = start.monotonic_ns, start.unix_ns - writer.base_ns, drift, elapsed
        for thread, stand_in in self._planned:
            place, rest = b'"pid":%d,"tid":%d' % (stand_in["pid"], stand_in["tid"]), b""
            for packed in self._parts(thread):
                rest = self._write(writer, b"".join((rest, packed)) if rest else packed, False, place, clock)
            self._write(writer, rest, True, place, clock)

    def _write(
        self, writer: ChromeWriter, packed: Packed, are_last: bool, place: bytes, clock: tuple[int, int, int, int]
    ) -> bytes:
        """Writes the lines of some records, and returns those that wait for what follows them."""
        next_one, num_records = 0, len(packed) // RECORD_BYTES
        room = bytearray(min(_MOST_ROOM_BYTES, num_records * _ROOM_PER_RECORD))
        while next_one < num_records:
            num_bytes, next_one, is_waiting = _native.drain_chrome(
                packed, next_one, are_last, room, self._texts, place, clock, self._epochs
            )
            writer.write_lines(memoryview(room)[:num_bytes])
            if is_waiting:
                break
            if num_bytes == 0:  # one event is longer than all that
                room = bytearray(2 * len(room))
        return bytes(packed[next_one * RECORD_BYTES :])

    def _parts(self, thread: ThreadRecords) -> Iterator[Packed]:
        """A thread's records as they are to be written; as pairs all at once, since they have to be sorted."""
        if not self._in_pairs:
            yield from (part.read() for part in thread.parts)
            return
        packed = b"".join(part.read() for part in thread.parts)
        room = bytearray(2 * len(packed))
        yield memoryview(room)[: _native.pair_records(packed, room)]

    def _keeps_order(self) -> bool:
        """Whether what nests on the monotonic clock nests in unix time. Within a few microseconds it may not."""
        drift, elapsed = self._cycle.clock.slope_ns
        return abs(drift) < elapsed

    def _one_of_each(self, thread: ThreadRecords) -> bytes:
        """One record of each name and kind; none if there are records that need Python's care."""
        sample = _native.Sample(len(self._names))
        all_plain = all(sample.add(part.read()) for part in reversed(thread.parts))
        return sample.firsts() if all_plain else b""

    def _telling_name(self, one_of_each: bytes) -> str:
        """The name of a span that tells what its thread is for, if there is one."""
        spans = (record.name for record in unpack_records(one_of_each) if record.kind == Kind.SPAN)
        names = (self._cycle.names[number].name for number in spans)
        return next((name for name in names if role_of(name) is not None), "")

    @cached_property
    def _epochs(self) -> bytes:
        """When each epoch began, and which, as pairs of 64-bit integers."""
        return array("q", chain.from_iterable(self._cycle.epoch_begins)).tobytes()

    @cached_property
    def _names(self) -> tuple[bytes, ...]:
        return tuple(encode_text(it.name) for it in list(self._cycle.names))

    @cached_property
    def _texts(self) -> tuple[tuple[bytes, ...], tuple[bytes, ...], tuple[bytes, ...]]:
        """Of each name, what lines have of it: itself, its categories, and its args behind a comma."""
        names = self._cycle.names[: len(self._names)]
        categories = (encode_text(category_of(it)) for it in names)
        args = (b"".join(b"," + encode_text(key) + b":%d" % value for key, value in it.args) for it in names)
        return self._names, tuple(categories), tuple(args)
