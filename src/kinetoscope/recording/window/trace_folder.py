"""Folder for the trace files of one rank: it names them, and lists the finished ones in its manifest."""

import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from kinetoscope.core.job.file_names import FileNameFormat, UniqueNames
from kinetoscope.core.job.ranks import Attempt, Ranks, may_miss_restarts
from kinetoscope.core.job.timestamp import Moment, Timestamp, timestamp_fields, timestamp_from_fields
from kinetoscope.core.paths.atomic_file import check_writable, remove_partials, working_folder
from kinetoscope.core.paths.attempt_folders import MANIFESTS
from kinetoscope.core.paths.file_kinds import is_folder
from kinetoscope.core.paths.run_folder import RunFolder, is_name_inside
from kinetoscope.errors import (
    FileNameError,
    FolderNotEmptyError,
    FolderNotWritableError,
    SettingsError,
    TraceFileError,
    UnsafePathError,
)
from kinetoscope.formats.manifest import (
    AttemptAgreed,
    ConcurrentRanks,
    NothingRecorded,
    RankClosed,
    RankManifest,
    RankStarted,
    TraceExpired,
    TraceFinished,
    append_entry,
    read_manifest,
    read_starts,
)
from kinetoscope.spool.folders import find_spool_folder
from kinetoscope.spool.owner_lock import OwnerState, read_owner_state

_log = logging.getLogger("kinetoscope")


class TraceFolder:
    """Name the trace files of one rank, check their folder, and keep at most ``num_traces_to_keep`` (-1: all).

    A relative ``folder`` is resolved against the working folder at construction. Raises `FileNameError` for a format
    with unknown variables, `SettingsError` for an impossible number.
    """

    def __init__(self, folder: str, filename: str, *, overwrite: bool, num_traces_to_keep: int) -> None:
        check_num_traces(num_traces_to_keep)
        self._folder = FileNameFormat(str(folder), "folder", has_timestamp=False)
        self.is_default: bool = self._folder.text in [f"{{run_name}}/{name}" for name in _TRACE_FOLDERS]
        """True if the folder is the one of the contract, which `set_defaults` may replace."""
        self._working_folder = working_folder()
        self._filename = FileNameFormat(filename, "filename")
        self._overwrite = overwrite
        self._num_traces_to_keep = num_traces_to_keep
        self._used = UniqueNames()
        self._kept: list[Path] = []

    def set_defaults(self, folder: str, *, overwrite: bool, num_traces_to_keep: int) -> None:
        """Apply the run's settings where this folder has only the defaults.

        Raises:
            SettingsError: for another ``num_traces_to_keep`` than this folder was given itself.
        """
        num_configured = self._num_traces_to_keep
        if num_configured >= 0 and num_traces_to_keep not in (-1, num_configured):
            raise SettingsError(
                f"num_traces_to_keep={num_traces_to_keep} would have no effect on the traces in {self._folder.text}, "
                f"because num_traces_to_keep={num_configured} applies there. Pass one of the two."
            )
        if self.is_default:
            self._folder = FileNameFormat(folder, "folder", has_timestamp=False)
        self._overwrite |= overwrite
        if num_configured < 0:
            self._num_traces_to_keep = num_traces_to_keep

    @property
    def has_lost_traces(self) -> bool:
        """True if none of the traces that this process has kept exists any more."""
        return bool(self._kept) and not any(path.exists() for path in self._kept)

    def open(self, run_name: str, ranks: Ranks, attempt: Attempt) -> Attempt:
        """Create the folder and record in the manifest that this rank has started.

        Returns:
            The attempt with its number, which is higher than the launcher's count if the launcher has not counted all
                restarts.

        Raises:
            FileNameError: if two ranks would share a file.
            FolderNotWritableError: if the folder cannot be written.
            FolderNotEmptyError: if files of an earlier run are in the folder and it may not be overwritten.
        """
        self._filename.require_distinct_ranks(ranks, self._folder.text)
        self._run_name, self._ranks = run_name, ranks
        base = self._working_folder / Path(self._folder.fill(run_name, ranks)).expanduser()
        self.run_folder = base.parent
        self._check_names()
        while self._is_of_earlier_attempt(attempt.traces_folder(base), attempt):
            attempt = replace(attempt, restart=attempt.restart + 1)
        self.path = self._make_folder(attempt.traces_folder(base))
        remove_partials(self.path)
        if not self._overwrite:
            self._check_empty(attempt)
        self._record_start(attempt)
        self._record_concurrent_ranks(attempt)
        return attempt

    def reopen(self, path: Path, run_name: str, ranks: Ranks, attempt: Attempt) -> None:
        """Open a folder again that a killed process of this rank had used, or a replacement. Its files are kept."""
        self._run_name, self._ranks, self._start = run_name, ranks, attempt.start
        self.run_folder = path.parent
        self.path = self._make_folder(path)
        self._used = UniqueNames(file.name for file in self.path.iterdir())
        if not any(manifest.rank == ranks.rank and manifest.started for manifest in read_manifest(self.path)):
            self._record_start(attempt)

    def record_agreement(self, attempt: str) -> None:
        """Record in the manifest the id of this attempt that the ranks have agreed on. Raises OSError if it cannot."""
        append_entry(self.path, self._ranks.rank, AttemptAgreed(attempt, self._start))

    def record_empty_run(self, reason: str) -> None:
        """Record in the manifest that the run recorded nothing, and the reason. Raises OSError if it cannot."""
        if hasattr(self, "_start"):  # else it was never opened
            append_entry(self.path, self._ranks.rank, NothingRecorded(reason, self._start))

    @property
    def filename(self) -> str:
        """The format of the file names."""
        return self._filename.text

    @contextmanager
    def new_trace(self, cycle: int, timestamp: Moment) -> Iterator[Path]:
        """Return a context with the path for the trace of the cycle that ends at ``timestamp``.

        This run has not used the path before. At the end of the block the trace is recorded in the manifest. If the
        block raises, or the manifest cannot be written, there is no trace, and the name may be used again.
        """
        name = self._used.choose(self._filename.fill(self._run_name, self._ranks, timestamp))
        is_written = False
        try:
            RunFolder(self.path).make_folder(os.path.dirname(name) or ".")
            yield self.path / name
            is_written = True
            self.add(self.path / name, cycle, timestamp)
        except BaseException:
            self._used.release(name)
            if is_written:
                (self.path / name).unlink(missing_ok=True)
            raise

    def list_written(self, cycle: int, timestamp: Moment) -> Iterator[Path]:
        """Yield the existing files of the cycle: those in the manifest, and those that `new_trace` would name."""
        names, wanted = UniqueNames(), self._filename.fill(self._run_name, self._ranks, timestamp)
        folder = RunFolder(self.path)
        starts_of_process = [one for starts in read_starts(self.path) for one in starts if one.start == self._start]
        listed = [trace.path for one in starts_of_process for trace in one.traces if trace.cycle == cycle]
        yield from (self.path / name for name in listed if folder.is_file(name))
        while folder.is_file(name := names.choose(wanted)):
            yield self.path / name

    def is_listed(self, path: Path) -> bool:
        """Return whether a manifest lists ``path``."""
        name = str(path.relative_to(self.path))
        return any(trace.path == name for manifest in read_manifest(self.path) for trace in manifest.traces)

    def add(self, path: Path, cycle: int, timestamp: Moment) -> None:
        """Record a finished file in the manifest. Raises OSError if that cannot be written."""
        name = str(path.relative_to(self.path))
        fields, size = timestamp_fields(timestamp), path.stat().st_size
        finished = TraceFinished(self._ranks.rank, name, size, fields, cycle, self._start)
        append_entry(self.path, self._ranks.rank, finished)
        self._kept.append(path)

    def expire(self) -> list[Path]:
        """Record in the manifest which oldest traces have expired, and return them.

        The caller deletes them, or leaves that to the merge, which does it after it has merged them.
        """
        num_expired = max(0, len(self._kept) - self._num_traces_to_keep) if self._num_traces_to_keep >= 0 else 0
        expired = self._kept[:num_expired]
        try:
            for old in expired:
                append_entry(self.path, self._ranks.rank, TraceExpired(str(old.relative_to(self.path)), self._start))
        except OSError as error:
            _log.warning("More than num_traces_to_keep traces are kept in %s for now: %s.", self.path, error)
            return []
        self._kept = self._kept[num_expired:]
        return expired

    def close(self) -> None:
        """Record in the manifest that this rank will add no more files. Do nothing if it never opened the folder."""
        if not hasattr(self, "_start"):
            return
        append_entry(self.path, self._ranks.rank, RankClosed(self._ranks.rank, self._start))

    @property
    def saved_traces(self) -> list[tuple[Timestamp, list[Path | None]]]:
        """The timestamp and the file of every rank, for each cycle; None for a file that this process cannot see.

        Empty before the run has started.
        """
        if not hasattr(self, "_start"):
            return []
        cycles: dict[int, tuple[Timestamp, list[Path | None]]] = {}
        for manifest in read_manifest(self.path):
            for trace in manifest.kept:
                no_paths: list[Path | None] = [None] * self._ranks.world_size
                _, paths = cycles.setdefault(trace.cycle, (timestamp_from_fields(trace.timestamp), no_paths))
                if manifest.rank < len(paths):
                    paths[manifest.rank] = self.path / trace.path
        return [cycles[number] for number in sorted(cycles)]

    def _record_start(self, attempt: Attempt) -> None:
        try:
            append_entry(self.path, self._ranks.rank, RankStarted(self._ranks, attempt))
        except OSError as error:
            raise FolderNotWritableError(
                f"The trace folder {self.path} cannot be used: {error.strerror or error}. Choose another folder."
            ) from error
        self._start = attempt.start

    def _record_concurrent_ranks(self, attempt: Attempt) -> None:
        """Record in the manifest which other ranks are alive now. Without a store, this shows which ranks form a run.

        Of two ranks that start at the same moment, at least one sees the other, because both have recorded their start
        before.
        """
        if self._ranks.local_world_size > 1:
            manifests = [manifest for manifest in read_manifest(self.path) if manifest.rank != self._ranks.rank]
            others = [manifest.started for manifest in manifests if not manifest.closed]
            starts = [other.start for other in others if other is not None and self._is_running(other, attempt)]
            append_entry(self.path, self._ranks.rank, ConcurrentRanks(starts, attempt.start))

    def _is_running(self, other: RankStarted, attempt: Attempt) -> bool:
        """Return whether another rank of this launch and node is alive."""
        if (other.attempt.name, other.ranks.node_rank) != (attempt.name, self._ranks.node_rank):
            return False
        return read_owner_state(find_spool_folder(self.run_folder, other.start), other.attempt) is OwnerState.ALIVE

    def _is_of_earlier_attempt(self, folder: Path, attempt: Attempt) -> bool:
        """Return whether an attempt that the launcher may not have counted has written into a folder.

        It has if this rank has started there, in another process, or a rank that was killed or was one of more or fewer
        ranks.
        """
        if not may_miss_restarts():
            return False
        started_ranks = [(one, one.started) for one in read_manifest(folder) if one.started is not None]
        return any(
            (one.rank == self._ranks.rank and started.attempt.pid != attempt.pid)
            or started.ranks.world_size != self._ranks.world_size
            or (not one.closed and _is_dead(started, self.run_folder))
            for one, started in started_ranks
            if started.attempt.run_id == attempt.run_id
        )

    def _make_folder(self, folder: Path) -> Path:
        """Create the folder. Raises `FolderNotWritableError` if it is not writable or leads out of the run's folder."""
        try:
            run = RunFolder(self.run_folder)
            run.make_folder(str(folder.relative_to(self.run_folder)))
        except UnsafePathError as error:
            raise FolderNotWritableError(f"The trace folder {folder} cannot be used. {error}") from error
        except OSError:
            pass  # check_writable finds the same error and reports it
        return check_writable(folder)

    def _check_names(self) -> None:
        name = self._filename.fill(self._run_name, self._ranks, Timestamp())
        if not is_name_inside(name):
            raise FileNameError(
                f"{self._filename.argument}={self._filename.text!r} gives {name!r}, which is not the name of a "
                "file in the trace folder. Leave out '..', leading slashes and control characters, in run_name too."
            )

    def _check_empty(self, attempt: Attempt) -> None:
        """Raise `FolderNotEmptyError` if files of an earlier run are in the folder, or will be of another process.

        Other ranks of this attempt may have started before this one. Their manifests show that, and then the files are
        of this run. But if this rank has a manifest too, it is from an earlier run.
        """
        manifests = read_manifest(self.path)
        self._check_alone(manifests, attempt)
        attempts = {
            manifest.rank: manifest.started.attempt.name for manifest in manifests if manifest.started is not None
        }
        if attempt.name in attempts.values() and self._ranks.rank not in attempts:
            return
        foreign_file = _find_foreign_file(self.path)
        if foreign_file is not None:
            name = str(foreign_file.relative_to(self.path))
            raise FolderNotEmptyError(
                f"The trace folder {self.path} is not empty (it contains {name!r}). Choose another folder or run name, "
                "delete it, or pass overwrite=True."
            )

    def _check_alone(self, manifests: Iterable[RankManifest], attempt: Attempt) -> None:
        """Raise `FolderNotEmptyError` if another process records this rank into the folder now.

        Each of them would replace the traces of the other.
        """
        open_starts = (one.started for one in manifests if one.rank == self._ranks.rank and not one.closed)
        for other in open_starts:
            if other is None or other.attempt.pid == attempt.pid:
                continue
            if read_owner_state(find_spool_folder(self.run_folder, other.start), other.attempt) is OwnerState.ALIVE:
                raise FolderNotEmptyError(
                    f"Process {other.attempt.pid} records rank {self._ranks.rank} into the trace folder {self.path} "
                    "now. Choose another folder or run name for this one. If both are ranks of one run, initialize "
                    "torch.distributed before the profiler, so that it can distinguish them."
                )


def check_num_traces(num_traces: object) -> None:
    """Raise `SettingsError` unless ``num_traces`` is a number of traces to keep, or -1 for all."""
    if isinstance(num_traces, bool) or not isinstance(num_traces, int) or num_traces < -1:
        raise SettingsError(f"num_traces_to_keep is a number of traces, or -1 for all; not {num_traces!r}.")


def is_used(run_folder: Path, ranks: Ranks) -> bool:
    """Return whether a run's folder has traces of an earlier run.

    It has if this rank has written into it before, or another rank that has ended since, or if its folders of traces
    have other files.
    """
    try:
        folders = [path.parent for path in run_folder.glob("*/.manifest")]
        manifests = [one for folder in folders for one in read_manifest(folder)]
    except TraceFileError:
        return True
    unknown = [run_folder / name for name in _TRACE_FOLDERS if run_folder / name not in folders]
    if any(_find_foreign_file(folder) is not None for folder in unknown if is_folder(folder)):
        return True
    return any(one.rank == ranks.rank or one.closed or _is_dead(one.started, run_folder) for one in manifests)


def _is_dead(started: RankStarted | None, run_folder: Path) -> bool:
    """Return whether the process of a rank was killed."""
    if started is None:
        return False
    return read_owner_state(find_spool_folder(run_folder, started.start), started.attempt) is OwnerState.DEAD


_TRACE_FOLDERS = ("traces", "torch_traces")
"""Folders of traces in a run, unless its handlers were given other ones."""


def _find_foreign_file(folder: Path) -> Path | None:
    """Return the first file in a folder, at any depth, that is not this run's, or a folder that cannot be read."""
    waiting = [path for path in folder.iterdir() if not _belongs_to_run(path)]
    for path in waiting:
        if path.name == MANIFESTS:  # of traces of this run in a folder in this one
            continue
        if path.is_symlink() or not path.is_dir() or not os.access(path, os.R_OK | os.X_OK):
            return path
        waiting.extend(path.iterdir())
    return None


def _belongs_to_run(path: Path) -> bool:
    """Return whether a file is not an earlier run's.

    It is then another rank's check for write access, an empty manifest, an unfinished file, or the folder of an earlier
    attempt of this run.
    """
    return path.name.startswith(("writable-", ".")) or path.name.startswith("attempt")
