"""Window of one rank, and the Cycle: the records of a window."""

import os
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from kinetoscope.core.clock.clock import Anchor, Clock, ClockLine, process_base_ns, read_anchor
from kinetoscope.core.clock.relation import ClockRelation
from kinetoscope.core.job.ranks import Attempt, Ranks, torch_distributed
from kinetoscope.core.job.timestamp import Moment, plain_count
from kinetoscope.formats.slow_steps import SlowStep
from kinetoscope.recording.markers.marker import Marker
from kinetoscope.recording.markers.native_recorder import NativeRecorder
from kinetoscope.recording.markers.recorder_types import ACTION_BITS, PROFILER_CATEGORY, SpanName, WindowRecords
from kinetoscope.recording.markers.schedule import ProfilerAction
from kinetoscope.recording.window.source_events import SourceEvent, SourceEvents
from kinetoscope.spool.record import Record, ThreadRecords

_MAX_SHIFT_NS = 1_000_000_000
"""Anchors are taken within this time after a window has closed; a larger difference means two different clocks."""


@dataclass(frozen=True, slots=True)
class Contributions:
    """Additions of sources to a cycle: trace files, on the writer thread, before handlers get it, and events.

    Attributes:
        cycle: the number of the cycle.
        files: the trace files.
        temporary: those files that are deleted when every handler has accepted the cycle.
        afterwards: functions that are called then.
        to_retry: functions of sources that failed to add a file and are called again.
        undelivered: pairs of a handler and a file that it failed to accept.
        damages: sentences on parts of the files that could not be read, if the files no longer show that.
        unread: files that could not be read when the cycle was written.
        events: spans and instants, which any thread may add.
    """

    cycle: int = 0
    files: list[Path] = field(default_factory=list)
    temporary: list[Path] = field(default_factory=list)
    afterwards: list[Callable[[], object]] = field(default_factory=list)
    to_retry: list[Callable[["Contributions"], object]] = field(default_factory=list)
    undelivered: list[tuple[Any, Path]] = field(default_factory=list)
    damages: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    events: SourceEvents = field(default_factory=SourceEvents)

    def add_temporary(self, file: Path) -> None:
        """Add a file that is deleted when the cycle is saved."""
        self.files.append(file)
        self.temporary.append(file)


@dataclass(slots=True)
class LastingSpan:
    """Span that may outlast windows, in monotonic nanoseconds.

    ``end_ns`` is None while it is open. ``recorded_in`` is the number of the window whose records include it, or 0.
    """

    name: SpanName
    begin_ns: int
    recorded_in: int
    end_ns: int | None = None
    tid: int = field(default_factory=threading.get_native_id)


class LastingSpans:
    """Spans of one run that may outlast windows: the fit, its epochs, evaluations.

    The recorder does not record a span that was open before recording started. These spans are drawn nevertheless,
    clipped to the window.
    """

    def __init__(self, recorder: NativeRecorder, clock: Clock) -> None:
        self._recorder = recorder
        self._now = clock.monotonic_ns
        self._spans: list[LastingSpan] = []

    def begin(self, marker: Marker, *, is_recorded: bool) -> None:
        """Add a span of ``marker`` that has begun on this thread."""
        window = self._recorder.window if is_recorded else 0
        self._spans.append(LastingSpan(marker.settings.span_name, self._now(), window))

    def end(self, marker: Marker, *, is_valid: bool = True) -> None:
        """End the latest open span of ``marker``; if not ``is_valid``, remove it, since it was none."""
        name = marker.settings.span_name
        span = next((span for span in reversed(self._spans) if span.end_ns is None and span.name == name), None)
        if span is not None:
            span.end_ns = self._now()
            if not is_valid or not self._recorder.window:
                self._spans.remove(span)

    def collect(self, window: int) -> list[LastingSpan]:
        """Return the spans that the trace of the window that closes now must show besides its records."""
        shown = [replace(span) for span in self._spans if span.recorded_in != window]
        self._spans = [span for span in self._spans if span.end_ns is None]
        return shown


@dataclass(kw_only=True)
class Cycle:
    """Records of one rank in one window.

    Times of records are nanoseconds on the monotonic clock; ``clock`` converts them to unix time.

    Attributes:
        number: the number of the cycle in the run, from 0.
        begin_timestamp: the position of training when the window opened (completed batches).
        timestamp: the position of training when it closed.
        files: Chrome JSON traces that sources contributed; they are complete when a handler gets the cycle.
        relation: the relation of this rank's clock to rank 0's, if it was measured.
        num_lost_cycles: the cycles of this run that were discarded so far, because they could not be saved.
        num_lost_records: the records of these cycles.
        damages: sentences on records of a killed process that could not be read.
    """

    number: int
    run_name: str
    ranks: Ranks
    attempt: Attempt
    pid: int
    begin_timestamp: Any
    timestamp: Any
    begin: Anchor
    end: Anchor
    names: list[SpanName]
    recorded: WindowRecords = field(repr=False)
    contributions: Contributions = field(default_factory=Contributions)
    relation: ClockRelation | None = None
    num_lost_cycles: int = 0
    num_lost_records: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)
    damages: list[str] = field(default_factory=list)
    base_ns: int = field(default_factory=process_base_ns)
    """The zero of the times in its process's traces, if it fits; see `choose_base_ns`."""
    lasting: Sequence[LastingSpan] = ()
    """Spans that were open in the window but are not among its records, because they began before it."""
    epochs: Sequence[tuple[int, int]] = ()
    """Starts of epochs within the window, in monotonic nanoseconds, and their numbers, in order."""
    first_active: int | None = None
    """The first batch of the window that is no warm-up, counted in the run; None if unknown, or if all are."""
    slow_step: SlowStep | None = None
    """Facts on the step of a window that was kept because it was slow. Such a window is none of the schedule."""

    @cached_property
    def threads(self) -> list[ThreadRecords]:
        """The records of each thread. The first use, on the writer thread, moves them out of the recorder."""
        return self.recorded.threads()

    @cached_property
    def events(self) -> list[SourceEvent]:
        """The spans and instants of sources."""
        return list(self.contributions.events.kept)

    @cached_property
    def tracks(self) -> dict[int, str]:
        """The names of those tracks of sources that are no threads, by tid."""
        return dict(self.contributions.events.tracks)

    @property
    def clock(self) -> ClockLine:
        """The conversion from monotonic to unix nanoseconds within this window."""
        return ClockLine(self.begin, self.end)

    @cached_property
    def epoch_begins(self) -> list[tuple[int, int]]:
        """``epochs`` after the epoch in which the window opened, which gets a start before all moments."""
        return [(-(2**63), plain_count(self.begin_timestamp.epoch)), *self.epochs]

    def epoch_at(self, moment_ns: int) -> int:
        """Return the epoch at a monotonic moment within the window, in nanoseconds."""
        return self.epoch_begins[bisect_right(self.epochs, moment_ns, key=lambda begin: begin[0])][1]

    @property
    def warmup_batches(self) -> list[tuple[int, int]]:
        """The first warm-up batch of the window and the first one after them, as the only pair; empty without any."""
        first, active = plain_count(self.begin_timestamp.batch), self.first_active
        return [(first, active)] if active is not None and first < active else []

    @property
    def files(self) -> list[Path]:
        """The trace files that sources contributed."""
        return self.contributions.files

    @property
    def is_empty(self) -> bool:
        """True if nothing was contributed, and only the profiler's own work was recorded."""
        categories = (self.names[record.name].categories for thread in self.threads for record in thread.records())
        return not self.files and not self.events and all(PROFILER_CATEGORY in names for names in categories)

    def release(self) -> None:
        """Delete the files that kept the cycle until it was saved: in the spool folder, and temporary files."""
        with ExitStack() as last_first:  # calls each of them, even if another raises
            last_first.callback(self.recorded.release)
            for file in self.contributions.temporary:
                last_first.callback(file.unlink, missing_ok=True)
            for job in reversed(self.contributions.afterwards):
                last_first.callback(job)

    def records(self) -> Iterator[tuple[ThreadRecords, Record, SpanName]]:
        """Yield every record with its thread and name, thread by thread, in the order in which they ended."""
        for thread in self.threads:
            for record in thread.records():
                yield thread, record, self.names[record.name]


class Window:
    """Window of one rank. It opens at the first batch that is not skipped, and closing it returns a `Cycle`.

    ``contributions`` are the additions of sources to the cycle that is being recorded. ``attempt`` may be replaced
    before the first window.
    """

    def __init__(self, recorder: NativeRecorder, clock: Clock, ranks: Ranks, attempt: Attempt) -> None:
        self._recorder = recorder
        self._clock = clock
        self._ranks = ranks
        self.attempt: Attempt = attempt
        self._begin: Anchor | None = None
        self._begin_timestamp: Any = None
        self._is_just_opened = False
        self._epoch = 0
        self._epochs: list[tuple[int, int]] = []
        self._first_active: int | None = None
        self._num_cycles = 0
        self.contributions: Contributions = Contributions(cycle=0)

    @property
    def is_open(self) -> bool:
        """True while a window is open."""
        return self._begin is not None

    def set_action(self, action: ProfilerAction, timestamp: Moment) -> bool:
        """Set the action of the batch that begins now; open the window at the first one not skipped.

        Returns:
            Whether the window has opened.
        """
        if action is not ProfilerAction.SKIP and not self.is_open:
            self._open_at(read_anchor(self._clock), timestamp)
            self._recorder.open_window()
        opens, self._is_just_opened = self._is_just_opened, False
        self._recorder.action = ACTION_BITS[action]
        return opens

    def mark_active(self, action: ProfilerAction, batch: int) -> bool:
        """Set the first batch of the window that is no warm-up; return whether it is this one, after a warm-up."""
        if not self.is_open or self._first_active is not None or action in (ProfilerAction.SKIP, ProfilerAction.WARMUP):
            return False
        self._first_active = batch
        return batch > plain_count(self._begin_timestamp.batch)

    def enter_epoch(self, epoch: int) -> tuple[int, int] | None:
        """Assign records to ``epoch`` from now on.

        Returns:
            The start of the epoch in monotonic nanoseconds and its number, if it is a new one in the window.
        """
        if epoch == self._epoch:
            return None
        self._epoch = epoch
        if not self.is_open:
            return None
        self._epochs.append((self._clock.monotonic_ns(), epoch))
        return self._epochs[-1]

    @property
    def num_cycles(self) -> int:
        """The number of windows that have closed, which is the number of the next cycle."""
        return self._num_cycles

    def _open_at(self, begin: Anchor, timestamp: Moment) -> None:
        self._begin, self._begin_timestamp, self._is_just_opened = begin, timestamp, True

    def close(
        self,
        run_name: str,
        timestamp: Moment,
        lasting: Sequence[LastingSpan] = (),
        following: tuple[ProfilerAction, Moment] | None = None,
    ) -> Cycle | None:
        """Close the window at this nanosecond and return its cycle; None if no window is open.

        With ``following``, the action and the timestamp of the next batch, the next window opens at the same
        nanosecond; `set_action` then reports it as opened.
        """
        if following is None or self._begin is None:
            self._recorder.action = 0
        if self._begin is None:
            return None
        recorded = self._recorder.close_window(continues=following is not None)
        if following is not None:
            self._recorder.action = ACTION_BITS[following[0]]
        end = read_anchor(self._clock)
        if following is not None:  # spans that are open in both windows must not overlap
            end = _shift_anchor(end, recorded.closed_ns)
        cycle = Cycle(
            number=self._num_cycles,
            run_name=run_name,
            ranks=self._ranks,
            attempt=self.attempt,
            pid=os.getpid(),
            begin_timestamp=self._begin_timestamp,
            timestamp=timestamp,
            begin=self._begin,
            end=end,
            names=self._recorder.names.names,
            recorded=recorded,
            contributions=self.contributions,
            metadata=_build_header(self._ranks),
            lasting=lasting,
            epochs=self._epochs,
            first_active=self._first_active,
        )
        self._num_cycles += 1
        self._begin, self._epochs, self._first_active = None, [], None
        if following is not None:
            self._open_at(end, following[1])
            self._epoch = plain_count(following[1].epoch)
        self.contributions = Contributions(cycle=self._num_cycles)
        return cycle


def _shift_anchor(anchor: Anchor, monotonic_ns: int) -> Anchor:
    """Return the anchor of an earlier moment; ``anchor`` if the moment is later, or of another clock."""
    earlier_ns = anchor.monotonic_ns - monotonic_ns
    if not 0 <= earlier_ns < _MAX_SHIFT_NS:
        return anchor
    return replace(anchor, monotonic_ns=monotonic_ns, unix_ns=anchor.unix_ns - earlier_ns)


def _build_header(ranks: Ranks) -> dict[str, Any]:
    header = ranks.header_fields
    if distributed := torch_distributed():
        header["distributedInfo"]["backend"] = distributed.get_backend()
    return header
