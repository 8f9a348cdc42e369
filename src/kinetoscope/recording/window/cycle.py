"""The window of one rank, and the Cycle: what was recorded in a window."""

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
"""Anchors are taken within this time after a window has closed; a larger difference is one between two clocks."""


@dataclass(frozen=True, slots=True)
class Contributions:
    """What sources add to the cycle with that number: trace files, on the writer thread, before handlers get it, and
    ``events``, on any thread.

    When every handler has taken the cycle, the files in ``temporary`` are deleted and the functions in ``afterwards``
    called. ``to_retry`` holds functions of sources that failed to add a file and are called again; ``not_taken`` holds
    pairs of a handler and a file that it failed to take. ``damages`` says what could not be read of the files, as far
    as that cannot be seen in the files any more, and ``unread`` which files could not be read when the cycle was
    written.
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
        """Adds a file that is deleted when the cycle is saved."""
        self.files.append(file)
        self.temporary.append(file)


@dataclass(slots=True)
class LastingSpan:
    """A span that may outlast windows, in monotonic nanoseconds. ``end_ns`` is None while it is open. ``recorded_in``
    is the number of the window whose records include it, or 0.
    """

    name: SpanName
    begin_ns: int
    recorded_in: int
    end_ns: int | None = None
    tid: int = field(default_factory=threading.get_native_id)


class LastingSpans:
    """The spans of one run that may outlast windows: the fit, its epochs, evaluations.

    The recorder does not record a span that was open before recording started. These spans are drawn all the same,
    clipped to the window.
    """

    def __init__(self, recorder: NativeRecorder, clock: Clock) -> None:
        self._recorder = recorder
        self._now = clock.monotonic_ns
        self._spans: list[LastingSpan] = []

    def begin(self, marker: Marker, *, is_recorded: bool) -> None:
        """Notes that a span of ``marker`` has begun on this thread."""
        window = self._recorder.window if is_recorded else 0
        self._spans.append(LastingSpan(marker.settings.span_name, self._now(), window))

    def end(self, marker: Marker, *, is_valid: bool = True) -> None:
        """Notes that the latest open span of ``marker`` has ended, or if not ``is_one``, that it was none after all."""
        name = marker.settings.span_name
        span = next((span for span in reversed(self._spans) if span.end_ns is None and span.name == name), None)
        if span is not None:
            span.end_ns = self._now()
            if not is_valid or not self._recorder.window:
                self._spans.remove(span)

    def collect(self, window: int) -> list[LastingSpan]:
        """The spans that the trace of the window that closes now must show besides its records."""
        shown = [replace(span) for span in self._spans if span.recorded_in != window]
        self._spans = [span for span in self._spans if span.end_ns is None]
        return shown


@dataclass(kw_only=True)
class Cycle:
    """What one rank recorded in one window.

    ``number`` counts the cycles of the run from 0. ``begin_timestamp`` and ``timestamp`` say where the run was when the
    window opened and closed (completed batches). Records have nanoseconds on the monotonic clock; ``clock`` turns them
    into unix time. ``files`` are the Chrome JSON traces that sources contributed; they are complete when a handler gets
    the cycle. ``relation`` relates this rank's clock to rank 0's, if it was measured. ``num_lost_cycles`` cycles with
    ``num_lost_records`` records were discarded so far in this run, because they could not be saved. ``damages`` says
    what could not be read of a killed process's records.
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
    """When epochs began within the window, in monotonic nanoseconds, and their numbers, in order."""
    first_active: int | None = None
    """The first batch of the window that is no warm-up, counted in the run; None if nobody knows, or if all are."""
    slow_step: SlowStep | None = None
    """What is said of the step of a window that was kept because it was slow. Such a window is none of the schedule."""

    @cached_property
    def threads(self) -> list[ThreadRecords]:
        """What each thread recorded. The first use, on the writer thread, takes it out of the recorder."""
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
        """From monotonic to unix nanoseconds within this window."""
        return ClockLine(self.begin, self.end)

    @cached_property
    def epoch_begins(self) -> list[tuple[int, int]]:
        """``epochs`` after the epoch in which the window opened, which gets a begin before all moments."""
        return [(-(2**63), plain_count(self.begin_timestamp.epoch)), *self.epochs]

    def epoch_at(self, moment_ns: int) -> int:
        """The epoch at a monotonic moment within the window."""
        return self.epoch_begins[bisect_right(self.epochs, moment_ns, key=lambda begin: begin[0])][1]

    @property
    def warmup_batches(self) -> list[tuple[int, int]]:
        """The batches of the window that only warm up, as numbers from and until, if there are some."""
        first, active = plain_count(self.begin_timestamp.batch), self.first_active
        return [(first, active)] if active is not None and first < active else []

    @property
    def files(self) -> list[Path]:
        """The trace files that sources contributed."""
        return self.contributions.files

    @property
    def is_empty(self) -> bool:
        """True if nothing was contributed, and nothing recorded but Kinetoscope's own work, such as saving the window
        before.
        """
        categories = (self.names[record.name].categories for thread in self.threads for record in thread.records())
        return not self.files and not self.events and all(PROFILER_CATEGORY in names for names in categories)

    def release(self) -> None:
        """Deletes the files that kept the cycle until it was saved: in the live folder, and temporary files."""
        with ExitStack() as last_first:  # calls each of them, even if another raises
            last_first.callback(self.recorded.release)
            for file in self.contributions.temporary:
                last_first.callback(file.unlink, missing_ok=True)
            for job in reversed(self.contributions.afterwards):
                last_first.callback(job)

    def records(self) -> Iterator[tuple[ThreadRecords, Record, SpanName]]:
        """Every record with its thread and name, thread by thread, in the order in which they ended."""
        for thread in self.threads:
            for record in thread.records():
                yield thread, record, self.names[record.name]


class Window:
    """The window of one rank. It opens at the first batch that is not skipped, and closing it makes a `Cycle`.

    ``contributions`` are the files that sources add to the cycle that is being recorded. ``attempt`` may be replaced
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
        return self._begin is not None

    def set_action(self, action: ProfilerAction, timestamp: Moment) -> bool:
        """Sets the action of the batch that begins now. If it is the first one not skipped, opens the window; returns
        whether it did.
        """
        if action is not ProfilerAction.SKIP and not self.is_open:
            self._open_at(read_anchor(self._clock), timestamp)
            self._recorder.open_window()
        opens, self._is_just_opened = self._is_just_opened, False
        self._recorder.action = ACTION_BITS[action]
        return opens

    def mark_active(self, action: ProfilerAction, batch: int) -> bool:
        """Notes the first batch of the window that is no warm-up; returns whether this is it, after a warm-up."""
        if not self.is_open or self._first_active is not None or action in (ProfilerAction.SKIP, ProfilerAction.WARMUP):
            return False
        self._first_active = batch
        return batch > plain_count(self._begin_timestamp.batch)

    def enter_epoch(self, epoch: int) -> tuple[int, int] | None:
        """From now on records belong to ``epoch``. If that is a new epoch in the window, returns its begin and its
        number.
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
        """How many windows have closed, which is the number of the next cycle."""
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
