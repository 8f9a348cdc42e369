"""Writes files that appear under their name only when complete, and deletes what killed processes left half-written.

A half-written file is called ``.{name}.{machine}-{random}.partial``, and its owner locks it while it is needed. The
kernel releases the lock when the owner ends, however it ends. A pid would prove nothing: in containers every attempt
has the same one.

A free lock proves that the owner is dead only on the same machine: some network file systems do not share locks between
machines, and some, like Windows, have none. A file of another machine, or one that cannot be locked, is deleted a
day after the last write to it.

We use `flock` and not `lockf`: a process loses a `lockf` lock when it closes any descriptor of the file, which happens
before the file has its name. A forked child keeps a `flock` lock, so what its parent left is deleted only after the
child has ended too.
"""

import errno
import hashlib
import os
import re
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import BinaryIO

from kinetoscope.core.clock.proc import read_boot_id
from kinetoscope.errors import FolderNotWritableError

try:
    import fcntl
except ImportError:  # not a POSIX system: then nothing is locked
    fcntl = None

_NAME = re.compile(r"\..*\.([0-9a-f]{8})-[0-9a-f]{8}\.partial", re.DOTALL)
_MAX_NAME_CHARACTERS = 40  # of the name: with up to four bytes each, the whole is not longer than a name may be
_DAY_S = 86_400.0
_LOCK = sum(getattr(os, flag, 0) for flag in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"))
_NOT_LOCKED = -1


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a binary stream that becomes ``path`` when the block ends; nothing appears if it raises.

    Folders are made as needed. An earlier file of that name stays readable until the new file replaces it.

    Raises:
        FolderNotWritableError: the folder cannot be made or written to.
        OSError: the disk is full.
    """
    make_folder(path.parent)
    if _is_special(path):
        with path.open("wb") as stream:
            yield stream
        return
    with _partial(path) as partial:
        with partial.open("wb") as stream:
            yield stream
        partial.replace(path)


def _is_special(path: Path) -> bool:
    """Return whether a path is a pipe or a device, which must not be replaced: ``/dev/null`` is, if root may."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


@contextmanager
def _partial(path: Path) -> Iterator[Path]:
    if path.is_dir():
        raise FolderNotWritableError(f"Cannot write {path}: it is a folder. Give the name of a file in it.")
    with ExitStack() as stack:
        try:
            partial = stack.enter_context(partial_file(path))
        except OSError as error:
            raise FolderNotWritableError(f"Cannot write {path}: {error.strerror}. Choose another folder.") from error
        yield partial


def make_folder(folder: Path) -> Path:
    """Make ``folder`` and those above it; raise `FolderNotWritableError` if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FolderNotWritableError(
            f"Cannot make the folder {folder}: {error.strerror}. Choose another folder, or ask for access to it."
        ) from error
    return folder


def working_folder() -> Path:
    """Return the absolute path of the current folder; ``.`` if the folder was deleted."""
    with suppress(FileNotFoundError):
        return Path.cwd()
    return Path()


def check_writable(folder: Path) -> Path:
    """Make ``folder`` and write in it; raise `FolderNotWritableError` if either fails."""
    with atomic_file(make_folder(folder) / f"writable-{os.getpid()}"):
        pass
    (folder / f"writable-{os.getpid()}").unlink(missing_ok=True)
    return folder


class _InProgress:
    """The files and folders that this process is writing."""

    def __init__(self) -> None:
        self.paths: set[Path] = set()
        self.is_over = False


_in_progress = _InProgress()


@contextmanager
def partial_file(path: Path) -> Iterator[Path]:
    """Yield a new empty file beside ``path``, to be moved there; deleted at the end if it was not moved.

    Raises OSError if it cannot be made.
    """
    with _create_locked(path.parent, path.name, partial(Path.touch, exist_ok=False)) as file:
        yield file


@contextmanager
def temporary_folder(parent: Path | None = None) -> Iterator[Path]:
    """Yield a new folder for this user alone, deleted at the end; in ``parent``, or among the system's temporary files.

    The first call for the latter deletes what killed processes of this user have left there. Raises OSError if the
    folder cannot be made.
    """
    parent = parent or _system_folder(tempfile.gettempdir())
    with _create_locked(parent, "kinetoscope", partial(Path.mkdir, mode=0o700)) as folder:
        yield folder


def abandon_partials() -> None:
    """Delete all half-written files of this process and prevent new ones; never raise.

    For a process that ends now while its other threads may still run.
    """
    _in_progress.is_over = True
    for path in list(_in_progress.paths):
        with suppress(OSError):
            _remove(path)


def remove_partials(folder: Path) -> None:
    """Delete the half-written files of this user's dead processes in ``folder``; never raise."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if found := _NAME.fullmatch(entry.name):
                with suppress(OSError):
                    _remove_if_abandoned(Path(entry.path), found[1])


@contextmanager
def _create_locked(parent: Path, name: str, make: Callable[[Path], object]) -> Iterator[Path]:
    path, lock = _make_and_lock(parent, name, make)
    try:
        if _in_progress.is_over:
            raise InterruptedError(errno.EINTR, "the process ends", str(path))
        yield path
    finally:
        _delete_partial(path)
        if lock != _NOT_LOCKED:
            os.close(lock)


def _make_and_lock(parent: Path, name: str, make: Callable[[Path], object]) -> tuple[Path, int]:
    while True:
        path = parent / f".{name[:_MAX_NAME_CHARACTERS]}.{_machine()}-{os.urandom(4).hex()}.partial"
        _in_progress.paths.add(path)  # before it is made: the process may end at any moment
        try:
            make(path)
            lock = _lock(path)
        except FileExistsError:  # it is another's
            _in_progress.paths.discard(path)
            raise
        except BaseException:
            _delete_partial(path)
            raise
        if lock is not None:
            return path, lock
        _delete_partial(path)  # another process found it before it was locked, and is removing it


def _delete_partial(path: Path) -> None:
    _remove(path)
    _in_progress.paths.discard(path)


def _lock(path: Path) -> int | None:
    """Return a descriptor that holds the lock, or `_NOT_LOCKED`; None if another process is removing the file."""
    if fcntl is None:
        return _NOT_LOCKED
    try:
        descriptor = os.open(
            path, _LOCK | (os.O_RDONLY if path.is_dir() else os.O_RDWR)
        )  # NFS locks only what is open for writing
    except FileNotFoundError:
        return None
    if _is_locked(path, descriptor):
        return descriptor
    os.close(descriptor)
    return None


def _is_locked(path: Path, descriptor: int) -> bool:
    assert fcntl is not None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # this file system has no locks
        return True
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _remove_if_abandoned(path: Path, machine: str) -> None:
    status = path.lstat()
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        return
    if fcntl is None:
        if _is_stale(status):
            _remove(path)
        return
    if status.st_uid != os.geteuid():
        return
    descriptor = os.open(path, _LOCK | os.O_RDONLY)
    try:
        if _is_abandoned(descriptor, machine):
            _remove(path)
    finally:
        os.close(descriptor)


def _is_abandoned(descriptor: int, machine: str) -> bool:
    """Return whether the owner is dead. The lock taken here lasts as long as the descriptor is open."""
    assert fcntl is not None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared, so that two processes can check at a time
        proves_death = machine == _machine()
    except BlockingIOError:
        return False
    except OSError:
        proves_death = False
    return proves_death or _is_stale(os.fstat(descriptor))


def _is_stale(status: os.stat_result) -> bool:
    return time.time() - status.st_mtime > _DAY_S


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:  # a folder; the error differs between Linux and macOS
        shutil.rmtree(path, ignore_errors=True)


@cache
def _system_folder(folder: str) -> Path:
    remove_partials(Path(folder))
    return Path(folder)


@cache
def _machine() -> str:
    """Return an id of the machine, the same in all its containers until it is rebooted."""
    return hashlib.sha256((read_boot_id() or socket.gethostname()).encode()).hexdigest()[:8]
