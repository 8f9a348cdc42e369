"""The recorder in pure Python, for machines without the one in C. All tests of recorders run with both.

An open span is an *entry* in its thread's list of open spans. At the end, the entry is found by the frame of its
``with``, so that generators and tasks that interleave on one thread do not end each other's spans. Records stay in
memory until they are saved, so a kill loses them.
"""

import contextlib
import math
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from itertools import takewhile
from typing import Any

from kinetoscope.clock.clock import Clock, SystemClock
from kinetoscope.live.record import (
    RECORD_BYTES,
    Flag,
    Kind,
    ThreadRecords,
    TrackMark,
    pack_mark,
    pack_records,
    stretches,
)
from kinetoscope.pulse.pure_slow_steps import SlowSteps
from kinetoscope.recording import compiler
from kinetoscope.recording.recorder import (
    INSTANT_ON_BEGIN,
    INSTANT_ON_END,
    NO_NAME,
    NameTable,
    SpanListener,
    WindowRecords,
)
from kinetoscope.writing.own_thread import after_fork_in_child

_caller = sys._getframe
_NO_FRAME = 0
_MARKED = -1
"""In place of the window of a span of which only slow steps are told."""
_FEW_RECORDS = 128
_SPAN, _INSTANT, _COUNTER = int(Kind.SPAN), int(Kind.INSTANT), int(Kind.COUNTER)


class _Life:
    """Is held by its thread's local storage alone, so that it ends with the thread."""

    __slots__ = ("__weakref__",)


class _Thread:
    """The records and the open spans of one thread, until ``life`` ends."""

    __slots__ = ("is_main", "life", "name", "open", "records", "tid")

    def __init__(self, life: _Life) -> None:
        thread = threading.current_thread()
        # Python up to 3.12 lets `join` fail, if another thread asks at the same moment whether that thread is alive.
        self.life = weakref.ref(life)
        self.tid = threading.get_native_id()
        self.name = thread.name
        self.is_main = thread is threading.main_thread()
        # (span, id of its frame, begin ns or 0 if not recorded, window, batch, this thread). With _MARKED as its
        # window it is not recorded, and has its begin in place of the batch.
        self.open: list[tuple[Any, ...]] = []
        self.records: list[tuple[Any, ...]] = []

    def is_done(self, window: int) -> bool:
        """Whether the thread has ended without a span open in this window, so that nothing more is recorded here."""
        return self.life() is None and not any(entry[3] == window for entry in list(self.open) if window)


class _ThisThread(threading.local):
    """The `_Thread` of each thread, registered with the recorder on first use."""

    __slots__ = ("_register",)  # all threads share what is in slots
    thread: _Thread

    def __init__(self, register: Callable[[_Thread], None]) -> None:
        self._register = register

    def __getattr__(self, name: str) -> _Thread:
        """Called where there is no ``thread`` yet. A finalizer or a signal's handler that records meanwhile makes one,
        too: the first to be made is used, and another one stays empty."""
        if name != "thread":
            raise AttributeError(name)
        life = self.__dict__.setdefault("life", _Life())
        made = _Thread(life)
        self._register(made)
        return self.__dict__.setdefault("thread", made)


class PureRecorder:
    """Records into Python lists, one per thread; see `kinetoscope.recording.recorder.Recorder`."""

    keeps_files = False

    def __init__(self, clock: Clock | None = None) -> None:
        clock = clock or SystemClock()
        self.now = clock.monotonic_ns
        self.action = 0
        self.batch = 0
        self.listener: SpanListener | None = None
        self.names = NameTable()
        self.window = 0
        self.kept_windows: tuple[int, ...] = ()
        """The windows whose spans are recorded when they end: the open one and the one that is being closed."""
        self.loss: float = math.nan
        self.slow: SlowSteps | None = None
        self._num_windows = 0
        self._window_begin = 0
        self._forget_threads()
        _living.add(self)

    def note_loss(self, values: Any) -> None:
        """Keeps the loss among a counter's values, recorded or not, for the pulse. A tensor is not asked for its value,
        which may be a wait for the device."""
        loss = values.get("loss") if type(values) is dict else None
        if isinstance(loss, int | float) and not isinstance(loss, bool):
            with contextlib.suppress(OverflowError):
                self.loss = float(loss)

    def watch_slow_steps(self, slow: SlowSteps | None) -> None:
        """Tells it of its thread's spans that are not recorded."""
        self.slow = slow

    def open_window(self) -> None:
        with self._lock:
            self._num_windows += 1
            self._packed_up = bytearray()  # drops what threads recorded while the last window closed
            self._window_begin = self.now()
            self.window = self._num_windows
            self.kept_windows = (self.window,)

    def close_window(self, *, continues: bool = False) -> WindowRecords:
        window, begin = self.window, self._window_begin
        with self._lock:
            boundary = self.now()
            if continues:
                self._num_windows += 1
                self.kept_windows = (window, self._num_windows)
                self.window, self._window_begin = self._num_windows, boundary
            taken = [(thread, self._take(thread, window, boundary)) for thread in self._threads]
            packed_up, self._packed_up = self._packed_up, bytearray()
            self.window = self._num_windows if continues else 0
            self.kept_windows = (self.window,) if continues else ()

        def finish() -> list[ThreadRecords]:
            packed = [(thread, pack_records(_without_doubles(records, begin))) for thread, records in taken]
            recorded = [(thread, records) for thread, records in packed if records]
            threads = [
                ThreadRecords.of(thread.tid, thread.name, thread.is_main, records) for thread, records in recorded
            ]
            return threads + _unpack_threads(bytes(packed_up))

        return WindowRecords(finish, closed_ns=boundary)

    def threads(self) -> Iterator[_Thread]:
        """The threads that have recorded something, unless they have ended and been drained."""
        with self._lock:
            return iter(list(self._threads))

    def _take(self, thread: _Thread, taken: int, boundary: int) -> list[tuple[Any, ...]]:
        """The thread's records and a cut record for each of its open spans of the window with number ``taken``.

        Another thread may be ending a span at this moment. It writes the record before it removes the entry, and this
        method reads the entries before the records. So it finds at least one of the two; `_without_doubles` removes
        the cut record if it finds both.
        """
        cut = [
            (begin, boundary, span.name_id, batch, depth, _SPAN, Flag.CUT, 0)
            for depth, (span, _, begin, window, batch, _) in enumerate(list(thread.open))
            if 0 < begin <= boundary and window == taken
        ]
        records, thread.records = thread.records, []
        if self.window != taken and (num_later := _num_later(records, boundary)):
            thread.records[:0] = records[-num_later:]
            del records[-num_later:]
        records += cut
        return records

    def _register(self, thread: _Thread) -> None:
        with self._lock:
            self._threads.append(thread)
            for other in list(self._threads):
                if self._pack_up(other):
                    with contextlib.suppress(ValueError):  # a finalizer that recorded meanwhile has done the same
                        self._threads.remove(other)

    def _pack_up(self, thread: _Thread) -> bool:
        """Packs the records of a thread that has ended, so that the thread itself can be forgotten. Returns False if it
        has not ended, or has so many records that a new thread should not wait for this."""
        if not thread.is_done(self.window) or len(thread.records) > _FEW_RECORDS:
            return False
        taken, thread.records = thread.records, []
        records = list(_without_doubles(taken, self._window_begin)) if self.window else []
        if records:
            self._num_packed_up += 1
            mark = TrackMark(self._num_packed_up, thread.tid, thread.name, thread.is_main)
            self._packed_up += pack_mark(mark) + pack_records(records)
        return True

    def _forget_threads(self) -> None:
        """Starts without threads: at the beginning, and in a forked child, which leaves records to its parent."""
        self.action = self.window = 0
        self.kept_windows = ()
        self._lock = threading.RLock()
        self._threads: list[_Thread] = []
        self._packed_up, self._num_packed_up = bytearray(), 0
        self.local = _ThisThread(self._register)


def _num_later(records: list[tuple[Any, ...]], boundary: int) -> int:
    """Return how many of the last records began after a window's end."""
    return len(list(takewhile(lambda record: record[0] > boundary, reversed(records))))


def _unpack_threads(packed: bytes) -> list[ThreadRecords]:
    return [
        ThreadRecords.of(mark.tid, mark.name, mark.is_main, packed[first * RECORD_BYTES : end * RECORD_BYTES])
        for mark, first, end in stretches(packed, TrackMark(0, 0, "", False))
    ]


def _without_doubles(records: list[tuple[Any, ...]], window_begin: int) -> Iterator[tuple[Any, ...]]:
    """Drops cut records of spans that did end while the window closed, and records from older windows."""
    ended = {(record[0], record[2], record[4]) for record in records if not record[6] & Flag.CUT}
    for record in records:
        is_double = record[6] & Flag.CUT and (record[0], record[2], record[4]) in ended
        if record[0] >= window_begin and not is_double:
            yield record


class PureSpan:
    """A reusable span of a `PureRecorder`; see `kinetoscope.recording.recorder.Span`."""

    __slots__ = ("_recorder", "edges", "mask", "name_id")

    def __init__(self, recorder: PureRecorder, name_id: int, mask: int, edges: int = 0) -> None:
        self._recorder = recorder
        self.name_id = name_id
        self.mask = mask
        self.edges = edges

    def attach(self, recorder: PureRecorder, name_id: int) -> None:
        self.name_id = name_id
        self._recorder = recorder

    def __enter__(self) -> Any:
        recorder = self._recorder
        thread = recorder.local.thread
        if not recorder.action & self.mask:
            # Also of a span that is not recorded, so that its end does not end another one.
            entry, is_told = self._unrecorded(id(_caller(1)), recorder, thread), False
        else:
            if self.name_id == NO_NAME:
                self.name_id = self.intern()
            entry = (self, id(_caller(1)), recorder.now(), recorder.window, recorder.batch, thread)
            is_told = recorder.listener is not None or self.edges
        try:
            thread.open.append(entry)
            if is_told:
                self._announce_begin(entry)
        except BaseException:  # also Ctrl-C: then `with` calls no __exit__
            self.abandon(entry)
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        recorder = self._recorder
        end = recorder.now()
        frame = id(_caller(1))
        thread = recorder.local.thread
        open_spans = thread.open
        entry = open_spans[-1] if open_spans else None
        if entry is None or entry[0] is not self or entry[1] != frame:
            if (entry := self._find(frame)) is not None:
                self._finish(entry, end)
            return
        # The usual case. `_finish` would do the same; it is written out here because this is the hot path.
        begin, window = entry[2], entry[3]
        if begin:
            if window in recorder.kept_windows:
                fields = (begin, end, self.name_id, entry[4], len(open_spans) - 1, _SPAN, 0, 0)
                thread.records.append(fields)
            if recorder.listener is not None or self.edges:
                open_spans.pop()
                self._announce_end(entry, end)
                return
        elif window == _MARKED:
            self._note_mark(entry, end)
        open_spans.pop()

    def begin(self) -> tuple[Any, ...] | None:
        return self._begin(self._recorder.now)

    def begin_at(self, begin_ns: int, /) -> tuple[Any, ...] | None:
        return self._begin(lambda: begin_ns)

    def _begin(self, now: Callable[[], int]) -> tuple[Any, ...] | None:
        recorder = self._recorder
        if not recorder.action & self.mask:
            if recorder.slow is None or not recorder.slow.wants_marks():
                return None
            entry = self._unrecorded(_NO_FRAME, recorder, recorder.local.thread)
            entry[5].open.append(entry)
            return entry
        if self.name_id == NO_NAME:
            self.name_id = self.intern()
        thread = recorder.local.thread
        entry = (self, _NO_FRAME, now(), recorder.window, recorder.batch, thread)
        thread.open.append(entry)
        if recorder.listener is not None or self.edges:
            self._announce_begin(entry)
        return entry

    def _unrecorded(self, frame: int, recorder: PureRecorder, thread: _Thread) -> tuple[Any, ...]:
        if recorder.slow is None or not recorder.slow.wants_marks():
            return (self, frame, 0, 0, 0, thread)
        if self.name_id == NO_NAME:
            self.name_id = self.intern()
        return (self, frame, 0, _MARKED, recorder.now(), thread)

    def _note_mark(self, entry: tuple[Any, ...], end: int) -> None:
        slow = self._recorder.slow
        if slow is not None:
            slow.note_mark(self.name_id, entry[4], end)

    def end(self, token: tuple[Any, ...] | None) -> None:
        self.end_at(token, self._recorder.now())

    def end_at(self, token: tuple[Any, ...] | None, end_ns: int, /) -> None:
        if token is not None and _position(token[5].open, token) is not None:
            self._finish(token, end_ns)

    def abandon(self, token: tuple[Any, ...] | None) -> None:
        if token is not None and (position := _position(token[5].open, token)) is not None:
            del token[5].open[position]

    def instant(self) -> None:
        recorder = self._recorder
        if recorder.action & self.mask and not compiler.is_compiling():
            if self.name_id == NO_NAME:
                self.name_id = self.intern()
            now = recorder.now()
            thread = recorder.local.thread
            if recorder.window:
                fields = (now, 0, self.name_id, recorder.batch, len(thread.open), _INSTANT, 0, 0)
                thread.records.append(fields)
            if recorder.listener is not None:
                recorder.listener.on_instant(self.name_id, now)

    def counter(self, values: Any) -> None:
        recorder = self._recorder
        recorder.note_loss(values)
        if recorder.action & self.mask and not compiler.is_compiling():
            if self.name_id == NO_NAME:
                self.name_id = self.intern()
            values = self.plain_values(values)
            now = recorder.now()
            if recorder.window:
                records = recorder.local.thread.records
                for series, value in values.items():
                    series_id = recorder.names.intern(series)
                    records.append((now, value, self.name_id, recorder.batch, 0, _COUNTER, 0, series_id))
            if recorder.listener is not None:
                recorder.listener.on_counter(self.name_id, now, values)

    def intern(self) -> int:
        raise NotImplementedError("A span without a name id must return one here.")

    def plain_values(self, values: Any) -> dict[str, int | float]:
        if not isinstance(values, Mapping):
            values = {self._recorder.names.names[self.name_id].name: values}
        return dict(values)

    def _announce_begin(self, entry: tuple[Any, ...]) -> None:
        recorder = self._recorder
        if recorder.listener is not None:
            recorder.listener.on_begin(self.name_id, entry[2], entry)
        if self.edges & INSTANT_ON_BEGIN:
            self.instant()

    def _announce_end(self, entry: tuple[Any, ...], end: int) -> None:
        recorder = self._recorder
        if self.edges & INSTANT_ON_END:
            self.instant()
        if recorder.listener is not None:
            recorder.listener.on_end(self.name_id, end, entry)

    def _finish(self, entry: tuple[Any, ...], end: int) -> None:
        """Writes the entry's record, and only then removes the entry: see `PureRecorder._take`."""
        recorder = self._recorder
        _, _, begin, window, batch, thread = entry
        depth = _position(thread.open, entry)
        if depth is None:
            return
        if begin and window in recorder.kept_windows:
            thread.records.append((begin, end, self.name_id, batch, depth, _SPAN, 0, 0))
        elif window == _MARKED:
            self._note_mark(entry, end)
        if thread.open[-1] is entry:
            thread.open.pop()
        else:
            del thread.open[depth]
        if begin and (recorder.listener is not None or self.edges):
            self._announce_end(entry, end)

    def _find(self, frame: int) -> tuple[Any, ...] | None:
        """The entry of the ``with`` that ends now, if it is not the last one on this thread.

        It is searched by frame on this thread, then on the others, because a generator may be closed anywhere. Else it
        is the last entry of this span on this thread: `contextlib.ExitStack` enters and leaves from different frames.
        """
        recorder = self._recorder
        mine = recorder.local.thread
        for thread in (mine, *recorder.threads()):
            for entry in reversed(thread.open):
                if entry[0] is self and entry[1] == frame:
                    return entry
        return next((entry for entry in reversed(mine.open) if entry[0] is self and entry[1] != _NO_FRAME), None)


def _position(entries: list[tuple[Any, ...]], entry: tuple[Any, ...]) -> int | None:
    """The index in ``entries`` of ``entry`` itself, not of an equal one."""
    for position in range(len(entries) - 1, -1, -1):
        if entries[position] is entry:
            return position
    return None


# A forked child has a copy of its parent's memory, but is not part of its run: every recorder starts empty there.
_living: "weakref.WeakSet[PureRecorder]" = weakref.WeakSet()


def _forget_parent() -> None:
    for recorder in list(_living):
        recorder._forget_threads()
        recorder.names.forget_parent()
        recorder.listener = recorder.slow = None


after_fork_in_child(_forget_parent)
