"""Lock ``owner.lock`` in a spool folder, which shows readers of the folder whether its process is alive.

It is a POSIX record lock: the kernel releases it when the process ends, in whatever way, and forked children do not
hold it. It also works across pid namespaces, where pids cannot be compared.
"""

import errno
import hashlib
import os
import socket
from contextlib import suppress
from enum import Enum
from pathlib import Path

from kinetoscope.core.clock.proc import read_boot_id
from kinetoscope.core.job.ranks import Attempt, is_process_alive

_NAME = "owner.lock"
_BOOT_ID_BYTES = 64
# The locks of this process by device and inode, with its pid. A forked child has a copy of this, but not the locks.
_locks: dict[tuple[int, int], int] = {}


class OwnerState(Enum):
    """The state of a spool folder's process."""

    ALIVE = 1
    DEAD = 2
    UNKNOWN = 3


class OwnerLock:
    """Held by the process that made ``folder``, until `release` or until the process ends.

    The file is opened only once: a process that closes any descriptor of a file loses its locks on that file. If the
    file system has no locks, there is no lock file, and `read_owner_state` uses the pid. Raises OSError if the file
    cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / _NAME
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        status = os.fstat(self._file)
        self._key = status.st_dev, status.st_ino
        try:
            os.write(self._file, read_boot_id().encode())
            _lock(self._file)
            _locks[self._key] = os.getpid()
        except OSError:
            self._path.unlink(missing_ok=True)
            self.release()

    def renew(self) -> None:
        """Lock the file again, in case this process has lost the lock, for instance by copying the folder."""
        with suppress(OSError):
            if self._file >= 0:
                _lock(self._file)

    def release(self) -> None:
        """Release the lock. In a forked child, the parent keeps it."""
        file, self._file = self._file, -1
        _locks.pop(self._key, None)
        if file >= 0:
            os.close(file)


def read_owner_state(folder: Path | None, attempt: Attempt | None) -> OwnerState:
    """Return whether the process that made the spool folder ``folder`` is alive; never raise.

    It is read from the lock. If there is no folder or no lock, it is whether the process of the ``attempt`` exists, if
    that was on this machine; the state of a process on another machine, or of an unknown one, is unknown then.
    """
    host = attempt.host if attempt is not None else ""
    state = _query_lock(folder / _NAME, host) if folder is not None else OwnerState.UNKNOWN
    if state is not OwnerState.UNKNOWN or attempt is None or not _is_this_machine(host):
        return state
    return OwnerState.ALIVE if is_process_alive(attempt.pid) else OwnerState.DEAD


def _query_lock(path: Path, host: str) -> OwnerState:
    try:
        status = path.lstat()
        if _locks.get((status.st_dev, status.st_ino)) == os.getpid():
            return OwnerState.ALIVE
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return OwnerState.UNKNOWN
    try:
        # Shared, so that two processes that check at the same moment do not mistake each other for the owner.
        _lock(file, is_shared=True)
        boot_id = os.read(file, _BOOT_ID_BYTES).decode(errors="replace")
    except OSError as error:
        return OwnerState.ALIVE if error.errno in (errno.EACCES, errno.EAGAIN) else OwnerState.UNKNOWN
    finally:
        os.close(file)
    # Not every network file system shows one machine the locks of another. Outside of Linux there is no boot id.
    is_same_boot = boot_id != "" and boot_id == read_boot_id()
    return OwnerState.DEAD if is_same_boot or _is_this_machine(host) else OwnerState.UNKNOWN


def anonymous_host_id() -> str:
    """Return an id that replaces this machine's name in files: the same until the next boot."""
    return f"host-{hashlib.sha256((read_boot_id() + socket.gethostname()).encode()).hexdigest()[:16]}"


def _is_this_machine(host: str) -> bool:
    return host in (socket.gethostname(), anonymous_host_id())


def _lock(file: int, *, is_shared: bool = False) -> None:
    """Lock the file. Raises OSError if another process has locked it, or if the file system has no locks."""
    try:
        import fcntl
    except ImportError:
        raise OSError(errno.ENOLCK, "there are no file locks here") from None
    fcntl.lockf(file, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
