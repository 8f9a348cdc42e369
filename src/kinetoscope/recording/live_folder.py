"""recording: the live folder, where a recorder keeps what is not yet saved, so that a kill loses nothing.

A run folder flows in; the recorder writes chunk files until the run is closed cleanly, and then they are gone.
"""

import contextlib
import errno
import logging
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import msgspec

from kinetoscope.clock.clock import process_base_ns
from kinetoscope.errors import TraceFileError, UnsafePathError
from kinetoscope.formats.live_run import (
    LiveRun,
    TraceRecipe,
    delete_pointer,
    is_live_folder,
    live_folders,
    read_live_run,
    write_live_run,
    write_pointer,
)
from kinetoscope.formats.owner_lock import Owner, OwnerLock, owner_state
from kinetoscope.formats.window_log import EpochBegan, Event, WindowClosed, WindowLog, WindowOpened, WindowSaved
from kinetoscope.recording.cycle import Cycle
from kinetoscope.recording.process import this_process
from kinetoscope.recording.recorder_choice import ProcessRecorder
from kinetoscope.training.ranks import Attempt, Ranks
from kinetoscope.training.run_folder import RunFolder
from kinetoscope.training.timestamp import Moment, timestamp_fields

_log = logging.getLogger("kinetoscope")
LIVE_BYTES_MAX = 256 << 20
_MOST_TRIES = 10
_NETWORK = (
    "nfs",
    "cifs",
    "smb",
    "lustre",
    "ceph",
    "gpfs",
    "beegfs",
    "glusterfs",
    "9p",
    "afs",
    "fuse",
    "pvfs",
    "orangefs",
)


class LiveFolder:
    """The live folder of one process. ``submit(name, job)`` runs a job on the writer thread; ``make_room(is_short)``
    gives up what could not be saved while there is too little space.

    Nothing here raises: where files cannot be kept, the recorder stays in memory, and one warning says why.
    """

    def __init__(
        self,
        recorder: ProcessRecorder,
        submit: Callable[[str, Callable[[], object]], None],
        make_room: Callable[[Callable[[], bool]], object],
    ) -> None:
        self._recorder = recorder
        self._submit = submit
        self._make_room = make_room
        self._is_closed = False
        self.path: Path | None = None
        self.run_folder: Path | None = None
        self._pointer: Callable[[], object] | None = None
        self._windows: WindowLog | None = None
        self._lock: OwnerLock | None = None
        self._said = False

    def prepare_ahead(self) -> None:
        """Has the writer thread see to it that there is always space to record into, in memory too."""
        if self._recorder.keeps_files:
            self._recorder.request = lambda: self._submit("Preparing space to record into", self._prepare)

    def open(self, run_folder: Path, run: LiveRun, attempt: Attempt, limit_bytes: int) -> None:
        """Keeps what is recorded from now on below ``run_folder``, or where that is on a network file system, in local
        temporary storage; then a file in the run folder says where."""
        self.run_folder = run_folder
        report_leftovers(run_folder)
        if not self._recorder.keeps_files:
            return
        wanted = attempt.live_folder(run_folder)
        try:
            self.path = self._make(run_folder, wanted)
            self._lock = OwnerLock(self.path)  # before run.json, without which nobody asks for it
            self._write_run(run_folder, wanted, run)
            self._windows = WindowLog(self.path)
            self._recorder.open_folder(str(self.path), run.rank, limit_bytes)
        except OSError as error:
            self._warn(self.path or wanted, error)
            self._delete()
        else:
            this_process.tell_children(str(self._recorder.run_file))

    def note_opened(self, cycle: int, timestamp: Moment) -> None:
        """Writes down, on the writer thread, that the window of a cycle has opened."""
        if self.path is not None:
            window, began_ns = self._recorder.window, self._recorder.window_began_ns
            self._note(WindowOpened(window, cycle, began_ns, timestamp_fields(timestamp)))

    def note_epoch(self, began_ns: int, epoch: int) -> None:
        """Writes down, on the writer thread, that an epoch has begun in the window that is open."""
        if self.path is not None:
            self._note(EpochBegan(self._recorder.window, began_ns, epoch))

    def note_closed(self, cycle: Cycle) -> None:
        """Writes down, on the writer thread, that a cycle's window has closed; and, once every handler has had the
        cycle, that it is saved."""
        if self.path is not None:
            recorded = cycle.recorded
            self._note(WindowClosed(recorded.window, recorded.closed_ns, timestamp_fields(cycle.timestamp)))
            cycle.contributions.afterwards.append(lambda: self._write_down(WindowSaved(recorded.window)))

    def _note(self, event: Event) -> None:
        self._submit("Noting what happens to a window", lambda: self._write_down(event))

    def _write_down(self, event: Event) -> None:
        if self.path is not None and self._windows is not None:
            try:
                if self._lock is not None:
                    self._lock.renew()
                self._windows.append(event)
            except OSError as error:
                self._warn(self.path, error)

    def close(self, *, is_saved: bool) -> None:
        """Gives back all space to record into, and deletes the folder if everything in it ``is_saved``. Else it stays,
        for `recover` or until this is called again."""
        if self._recorder.keeps_files and not self._is_closed:
            self._is_closed = True
            if self.path is not None:
                self._say_trouble()
                this_process.tell_children_no_more()
            self._recorder.close_folder(leave_files=not is_saved)
        if is_saved:
            self._delete()

    def stop_preparing(self) -> None:
        """Asks the writer thread for nothing more."""
        if self._recorder.keeps_files:
            self._recorder.request = None

    def _make(self, run_folder: Path, wanted: Path) -> Path:
        """Makes a folder that was not there: ``wanted``, or one elsewhere. Raises OSError if that cannot be done."""
        if is_on_network(wanted):
            return Path(tempfile.mkdtemp(prefix=f"kinetoscope-{wanted.name}-"))
        _make_new(run_folder, wanted)
        return wanted

    def _write_run(self, run_folder: Path, wanted: Path, run: LiveRun) -> None:
        """Writes down whose folder it is, and if it is elsewhere, where ``wanted`` would be, that it is."""
        folder = self.path or wanted
        token = "" if folder == wanted else secrets.token_hex(16)
        recipes = [recipe.within(run_folder) for recipe in run.recipes]
        write_live_run(folder, msgspec.structs.replace(run, recipes=recipes, token=token))
        if token:
            self._pointer = partial(delete_pointer, run_folder, wanted.name)
            write_pointer(run_folder, wanted.name, folder, token)

    def _prepare(self) -> None:
        self._recorder.prepare()
        self._make_room(self._recorder.is_short)
        self._say_trouble()

    def _say_trouble(self) -> None:
        if self._recorder.trouble and self.path is not None:
            self._warn(self.path, OSError(self._recorder.trouble, os.strerror(self._recorder.trouble)))

    def _warn(self, path: Path, error: OSError) -> None:
        if not self._said:
            self._said = True
            _log.warning(
                "The live folder %s cannot be used: %s. What is recorded from here on stays in memory until it is "
                "saved, and a kill would lose it. Choose another place with live_folder=.",
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
            self._lock.release()  # after the folder has gone: until then it is nobody else's
            self._lock = None
        if path is not None:
            with contextlib.suppress(OSError):
                path.parent.rmdir()  # `live` itself, unless another process is still in it


def run_folder_of(handlers: Iterable[object]) -> Path | None:
    """The run folder of the first handler that has one."""
    folders = (getattr(handler, "run_folder", None) for handler in handlers)
    return next((folder for folder in folders if isinstance(folder, Path)), None)


def recipe_of(handler: object) -> TraceRecipe | None:
    """How `recover` can make the traces of a handler, once the run has begun; None if it cannot."""
    recipe = getattr(handler, "recipe", None)
    return recipe if isinstance(recipe, TraceRecipe) else None


def _make_new(run_folder: Path, folder: Path) -> None:
    """Makes a folder in ``live`` in the run's folder. Raises FileExistsError if it is there already."""
    run = RunFolder(run_folder)
    for _ in range(_MOST_TRIES):
        with contextlib.suppress(FileNotFoundError):  # `live` went meanwhile, with the last process that was in it
            run.make_folder(folder.parent.name)
            with run.open_folder(folder.parent.name) as live:
                return os.mkdir(folder.name, dir_fd=live)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))


def live_run(run_name: str, attempt: Attempt, ranks: Ranks, recipes: list[TraceRecipe]) -> LiveRun:
    """What `recover` has to know of a run."""
    return LiveRun(
        run_name=run_name,
        rank=ranks.rank,
        local_rank=ranks.local_rank,
        world_size=ranks.world_size,
        local_world_size=ranks.local_world_size,
        node_rank=ranks.node_rank,
        run_id=attempt.run_id,
        restart=attempt.restart,
        pid=attempt.pid,
        host=socket.gethostname(),
        recipes=recipes,
        start=attempt.start,
        base_ns=process_base_ns(),
    )


def report_leftovers(run_folder: Path) -> None:
    """Says in the log that killed processes of an earlier attempt left something, and how to get it."""
    found: list[Path] = []
    try:
        found += live_folders(run_folder, on_skipped=_log.warning)
    except UnsafePathError as error:
        _log.warning("What an earlier attempt may have left is not looked at. %s", error)
    except OSError:
        pass  # whoever writes into the folder next says what is wrong with it
    for folder in found:
        try:
            run = read_live_run(folder)
        except TraceFileError as error:
            if is_live_folder(folder):  # else it was another rank's, which has ended meanwhile
                _log.warning("An earlier attempt left something that cannot be read. %s", error)
            continue
        if owner_state(folder, run.host, run.pid) is Owner.DEAD:
            _log.warning(
                "Rank %d of an earlier attempt was killed and left what it had not saved in %s. To make a trace of it: "
                "kinetoscope recover %s",
                run.rank,
                folder,
                run_folder,
            )


def is_on_network(path: Path) -> bool:
    """Whether ``path``, or the folder in which it will be made, is on a network file system."""
    import psutil  # slow to import, and used once a run

    place = Path(os.path.realpath(path))
    with contextlib.suppress(OSError):
        mounts = [mount for mount in psutil.disk_partitions(all=True) if place.is_relative_to(mount.mountpoint)]
        # of several in one place, the last one hides the others
        innermost = max(reversed(mounts), key=lambda mount: len(mount.mountpoint), default=None)
        return innermost is not None and innermost.fstype.startswith(_NETWORK)
    return False
