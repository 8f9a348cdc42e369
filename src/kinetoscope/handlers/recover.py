"""handlers: recovery. What killed processes left flows in; the traces they would have saved flow out."""

import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kinetoscope.clock.anchor import Anchor
from kinetoscope.errors import FileNameError, SettingsError, TraceFileError
from kinetoscope.formats.chunk import LiveProcess, LiveTrack, read_live_folder
from kinetoscope.formats.live_run import (
    LiveRun,
    LiveWindow,
    TraceRecipe,
    delete_live_folder,
    live_folders,
    read_live_run,
    read_live_window,
)
from kinetoscope.formats.owner_lock import Owner, owner_state
from kinetoscope.formats.record import RECORD_BYTES, Kind, Record, pack_records, unpack_records
from kinetoscope.handlers.json_trace_handler import JSONTraceHandler
from kinetoscope.recording.cycle import Cycle
from kinetoscope.recording.recorder import PartInMemory, SpanName, ThreadRecords, WindowRecords
from kinetoscope.storage.remote_name import queue_recovered
from kinetoscope.training.attempt import Attempt
from kinetoscope.training.file_names import FileNameFormat
from kinetoscope.training.ranks import Ranks
from kinetoscope.training.run_folder import RunFolder
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
    run_folder: str | os.PathLike[str],
    *,
    keep: bool = False,
    other_hosts: bool = False,
    traces: Collection[str | os.PathLike[str]] = (),
    say: Callable[[str], object] = lambda sentence: None,
) -> Iterator[RecoveredRank]:
    """Makes traces of what the killed processes of a run left behind, rank by rank.

    Their live folders are deleted once the traces are written, unless ``keep``. Processes that still run are passed
    over, and so are those of other machines, which cannot be asked, unless ``other_hosts``. What the folder says of
    places outside of it is not obeyed: traces go there only if that place is among ``traces``, else to ``traces`` in
    the run's folder; ``say`` is called with a sentence for each thing that is done otherwise than the folder says.
    Raises `TraceFileError` if ``run_folder`` holds nothing to recover, or something that cannot be read.
    """
    run_folder = Path(run_folder)
    found = list(live_folders(run_folder, say))
    if not found:
        raise TraceFileError(
            f"Nothing to recover in {run_folder}: it has no live folder. Pass the run's folder (the one with `live` "
            "and `traces` in it). A run that ended cleanly leaves nothing to recover: its traces are complete."
        )
    for folder in found:
        run = read_live_run(folder)
        state = owner_state(folder, run.host, run.pid)
        if state is Owner.DEAD or (state is Owner.UNKNOWN and other_hosts):
            yield _recover_rank(_Writing(run_folder, traces, say), folder, run)
            if not keep:
                delete_live_folder(run_folder, folder)


def _recover_rank(writing: "_Writing", folder: Path, run: LiveRun) -> RecoveredRank:
    processes = read_live_folder(folder)
    cycle = _cycle(run, read_live_window(folder), processes)
    if cycle is not None:
        writing.write(run, cycle)
    threads = [_describe(track) for process in processes for track in process.tracks]
    threads = [it for it in threads if it.num_spans or it.num_open]
    return RecoveredRank(run, folder, threads, writing.traces, writing.merges)


class _Writing:
    """Writes a recovered cycle as each handler of its run would have, into places that we may write to."""

    def __init__(
        self, run_folder: Path, named: Collection[str | os.PathLike[str]], say: Callable[[str], object]
    ) -> None:
        self._run = RunFolder(run_folder)
        self._named = [Path(os.path.realpath(it)) for it in named]
        self._say = say
        self.traces: list[Path] = []
        self.merges: list[tuple[Path, Path, bool]] = []

    def write(self, run: LiveRun, cycle: Cycle) -> None:
        """Writes the cycle, once for each different place and name."""
        for recipe in dict.fromkeys(self._usable(it, run, cycle) for it in run.recipes or [_DEFAULT_RECIPE]):
            folder = Path(recipe.folder)
            handler = JSONTraceHandler.reopen(folder, recipe, run.run_name, cycle.ranks, cycle.attempt)
            self.traces.append(handler.write(cycle))
            if recipe.remote:
                self._queue(recipe.remote, cycle)
            if recipe.merged:
                self.merges.append((folder, folder / recipe.merged, recipe.in_pairs))

    def _usable(self, recipe: TraceRecipe, run: LiveRun, cycle: Cycle) -> TraceRecipe:
        """The recipe with our own folder and names in place of those that lead elsewhere."""
        folder = self._folder(recipe, run)
        filename, merged = recipe.filename, recipe.merged
        try:
            name = FileNameFormat(filename).fill(run.run_name, cycle.ranks, cycle.timestamp)
            RunFolder(folder).path_of(name)
            RunFolder(folder).path_of(merged or name)
        except (OSError, FileNameError) as error:
            self._say(f"Rank {run.rank}'s traces get other names than their run gave them. {error}")
            filename, merged = _DEFAULT_RECIPE.filename, _DEFAULT_RECIPE.merged
        return msgspec.structs.replace(recipe, folder=str(folder), filename=filename, merged=merged)

    def _folder(self, recipe: TraceRecipe, run: LiveRun) -> Path:
        """The recipe's folder if it is in the run's or was named again; else the one that we would choose."""
        try:
            return self._run.make_folder(recipe.folder)
        except OSError:
            wanted = os.path.abspath(self._run.path / recipe.folder.replace("\0", ""))
        folder = Path(os.path.realpath(wanted))
        if folder in self._named:
            return folder
        chosen = self._run.make_folder(_DEFAULT_RECIPE.folder)
        self._say(
            f"Rank {run.rank}'s traces are written to {chosen}. Its run wrote them to {wanted!r}, outside of its "
            "folder, where they go only with --traces DIR."
        )
        return chosen

    def _queue(self, url: str, cycle: Cycle) -> None:
        try:
            queue_recovered(self._run.path, url, self.traces[-1], cycle)
        except (FileNameError, SettingsError) as error:
            self._say(f"{self.traces[-1]} is not put into the queue for uploads. {error}")


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
