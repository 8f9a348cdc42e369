"""handlers: recovery. What killed processes left flows in; the traces they would have saved flow out."""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from kinetoscope.clock.anchor import Anchor
from kinetoscope.errors import KinetoscopeError, TraceFileError
from kinetoscope.formats.live_records import LiveProcess, LiveTrack, read_live_folder
from kinetoscope.formats.live_run import LiveRun, TraceRecipe, live_folders, read_live_run
from kinetoscope.formats.owner_lock import Owner, owner_state
from kinetoscope.formats.record import RECORD_BYTES, Flag, Kind, pack_records, record_columns, unpack_records
from kinetoscope.formats.window_log import WindowLog, WindowSaved, read_windows
from kinetoscope.handlers.json_trace_handler import JSONTraceHandler
from kinetoscope.handlers.unsaved_windows import UnsavedWindow, find_unsaved_windows
from kinetoscope.recording.child_records import child_records_in_window
from kinetoscope.recording.cycle import Cycle
from kinetoscope.recording.recorder import PartInMemory, SpanName, ThreadRecords, WindowRecords
from kinetoscope.storage.remote_name import queue_recovered
from kinetoscope.training.attempt import Attempt
from kinetoscope.training.ranks import Ranks
from kinetoscope.training.timestamp import Timestamp

# For a run none of whose handlers writes files: what was recorded is in its live folder all the same.
_DEFAULT_RECIPE = TraceRecipe("traces", "ep{epoch}-ba{batch}-rank{rank}.json", "merged_trace.json")


@dataclass(frozen=True, slots=True)
class RecoveredThread:
    """What was found of one thread: finished spans, and those that were open when the process died."""

    name: str
    num_spans: int
    num_open: int


@dataclass(frozen=True, slots=True)
class RecoveredRank:
    """What was found of one killed rank, and the traces it was made into."""

    run: LiveRun
    live_folder: Path
    threads: list[RecoveredThread] = field(default_factory=list)
    traces: list[Path] = field(default_factory=list)
    merges: list[tuple[Path, Path, bool]] = field(default_factory=list)
    """Folders whose manifests now list the traces, the merged file of each, and whether that is a bare list."""
    damages: list[str] = field(default_factory=list)
    """What could not be read, a sentence each."""


@dataclass(frozen=True, slots=True)
class UnrecoveredRank:
    """A live folder that stays as it is, and why."""

    live_folder: Path
    error: Exception


def recover(
    run_folder: str | os.PathLike[str], *, keep: bool = False, other_hosts: bool = False
) -> Iterator[RecoveredRank | UnrecoveredRank]:
    """Makes traces of what the killed processes of a run left behind, rank by rank: one for each window that was not
    saved.

    Their live folders are deleted once the traces are written, unless ``keep``. Processes that still run are passed
    over, and so are those of other machines, which cannot be asked, unless ``other_hosts``. Raises `TraceFileError` if
    ``run_folder`` holds nothing to recover.
    """
    run_folder = Path(run_folder)
    found = list(live_folders(run_folder))
    if not found:
        raise TraceFileError(
            f"Nothing to recover in {run_folder}: it has no live folder. Pass the run's folder (the one with `live` "
            "and `traces` in it). A run that ended cleanly leaves nothing to recover: its traces are complete."
        )
    for folder in found:
        try:
            run = read_live_run(folder)
            state = owner_state(folder, run.host, run.pid)
            if state is Owner.DEAD or (state is Owner.UNKNOWN and other_hosts):
                yield _recover_rank(run_folder, folder, run, keep)
        except (KinetoscopeError, OSError) as error:
            yield UnrecoveredRank(folder, error)
    if not keep:
        _delete_what_is_empty(run_folder / "live")


def _delete_what_is_empty(live: Path) -> None:
    for left in live.glob("*.elsewhere"):
        if not Path(left.read_text(encoding="utf-8").strip()).exists():
            left.unlink()
    with suppress(OSError):
        live.rmdir()


def _recover_rank(run_folder: Path, live_folder: Path, run: LiveRun, keep: bool) -> RecoveredRank:
    found = RecoveredRank(run, live_folder)
    log = WindowLog(live_folder)
    for window, cycle in _unsaved(live_folder, run, found.damages):
        found.threads.extend(map(_describe, cycle.threads))
        for recipe in run.recipes or [_DEFAULT_RECIPE]:
            folder = run_folder / recipe.folder
            handler = JSONTraceHandler.reopen(folder, recipe, run.run_name, cycle.ranks)
            found.traces.append(handler.find_written(cycle) or handler.write(cycle))
            if recipe.remote:
                queue_recovered(run_folder, recipe.remote, found.traces[-1], cycle)
            if recipe.merged:
                found.merges.append((folder, folder / recipe.merged, recipe.in_pairs))
        if not keep:
            log.append(WindowSaved(window.number))
    if not keep:
        shutil.rmtree(live_folder)
    return found


def _describe(thread: ThreadRecords) -> RecoveredThread:
    num_spans = num_open = 0
    for part in thread.parts:
        columns = record_columns(part.read())
        num_spans += columns.kind.tobytes().count(Kind.SPAN)
        num_open += columns.flags.tobytes().count(Flag.CUT)
    return RecoveredThread(thread.name, num_spans - num_open, num_open)


def _unsaved(live_folder: Path, run: LiveRun, damages: list[str]) -> Iterator[tuple[UnsavedWindow, Cycle]]:
    """The windows that were not saved and have something in them, with the cycles they would have become."""
    left = read_live_folder(live_folder)
    log, damages_of_log = read_windows(live_folder)
    damages += left.damages + damages_of_log
    tracks = [track for process in left.processes for track in process.tracks]
    last_ns = max(map(_last_moment, tracks), default=0)
    owner = next((process for process in left.processes if process.pid == run.pid), None)
    windows = find_unsaved_windows(log, owner, last_ns)
    for window in windows:
        names, threads = _recorded_in(window, left.processes, owner, is_last=window is windows[-1])
        if threads:
            yield window, _cycle(run, window, tracks[0], names, threads, damages)


def _recorded_in(
    window: UnsavedWindow, processes: list[LiveProcess], owner: LiveProcess | None, *, is_last: bool
) -> tuple[list[SpanName], list[ThreadRecords]]:
    """What all processes recorded in a window, and the names that its records' ids stand for."""
    names: list[SpanName] = []
    threads: list[ThreadRecords] = []
    for process in sorted(processes, key=lambda process: process is not owner):
        ids = range(len(names), len(names) + len(process.names))
        for track in process.tracks:
            if process is owner:
                thread = _own_records(track, window)
            else:
                thread = child_records_in_window(track, ids, window.began_ns, window.closed_ns)
            threads.append(thread if is_last else replace(thread, num_dropped=0))
        names += [SpanName(name.name, name.categories) for name in process.names]
    return names, [thread for thread in threads if thread.num_records]


def _own_records(track: LiveTrack, window: UnsavedWindow) -> ThreadRecords:
    """What a thread of the process that opened the window recorded in it; spans still open end where it does."""
    cut = [
        span._replace(end=max(span.begin, window.closed_ns), flags=Flag.CUT, series=0)
        for span in track.open_spans
        if span.series == window.number
    ]
    parts = [part for part in track.parts if part.window == window.number]
    return ThreadRecords(
        track.tid, track.name, track.is_main, [*parts, PartInMemory(pack_records(cut))], track.num_dropped
    )


def _cycle(
    run: LiveRun,
    window: UnsavedWindow,
    clock: LiveTrack,
    names: list[SpanName],
    threads: list[ThreadRecords],
    damages: list[str],
) -> Cycle:
    """``clock`` is any of the rank's tracks: the processes of a machine share one."""
    to_unix_ns = clock.unix_ns - clock.monotonic_ns
    began_ns = window.began_ns or clock.monotonic_ns
    closed_ns = max(began_ns, window.closed_ns)
    return Cycle(
        number=window.cycle,
        run_name=run.run_name,
        ranks=Ranks(run.rank, run.local_rank, run.world_size, run.local_world_size, run.node_rank),
        attempt=Attempt(run.run_id, run.restart, run.pid),
        pid=run.pid,
        begin_timestamp=window.begin,
        timestamp=window.end or _end(window.begin, threads, names),
        begin=Anchor(began_ns, began_ns + to_unix_ns),
        end=Anchor(closed_ns, closed_ns + to_unix_ns),
        names=names,
        recorded=WindowRecords(lambda: threads),
        metadata={"distributedInfo": {"rank": run.rank, "world_size": run.world_size}, "recovered": True},
        damages=damages,
    )


def _last_moment(track: LiveTrack) -> int:
    """The latest moment that is known of a track: records stand in the order in which they ended."""
    last = unpack_records(track.parts[-1].read()[-RECORD_BYTES:]) if track.parts else ()
    ends = [int(record.end) if record.kind == Kind.SPAN else record.begin for record in last]
    return max([*ends, *(span.begin for span in track.open_spans)], default=0)


def _end(begin: Timestamp, threads: list[ThreadRecords], names: list[SpanName]) -> Timestamp:
    """Where the run was when it died: the window's first batch, and those whose spans had ended by then."""
    batches = {
        record.batch
        for thread in threads
        for record in thread.records()
        if record.kind == Kind.SPAN and not record.flags and names[record.name].name == "event/batch"
    }
    timestamp = begin
    for _ in batches:
        timestamp = timestamp.to_next_batch()
    return timestamp
