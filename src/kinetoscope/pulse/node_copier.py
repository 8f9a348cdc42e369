"""Copies of a node's pulses in the run's folder, where that is on a network file system.

Pulses are in local storage, and one of the node's ranks copies them all into one file in the run's folder, now and
then. When it is gone, another one continues.
"""

import hashlib
import os
import stat
import struct
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from kinetoscope.core.background.background_thread import BackgroundThread
from kinetoscope.core.paths.run_folder import RunFolder
from kinetoscope.formats.record_request import NAME as REQUEST_FILE
from kinetoscope.pulse.layout import FOLDER, SUFFIX

COPY_SUFFIX = ".pulses"
BETWEEN_COPIES_S = 2.0
_MAGIC = b"KSPULSES"
_COUNT = struct.Struct("<I")
_LENGTH = struct.Struct("<I")
_LOCK = "lock"
_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)


def local_folder(run_folder: Path) -> Path:
    """Return a folder in local storage that this node's ranks of this user share. Raises OSError."""
    name = hashlib.sha256(os.fsencode(os.path.realpath(run_folder))).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"kinetoscope-pulse-{os.geteuid()}-{name}"
    with suppress(FileExistsError):
        folder.mkdir(0o700)
    found = os.stat(folder, follow_symlinks=False)
    if not (stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) == 0o700):
        return Path(tempfile.mkdtemp(prefix="kinetoscope-pulse-"))  # another user has made it: share nothing
    return folder


class NodeCopier:
    """A copier of the pulses in ``local`` into one file in the run's folder, on one rank of the node."""

    def __init__(self, local: Path, run_folder: Path, host: str) -> None:
        self._local, self._run = local, RunFolder(run_folder)
        digest = hashlib.sha256(f"{host} {local}".encode(errors="replace")).hexdigest()[:16]
        self._name = f"{FOLDER}/{digest}{COPY_SUFFIX}"
        self._lock: int | None = None
        self._is_over = threading.Event()
        self._thread = BackgroundThread(self._work, "kinetoscope-pulse")

    def start(self) -> None:
        """Start the thread that copies."""
        self._thread.try_start("The pulses of this machine are invisible until the run ends")

    def stop(self) -> None:
        """Stop copying; another rank may continue.

        If there is none, the copy is deleted: each rank has saved its own pulse.
        """
        self._is_over.set()
        self._thread.join(BETWEEN_COPIES_S)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        with suppress(OSError):
            if not any(self._pulses()):
                (self._local / _LOCK).unlink(missing_ok=True)
                (self._local / REQUEST_FILE).unlink(missing_ok=True)
                self._local.rmdir()
                self._run.delete(self._name)

    def _work(self) -> None:
        while not self._is_over.wait(BETWEEN_COPIES_S):
            with suppress(OSError):  # the file system may not answer, or be full: it is tried again
                if self._acquire_lock():
                    self._copy()
                    self._copy_request()

    def _acquire_lock(self) -> bool:
        """Return whether this rank copies: the kernel gives the lock to one process, and frees it with it."""
        import fcntl  # systems without it read this package, too

        if self._lock is None:
            lock = os.open(self._local / _LOCK, _FLAGS, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(lock)
                return False
            self._lock = lock
        return True

    def _copy(self) -> None:
        contents = [path.read_bytes().rstrip(b"\0") for path in self._pulses()]
        packed = [piece for content in contents for piece in (_LENGTH.pack(len(content)), content)]
        self._run.make_folder(FOLDER)
        self._run.write(self._name, b"".join([_MAGIC, _COUNT.pack(len(contents)), *packed]))

    def _copy_request(self) -> None:
        """Copy the request to record, which all ranks of the node see; it is overwritten in place."""
        request_bytes = self._run.read(f"{FOLDER}/{REQUEST_FILE}")
        copy = self._local / REQUEST_FILE
        if not copy.exists() or copy.read_bytes() != request_bytes:
            with open(os.open(copy, _FLAGS, 0o600), "r+b", buffering=0) as file:
                file.write(request_bytes)

    def _pulses(self) -> Iterator[Path]:
        return (path for path in sorted(self._local.iterdir()) if path.name.endswith(SUFFIX))


def find_copied_pulses(descriptor: int) -> Iterator[tuple[int, int]]:
    """Yield the offset and the length of each pulse in a copy, up to the first incomplete one."""
    size, begin = os.fstat(descriptor).st_size, os.pread(descriptor, len(_MAGIC) + _COUNT.size, 0)
    if not begin.startswith(_MAGIC) or len(begin) < len(_MAGIC) + _COUNT.size:
        return
    (count,) = _COUNT.unpack_from(begin, len(_MAGIC))
    at = len(begin)
    for _ in range(count):
        if size < at + _LENGTH.size:
            return
        (length,) = _LENGTH.unpack(os.pread(descriptor, _LENGTH.size, at))
        at += _LENGTH.size
        yield at, min(length, size - at)
        at += length
