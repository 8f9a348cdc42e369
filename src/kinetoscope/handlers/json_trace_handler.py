"""Chrome JSON file per rank and cycle, and one merged file per node."""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import msgspec

import kinetoscope
from kinetoscope.core.clock.clock import choose_base_ns
from kinetoscope.core.job.file_names import FileNameFormat, UniqueNames
from kinetoscope.core.job.ranks import Attempt, Ranks
from kinetoscope.core.job.timestamp import Timestamp, timestamp_fields
from kinetoscope.core.paths.atomic_file import atomic_file
from kinetoscope.core.paths.run_folder import RunFolder
from kinetoscope.core.text.wording import format_count
from kinetoscope.errors import TraceFileError
from kinetoscope.formats.chrome import ChromeWriter, read_chrome, read_header
from kinetoscope.formats.compression import compressed_by_name
from kinetoscope.formats.nesting import in_pairs, nest
from kinetoscope.formats.slow_steps import FOLDER as SLOW_STEPS
from kinetoscope.formats.slow_steps import append_slow_step
from kinetoscope.formats.track_ids import RankTracks, number_of_tid
from kinetoscope.handlers.cycle_events import (
    Drain,
    MarkerEvent,
    Placeholder,
    cycle_text,
    lasting_events,
    source_events,
    thread_events,
    thread_names,
)
from kinetoscope.handlers.merge_process import MergeProcess
from kinetoscope.recording.run.plugin_api import ProfiledState
from kinetoscope.recording.window.cycle import Cycle
from kinetoscope.recording.window.source_events import MAX_EVENTS
from kinetoscope.recording.window.trace_folder import TraceFolder
from kinetoscope.recording.window.trace_handler import TraceHandler
from kinetoscope.spool.folders import TraceRecipe
from kinetoscope.uploads.rank_uploads import RemoteName, add_node_suffix, get_uploads

_FROM_KINETO = ("schemaVersion", "deviceProperties", "distributedInfo", "record_shapes", "with_stack", "with_flops")
_Contents = tuple[dict[str, Any], Callable[[ChromeWriter], None]]
"""The header of a file, and the function that writes its events."""


class JSONTraceHandler(TraceHandler):
    """Writes each cycle of each rank as a Chrome JSON file, and merges the node's files, over all cycles, into one.

    ``folder``, ``filename`` and ``merged_trace_filename`` may use the variables of `FileNameFormat`. A file whose name
    ends in ``.gz`` is compressed. ``merged_trace_filename=None`` switches merging off. Merging runs in a separate
    process, at most once a minute during the run and once at its end. ``num_traces_to_keep`` deletes the oldest files
    of a rank when they are merged and their upload is confirmed; -1 keeps all.

    The files are uploaded as ``remote_file_name`` and ``merged_trace_remote_file_name``. A name with a scheme
    (``s3://bucket/...``) is a URL; any other is below the Profiler's ``upload_to``. None uploads nothing.

    Raises `FileNameError` at construction for an unknown variable. At the start of the run: `FolderNotEmptyError`
    (unless ``overwrite``), `FolderNotWritableError`, and `FileNameError` if two ranks would share a file.
    """

    in_pairs = False
    """True for files of a bare list, with spans as pairs of ``B`` and ``E`` events, as Composer writes them."""

    def __init__(
        self,
        folder: str = "{run_name}/traces",
        filename: str = "ep{epoch}-ba{batch}-rank{rank}.json",
        remote_file_name: str | None = "{run_name}/traces/ep{epoch}-ba{batch}-rank{rank}.json",
        merged_trace_filename: str | None = "merged_trace.json",
        merged_trace_remote_file_name: str | None = "{run_name}/traces/merged_trace.json",
        *,
        overwrite: bool = False,
        num_traces_to_keep: int = -1,
    ) -> None:
        self._remote = RemoteName(remote_file_name, "remote_file_name")
        self._merged_remote = RemoteName(
            merged_trace_remote_file_name, "merged_trace_remote_file_name", has_timestamp=False
        )
        self._merged_name = FileNameFormat(merged_trace_filename or "", "merged_trace_filename", has_timestamp=False)
        self._folder = TraceFolder(folder, filename, overwrite=overwrite, num_traces_to_keep=num_traces_to_keep)
        self._merged_path = ""
        self._merge: MergeProcess | None = None
        self._num_written = self._num_merged = 0

    def set_defaults(self, folder: str, *, overwrite: bool, num_traces_to_keep: int) -> None:
        """Replace the settings that still have their defaults; `kinetoscope.profile` calls this."""
        self._folder.set_defaults(folder, overwrite=overwrite, num_traces_to_keep=num_traces_to_keep)

    @property
    def run_folder(self) -> Path:
        """The parent of the traces' folder; known after the run has begun."""
        return self._folder.run_folder

    @property
    def needs_folder(self) -> bool:
        """True if no folder was passed at construction."""
        return self._folder.is_default

    @property
    def saved_traces(self) -> list[tuple[Timestamp, list[Any]]]:
        """The kept traces as ``[(Timestamp, [Path of each rank])]``; None for files on other nodes."""
        return self._folder.saved_traces

    def init(self, state: ProfiledState, logger: object) -> None:
        """Open the folder of the traces, and plan merging and uploads."""
        run = state.profiler.run
        self._rank = run.ranks.rank
        self._tracks = RankTracks(self._rank)
        run.replace_attempt(self._folder.open(state.run_name, run.ranks, run.attempt))
        run.agree_on_attempt(self._folder.path, self._folder.record_agreement)
        self._uploads = get_uploads(run, self._folder.run_folder)
        self._remote.open(run, state.run_name, self._uploads)
        self._merged_remote.open(run, state.run_name, self._uploads, shared=True)
        if self._merged_name.text:
            self._merged_path = add_node_suffix(self._merged_name, state.run_name, run.ranks)
        if self._merged_path and run.ranks.local_rank == 0:
            url = self._merged_remote.shared_url
            self._merge = MergeProcess(
                self._folder.path,
                self._folder.path / self._merged_path,
                node_rank=run.ranks.node_rank,
                start=run.attempt.start,
                run_folder=self._folder.run_folder,
                as_list=self.in_pairs,
                upload=(self._rank, url) if url else None,
            )

    @classmethod
    def reopen(cls, folder: Path, recipe: TraceRecipe, run_name: str, ranks: Ranks, attempt: Attempt) -> Self:
        """Return a handler that continues to write for a killed rank; it does not merge."""
        handler = cls(filename=recipe.filename, merged_trace_filename="merged" if recipe.merged else None)
        handler.in_pairs = recipe.in_pairs
        handler._tracks = RankTracks(ranks.rank)
        handler._folder.reopen(folder, run_name, ranks, attempt)
        return handler

    @property
    def saved_to(self) -> Path:
        """The merged trace if it exists, else the folder of the traces; known after the run has begun."""
        merged = self._folder.path / self._merged_path
        return merged if self._merged_path and merged.exists() else self._folder.path

    @property
    def has_lost_traces(self) -> bool:
        """True if all its files were deleted or moved during the run, although they should be kept."""
        return self._folder.has_lost_traces and self.saved_to == self._folder.path

    def record_empty_run(self, reason: str) -> None:
        """Record in the manifest that the run recorded nothing, and the reason. Raises OSError if it cannot."""
        self._folder.record_empty_run(reason)

    @property
    def recipe(self) -> TraceRecipe:
        """The names of this handler's traces, for `recover`; known after the run has begun."""
        folder = os.path.abspath(self._folder.path)
        return TraceRecipe(
            folder,
            self._folder.filename,
            self._merged_path,
            self.in_pairs,
            self._remote.url,
            self._merged_remote.shared_url if self._merged_path else "",
        )

    def process_cycle(self, cycle: Cycle) -> None:
        """Write the cycle's file; on local rank 0, also start the merge if it is due."""
        self.write(cycle)
        if self._merge is not None:
            self._merge.start_if_due()

    def write(self, cycle: Cycle) -> Path:
        """Write the cycle's file, list it in the manifest, and return its path."""
        with self._folder.new_trace(cycle.number, cycle.timestamp) as path:
            self._write_to(path, cycle)
        self._num_written += 1
        self._remote.put(path, cycle.timestamp)
        expired = self._folder.expire()
        if not self._merged_name.text:  # with merging, they are deleted when they are merged
            for old in expired:
                self._uploads.delete_when_uploaded(old)
        return path

    def process_slow_step(self, cycle: Cycle) -> None:
        """Write the window of a slow step into the run's folder, and add it to the list of its rank."""
        slow = cycle.slow_step
        if slow is None or cycle.is_empty:
            return
        run = RunFolder(self._folder.run_folder)
        run.make_folder(SLOW_STEPS)
        before = f"attempt{slow.restart}-" if slow.restart else ""
        names = UniqueNames(run.names(SLOW_STEPS))
        suffix = ".json.gz" if self._folder.filename.endswith(".gz") else ".json"
        name = names.choose(f"{before}ba{slow.step}-rank{slow.rank}{suffix}")
        self._write_to(run.path_of(f"{SLOW_STEPS}/{name}"), cycle)
        append_slow_step(run.path, msgspec.structs.replace(slow, path=name))

    def _write_to(self, path: Path, cycle: Cycle) -> None:
        header, write_events = self._as_text(cycle) or self._as_events(cycle)
        with atomic_file(path) as file, compressed_by_name(file, path) as stream:
            base_ns = choose_base_ns(cycle.begin.unix_ns, cycle.base_ns)
            as_list, rank = self.in_pairs, self._tracks.rank
            with ChromeWriter(stream, base_ns=base_ns, header=header, as_list=as_list, rank=rank) as writer:
                writer.write(self.metadata(cycle, base_ns))
                write_events(writer)

    def _as_text(self, cycle: Cycle) -> _Contents | None:
        """Return the cycle as text, without a Python object per event; None where that is impossible."""
        text = None if self.in_pairs else cycle_text(cycle)
        if text is None:
            return None
        text.assign_tracks(self._tracks)
        return _header(cycle) | _from_kineto(text.trace.header), text.write

    def _as_events(self, cycle: Cycle) -> _Contents:
        contributed, header = _contributed(cycle)
        used_tids = {number_of_tid(event.get("tid")) for event in contributed} | {
            str(event.tid) for event in cycle.events if self.in_pairs or event.end_ns is not None
        }  # an instant overlaps no span
        drain = Drain(cycle, used_tids, in_pairs=self.in_pairs)
        events = [*_marker_events(cycle, drain), *contributed]
        nest(events, is_fixed=lambda event: isinstance(event, MarkerEvent))
        events = self._tracks.adopt(events)

        def write(writer: ChromeWriter) -> None:
            writer.write(self._in_layout(events))
            drain.write(writer)

        return header, write

    def find_written(self, cycle: Cycle) -> Path | None:
        """Return the file of this cycle that its process or an earlier `recover` wrote, or None.

        It is added to the manifest if it is not there yet. If `recover` wrote it when other parts of the cycle could
        not be read, it is written anew.
        """
        paths = self._folder.list_written(cycle.number, cycle.timestamp)
        written = ((path, _kinetoscope_header(path)) for path in paths)
        path, header = next(((path, header) for path, header in written if _is_of_cycle(header, cycle)), (None, {}))
        if path is None:
            return None
        is_other = header.get("recovered") is True and header["kinetoscope"].get("repaired") != _damages(cycle)
        if is_other:
            self._write_to(path, cycle)
        if is_other or not self._folder.is_listed(path):
            self._folder.add(path, cycle.number, cycle.timestamp)
        return path

    def metadata(self, cycle: Cycle, base_ns: int) -> list[dict[str, Any]]:
        """Return the first events of a file, which describe its tracks; times count from ``base_ns``."""
        return self._tracks.metadata()

    def _in_layout(self, events: list[dict[str, Any]]) -> Iterable[dict[str, Any]]:
        timed = (event for event in events if not isinstance(event, Placeholder))
        return in_pairs(timed, is_kinetoscope=lambda event: isinstance(event, MarkerEvent)) if self.in_pairs else timed

    def merge_now(self, timeout_s: float) -> None:
        """Merge the saved traces of this node's ranks, if this rank has saved a cycle since the last merge.

        Waits at most ``timeout_s`` seconds, and of these only a few for ranks that have saved fewer cycles.
        """
        if self._num_written > self._num_merged:
            self._merge_and_upload(timeout_s, self._num_written)

    def close(self, state: ProfiledState, logger: object) -> None:
        """Close the manifest, merge the traces a last time, and upload the merged file."""
        try:
            self._folder.close()
        finally:  # also when the disk is full
            run = state.profiler.run
            if self._num_written > self._num_merged or run.ranks.local_world_size > 1:
                self._merge_and_upload(run.seconds_to_close(), None)

    def _merge_and_upload(self, timeout_s: float, num_cycles: int | None) -> None:
        self._num_merged = self._num_written
        if self._merge is not None and self._merge.finish(timeout_s, num_cycles):
            self._merged_remote.put_shared(self._folder.path / self._merged_path)


def _marker_events(cycle: Cycle, drain: Drain) -> Iterator[dict[str, Any]]:
    """Return the events of markers; a thread that ``drain`` accepts is represented by its placeholder."""
    yield from thread_names(cycle)
    yield from lasting_events(cycle)
    yield from source_events(cycle)
    for thread in cycle.threads:
        placeholder = drain.plan(thread)
        yield from thread_events(cycle, thread) if placeholder is None else (placeholder,)


def _contributed(cycle: Cycle) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the events of the files contributed to a cycle, and the header of the cycle's file."""
    header = _header(cycle)
    events: list[dict[str, Any]] = []
    notes = header["kinetoscope"]["repaired"]
    for file in cycle.files:
        try:
            trace = read_chrome(file)
        except (TraceFileError, OSError) as error:
            notes.append(f"left out {file.name}: {error}")
            cycle.contributions.unread.append(notes[-1])
            continue
        notes += trace.notes
        header |= _from_kineto(trace.header)
        events += _drop_named_threads(trace.events, cycle)
    return events, header


def _header(cycle: Cycle) -> dict[str, Any]:
    return {
        **cycle.metadata,
        "kinetoscope": _description(cycle) | {"repaired": _damages(cycle)},
    }


def _damages(cycle: Cycle) -> list[str]:
    return [*cycle.damages, *cycle.contributions.damages, *_describe_left_out(cycle)]


def _describe_left_out(cycle: Cycle) -> list[str]:
    number = cycle.contributions.events.num_left_out
    return [f"{format_count(number, 'event')} of sources are left out: a window keeps {MAX_EVENTS}."] if number else []


def _from_kineto(header: dict[str, Any]) -> dict[str, Any]:
    return {key: header[key] for key in _FROM_KINETO if key in header}


def _kinetoscope_header(path: Path) -> dict[str, Any]:
    """Return the header of Kinetoscope's trace file; empty for any other file."""
    try:
        header = read_header(path)
    except (TraceFileError, OSError):
        return {}
    return header if isinstance(header.get("kinetoscope"), dict) else {}


def _is_of_cycle(header: dict[str, Any], cycle: Cycle) -> bool:
    """Return whether a trace file with this header has this cycle.

    Another attempt may have written a file of the same name, and in a container its process has the same pid: only
    ``start`` differs between attempts.
    """
    wanted = {"rank": cycle.ranks.rank, "pid": cycle.pid, "start": cycle.attempt.start, "cycle": cycle.number}
    fields = header.get("kinetoscope", {})
    return all(fields.get(key) == value for key, value in wanted.items())


def _drop_named_threads(events: Iterable[dict[str, Any]], cycle: Cycle) -> Iterator[dict[str, Any]]:
    """Yield the events without Kineto's names of threads that Python has named.

    Kineto names threads after the program.
    """
    tids = {thread.tid for thread in cycle.threads}
    for event in events:
        is_name = event.get("ph") == "M" and event.get("name") == "thread_name"
        if not (is_name and event.get("pid") == cycle.pid and event.get("tid") in tids):
            yield event


def _description(cycle: Cycle) -> dict[str, Any]:
    """Return the description of the file: its run and rank, its time, and the relation of the clocks."""
    return {
        "version": kinetoscope.__version__,
        "run_name": cycle.run_name,
        "rank": cycle.ranks.rank,
        "local_rank": cycle.ranks.local_rank,
        "node_rank": cycle.ranks.node_rank,
        "world_size": cycle.ranks.world_size,
        "cycle": cycle.number,
        "dropped": sum(thread.num_dropped for thread in cycle.threads),
        "lost_cycles": cycle.num_lost_cycles,
        "lost_records": cycle.num_lost_records,
        "pid": cycle.pid,
        "start": cycle.attempt.start,
        "begin": timestamp_fields(cycle.begin_timestamp),
        "end": timestamp_fields(cycle.timestamp),
        "warmup_batches": cycle.warmup_batches,
        **({} if cycle.slow_step is None else {"slow_step": msgspec.to_builtins(cycle.slow_step)}),
        "clock": {
            "anchors": [
                {"monotonic_ns": anchor.monotonic_ns, "unix_ns": anchor.unix_ns, "bound_ns": anchor.bound_ns}
                for anchor in (cycle.begin, cycle.end)
            ],
            "stepped": cycle.clock.stepped,
            "beside_rank0": relation.description(cycle.begin.monotonic_ns, cycle.end.monotonic_ns)
            if (relation := cycle.relation)
            else None,
        },
    }
