"""table: where the cache of a trace is. A trace's name flows in; the path of the Parquet file that is kept of it, out.

In a folder that Kinetoscope made, it is beside the trace. Elsewhere nothing appears beside somebody's files: it is in
the user's own cache, which nobody else can read, and in which what was not used for longest makes room.
"""

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path

from kinetoscope.training.run_folder import RunFolder

FOLDER = ".kinetoscope_cache"
SUFFIX = ".parquet"
MOST_BYTES = 2_000_000_000
_IN_USE_S = 3600  # a trace may still read from what was used so recently
_MARK = ".manifest"


class CachePlace:
    """The place for what is kept of the trace ``name``. Raises OSError where there is none."""

    def __init__(self, name: str) -> None:
        beside = os.path.dirname(name) or "."
        self._is_own = not (_is_of_a_run(Path(beside)) and os.access(beside, os.W_OK))
        if self._is_own:
            self._folder = RunFolder(_user_folder())
            self._name = hashlib.sha256(os.fsencode(os.path.realpath(name))).hexdigest()[:32] + SUFFIX
        else:
            self._folder = RunFolder(beside)
            self._name = f"{FOLDER}/{os.path.basename(name)}{SUFFIX}"

    def find(self) -> Path | None:
        """What is kept, if it is there, and no link in its place."""
        if not self._folder.is_file(self._name):
            return None
        path = self._folder.path_of(self._name)
        if self._is_own:
            with suppress(OSError):
                os.utime(path)  # it was used now
        return path

    def make(self) -> Path:
        """Where to write; not behind a link."""
        if not self._is_own:
            self._folder.make_folder(FOLDER)
        return self._folder.path / self._name

    def make_room(self) -> None:
        """Deletes from the user's cache what was not used for longest, until it is small enough; if all of it may be in
        use, what was written now."""
        if not self._is_own:
            return
        kept = sorted(_files(self._folder.path), key=lambda file: file[0])
        too_much = sum(size_bytes for _, size_bytes, _ in kept) - MOST_BYTES
        old = [file for file in kept if file[0] < time.time() - _IN_USE_S]
        new = [file for file in kept if file[2].name == self._name]
        for _, size_bytes, path in [*old, *new]:
            if too_much > 0:
                path.unlink(missing_ok=True)
                too_much -= size_bytes


def _is_of_a_run(folder: Path) -> bool:
    """Whether Kinetoscope made the folder: it keeps its list of traces in it, or in the one for traces beside it."""
    return any(map(os.path.isdir, (folder / _MARK, Path(os.path.abspath(folder)).parent / "traces" / _MARK)))


def _user_folder() -> Path:
    """The user's cache, made if need be; nobody else may look into it. Raises OSError if there can be none."""
    given = Path(os.environ.get("XDG_CACHE_HOME") or "")
    folder = (given if given.is_absolute() else Path(os.path.expanduser("~"), ".cache")) / "kinetoscope"
    if not folder.is_absolute():
        raise FileNotFoundError("There is no home folder.")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.geteuid():
        raise PermissionError(f"{folder} is somebody else's.")
    if status.st_mode & 0o077:
        folder.chmod(0o700)
    return folder


def _files(folder: Path) -> list[tuple[float, int, Path]]:
    """When each file of the user's cache was used last, its size, and its path."""
    found = []
    for path in folder.glob(f"*{SUFFIX}"):
        with suppress(OSError):  # another process makes room as well
            status = path.stat()
            found.append((status.st_mtime, status.st_size, path))
    return found
