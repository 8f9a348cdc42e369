"""handlers: recovery. What killed processes left flows in; the traces they would have saved flow out."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kinetoscope.clock.anchor import Anchor
from kinetoscope.errors import TraceFileError
from kinetoscope.formats.chunk import LiveProcess, LiveTrack, read_live_folder
from kinetoscope.formats.live_run import LiveRun, LiveWindow, TraceRecipe, live_folders, read_live_run, read_live_window
from kinetoscope.formats.owner_lock import Owner, owner_state
from kinetoscope.formats.record import RECORD_BYTES, Kind, Record, pack_records, unpack_records
from kinetoscope.handlers.json_trace_handler import JSONTraceHandler
from kinetoscope.recording.cycle import Cycle
from kinetoscope.recording.recorder import PartInMemory, SpanName, ThreadRecords, WindowRecords
from kinetoscope.storage.remote_name import queue_recovered
from kinetoscope.training.attempt import Attempt
from kinetoscope.training.ranks import Ranks
from kinetoscope.training.timestamp import Timestamp, timestamp_from_fields

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
    threads: list[RecoveredThread]
    traces: list[Path]
    merges: list[tuple[Path, Path, bool]]
    """Folders whose manifests now list the traces, the merged file of each, and whether that is a bare list."""


def recover(
    run_folder: str | os.PathLike[str], *, keep: bool = False, other_hosts: bool = False
) -> Iterator[RecoveredRank]:
    """Makes traces of what the killed processes of a run left behind, rank by rank.

    Their live folders are deleted once the traces are written, unless ``keep``. Processes that still run are passed
    over, and so are those of other machines, which cannot be asked, unless ``other_hosts``. Raises `TraceFileError` if
    ``run_folder`` holds nothing to recover, or something that cannot be read.
    """
    run_folder = Path(run_folder)
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


def _recover_rank(run_folder: Path, folder: Path, run: LiveRun) -> RecoveredRank:
    processes = read_live_folder(folder)
    cycle = _cycle(run, read_live_window(folder), processes)
    traces, merges = [], []
    if cycle is not None:
        for recipe in run.recipes or [_DEFAULT_RECIPE]:
            handler = JSONTraceHandler.reopen(run_folder / recipe.folder, recipe, run.run_name, cycle.ranks)
            traces.append(handler.write(cycle))
            if recipe.remote:
                queue_recovered(run_folder, recipe.remote, traces[-1], cycle)
            if recipe.merged:
                folder = run_folder / recipe.folder
                merges.append((folder, folder / recipe.merged, recipe.in_pairs))
    threads = [_describe(track) for process in processes for track in process.tracks]
    return RecoveredRank(run, folder, [it for it in threads if it.num_spans or it.num_open], traces, merges)


def _describe(track: LiveTrack) -> RecoveredThread:
    return RecoveredThread(track.name, track.num_spans, len(track.open_spans))


def _cycle(run: LiveRun, window: LiveWindow | None, processes: list[LiveProcess]) -> Cycle | None:
    """All that a rank's processes left, as the cycle its last window would have become; None if that is nothing."""
    tracks = [track for process in processes for track in process.tracks]
    if not any(track.parts or track.open_spans for track in tracks):
        return None
    cut_ns = max(_last_moment(track) for track in tracks)
    names: list[SpanName] = []
    threads: list[ThreadRecords] = []
    for process in processes:
        threads += [_thread(track, cut_ns, len(names)) for track in process.tracks]
        names += [SpanName(name.name, name.categories) for name in process.names]
    anchor = Anchor(tracks[0].monotonic_ns, tracks[0].unix_ns)
    begin = timestamp_from_fields(window.timestamp) if window else Timestamp()
    return Cycle(
        number=window.cycle if window else 0,
        run_name=run.run_name,
        ranks=Ranks(run.rank, run.local_rank, run.world_size, run.local_world_size, run.node_rank),
        attempt=Attempt(run.run_id, run.restart, run.pid),
        pid=run.pid,
        begin_timestamp=begin,
        timestamp=_end(begin, threads, names),
        begin=anchor,
        end=anchor,
        names=names,
        recorded=WindowRecords(lambda: [thread for thread in threads if thread.num_records]),
        metadata={"distributedInfo": {"rank": run.rank, "world_size": run.world_size}, "recovered": True},
    )


def _last_moment(track: LiveTrack) -> int:
    """The latest moment that is known of a track: records stand in the order in which they ended."""
    last = [it[-RECORD_BYTES:] for it in track.parts if it]
    ends = [int(it.end) if it.kind == Kind.SPAN else it.begin for part in last for it in unpack_records(part)]
    return max([*ends, *(it.begin for it in track.open_spans)], default=0)


def _thread(track: LiveTrack, cut_ns: int, first_name: int) -> ThreadRecords:
    """A track's records, with its ids of names moved up by ``first_name``: each process counts its own from 0."""
    parts = track.parts_cut_at(cut_ns)
    if first_name:
        parts = [pack_records(_renamed(record, first_name) for record in unpack_records(part)) for part in parts]
    return ThreadRecords(track.tid, track.name, track.is_main, list(map(PartInMemory, parts)), track.num_dropped)


def _renamed(record: Record, first_name: int) -> Record:
    series = record.series + first_name if record.kind == Kind.COUNTER else record.series
    return record._replace(name=record.name + first_name, series=series)


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
