"""Spool folder of this process, which keeps recorded data until it is saved, so that a kill loses nothing."""

import contextlib
import errno
import itertools
import logging
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from kinetoscope.core.job.ranks import Attempt
from kinetoscope.core.job.timestamp import Moment, timestamp_fields
from kinetoscope.core.paths.atomic_file import atomic_file, temporary_folder
from kinetoscope.core.paths.file_kinds import is_folder
from kinetoscope.core.paths.network import is_on_network
from kinetoscope.core.paths.run_folder import RunFolder
from kinetoscope.spool.folders import (
    SpoolOwner,
    contributed_files_folder,
    delete_pointer,
    warn_of_unsaved_data,
    write_pointer,
    write_spool_owner,
)
from kinetoscope.spool.owner_lock import OwnerLock
from kinetoscope.spool.window_log import (
    EpochBegan,
    Event,
    WindowActive,
    WindowClosed,
    WindowLog,
    WindowOpened,
    WindowSaved,
)

_log = logging.getLogger("kinetoscope")
DEFAULT_MAX_SPOOL_BYTES = 256 << 20
_MAX_TRIES = 10


class FilesRecorder(Protocol):
    """The recorder, as the spool folder uses it."""

    request: Callable[[], object] | None
    """Called when there may soon be too little space to record into."""
    run_file: str | None
    window_opened_ns: int

    @property
    def window(self) -> int:
        """The number of the current window."""
        ...

    @property
    def spool_errno(self) -> int:
        """The errno of the last error that kept records in memory; 0 for none."""
        ...

    def prepare(self) -> None:
        """Prepare space to record into."""
        ...

    def is_low_on_space(self) -> bool:
        """Return whether the prepared space is nearly used up."""
        ...

    def open_folder(self, folder: str, rank: int, limit_bytes: int) -> None:
        """Record into files in a folder."""
        ...

    def close_folder(self, *, leave_files: bool = False) -> None:
        """Record into memory again."""
        ...


class SpoolFolder:
    """The spool folder of one process.

    ``submit(name, job)`` runs a job on the writer thread. ``free_space(is_short)`` discards cycles that could not be
    saved, as long as space is short. ``announce_to_children(run_file)`` lets child processes find the folder, and
    returns a function that undoes that.

    No method raises. If files cannot be written, the recorder keeps its records in memory, and one warning has the
    reason.
    """

    def __init__(
        self,
        recorder: FilesRecorder,
        submit: Callable[[str, Callable[[], object]], None],
        free_space: Callable[[Callable[[], bool]], object],
        announce_to_children: Callable[[str], Callable[[], object]],
    ) -> None:
        self._recorder = recorder
        self._submit = submit
        self._free_space = free_space
        self._announce_to_children = announce_to_children
        self._withdraw_announcement: Callable[[], object] | None = None
        self._is_closed = False
        self.path: Path | None = None
        self.run_folder: Path | None = None
        self._pointer: Callable[[], object] | None = None
        self._windows: WindowLog | None = None
        self._lock: OwnerLock | None = None
        self._has_warned = False

    def start_preparing(self) -> None:
        """Let the writer thread prepare space to record into before it is needed, in memory too."""
        self._recorder.request = lambda: self._submit("Preparing space to record into", self._prepare)

    def open(self, run_folder: Path, run: SpoolOwner, attempt: Attempt, limit_bytes: int) -> None:
        """Record into a folder below ``run_folder`` from now on.

        If that is on a network file system, the folder is in local temporary storage, and a file in the run folder
        points to it.
        """
        self.run_folder = run_folder
        if run.ranks.local_rank == 0:  # once on each host
            warn_of_unsaved_data(run_folder)
        wanted = attempt.spool_folder(run_folder)
        try:
            self.path = self._make(run_folder, wanted)
            self._lock = OwnerLock(self.path)  # before run.json: once that exists, others check the lock
            self._write_run(run_folder, wanted, run)
            self._windows = WindowLog(self.path)
            self._recorder.open_folder(str(self.path), run.ranks.rank, limit_bytes)
        except OSError as error:
            self._warn(self.path or wanted, error)
            self._delete()
        else:
            self._withdraw_announcement = self._announce_to_children(str(self._recorder.run_file))

    def log_opened(self, cycle: int, timestamp: Moment) -> None:
        """Let the writer thread log that the window of a cycle has opened."""
        if self.path is not None:
            window, began_ns = self._recorder.window, self._recorder.window_opened_ns
            self._log_event(WindowOpened(window, cycle, began_ns, timestamp_fields(timestamp)))

    def log_epoch(self, began_ns: int, epoch: int) -> None:
        """Let the writer thread log that an epoch has begun in the open window."""
        if self.path is not None:
            self._log_event(EpochBegan(self._recorder.window, began_ns, epoch))

    def log_active(self, batch: int) -> None:
        """Let the writer thread log that the open window's batches are no warm-up from this one on."""
        if self.path is not None:
            self._log_event(WindowActive(self._recorder.window, batch))

    def log_closed(self, window: int, closed_ns: int, timestamp: Moment, num_records: int | None = None) -> None:
        """Let the writer thread log that a window has closed."""
        if self.path is not None:
            self._log_event(WindowClosed(window, closed_ns, timestamp_fields(timestamp), num_records))

    def log_saved(self, window: int) -> None:
        """Log, on the writer thread, that every handler has processed a window's records."""
        self._append_event(WindowSaved(window))

    def _log_event(self, event: Event) -> None:
        self._submit("Noting what happens to a window", lambda: self._append_event(event))

    def _append_event(self, event: Event) -> None:
        if self.path is not None and self._windows is not None:
            try:
                if self._lock is not None:
                    self._lock.renew()
                self._windows.append(event)
            except OSError as error:
                self._warn(self.path, error)

    def close(self, *, is_saved: bool) -> None:
        """Free all space to record into, and delete the folder if all its data ``is_saved``.

        Else the folder is kept, for `recover` or until this is called again.
        """
        if not self._is_closed:
            self._is_closed = True
            if self.path is not None:
                self._warn_about_failure()
            if self._withdraw_announcement is not None:
                self._withdraw_announcement()
            self._recorder.close_folder(leave_files=not is_saved)
        if is_saved:
            self._delete()

    def stop_preparing(self) -> None:
        """Stop preparing space on the writer thread."""
        self._recorder.request = None

    def _make(self, run_folder: Path, wanted: Path) -> Path:
        """Make a new folder: ``wanted``, or one in local temporary storage. Raises OSError if that fails."""
        if is_on_network(wanted):
            return Path(tempfile.mkdtemp(prefix=f"kinetoscope-{wanted.name}-"))
        _create_folder(run_folder, wanted)
        return wanted

    def _write_run(self, run_folder: Path, wanted: Path, run: SpoolOwner) -> None:
        """Write ``run.json``, and if the folder is not ``wanted``, a pointer to it in the run's folder."""
        folder = self.path or wanted
        token = "" if folder == wanted else secrets.token_hex(16)
        recipes = [recipe.within(run_folder) for recipe in run.recipes]
        write_spool_owner(folder, msgspec.structs.replace(run, recipes=recipes, token=token))
        if token:
            self._pointer = partial(delete_pointer, run_folder, wanted.name)
            write_pointer(run_folder, wanted.name, folder, token)

    def _prepare(self) -> None:
        self._recorder.prepare()
        self._free_space(self._recorder.is_low_on_space)
        self._warn_about_failure()

    def _warn_about_failure(self) -> None:
        if self._recorder.spool_errno and self.path is not None:
            self._warn(self.path, OSError(self._recorder.spool_errno, os.strerror(self._recorder.spool_errno)))

    def _warn(self, path: Path, error: OSError) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "The spool folder %s cannot be used: %s. Until it can, records stay in memory until they are saved, "
                "and a kill would lose them. Choose another folder with spool_folder=.",
                path,
                error.strerror or error,
            )

    def _delete(self) -> None:
        path, self.path = self.path, None
        if self._pointer is not None:
            with contextlib.suppress(OSError):
                self._pointer()
        if path is not None:
            shutil.rmtree(path, ignore_errors=True)
        if self._lock is not None:
            self._lock.release()  # after the folder is deleted: without its lock it would look abandoned
            self._lock = None
        if path is not None:
            with contextlib.suppress(OSError):
                path.parent.rmdir()  # ``live`` itself, unless other processes have folders in it


def _create_folder(run_folder: Path, folder: Path) -> None:
    """Make a folder in ``live`` in the run's folder. Raises FileExistsError if it exists."""
    run = RunFolder(run_folder)
    for _ in range(_MAX_TRIES):
        with contextlib.suppress(FileNotFoundError):  # the last other process in ``live`` has just deleted it
            run.make_folder(folder.parent.name)
            with run.open_folder(folder.parent.name) as live:
                return os.mkdir(folder.name, dir_fd=live)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))


_MAX_NAME_CHARACTERS = 60  # of a file's name, at most four bytes each


class TemporaryFiles:
    """Files that a run needs only until their cycle is saved, in a folder per cycle in the spool folder.

    There `recover` finds the files that sources contributed to an unsaved cycle, and deletes the rest. Without a spool
    folder, they are among the system's temporary files. Files of killed processes there are deleted when a later
    process creates some.
    """

    def __init__(self, live: SpoolFolder) -> None:
        self._live = live
        self._system_folder: Path | None = None
        self._undo = contextlib.ExitStack()
        self._serial = itertools.count()

    def folder(self, cycle: int) -> Path:
        """Return the folder for the files of a cycle; for the writer thread. Raises OSError."""
        folder = self._in_live_folder(cycle)
        if folder is None:
            self._system_folder = self._system_folder or self._undo.enter_context(temporary_folder())
            folder = contributed_files_folder(self._system_folder, cycle)
            folder.mkdir(parents=True, exist_ok=True)
        return folder

    def keep(self, file: Path, cycle: int) -> Callable[[], Path]:
        """Keep the content of ``file``, so that its owner may delete the file.

        The content is kept by a second link, or if that is impossible by a copy, which the writer thread makes. Raises
        OSError if the file cannot be read.

        Returns:
            A function that the writer thread calls to get the path.
        """
        folder, name = self._in_live_folder(cycle), f"{next(self._serial)}-{file.name[-_MAX_NAME_CHARACTERS:]}"
        if folder is not None:
            with contextlib.suppress(OSError):  # another file system, or one without links
                os.link(file, folder / name)
                return lambda: folder / name
        stream = file.open("rb")
        return lambda: self._copy(stream, self.folder(cycle) / name)

    def close(self) -> None:
        """Delete the files that are not in a spool folder."""
        self._system_folder = None
        self._undo.close()

    def _copy(self, stream: BinaryIO, kept: Path) -> Path:
        stream.seek(0)  # this may be called again, after an error
        with atomic_file(kept) as copy:
            shutil.copyfileobj(stream, copy, 1 << 20)
        stream.close()
        return kept

    def _in_live_folder(self, cycle: int) -> Path | None:
        live = self._live.path
        with contextlib.suppress(OSError):
            if live is not None and is_folder(live):
                folder = contributed_files_folder(live, cycle)
                folder.mkdir(parents=True, exist_ok=True)
                return folder
        return None
