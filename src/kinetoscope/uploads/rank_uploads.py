"""Uploads of a rank's finished files: remote names, the queue, and the process that sends it."""

import logging
import shlex
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

from kinetoscope.core.background.background_process import BackgroundProcess
from kinetoscope.core.background.jobs import job_command
from kinetoscope.core.job.file_names import FileNameFormat, UniqueNames
from kinetoscope.core.job.ranks import Attempt, Ranks
from kinetoscope.core.job.timestamp import Moment
from kinetoscope.core.paths.remote_url import check_url
from kinetoscope.core.paths.run_folder import RunFolder
from kinetoscope.core.text.wording import format_count
from kinetoscope.errors import UnsafePathError
from kinetoscope.uploads.queue_drain import AllowedUploads
from kinetoscope.uploads.upload_queue import (
    QueuedUpload,
    add_upload,
    delete_when_uploaded,
    free_reserve,
    read_confirmed,
    read_queue,
    relative_to_run_folder,
    reserve_space,
)

_log = logging.getLogger("kinetoscope")
# Without a store, a rank that saves twice a minute reaches this in eight hours.
MAX_WAITING = 1000
_MAX_NAMED = 5


class RemoteStore(Protocol):
    """A store for finished files outside of this machine, such as a trainer's loggers.

    `Profiler.remote_store` may be one: remote names without a scheme go there when there is no ``upload_to``.
    """

    def put(self, file: Path, remote_name: str) -> None:
        """Store the complete ``file`` under ``remote_name``; afterwards the file may be deleted.

        It is called on the writer thread. An exception is logged, and the file is kept.
        """
        ...


class RankUploads:
    """Uploads of one rank from one run folder, in a queue on disk that a kill leaves intact.

    A file whose remote name has a scheme is uploaded to that URL. Any other file goes below ``upload_to``, else to
    ``remote_store``, else nowhere. Failures are logged; no method raises.
    """

    def __init__(self, run_folder: Path, rank: int, upload_to: str | None, remote_store: RemoteStore | None) -> None:
        self._run_folder = run_folder
        self._rank = rank
        self._upload_to = (upload_to or "").rstrip("/")
        self._remote_store = remote_store
        self._process = BackgroundProcess(self._handle_end)
        self._allowed = [self._upload_to] if self._upload_to else []
        self._other_folders: list[Path] = []
        self._started_entries: set[Path] = set()
        self._unqueued: dict[Path, str] = {}
        self._refused: set[Path] = set()
        self._has_warned_full = self._has_warned_refused = False

    def prepare(self, remote_name: str, folder: str) -> bool:
        """Prepare uploads of a remote name; return whether they have a destination.

        ``folder`` is the URL below which all files of the name go.
        """
        if not self.build_url(remote_name):
            return self._remote_store is not None
        if "://" in remote_name and folder not in self._allowed:
            self._allowed.append(folder)
        with suppress(OSError):
            reserve_space(self._run_folder, self._rank)
        return True

    def build_url(self, remote_name: str) -> str:
        """Return the URL of a remote name in the queue; empty if it is not uploaded through the queue."""
        if "://" in remote_name:
            return remote_name
        return f"{self._upload_to}/{remote_name}" if self._upload_to else ""

    def resume(self) -> None:
        """Continue uploads of an earlier process of this rank to this run's destinations; the queue is untrusted."""
        if waiting := self._read_allowed():
            _log.info("Resuming %s that an earlier start of this run left.", format_count(len(waiting), "upload"))
            self._start()

    def put(self, file: Path, remote_name: str) -> None:
        """Queue ``file`` for upload; it must be kept until then, see `delete_when_uploaded`."""
        url = self.build_url(remote_name)
        if not url:
            self._put_to_remote_store(file, remote_name)
            return
        if not self._is_inside(file):
            self._other_folders.append(file.parent)
        self._unqueued[file] = url
        if not self._queue_unqueued():
            self._free_reserve()  # the disk is full
            self._queue_unqueued()
        self._start()

    def delete_when_uploaded(self, file: Path) -> None:
        """Delete ``file`` when its upload is confirmed; at once if nothing is left to upload."""
        if file not in self._unqueued and file not in self._refused:
            try:
                delete_when_uploaded(self._run_folder, file)
            except OSError as error:
                _log.warning("%s cannot be deleted: %s.", file, error.strerror)

    def finish(self, timeout_s: float) -> None:
        """Wait for the uploads, at most ``timeout_s`` seconds; log unfinished ones."""
        until = monotonic() + timeout_s
        self._queue_unqueued()
        if not self._process.wait(until):
            self._warn_unfinished()
        elif {upload.entry for upload in self._read_allowed()} - self._started_entries:
            self._start()
            if not self._process.wait(until):
                self._warn_unfinished()
        self._free_reserve()
        for file in self._unqueued:
            _log.error(
                "%s was not uploaded, because its entry in the queue could not be written (is the disk full?). The "
                "file is still there.",
                file,
            )

    def _free_reserve(self) -> None:
        with suppress(OSError):
            free_reserve(self._run_folder, self._rank)

    def _is_inside(self, file: Path) -> bool:
        try:
            RunFolder(self._run_folder).name_of(file)
        except UnsafePathError:
            return False
        return True

    def _read_waiting(self) -> list[QueuedUpload]:
        try:
            return read_queue(self._run_folder, self._rank)
        except OSError as error:
            _log.debug("Cannot read the upload queue: %s", error)
            return []

    def _read_allowed(self) -> list[QueuedUpload]:
        """Return the waiting uploads that are allowed; the others are logged once."""
        allowed = AllowedUploads(self._allowed, self._other_folders)
        waiting = self._read_waiting()
        refused = [upload for upload in waiting if allowed.explain_refusal(upload)]
        if refused and not self._has_warned_refused:
            self._has_warned_refused = True
            _log.warning(
                "An earlier start of this run left %s outside of the run's folder, or for places to which this start "
                "does not upload. They are not uploaded. To see them: kinetoscope upload %s",
                format_count(len(refused), "file"),
                shlex.quote(str(self._run_folder)),
            )
        return [upload for upload in waiting if upload not in refused]

    def _queue_unqueued(self) -> bool:
        """Write the missing entries of the queue; return False if the disk is full."""
        try:
            for waiting, url in list(self._unqueued.items()):
                self._add_to_queue(waiting, url)
                del self._unqueued[waiting]
        except OSError as error:
            _log.debug("Cannot write the upload queue: %s", error)
        return not self._unqueued

    def _add_to_queue(self, file: Path, url: str) -> None:
        """Add a file to the queue, deferred if the queue is full."""
        is_full = len(self._read_waiting()) >= MAX_WAITING
        add_upload(self._run_folder, self._rank, file, url, deferred=is_full)
        if is_full and not self._has_warned_full:
            self._has_warned_full = True
            _log.warning(
                "%d files wait to be uploaded, so %s and later files are not queued. %s",
                MAX_WAITING,
                file,
                self._format_command(),
            )

    def _put_to_remote_store(self, file: Path, remote_name: str) -> None:
        """Pass a file to the remote store."""
        if self._remote_store is not None:
            try:
                self._remote_store.put(file, remote_name)
            except Exception as error:
                _log.error("Uploading %s failed: %s: %s. The file is still there.", file, type(error).__name__, error)
                self._refused.add(file)

    def _start(self) -> None:
        """Start the uploading process unless it runs."""
        if self._process.is_running:
            return
        self._started_entries = {upload.entry for upload in self._read_waiting()}
        folders = list(map(str, self._other_folders))
        arguments = (str(self._run_folder), self._rank, self._allowed, folders)
        try:
            self._process.start(job_command("kinetoscope.uploads.upload_job", *arguments))
        except OSError as error:
            _log.error("Cannot start uploading: %s. %s", error, self._format_command())

    def _handle_end(self, status: int, errors: str) -> None:
        """Log a failure of the uploading process."""
        if status:
            _log.error(
                "Some files were not uploaded. %s %s", errors or f"Exit status {status}.", self._format_command()
            )

    def _warn_unfinished(self) -> None:
        """Log that the uploading process continues."""
        names = [waiting.upload.path for waiting in self._read_allowed()]
        if not names:
            return
        more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
        _log.warning(
            "Not uploaded yet: %s%s. Process %d continues. %s",
            ", ".join(names[:_MAX_NAMED]),
            more,
            self._process.pid,
            self._format_command(),
        )

    def _format_command(self) -> str:
        """Return the command that uploads the rest."""
        to = "".join(f" --to {shlex.quote(url)}" for url in self._allowed)
        return f"To upload the rest: kinetoscope upload {shlex.quote(str(self._run_folder))}{to}"


class UploadingRun(Protocol):
    """The part of a run that uploads need."""

    ranks: Ranks
    upload_to: str | None
    remote_store: Any
    uploads: dict[Path, Any]

    @property
    def attempt(self) -> Attempt:
        """Restart attempt."""
        ...


def get_uploads(run: UploadingRun, run_folder: Path) -> RankUploads:
    """Return the uploads of a run from ``run_folder``, which its handlers and sources share."""
    uploads = run.uploads.get(run_folder)
    if uploads is None:
        uploads = RankUploads(run_folder, run.ranks.rank, run.upload_to, run.remote_store)
        run.uploads[run_folder] = uploads
    return uploads


class RemoteName:
    """Remote name of one kind of file. ``text`` may use the variables of `FileNameFormat`; None uploads nothing.

    Raises:
        FileNameError: the format has an unknown variable.
        SettingsError: the URL is invalid.
    """

    def __init__(self, text: str | None, argument: str, *, has_timestamp: bool = True) -> None:
        self._format = FileNameFormat((text or "").lstrip("/"), argument, has_timestamp)
        if "://" in self._format.text:
            check_url(self._format.text, argument)
        self._uploads: RankUploads | None = None
        self._used = UniqueNames()

    @property
    def text(self) -> str:
        """Format of the name; empty if nothing is uploaded."""
        return self._format.text

    @property
    def url(self) -> str:
        """Format of the URLs in the run's queue; empty without uploads through the queue."""
        return self._uploads.build_url(self._format.text) if self._uploads is not None else ""

    def add_suffix(self, suffix: str) -> None:
        """Add ``suffix`` to the name unless it has it."""
        if self._format.text and not self._format.text.endswith(suffix):
            self._format = FileNameFormat(self._format.text + suffix, self._format.argument)

    def open(self, run: UploadingRun, run_name: str, uploads: RankUploads, *, shared: bool = False) -> None:
        """Start to upload files of this name, if they have a destination.

        Raises:
            FileNameError: two ranks would upload under one name, and the ranks of a node do not have ``shared`` it.
        """
        self._run_name, self._ranks, self._restart = run_name, run.ranks, run.attempt.restart
        if self._format.text and uploads.prepare(self._format.text, self._build_folder_url(uploads)):
            if not shared:
                self._format.require_distinct_ranks(run.ranks)
            self._uploads = uploads

    def _build_folder_url(self, uploads: RankUploads) -> str:
        """Return the URL below which all files of this name go in this run.

        Raises:
            SettingsError: it is invalid.
        """
        url = uploads.build_url(self._format.fill_folder(self._run_name, self._ranks))
        if url:
            check_url(url, self._format.argument)
        return url

    def put(self, file: Path, timestamp: Moment | None = None) -> None:
        """Queue ``file`` for upload, under the name for ``timestamp``."""
        if self._uploads is not None:
            name = self._format.fill(self._run_name, self._ranks, timestamp)
            self._uploads.put(file, self._used.choose(_add_attempt_folder(name, self._restart)))

    def put_shared(self, file: Path) -> None:
        """Queue a node's ``file`` for upload, again if it was uploaded before.

        The name has the node, except on the first one.
        """
        if self._uploads is not None:
            self._uploads.put(file, self._build_shared_name())

    @property
    def shared_url(self) -> str:
        """URL of `put_shared` in the run's queue; empty without one."""
        return self._uploads.build_url(self._build_shared_name()) if self._uploads is not None else ""

    def _build_shared_name(self) -> str:
        return _add_attempt_folder(add_node_suffix(self._format, self._run_name, self._ranks), self._restart)


def queue_recovered(run_folder: Path, url: str, file: Path, cycle: Any) -> None:
    """Queue a recovered trace for `kinetoscope upload`, unless it is queued or uploaded.

    ``url`` is the format of the URLs of its rank's traces, ``cycle`` the trace's cycle.

    Raises:
        OSError: the queue cannot be written.
    """
    rank = cycle.ranks.rank
    waiting = (entry.upload for entry in read_queue(run_folder, rank, deferred=True))
    before = [*read_confirmed(run_folder, rank), *waiting]
    if relative_to_run_folder(run_folder, file) in {upload.path for upload in before}:
        return
    used = UniqueNames(upload.url for upload in before)
    wanted = FileNameFormat(url).fill(cycle.run_name, cycle.ranks, cycle.timestamp)
    add_upload(run_folder, rank, file, used.choose(_add_attempt_folder(wanted, cycle.attempt.restart)))


def add_node_suffix(name: FileNameFormat, run_name: str, ranks: Ranks) -> str:
    """Return a merged file's name, with the node except on the first one, so that nodes that share a disk differ."""
    filled = name.fill(run_name, ranks)
    if ranks.node_rank == 0 or "node_rank" in name.variables():
        return filled
    folder, slash, last = filled.rpartition("/")
    stem, dot, suffix = last.partition(".")
    return f"{folder}{slash}{stem}.node{ranks.node_rank}{dot}{suffix}"


def _add_attempt_folder(name: str, restart: int) -> str:
    """Return the name, after a restart in a folder of the attempt, so that earlier files are kept."""
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}attempt{restart}/{last}" if restart else name
