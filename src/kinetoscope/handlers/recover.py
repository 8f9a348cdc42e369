"""handlers: recovery. What killed processes left flows in; the traces they would have saved flow out."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kinetoscope.clock.anchor import Anchor
from kinetoscope.errors import TraceFileError
from kinetoscope.formats.chunk import LiveProcess, LiveTrack, read_live_folder
from kinetoscope.formats.live_run import LiveRun, TraceRecipe, contributed_files, live_folders, read_live_run
from kinetoscope.formats.owner_lock import Owner, owner_state
from kinetoscope.formats.record import RECORD_BYTES, Flag, Kind, pack_records, record_columns, unpack_records
from kinetoscope.formats.window_log import read_windows
from kinetoscope.handlers.json_trace_handler import JSONTraceHandler
from kinetoscope.handlers.unsaved_windows import UnsavedWindow, find_unsaved_windows
from kinetoscope.recording.child_records import child_records_in_window
from kinetoscope.recording.cycle import Contributions, Cycle
from kinetoscope.recording.recorder import PartInMemory, SpanName, ThreadRecords, WindowRecords
from kinetoscope.storage.remote_name import queue_recovered
from kinetoscope.training.attempt import Attempt
from kinetoscope.training.ranks import Ranks
from kinetoscope.training.timestamp import Timestamp
from kinetoscope.writing.partial_files import remove_partials

# For a run none of whose handlers writes files: what was recorded is in its live folder all the same.
_DEFAULT_RECIPE = TraceRecipe("traces", "ep{epoch}-ba{batch}-rank{rank}.json", "merged_trace.json")


@dataclass(frozen=True, slots=True)
class RecoveredThread:
    """What was found of one thread: finished spans, and those that were open when the process died."""

    name: str
    num_spans: int
    num_open: int


@dataclass(frozen=True, slots=True)
class RecoveredMerge:
    """A folder whose manifest now lists recovered traces, and its merged file, which is uploaded to ``url`` if any."""

    folder: Path
    output: Path
    as_list: bool
    url: str


@dataclass(frozen=True, slots=True)
class RecoveredRank:
    """What was found of one killed rank, and the traces it was made into."""

    run: LiveRun
    live_folder: Path
    threads: list[RecoveredThread]
    traces: list[Path]
    merges: list[RecoveredMerge]


def recover(
    run_folder: str | os.PathLike[str], *, keep: bool = False, other_hosts: bool = False
) -> Iterator[RecoveredRank]:
    """Makes traces of what the killed processes of a run left behind, rank by rank.

    Their live folders are deleted once the traces are written, unless ``keep``. Processes that still run are passed
    over, and so are those of other machines, which cannot be asked, unless ``other_hosts``. Raises `TraceFileError` if
    ``run_folder`` holds nothing to recover, or something that cannot be read.
    """
    run_folder = Path(run_folder)
    if not keep:
        _remove_partials(run_folder)
    found = list(live_folders(run_folder))
    if not found:
        raise TraceFileError(
            f"Nothing to recover in {run_folder}: it has no live folder. Pass the run's folder (the one with `live` "
            "and `traces` in it). A run that ended cleanly leaves nothing to recover: its traces are complete."
        )
    for folder in found:
        run = read_live_run(folder)
        state = owner_state(folder, run.host, run.pid)
        if state is Owner.DEAD or (state is Owner.UNKNOWN and other_hosts):
            yield _recover_rank(run_folder, folder, run)
            if not keep:
                shutil.rmtree(folder)
    for left in (run_folder / "live").glob("*.elsewhere"):
        if not keep and not Path(left.read_text(encoding="utf-8").strip()).exists():
            left.unlink()


def _remove_partials(run_folder: Path) -> None:
    """Deletes what dead processes left half-written beside traces; not behind links, which may lead anywhere."""
    for pattern in ("*/.manifest", "*/attempt*/.manifest"):
        for manifests in run_folder.glob(pattern):
            folder = manifests.parent.relative_to(run_folder)
            if (run_folder / folder).resolve() == run_folder.resolve() / folder:
                remove_partials(run_folder / folder)


def _recover_rank(run_folder: Path, live_folder: Path, run: LiveRun) -> RecoveredRank:
    found = RecoveredRank(run, live_folder, [], [], [])
    for cycle in _cycles(live_folder, run):
        found.threads.extend(map(_describe, cycle.threads))
        for recipe in run.recipes or [_DEFAULT_RECIPE]:
            folder = run_folder / recipe.folder
            handler = JSONTraceHandler.reopen(folder, recipe, run.run_name, cycle.ranks, cycle.attempt)
            found.traces.append(handler.write(cycle))
            if recipe.remote:
                queue_recovered(run_folder, recipe.remote, found.traces[-1], cycle)
            if recipe.merged:
                merge = RecoveredMerge(folder, folder / recipe.merged, recipe.in_pairs, recipe.merged_remote)
                found.merges.append(merge)
    return found


def _describe(thread: ThreadRecords) -> RecoveredThread:
    num_spans = num_open = 0
    for part in thread.parts:
        columns = record_columns(part.read())
        num_spans += columns.kind.tobytes().count(Kind.SPAN)
        num_open += columns.flags.tobytes().count(Flag.CUT)
    return RecoveredThread(thread.name, num_spans - num_open, num_open)


def _cycles(live_folder: Path, run: LiveRun) -> Iterator[Cycle]:
    """What a rank's processes left, as the cycles that its unsaved windows would have become."""
    processes = sorted(read_live_folder(live_folder), key=lambda process: process.pid != run.pid)
    log, _ = read_windows(live_folder)
    last_ns = max((_last_moment(track) for process in processes for track in process.tracks), default=0)
    owner = next((process for process in processes if process.pid == run.pid), None)
    for window in find_unsaved_windows(log, owner, last_ns):
        names: list[SpanName] = []
        threads: list[ThreadRecords] = []
        for process in processes:
            ids = range(len(names), len(names) + len(process.names))
            for track in process.tracks:
                if process is owner:
                    threads.append(_own_records(track, window))
                else:
                    threads.append(child_records_in_window(track, ids, window.began_ns, window.closed_ns))
            names += [SpanName(name.name, name.categories) for name in process.names]
        threads = [thread for thread in threads if thread.num_records]
        if threads:
            contributions = Contributions(window.cycle, contributed_files(live_folder, window.cycle))
            yield _cycle(run, window, _anchor(processes), names, threads, contributions)


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


def _anchor(processes: list[LiveProcess]) -> Anchor:
    """One moment on both clocks, which all processes of a machine share."""
    track = next(track for process in processes for track in process.tracks)
    return Anchor(track.monotonic_ns, track.unix_ns)


def _cycle(
    run: LiveRun,
    window: UnsavedWindow,
    anchor: Anchor,
    names: list[SpanName],
    threads: list[ThreadRecords],
    contributions: Contributions,
) -> Cycle:
    return Cycle(
        number=window.cycle,
        run_name=run.run_name,
        ranks=Ranks(run.rank, run.local_rank, run.world_size, run.local_world_size, run.node_rank),
        attempt=Attempt(run.run_id, run.restart, run.pid, run.start),
        pid=run.pid,
        begin_timestamp=window.begin,
        timestamp=window.end or _end(window.begin, threads, names),
        begin=anchor,
        end=anchor,
        names=names,
        recorded=WindowRecords(lambda: threads),
        contributions=contributions,
        metadata={"distributedInfo": {"rank": run.rank, "world_size": run.world_size}, "recovered": True},
    )


def _last_moment(track: LiveTrack) -> int:
    """The latest moment that is known of a track: records stand in the order in which they ended."""
    last = [part.read()[-RECORD_BYTES:] for part in track.parts if len(part)]
    ends = [int(it.end) if it.kind == Kind.SPAN else it.begin for part in last for it in unpack_records(part)]
    return max([*ends, *(it.begin for it in track.open_spans)], default=0)


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
