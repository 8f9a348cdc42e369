"""Cache folder of the user, for derived data of traces and runs.

No other user can read or write it, and the files that were unused longest are deleted from it. It is never in the
folder of a run: others may have filled that, so a cache there could show events that are in no trace, and reports
contain advice that people follow.
"""

import hashlib
import os
import secrets
import time
from contextlib import suppress
from pathlib import Path

import kinetoscope
from kinetoscope.core.paths.run_folder import RunFolder, require_run_folders

SUFFIX, REPORT_SUFFIX, ROW_SUFFIX, COMMAND_SUFFIX = ".parquet", ".report.json", ".row.json", ".command"
"""Suffixes of cached files: a trace as columns, the report on a run, its row in a list, a hash of its command."""

MAX_CACHE_BYTES = 2_000_000_000
_IN_USE_S = 3600  # a trace may still read from a file that was used so recently
_REPORT_PACKAGES = ("analysis", "frames", "formats", "core/clock")


def code_fingerprint() -> str:
    """Return the version of Kinetoscope and the time of its newest change, on which reports depend.

    The version alone does not change during development.
    """
    package = Path(kinetoscope.__file__).parent
    files = [file for file in package.iterdir() if file.is_file()]
    files += [file for name in _REPORT_PACKAGES for file in (package / name).rglob("*.py")]
    return f"{kinetoscope.__version__} {max(file.stat().st_mtime_ns for file in files)}"


class CacheEntry:
    """The file ``name`` in the user's cache folder; raises OSError if there is no such folder."""

    def __init__(self, name: str) -> None:
        require_run_folders(name)
        self._folder, self._name = RunFolder(_user_folder()), name

    @classmethod
    def of_trace(cls, name: str) -> "CacheEntry":
        """Return the entry of the trace in the file ``name``."""
        return cls(_hash_path(os.path.realpath(name)) + SUFFIX)

    @classmethod
    def of_row(cls, run_folder: Path) -> "CacheEntry":
        """Return the entry of the row of the run in ``run_folder``."""
        return cls(_hash_path(os.path.realpath(run_folder)) + ROW_SUFFIX)

    @classmethod
    def of_command(cls, run_folder: Path) -> "CacheEntry":
        """Return the entry of the salted hash of the command of the run in ``run_folder``."""
        return cls(_hash_path(os.path.realpath(run_folder)) + COMMAND_SUFFIX)

    def read(self) -> bytes:
        """Return the content of the file. Raises OSError if there is none."""
        content = self._folder.read(self._name)
        self.find()
        return content

    def write(self, content: bytes) -> None:
        """Write the file, and make space for it. Raises OSError if that is impossible."""
        partial = f".{self._name}.{secrets.token_hex(4)}.partial"
        try:
            with self._folder.open(partial, "xb") as stream:
                remaining = memoryview(content)
                while remaining:
                    remaining = remaining[stream.write(remaining) :]
            self._folder.rename(partial, self._name)
        finally:
            self._folder.delete(partial)
        self.evict()

    def find(self) -> Path | None:
        """Return the path of the entry, if it exists and is no link, and mark it as used."""
        if not self._folder.is_file(self._name):
            return None
        with suppress(OSError):
            os.utime(self.path)  # marks it as just used
        return self.path

    @property
    def path(self) -> Path:
        """The path of the entry, which need not exist."""
        return self._folder.path / self._name

    def evict(self) -> None:
        """Delete the files that were unused longest, until at most `MAX_CACHE_BYTES` are left.

        If all other files may be in use, the new one is deleted.
        """
        kept = sorted(_files(self._folder.path), key=lambda file: file[0])
        excess_bytes = sum(size_bytes for _, size_bytes, _ in kept) - MAX_CACHE_BYTES
        old = [file for file in kept if file[0] < time.time() - _IN_USE_S]
        new = [file for file in kept if file[2].name == self._name]
        for _, size_bytes, path in [*old, *new]:
            if excess_bytes > 0:
                path.unlink(missing_ok=True)
                excess_bytes -= size_bytes


def _hash_path(path: str) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:32]


def _user_folder() -> Path:
    """Return the user's cache folder, made if needed and readable only by the user.

    Raises OSError if that is impossible.
    """
    given = Path(os.environ.get("XDG_CACHE_HOME") or "")
    folder = (given if given.is_absolute() else Path(os.path.expanduser("~"), ".cache")) / "kinetoscope"
    if not folder.is_absolute():
        raise FileNotFoundError("There is no home folder.")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.geteuid():
        raise PermissionError(f"{folder} belongs to another user.")
    if status.st_mode & 0o077:
        folder.chmod(0o700)
    return folder


def _files(folder: Path) -> list[tuple[float, int, Path]]:
    """Return each file in the cache as time of last use, size in bytes, and path."""
    files = []
    for path in folder.iterdir():
        if not path.name.endswith((SUFFIX, REPORT_SUFFIX, ROW_SUFFIX, COMMAND_SUFFIX)):
            continue
        with suppress(OSError):  # another process may delete it too
            status = path.stat()
            files.append((status.st_mtime, status.st_size, path))
    return files
