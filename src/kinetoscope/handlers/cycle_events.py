"""Records of a cycle as Chrome events, or in C as lines of a Chrome JSON file.

`Drain` writes in C, without the GIL, the threads whose spans nest and that have no other events. In a cycle with one
contributed file, `cycle_text` writes all records in C. Both write the same text as `ChromeWriter` from `thread_events`.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cached_property, partial
from itertools import chain
from typing import Any

from kinetoscope.formats.chrome import ChromeWriter, encode_text
from kinetoscope.formats.track_ids import role_of
from kinetoscope.merge.cycle_text import CycleText, read_cycle_text
from kinetoscope.native import native
from kinetoscope.recording.markers.recorder_types import SpanName
from kinetoscope.recording.window.cycle import Cycle
from kinetoscope.spool.record import RECORD_BYTES, Flag, Kind, Record, ThreadRecords, unpack_records

_PHASES = {Kind.SPAN: "X", Kind.INSTANT: "i", Kind.COUNTER: "C"}
_MAX_BUFFER_BYTES = 1 << 20
_BUFFER_BYTES_PER_RECORD = 512  # bytes; the buffer grows if a line is longer
Packed = bytes | memoryview
_Clock = tuple[int, int, int, int]


class MarkerEvent(dict[str, Any]):
    """An event that a marker recorded. Its times are exact, so nothing may change them."""


def thread_events(cycle: Cycle, thread: ThreadRecords) -> Iterator[MarkerEvent]:
    """Return every span, instant and counter of one thread of a cycle; pid and tid are the system's."""
    unix_ns = cycle.clock.unix_ns
    counter: MarkerEvent | None = None
    for record in thread.records():
        event = _event(cycle, thread, record)
        event["ts"] = unix_ns(record.begin)
        if record.kind == Kind.SPAN:
            event["dur"] = unix_ns(int(record.end)) - event["ts"]
        elif record.kind == Kind.COUNTER:
            values = {cycle.names[record.series].name: record.end}
            if counter is not None and _same_moment(counter, event):
                counter["args"].update(values)
                continue
            event["args"] = values
        if counter is not None:
            yield counter
        counter = event if record.kind == Kind.COUNTER else None
        if counter is None:
            yield event
    if counter is not None:
        yield counter


def _event(cycle: Cycle, thread: ThreadRecords, record: Record) -> MarkerEvent:
    pid, name = cycle.pid, cycle.names[record.name]
    args: dict[str, Any] = {"epoch": cycle.epoch_at(record.begin), "batch": record.batch, **dict(name.args)}
    if record.flags & Flag.CUT:
        args["cut"] = "open when its window closed"
    category = category_of(name)
    event = MarkerEvent(ph=_PHASES[Kind(record.kind)], name=name.name, cat=category, pid=pid, tid=thread.tid, args=args)
    if record.kind == Kind.INSTANT:
        event["s"] = "t"
    return event


def category_of(name: SpanName) -> str:
    """Return the categories of a name as Chrome's ``cat``."""
    return ",".join(name.categories) or "marker"


def _same_moment(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether two counter events are two values of one call."""
    return other["ph"] == "C" and all(one[key] == other[key] for key in ("name", "ts"))


def lasting_events(cycle: Cycle) -> Iterator[MarkerEvent]:
    """Return the spans that began before a cycle's window, clipped to it.

    Their args have the real start and end.
    """
    unix_ns, window = cycle.clock.unix_ns, (cycle.begin.monotonic_ns, cycle.end.monotonic_ns)
    for span in cycle.lasting:
        begin, end = max(span.begin_ns, window[0]), min(window[1] if span.end_ns is None else span.end_ns, window[1])
        args: dict[str, Any] = {"cut": "open when its window opened or closed", "begin_ns": unix_ns(span.begin_ns)}
        if span.end_ns is not None:
            args["end_ns"] = unix_ns(span.end_ns)
        event = MarkerEvent(ph="X", name=span.name.name, cat=category_of(span.name), pid=cycle.pid, tid=span.tid)
        yield MarkerEvent(event, ts=unix_ns(begin), dur=unix_ns(end) - unix_ns(begin), args=args)


def source_events(cycle: Cycle) -> Iterator[MarkerEvent]:
    """Yield the spans and instants of a cycle's sources, clipped to its window."""
    unix_ns, opened_ns, closed_ns = cycle.clock.unix_ns, cycle.begin.monotonic_ns, cycle.end.monotonic_ns
    for name, category, begin_ns, end_ns, tid, args in cycle.events:
        begin, last = max(begin_ns, opened_ns), min(begin_ns if end_ns is None else end_ns, closed_ns)
        if last < begin:
            continue
        event = MarkerEvent(ph="X", name=name, cat=category, pid=cycle.pid, tid=tid, ts=unix_ns(begin), args=args)
        yield (
            MarkerEvent(event, ph="i", s="t") if end_ns is None else MarkerEvent(event, dur=unix_ns(last) - event["ts"])
        )


def thread_names(cycle: Cycle) -> Iterator[dict[str, Any]]:
    """Yield the events that name a cycle's threads, and the other tracks of its sources."""
    names = [(thread.tid, thread.name) for thread in cycle.threads]
    for tid, name in [*names, *cycle.tracks.items()]:
        yield {"ph": "M", "name": "thread_name", "pid": cycle.pid, "tid": tid, "args": {"name": name}}


class Placeholder(dict[str, Any]):
    """An event without a time that represents all events of a thread, so that the thread gets a track."""


class Drain:
    """A writer of the records of one cycle's threads in C.

    Args:
        cycle: the cycle.
        used_tids: tids, as text, on which there are other events too; their threads are not accepted.
        in_pairs: write a span as a ``B`` and an ``E`` event.
    """

    def __init__(self, cycle: Cycle, used_tids: Collection[str] = (), *, in_pairs: bool = False) -> None:
        self._cycle = cycle
        self._style = _Style(cycle)
        self._in_pairs = in_pairs
        self._used_tids = used_tids
        self._num_tracks = Counter(thread.tid for thread in cycle.threads)
        self._planned: list[tuple[ThreadRecords, Placeholder]] = []

    def plan(self, thread: ThreadRecords) -> Placeholder | None:
        """Accept a thread and return its placeholder; None if its events must be made in Python.

        The thread's events get the pid and tid that the placeholder has when `write` is called.
        """
        is_shared = str(thread.tid) in self._used_tids or self._num_tracks[thread.tid] > 1
        if is_shared or not self._keeps_order():
            return None
        one_of_each = self._one_of_each(thread)
        if not one_of_each:
            return None
        placeholder = Placeholder(ph="X", name=self._role_name(one_of_each), pid=self._cycle.pid, tid=thread.tid)
        self._planned.append((thread, placeholder))
        return placeholder

    def write(self, writer: ChromeWriter) -> None:
        """Write the events of all accepted threads."""
        clock = self._style.clock(writer.base_ns)
        for thread, placeholder in self._planned:
            place = b'"pid":%d,"tid":%d' % (placeholder["pid"], placeholder["tid"])
            write = partial(self._write, writer, place, clock)
            _pass_parts(self._parts(thread), write)

    def _write(self, writer: ChromeWriter, place: bytes, clock: _Clock, packed: Packed, are_last: bool) -> int:
        """Write the lines of some records; return how many were written.

        The other records are passed again, with the next ones.
        """
        next_one, num_records = 0, len(packed) // RECORD_BYTES
        buffer = bytearray(min(_MAX_BUFFER_BYTES, num_records * _BUFFER_BYTES_PER_RECORD))
        while next_one < num_records:
            num_bytes, next_one, is_waiting = native.drain_chrome(
                packed, next_one, are_last, buffer, self._style.texts, place, clock, self._style.epochs
            )
            writer.write_lines(memoryview(buffer)[:num_bytes])
            if is_waiting:
                break
            if num_bytes == 0:  # one line is longer than the buffer
                buffer = bytearray(2 * len(buffer))
        return next_one

    def _parts(self, thread: ThreadRecords) -> Iterator[Packed]:
        """Yield a thread's records, part by part; as pairs all at once, since pairs must be sorted."""
        if not self._in_pairs:
            yield from (part.read() for part in thread.parts)
            return
        packed = b"".join(part.read() for part in thread.parts)
        buffer = bytearray(2 * len(packed))
        yield memoryview(buffer)[: native.pair_records(packed, buffer)]

    def _keeps_order(self) -> bool:
        """Return whether spans that nest on the monotonic clock nest in unix time too.

        In a very short window they may not.
        """
        drift, elapsed = self._cycle.clock.slope_ns
        return abs(drift) < elapsed

    def _one_of_each(self, thread: ThreadRecords) -> bytes:
        """Return one record of each name and kind; empty if there are records that only Python can write."""
        sample = native.Sample(len(self._style.names))
        all_plain = all(sample.add(part.read()) for part in reversed(thread.parts))
        return sample.firsts() if all_plain else b""

    def _role_name(self, one_of_each: bytes) -> str:
        """Return the name of a span that shows the role of the thread; empty if there is none."""
        spans = (record.name for record in unpack_records(one_of_each) if record.kind == Kind.SPAN)
        names = (self._cycle.names[number].name for number in spans)
        return next((name for name in names if role_of(name) is not None), "")


class _Style:
    """The strings and the clock with which C writes the records of a cycle as lines."""

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle

    def clock(self, base_ns: int) -> _Clock:
        """Return a moment on the monotonic clock, the same as time since ``base_ns``, and the slope between both."""
        start, (drift, elapsed) = self._cycle.clock.start, self._cycle.clock.slope_ns
        return start.monotonic_ns, start.unix_ns - base_ns, drift, elapsed

    @cached_property
    def epochs(self) -> bytes:
        """The starts and numbers of the epochs, as pairs of 64-bit integers."""
        return array("q", chain.from_iterable(self._cycle.epoch_begins)).tobytes()

    @cached_property
    def names(self) -> tuple[bytes, ...]:
        """The names as JSON."""
        return tuple(encode_text(name.name) for name in list(self._cycle.names))

    @cached_property
    def texts(self) -> tuple[tuple[bytes, ...], tuple[bytes, ...], tuple[bytes, ...], bytes]:
        """The names, categories and args (each after a comma) in the form of lines.

        For each name there is also the number of the first one with the same text, in 32 bits.
        """
        names = self._cycle.names[: len(self.names)]
        categories = (encode_text(category_of(name)) for name in names)
        args = (
            b"".join(b"," + encode_text(key) + b":" + encode_text(value) for key, value in name.args) for name in names
        )
        numbers: dict[bytes, int] = {}
        firsts = array("I", (numbers.setdefault(name, number) for number, name in enumerate(self.names)))
        return self.names, tuple(categories), tuple(args), firsts.tobytes()


def _pass_parts(parts: Iterable[Packed], take: Callable[[Packed, bool], int]) -> None:
    """Pass a thread's records to ``take``, part by part, with whether they are the last ones.

    ``take`` returns how many it has written; the others are passed again, before the next part.
    """
    rest = b""
    for part in parts:
        packed = b"".join((rest, part)) if rest else part
        rest = bytes(packed[take(packed, False) * RECORD_BYTES :])
    if rest:
        take(rest, True)


def cycle_text(cycle: Cycle) -> CycleText | None:
    """Return the cycle and its contributed file as one text; None if only Python can write it.

    That is also so if it does not have exactly one file.
    """
    if len(cycle.files) != 1:
        return None
    return read_cycle_text(str(cycle.files[0]), _CycleEvents(cycle), list(thread_names(cycle)))


class _CycleEvents:
    """The events of a cycle that `read_cycle_text` writes together with those of a file."""

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._style = _Style(cycle)

    def write(self, writer: ChromeWriter) -> None:
        writer.write(lasting_events(self._cycle))
        writer.write(source_events(self._cycle))

    def survey(self, text: Any, base_ns: int) -> None:
        for thread, style in self._threads(base_ns):

            def take(packed: Packed, are_last: bool, style: Any = style) -> int:
                return text.survey_records(packed, 0, are_last, *style)

            _pass_parts((part.read() for part in thread.parts), take)

    def rewrite(self, text: Any, base_ns: int, put: Callable[[memoryview], None]) -> None:
        for thread, style in self._threads(base_ns):

            def take(packed: Packed, are_last: bool, style: Any = style) -> int:
                taken, is_over = 0, False
                while not is_over:
                    next_one, lines = text.rewrite_records(packed, taken, are_last, *style)
                    put(lines)
                    is_over, taken = next_one == taken, next_one
                return taken

            _pass_parts((part.read() for part in thread.parts), take)

    def _threads(self, base_ns: int) -> Iterator[tuple[ThreadRecords, tuple[Any, ...]]]:
        """Each thread, with the arguments for its records: its pid, its tid, and the style of lines."""
        style = self._style.texts, self._style.clock(base_ns), self._style.epochs
        for thread in self._cycle.threads:
            yield thread, (b"%d" % self._cycle.pid, b"%d" % thread.tid, *style)
