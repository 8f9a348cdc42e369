"""Recovery of the traces that killed processes of a run would have saved, from their spool folders."""

import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from kinetoscope.core.job.file_names import FileNameFormat
from kinetoscope.core.paths.atomic_file import remove_partials
from kinetoscope.core.paths.remote_url import check_url
from kinetoscope.core.paths.run_folder import RunFolder
from kinetoscope.core.text.once_log import OnceLog
from kinetoscope.errors import FileNameError, KinetoscopeError, SettingsError, TraceFileError
from kinetoscope.formats.manifest import find_empty_reason
from kinetoscope.handlers.json_trace_handler import JSONTraceHandler
from kinetoscope.handlers.recovered_cycles import RankRecords
from kinetoscope.recording.window.cycle import Cycle
from kinetoscope.spool.folders import (
    SpoolOwner,
    TraceRecipe,
    delete_empty_folders,
    delete_spool_folder,
    find_spool_folders,
    is_spool_folder,
    read_spool_owner,
)
from kinetoscope.spool.owner_lock import OwnerState, read_owner_state
from kinetoscope.spool.record import Flag, Kind, ThreadRecords, record_columns
from kinetoscope.uploads.rank_uploads import queue_recovered

# For a run without a handler that writes files: its records are in its spool folder all the same.
_DEFAULT_RECIPE = TraceRecipe("traces", "ep{epoch}-ba{batch}-rank{rank}.json", "merged_trace.json")

_REDACTS = (
    "Its run redacts what it writes (redact=), by a function that only the run has. The unsaved data has all names as "
    "they were recorded. To make traces with these names, pass --without-redaction. If you need none, pass --discard."
)
_FAULT = "This is a bug of Kinetoscope; nothing in the folder was changed."


@dataclass(slots=True)
class RecoveredThread:
    """The recovered data of one thread: finished spans, and spans that were open at the end of a window."""

    name: str
    num_spans: int = 0
    num_open: int = 0


@dataclass(frozen=True, slots=True)
class RecoveredMerge:
    """A folder whose manifest now lists recovered traces, and its merged file, which goes to ``url`` if given."""

    folder: Path
    output: Path
    as_list: bool
    url: str


@dataclass(frozen=True, slots=True)
class RecoveredRank:
    """The recovered data of one killed rank, and the traces it was made into."""

    run: SpoolOwner
    spool_folder: Path
    threads: dict[int, RecoveredThread] = field(default_factory=dict)
    """The threads by their tid."""
    traces: list[Path] = field(default_factory=list)
    merges: list[RecoveredMerge] = field(default_factory=list)
    damages: list[str] = field(default_factory=list)
    """A sentence on each unreadable part."""
    unwritten: list[str] = field(default_factory=list)
    """A sentence with the reason on each window that could not be written."""
    is_kept: bool = False
    """True if the spool folder was kept on request, or because some of its data is in no trace."""
    undeleted: str = ""
    """The reason why the spool folder still exists although all its data is in traces; else empty."""

    @property
    def is_complete(self) -> bool:
        """True if all unsaved data of the rank is in the traces."""
        return not (self.damages or self.unwritten)


@dataclass(frozen=True, slots=True)
class UnrecoveredRank:
    """A spool folder without recovered data, and the reason; it is kept, unless it ``is_discarded``."""

    spool_folder: Path
    error: Exception
    is_discarded: bool = False

    @property
    def reason(self) -> str:
        """The reason why nothing was recovered, in sentences."""
        if isinstance(self.error, OSError) and not isinstance(self.error, KinetoscopeError):
            file = "" if self.error.filename is None else f" ({self.error.filename})"
            return f"{self.error.strerror or self.error}{file}."
        if isinstance(self.error, KinetoscopeError):
            return str(self.error)
        return f"{type(self.error).__name__}: {self.error}. {_FAULT}"


class TraceDestinations:
    """Choice of the folder and the names of traces for each handler of a killed run.

    The run's own choice counts if its folder is in the run's folder or among those ``named`` by the user. Otherwise the
    traces go to ``traces`` in the run's folder under the default names, and ``log`` is called once with the reason.
    """

    def __init__(
        self,
        run_folder: str | os.PathLike[str],
        named: Collection[str | os.PathLike[str]],
        log: Callable[[str], object],
    ) -> None:
        self._run = RunFolder(run_folder)
        self._named = {Path(os.path.realpath(folder)) for folder in named}
        self._log = log
        self._once = OnceLog()

    def choose(self, run: SpoolOwner, cycle: Cycle) -> list[TraceRecipe]:
        """Return the recipes of a run's handlers for one cycle, each with the full path of its folder.

        Raises OSError if no folder can be written to.
        """
        return list(dict.fromkeys(self._choose(recipe, run, cycle) for recipe in run.recipes or [_DEFAULT_RECIPE]))

    def _choose(self, recipe: TraceRecipe, run: SpoolOwner, cycle: Cycle) -> TraceRecipe:
        folder = self._folder(recipe, run)
        filename, merged = recipe.filename, recipe.merged
        try:
            name = FileNameFormat(filename).fill(run.run_name, cycle.ranks, cycle.timestamp)
            RunFolder(folder).path_of(name)
            RunFolder(folder).path_of(merged or name)
        except (OSError, FileNameError) as error:
            self._log_once(f"Rank {run.ranks.rank}'s traces get other names than its run gave them. {error}")
            filename, merged = _DEFAULT_RECIPE.filename, _DEFAULT_RECIPE.merged
        remote = self._checked(recipe.remote, run, cycle)
        # The URL of the merged file is not a format: its variables are already filled in.
        merged_remote = self._checked(recipe.merged_remote.replace("{", "{{").replace("}", "}}"), run, cycle)
        merged_remote = recipe.merged_remote if merged_remote else ""
        return TraceRecipe(str(folder), filename, merged, recipe.in_pairs, remote, merged_remote)

    def _checked(self, remote: str, run: SpoolOwner, cycle: Cycle) -> str:
        """Return ``remote``, a format of URLs; empty if its result is not a URL."""
        try:
            if remote:
                check_url(FileNameFormat(remote).fill(run.run_name, cycle.ranks, cycle.timestamp), "remote")
        except (FileNameError, SettingsError) as error:
            self._log_once(f"Rank {run.ranks.rank}'s traces are not queued for upload. {error}")
            return ""
        return remote

    def _folder(self, recipe: TraceRecipe, run: SpoolOwner) -> Path:
        try:
            return self._run.make_folder(recipe.folder)
        except OSError:
            wanted = os.path.abspath(self._run.path / recipe.folder.replace("\0", ""))
        if Path(os.path.realpath(wanted)) in self._named:
            return Path(os.path.realpath(wanted))
        default_folder = self._run.make_folder(_DEFAULT_RECIPE.folder)
        self._log_once(
            f"Rank {run.ranks.rank}'s traces are written to {default_folder}. The run wrote them to {wanted!r}, which "
            f"is outside of the run's folder or behind a link: to write there, pass --traces DIR."
        )
        return default_folder

    def _log_once(self, sentence: str) -> None:
        if self._once.is_first(sentence):
            self._log(sentence)


def recover(
    run_folder: str | os.PathLike[str],
    *,
    keep: bool = False,
    discard: bool = False,
    other_hosts: bool = False,
    without_redaction: bool = False,
    traces: Collection[str | os.PathLike[str]] = (),
    log: Callable[[str], object] = lambda sentence: None,
) -> Iterator[RecoveredRank | UnrecoveredRank]:
    """Make traces of the unsaved data of a run's killed processes, rank by rank: one for each unsaved window.

    A spool folder is deleted when all of its data is in traces. If some of it could not be read or written, the folder
    is kept. Each folder is recovered independently of the others. Processes that still run are skipped.

    Args:
        run_folder: the folder of the run.
        keep: keep the spool folders.
        discard: also delete data that could not be read.
        other_hosts: also recover processes of other machines, which may still run.
        without_redaction: also recover runs that redact their traces, though only the run has the function.
        traces: folders outside of the run's folder that may be written to; else the traces go to ``traces`` in it.
        log: called with a sentence for each deviation from the settings of the run.

    Raises `TraceFileError` if ``run_folder`` holds nothing to recover.
    """
    run_folder = Path(run_folder)
    cleanup = _FolderCleanup(run_folder, keep=keep, discard=discard)
    destinations = TraceDestinations(run_folder, traces, log)
    if not keep:
        _remove_partials(run_folder)
        delete_empty_folders(run_folder)
    found, without_run = list(find_spool_folders(run_folder, log)), list(_folders_without_run(run_folder))
    if not found and not without_run:
        if why := find_empty_reason(run_folder):
            raise TraceFileError(f"Nothing to recover in {run_folder}. {why}")
        raise TraceFileError(
            f"Nothing to recover in {run_folder}: it has no spool folder. Pass the run's folder (the one with `live` "
            "and `traces` in it). A run that ended cleanly leaves nothing to recover: its traces are complete."
        )
    for folder in found:
        try:
            run = read_spool_owner(folder)
            state = read_owner_state(folder, run.attempt)
            if state is OwnerState.DEAD or (state is OwnerState.UNKNOWN and other_hosts):
                if run.redacts and not without_redaction:
                    raise TraceFileError(_REDACTS)
                yield cleanup.remove_recovered(_recover_rank(run_folder, destinations, folder, run))
        except Exception as error:  # a failure in one folder must not prevent the recovery of the others
            yield cleanup.remove_unreadable(folder, error)
    for folder in without_run:
        missing = TraceFileError("Its run.json, which names the process that made it, is missing.")
        yield cleanup.remove_unreadable(folder, missing)
    if not keep:
        delete_empty_folders(run_folder)


class _FolderCleanup:
    """Deletion of the spool folders that are not needed any more."""

    def __init__(self, run_folder: Path, *, keep: bool, discard: bool) -> None:
        self._run_folder = run_folder
        self._keep = keep
        self._discard = discard

    def remove_recovered(self, rank: RecoveredRank) -> RecoveredRank:
        """Delete the folder of a recovered rank if all its data is in traces, or the rest is unwanted."""
        is_needed = bool(rank.unwritten or (rank.damages and not self._discard))
        if self._keep or is_needed:
            return replace(rank, is_kept=True)
        try:
            delete_spool_folder(self._run_folder, rank.spool_folder)
        except OSError as error:
            return replace(rank, is_kept=True, undeleted=f"It cannot be deleted: {error.strerror or error}.")
        return rank

    def remove_unreadable(self, folder: Path, error: Exception) -> UnrecoveredRank:
        """Delete an unreadable folder if it is unwanted and its process is known to be dead."""
        is_unreadable = isinstance(error, TraceFileError) and read_owner_state(folder, None) is OwnerState.DEAD
        if not (self._discard and is_unreadable):
            return UnrecoveredRank(folder, error)
        try:
            delete_spool_folder(self._run_folder, folder)
        except OSError as not_deleted:
            return UnrecoveredRank(folder, not_deleted)
        return UnrecoveredRank(folder, error, is_discarded=True)


def _folders_without_run(run_folder: Path) -> Iterator[Path]:
    """Yield spool folders without an owner file, except those that a process is making at the moment."""
    run = RunFolder(run_folder)
    for name in run.names("live"):
        path = run.path / "live" / name
        if (
            run.is_folder(f"live/{name}")
            and not is_spool_folder(path)
            and read_owner_state(path, None) is not OwnerState.ALIVE
        ):
            yield path


def _remove_partials(run_folder: Path) -> None:
    """Delete half-written files of dead processes in folders of traces, without following links."""
    for pattern in ("*/.manifest", "*/attempt*/.manifest"):
        for manifests in run_folder.glob(pattern):
            folder = manifests.parent.relative_to(run_folder)
            if (run_folder / folder).resolve() == run_folder.resolve() / folder:
                remove_partials(run_folder / folder)


def _recover_rank(
    run_folder: Path, destinations: TraceDestinations, spool_folder: Path, run: SpoolOwner
) -> RecoveredRank:
    left = RankRecords(spool_folder, run)
    found = RecoveredRank(run, spool_folder, damages=left.damages)
    for window in left.windows():
        try:
            _recover_window(run_folder, destinations, window.cycle, found)
        except Exception as error:  # a full disk, for instance: the window stays in the spool folder
            why = UnrecoveredRank(spool_folder, error).reason
            found.unwritten.append(f"Window {window.number} is not in a trace: {why}")
    return found


def _recover_window(run_folder: Path, destinations: TraceDestinations, cycle: Cycle, found: RecoveredRank) -> None:
    """Write a window's traces, unless its process or an earlier call has written them."""
    for recipe in destinations.choose(found.run, cycle):
        folder = Path(recipe.folder)
        handler = JSONTraceHandler.reopen(folder, recipe, found.run.run_name, cycle.ranks, cycle.attempt)
        found.traces.append(handler.find_written(cycle) or handler.write(cycle))
        if recipe.remote:
            queue_recovered(run_folder, recipe.remote, found.traces[-1], cycle)
        if recipe.merged:
            merge = RecoveredMerge(folder, folder / recipe.merged, recipe.in_pairs, recipe.merged_remote)
            found.merges.append(merge)
    found.damages.extend(note for note in cycle.contributions.unread if note not in found.damages)
    _count(cycle.threads, found.threads)


def _count(threads: list[ThreadRecords], counts: dict[int, RecoveredThread]) -> None:
    """Add the records of threads in one window to ``counts``."""
    for thread in threads:
        count = counts.setdefault(thread.tid, RecoveredThread(thread.name))
        for part in thread.parts:
            columns = record_columns(part.read())
            num_cut = columns.flags.tobytes().count(Flag.CUT)
            count.num_spans += columns.kind.tobytes().count(Kind.SPAN) - num_cut
            count.num_open += num_cut
