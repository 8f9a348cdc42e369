"""recording: the live folder, where a recorder keeps what is not yet saved, so that a kill loses nothing.

A run folder flows in; the recorder writes chunk files until the run is closed cleanly, and then they are gone.
"""

import contextlib
import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kinetoscope.errors import TraceFileError
from kinetoscope.formats.live_run import (
    LiveRun,
    TraceRecipe,
    is_live_folder,
    live_folders,
    read_live_run,
    write_live_run,
)
from kinetoscope.formats.owner_lock import Owner, OwnerLock, owner_state
from kinetoscope.formats.window_log import Event, WindowClosed, WindowLog, WindowOpened, WindowSaved
from kinetoscope.recording.cycle import Cycle
from kinetoscope.recording.parents_run import RUN_FILE_VARIABLE
from kinetoscope.recording.recorder_choice import ProcessRecorder
from kinetoscope.training.attempt import Attempt
from kinetoscope.training.ranks import Ranks
from kinetoscope.training.timestamp import timestamp_fields

_log = logging.getLogger("kinetoscope")
LIVE_BYTES_MAX = 256 << 20
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
    """The live folder of one process. ``submit(name, job)`` runs a job on the writer thread.

    Nothing here raises: where files cannot be kept, the recorder stays in memory, and one warning says why.
    """

    def __init__(self, recorder: ProcessRecorder, submit: Callable[[str, Callable[[], object]], None]) -> None:
        self._recorder = recorder
        self._submit = submit
        self.path: Path | None = None
        self._pointer: Path | None = None
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
        report_leftovers(run_folder)
        if not self._recorder.keeps_files:
            return
        wanted = attempt.live_folder(run_folder)
        try:
            self.path = self._make(wanted)
            self._lock = OwnerLock(self.path)  # before run.json, without which nobody asks for it
            write_live_run(self.path, run)
            self._windows = WindowLog(self.path)
            self._recorder.open_folder(str(self.path), run.rank, limit_bytes)
        except OSError as error:
            self._warn(self.path or wanted, error)
            self._delete()
        else:
            os.environ[RUN_FILE_VARIABLE] = str(self._recorder.run_file)

    def note_opened(self, cycle: int, timestamp: Any) -> None:
        """Writes down, on the writer thread, that the window of a cycle has opened."""
        if self.path is not None:
            window, began_ns = self._recorder.window, self._recorder.window_began_ns
            self._note(WindowOpened(window, cycle, began_ns, timestamp_fields(timestamp)))

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

    def close(self) -> None:
        """Deletes the folder: everything in it has been saved."""
        if self._recorder.keeps_files:
            self._recorder.request = None
        if self.path is None:
            return
        self._say_trouble()
        os.environ.pop(RUN_FILE_VARIABLE, None)
        self._recorder.close_folder()
        self._delete()

    def _make(self, wanted: Path) -> Path:
        """Makes a folder that was not there: ``wanted``, or one elsewhere. Raises OSError if that cannot be done."""
        if not is_on_network(wanted):
            _make_new(wanted)
            return wanted
        local = Path(tempfile.mkdtemp(prefix=f"kinetoscope-{wanted.name}-"))
        wanted.parent.mkdir(parents=True, exist_ok=True)
        self._pointer = wanted.with_name(f"{wanted.name}.elsewhere")
        self._pointer.write_text(f"{local}\n", encoding="utf-8")
        return local

    def _prepare(self) -> None:
        self._recorder.prepare()
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
            self._pointer.unlink(missing_ok=True)
        if path is not None:
            shutil.rmtree(path, ignore_errors=True)
        if self._lock is not None:
            self._lock.release()  # after the folder has gone: until then it is nobody else's
            self._lock = None
        if path is not None:
            with contextlib.suppress(OSError):
                path.parent.rmdir()  # `live` itself, unless another process is still in it


def _make_new(folder: Path) -> None:
    """Raises FileExistsError if it is there already."""
    try:
        folder.mkdir(parents=True)
    except FileNotFoundError:  # `live` went meanwhile, with the last process that was in it
        folder.mkdir(parents=True)


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
    )


def report_leftovers(run_folder: Path) -> None:
    """Says in the log that killed processes of an earlier attempt left something, and how to get it."""
    for folder in live_folders(run_folder):
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


def is_on_network(path: Path, mounts: str = "/proc/self/mountinfo") -> bool:
    """Whether ``path``, or the folder in which it will be made, is on a network file system."""
    path = Path(os.path.realpath(path))
    best, kind = "", ""
    with contextlib.suppress(OSError), open(mounts, encoding="utf-8") as file:
        for line in file:
            mount_point, file_system = _parse_mount(line)
            if len(mount_point) >= len(best) and path.is_relative_to(mount_point):
                best, kind = mount_point, file_system
    return kind.startswith(_NETWORK)


def _parse_mount(line: str) -> tuple[str, str]:
    """Mount point and kind of file system, from a line of mountinfo (proc(5)); spaces are written as octal escapes."""
    fields, _, after = line.partition(" - ")
    mount_point = fields.split()[4].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
    return mount_point, after.split()[0]
