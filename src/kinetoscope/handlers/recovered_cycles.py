"""Cycles of the windows that a killed process had not saved.

The writer thread writes the log of windows, and may have been late when the process was killed. Missing entries are
derived from the window before, and from the process's records, which name their window.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from kinetoscope.core.clock.clock import Anchor
from kinetoscope.core.job.timestamp import Timestamp, timestamp_from_fields
from kinetoscope.formats.trace_names import BATCH
from kinetoscope.recording.markers.recorder_types import SpanName, WindowRecords
from kinetoscope.recording.window.cycle import Contributions, Cycle
from kinetoscope.spool.contents import (
    SpooledPart,
    SpooledProcess,
    SpooledTrack,
    child_records_in_window,
    read_spool_folder,
)
from kinetoscope.spool.folders import SpoolOwner, find_contributed_files
from kinetoscope.spool.lost_chunks import describe_losses
from kinetoscope.spool.record import (
    RECORD_BYTES,
    Flag,
    Kind,
    Record,
    RecordPart,
    RecordsInMemory,
    ThreadRecords,
    pack_records,
    record_columns,
    unpack_records,
)
from kinetoscope.spool.window_log import LoggedWindow, has_log, read_windows

_NO_LOG = (
    "windows.jsonl is missing: it lists when windows opened, and which are saved. Spans of child processes from before "
    "the first record of the others are left out, since traces may have them already."
)


@dataclass(frozen=True, slots=True)
class RecoveredWindow:
    """A window that was not saved, and the cycle that it would have become."""

    number: int
    cycle: Cycle


@dataclass(frozen=True, slots=True)
class UnsavedWindow:
    """A window that was opened and not saved: its start, its end, and the progress of the run then.

    Windows do not overlap. ``epochs`` are as in `Cycle`.

    The ``end`` of a window that was still open is None; it closes at the last known moment. Records of child processes
    that began after ``after_ns``, when the window before closed, belong to this window.
    """

    number: int
    cycle: int
    began_ns: int
    closed_ns: int
    begin: Timestamp
    end: Timestamp | None
    epochs: Sequence[tuple[int, int]] = ()
    first_active: int | None = None
    after_ns: int = -1


class RankRecords:
    """The unsaved data of the processes of one rank in its spool folder.

    Raises OSError if the folder cannot be read.
    """

    def __init__(self, spool_folder: Path, run: SpoolOwner) -> None:
        self._folder, self._run = spool_folder, run
        left = read_spool_folder(spool_folder)
        self._log, damages_of_log = read_windows(spool_folder)
        self._owner = next((process for process in left.processes if process.pid == run.attempt.pid), None)
        # The first process, which has the most records, keeps the ids of its names.
        self._processes = sorted(left.processes, key=lambda process: process is not self._owner)
        children = (process for process in left.processes if process is not self._owner)
        # A process that is killed right after its first window opened has none, and no window that may be saved.
        lacks_log = not has_log(spool_folder) and any(track.parts for child in children for track in child.tracks)
        if self._owner is not None:
            damages_of_log += describe_losses(self._owner.chunks, self._log)
        self._lacks_log = lacks_log
        self.damages = left.damages + damages_of_log + ([_NO_LOG] if lacks_log else [])
        """A sentence on each unreadable part."""

    def windows(self) -> Iterator[RecoveredWindow]:
        """Return the windows that were not saved and are not empty."""
        last_ns = max(map(_last_moment, self._tracks()), default=0)
        windows = find_unsaved_windows(self._log, self._owner, last_ns, self._last_begin_of_children())
        for window in windows:
            names, threads = self._recorded_in(window)
            files = find_contributed_files(self._folder, window.cycle)
            if threads or files:
                yield RecoveredWindow(window.number, self._cycle(window, names, threads, files))

    def _tracks(self) -> Iterator[SpooledTrack]:
        return (track for process in self._processes for track in process.tracks)

    def _last_begin_of_children(self) -> int:
        """Return the start of the last record of a child process; 0 if there is none."""
        if self._lacks_log:
            return 0
        tracks = (track for process in self._processes if process is not self._owner for track in process.tracks)
        return max(map(_last_begin, tracks), default=0)

    def _recorded_in(self, window: UnsavedWindow) -> tuple[list[SpanName], list[ThreadRecords]]:
        """Return the records of all processes in a window, and the names of the ids in them."""
        names: list[SpanName] = []
        threads: list[ThreadRecords] = []
        for process in self._processes:
            ids = range(len(names), len(names) + len(process.names))
            for track in process.tracks:
                if process is self._owner:
                    threads.append(_main_records(track, window))
                else:
                    threads.append(_child_records(track, ids, window))
            names += [SpanName(name.name, name.categories, name.args) for name in process.names]
        return names, [thread for thread in threads if thread.num_records]

    def _cycle(
        self, window: UnsavedWindow, names: list[SpanName], threads: list[ThreadRecords], files: list[Path]
    ) -> Cycle:
        run = self._run
        begin, end = self._anchors(window)
        return Cycle(
            number=window.cycle,
            run_name=run.run_name,
            ranks=run.ranks,
            attempt=run.attempt,
            pid=run.attempt.pid,
            begin_timestamp=window.begin,
            timestamp=window.end or _end(window.begin, threads, names),
            begin=begin,
            end=end,
            names=names,
            recorded=WindowRecords(lambda: threads),
            contributions=Contributions(window.cycle, files),
            metadata=run.ranks.header_fields | {"recovered": True},
            damages=self.damages,
            base_ns=run.base_ns,
            epochs=window.epochs,
            first_active=window.first_active,
        )

    def _anchors(self, window: UnsavedWindow) -> tuple[Anchor, Anchor]:
        """Return the window's start and end on both clocks.

        All processes of a machine share them, so any track will do.
        """
        track = next(self._tracks(), None)
        known = Anchor(track.monotonic_ns, track.unix_ns) if track is not None else Anchor(0, 0)
        began_ns = window.began_ns or known.monotonic_ns
        closed_ns = max(began_ns, window.closed_ns)
        to_unix_ns = known.unix_ns - known.monotonic_ns
        return Anchor(began_ns, began_ns + to_unix_ns), Anchor(closed_ns, closed_ns + to_unix_ns)


def _main_records(track: SpooledTrack, window: UnsavedWindow) -> ThreadRecords:
    """Return the records of a thread of the window's process; spans that are still open end with the window."""
    cut = [
        span._replace(end=max(span.begin, window.closed_ns), flags=Flag.CUT, series=0)
        for span in track.open_spans
        if span.series == window.number
    ]
    parts = [_within(part, window) for part in track.parts if part.window == window.number]
    parts.append(RecordsInMemory(pack_records(cut)))
    num_dropped = track.num_dropped_between(window.began_ns, window.closed_ns)
    return ThreadRecords(track.tid, track.name, track.is_main, parts, num_dropped)


def _child_records(track: SpooledTrack, ids: Sequence[int], window: UnsavedWindow) -> ThreadRecords:
    """Return the records of a thread of a child process in the window.

    A child may begin a span right after a window has closed: that span is clipped to the next one.
    """
    thread = child_records_in_window(track, ids, window.after_ns + 1, window.closed_ns)
    return replace(thread, parts=[_within(part, window) for part in thread.parts])


def _within(part: RecordPart, window: UnsavedWindow) -> RecordPart:
    """Return the part with its records clipped to the window.

    A damaged record that extends beyond it would overlap the spans of other windows.
    """
    if not len(part):
        return part
    columns = record_columns(part.read())
    ends = (end for end, kind in zip(columns.end, columns.kind, strict=True) if kind == Kind.SPAN)
    if min(columns.begin) >= window.began_ns and max(chain(columns.begin, ends)) <= window.closed_ns:
        return part
    return RecordsInMemory(pack_records(_clipped(record, window) for record in unpack_records(part.read())))


def _clipped(record: Record, window: UnsavedWindow) -> Record:
    begin = min(max(record.begin, window.began_ns), window.closed_ns)
    end = min(max(record.end, begin), window.closed_ns) if record.kind == Kind.SPAN else record.end
    return record._replace(begin=begin, end=end)


def _last_moment(track: SpooledTrack) -> int:
    """Return the latest known moment of a track.

    Records are in the order of their ends, and dropped ones came after them.
    """
    last = unpack_records(track.parts[-1].read()[-RECORD_BYTES:]) if track.parts else ()
    ends = [int(record.end) if record.kind == Kind.SPAN else record.begin for record in last]
    return max([track.dropped_ns, *ends, *(span.begin for span in track.open_spans)])


def _last_begin(track: SpooledTrack) -> int:
    begins = [max(record_columns(part.read()).begin, default=0) for part in track.parts]
    return max([*begins, *(span.begin for span in track.open_spans)], default=0)


def _end(begin: Timestamp, threads: list[ThreadRecords], names: list[SpanName]) -> Timestamp:
    """Return the progress of the run when it was killed.

    It is the window's first batch, and the batches whose spans had ended.
    """
    of_batches = {number for number, name in enumerate(names) if name.name == BATCH}
    batches: set[int] = set()
    for part in chain.from_iterable(thread.parts for thread in threads):
        columns = record_columns(part.read())
        fields = zip(columns.batch, columns.name, zip(columns.kind, columns.flags, strict=True), strict=True)
        batches.update(batch for batch, name, what in fields if name in of_batches and what == (Kind.SPAN, 0))
    timestamp = begin
    for _ in batches:
        timestamp = timestamp.to_next_batch()
    return timestamp


def find_unsaved_windows(
    log: Iterable[LoggedWindow], owner: SpooledProcess | None, last_ns: int, last_child_begin_ns: int = 0
) -> list[UnsavedWindow]:
    """Return the windows that were not saved, by number.

    Args:
        log: the log of windows.
        owner: the records of the process that opened them.
        last_ns: the latest known moment.
        last_child_begin_ns: the start of the last record of a child process. It records only while a window is open:
            if no known window was open then, the next one was, and the owner had recorded nothing in it yet.
    """
    windows = _all_windows(log, owner)
    if last_child_begin_ns > _last_close(windows):
        windows.append(LoggedWindow(windows[-1].number + 1 if windows else 1))
    found: list[UnsavedWindow] = []
    for window in windows:
        found.append(_complete(window, found[-1] if found else None, owner, last_ns))
    found = list(map(_before, found, [*found[1:], None]))
    return [complete for window, complete in zip(windows, found, strict=True) if not window.is_saved]


def _last_close(windows: Sequence[LoggedWindow]) -> float:
    """Return the end of the last window; never, if it was still open."""
    if not windows:
        return 0
    closed_ns = windows[-1].closed_ns
    return math.inf if closed_ns is None else closed_ns


def _before(window: UnsavedWindow, following: UnsavedWindow | None) -> UnsavedWindow:
    """Return the window, closed before the following one began."""
    limit_ns = window.closed_ns if following is None else following.began_ns - 1
    return replace(window, closed_ns=min(window.closed_ns, limit_ns))


def _all_windows(log: Iterable[LoggedWindow], owner: SpooledProcess | None) -> list[LoggedWindow]:
    """Return the windows in the log, and those opened after its last line.

    A window with a lower number that is not in the log was saved long ago.
    """
    known = {window.number: window for window in log}
    newest = max(known, default=0)
    tracks = owner.tracks if owner is not None else []
    numbers = {part.window for track in tracks for part in track.parts}
    numbers |= {span.series for track in tracks for span in track.open_spans}
    known |= {number: LoggedWindow(number) for number in numbers if number > newest}
    return [known[number] for number in sorted(known)]


def _complete(
    window: LoggedWindow, before: UnsavedWindow | None, owner: SpooledProcess | None, last_ns: int
) -> UnsavedWindow:
    """Return a window with the missing fields of the log; ``before`` is the window before it."""
    cycle, began_ns = window.number - 1, 0
    if before is not None:
        cycle = before.cycle + window.number - before.number
        is_closed = before.end is not None
        began_ns = before.closed_ns + 1 if is_closed else _first_moment(owner, window.number, last_ns)
        began_ns = max(began_ns, before.began_ns + 1)
    elif window.began_ns is None and owner is not None:
        began_ns = _first_moment(owner, window.number, last_ns)
    began_ns = began_ns if window.began_ns is None else window.began_ns
    return UnsavedWindow(
        number=window.number,
        cycle=cycle if window.cycle is None else window.cycle,
        began_ns=began_ns,
        closed_ns=last_ns if window.closed_ns is None else window.closed_ns,
        begin=_timestamp(window.timestamp) or (before and (before.end or before.begin)) or Timestamp(),
        end=_timestamp(window.end_timestamp),
        epochs=sorted(window.epochs),
        first_active=window.first_active,
        after_ns=min(began_ns - 1, before.closed_ns if before is not None else began_ns),
    )


def _timestamp(fields: dict[str, int | float] | None) -> Timestamp | None:
    return timestamp_from_fields(fields) if fields is not None else None


def _first_moment(owner: SpooledProcess | None, window: int, last_ns: int) -> int:
    """Return the start of a window's first record: after all records of earlier windows."""
    tracks = owner.tracks if owner is not None else []
    parts = [part for track in tracks for part in track.parts if len(part)]
    begins = [min(record_columns(part.read()).begin) for part in parts if part.window == window]
    begins += [span.begin for track in tracks for span in track.open_spans if span.series == window]
    before_ns = max((_end_of(part) for part in parts if part.window < window), default=-1)
    return max(min(begins, default=last_ns), before_ns + 1)


def _end_of(part: SpooledPart) -> int:
    """Return the end of a part's last record: records are in the order of their ends."""
    (last,) = unpack_records(part.read()[-RECORD_BYTES:])
    return int(last.end) if last.kind == Kind.SPAN else last.begin
