"""Files in a run's folder, opened by name and never outside of it: other users may have filled the folder.

Names are relative to the folder, and followed part by part from an open directory, never through a symbolic link.

A path that the user names is the user's own choice, so links in it are followed: `open_file`. A file that a list of
names or a glob has found in a folder is a `FoundFile`: it is opened in that folder only.
"""

import errno
import glob
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO, Literal, Self, cast

from kinetoscope.core.paths.regular_file import regular_opener
from kinetoscope.errors import UnsafePathError, UnsupportedSystemError

HAS_RUN_FOLDERS = os.open in os.supports_dir_fd and find_spec("fcntl") is not None
"""True if this system can open a file relative to an open folder, and lock files. Windows cannot."""
WITHOUT_RUN_FOLDERS = (
    "this system cannot lock files or open them relative to a folder (fcntl, dir_fd), which keeps the files of a run's "
    "processes apart. Use Linux or macOS."
)
"""The reason why a system has no run folders, and the remedy."""
_FOLDER = os.O_RDONLY | sum(getattr(os, flag, 0) for flag in ("O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC"))
# Opening a named pipe could block for ever: it is opened without blocking, and then refused.
_FILE = sum(getattr(os, flag, 0) for flag in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"))
_WILDCARDS = frozenset("*?[")
_DEFAULT_MAX_BYTES = 64 << 20
_MAX_SHOWN_CHARACTERS = 200
_CONTROL = frozenset(map(chr, [*range(32), *range(127, 160)]))


def require_run_folders(path: str | os.PathLike[str]) -> None:
    """Raise `UnsupportedSystemError` on systems without run folders. ``path`` is the folder that was to be used."""
    if not HAS_RUN_FOLDERS:
        raise UnsupportedSystemError(f"Cannot use {path} as the folder of a run: {WITHOUT_RUN_FOLDERS}")


class RunFolder:
    """The folder ``path``. The user gave this path, so symbolic links in it are followed.

    A name is relative, such as ``traces/.manifest/rank0.jsonl``; ``.`` is the folder itself. All methods raise
    `UnsafePathError` for a name that is empty or absolute, contains ``..`` or a control character, or leads through or
    to a symbolic link; and OSError for errors of the file system. Raises `UnsupportedSystemError` on systems without
    run folders (`HAS_RUN_FOLDERS`).
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        require_run_folders(path)
        self.path = Path(os.path.realpath(path))

    def path_of(self, name: str) -> Path:
        """Return the path of ``name``, which need not exist: for functions that need a path."""
        self.status(name)
        return self.path.joinpath(*_parts(name))

    def name_of(self, path: str | os.PathLike[str]) -> str:
        """Return the name in this folder of a path; a link in the path's last part is not followed."""
        path = Path(os.path.abspath(path))
        absolute_path = Path(os.path.realpath(path.parent), path.name)
        if path != self.path and not absolute_path.is_relative_to(self.path):
            raise UnsafePathError(f"{path} is not in the folder {self.path}.")
        return "." if path == self.path else str(absolute_path.relative_to(self.path))

    def status(self, name: str) -> os.stat_result | None:
        """Return the status of a file or folder; None if it does not exist."""
        parts = _parts(name)
        try:
            with self._folder(parts[:-1], name) as folder:
                file_status = os.stat(parts[-1] if parts else ".", dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        if stat.S_ISLNK(file_status.st_mode):
            raise self._link(name)
        return file_status

    def is_file(self, name: str) -> bool:
        """Return whether there is a regular file of this name, reached without a link."""
        return self._is(name, stat.S_ISREG)

    def is_folder(self, name: str) -> bool:
        """Return whether there is a folder of this name, reached without a link."""
        return self._is(name, stat.S_ISDIR)

    def names(self, name: str = ".") -> list[str]:
        """Return the sorted names in a folder; none if there is no such folder."""
        try:
            with self.open_folder(name) as folder:
                return sorted(os.listdir(folder))
        except FileNotFoundError:
            return []

    @contextmanager
    def open_folder(self, name: str = ".") -> Iterator[int]:
        """Yield a descriptor of a folder, to use as ``dir_fd``."""
        with self._folder(_parts(name), name) as folder:
            yield folder

    def make_folder(self, name: str) -> Path:
        """Make a folder, with those above it, if it does not exist; returns its path."""
        self.path.mkdir(parents=True, exist_ok=True)
        parts = _parts(name)
        with self._folder(parts, name, make=True):
            return self.path.joinpath(*parts)

    def open(self, name: str, mode: Literal["rb", "r+b", "ab", "ab+", "xb"] = "rb") -> BinaryIO:
        """Open a regular file, unbuffered; its folder must exist.

        A file that is opened for writing must not have a second name (a hard link), because it would change under that
        name too.
        """
        parents, last = _split(name)
        with self._folder(parents, name) as folder:

            def opener(path: str, flags: int) -> int:
                return os.open(path, flags | _FILE, 0o666, dir_fd=folder)

            try:
                stream = FileIO(last, mode, opener=opener)
            except OSError as error:
                raise self._explain(error, folder, last, name) from error
        self._check(stream, name, is_changed=mode != "rb")
        return cast("BinaryIO", stream)

    def read(self, name: str, max_bytes: int = _DEFAULT_MAX_BYTES) -> bytes:
        """Return the content of a file. Raises `UnsafePathError` if it is longer than ``max_bytes``."""
        with self.open(name) as stream:
            if os.fstat(stream.fileno()).st_size > max_bytes:
                raise UnsafePathError(f"{self.path / name} is too large: it may have {max_bytes:,} bytes.")
            content = bytearray()
            while len(content) <= max_bytes and (piece := stream.read(max_bytes + 1 - len(content))):
                content += piece
            return bytes(content)

    def write(self, name: str, content: bytes) -> None:
        """Write a file completely or not at all, replacing one of this name.

        Its folder must exist, and no other process may write the same file at the same time.
        """
        parents, last = _split(name)
        partial = "/".join([*parents, f".{last}.partial"])
        self.delete(partial)  # of a process that died
        try:
            with self.open(partial, "xb") as stream:
                remaining = memoryview(content)
                while remaining:
                    remaining = remaining[stream.write(remaining) :]
            self.rename(partial, name)
        finally:
            self.delete(partial)

    def rename(self, old: str, new: str) -> None:
        """Give a file in a folder another name in the same folder."""
        parents, last = _split(old)
        new_parents, new_last = _split(new)
        if parents != new_parents:
            raise UnsafePathError(f"{old} and {new} are in two folders.")
        with self._folder(parents, old) as folder:
            os.replace(last, new_last, src_dir_fd=folder, dst_dir_fd=folder)

    def delete(self, name: str) -> None:
        """Delete a file, or a link itself, if it is there."""
        parents, last = _split(name)
        try:
            with self._folder(parents, name) as folder:
                os.unlink(last, dir_fd=folder)
        except FileNotFoundError:
            return

    def delete_folder(self, name: str) -> None:
        """Delete a folder with everything in it; links in it are deleted, not followed."""
        parents, last = _split(name)
        self.status(name)
        with self._folder(parents, name) as folder:
            shutil.rmtree(last, dir_fd=folder)

    def delete_empty(self, name: str) -> None:
        """Delete an empty folder. Raises OSError if it is not empty."""
        parents, last = _split(name)
        with self._folder(parents, name) as folder:
            os.rmdir(last, dir_fd=folder)

    # -- inside -----------------------------------------------------------------------------------------------

    def _is(self, name: str, kind: Callable[[int], bool]) -> bool:
        try:
            file_status = self.status(name)
        except (UnsafePathError, NotADirectoryError):
            return False
        return file_status is not None and kind(file_status.st_mode)

    @contextmanager
    def _folder(self, parts: list[str], name: str, *, make: bool = False) -> Iterator[int]:
        """Yield a descriptor of the folder at ``parts``."""
        folder = os.open(self.path, _FOLDER)
        try:
            for part in parts:
                below = self._next(folder, part, name, make)
                os.close(folder)
                folder = below
            yield folder
        finally:
            os.close(folder)

    def _next(self, folder: int, part: str, name: str, make: bool) -> int:
        if make:
            with suppress(FileExistsError):  # if it is not a folder, opening it raises
                os.mkdir(part, dir_fd=folder)
        try:
            return os.open(part, _FOLDER, dir_fd=folder)
        except OSError as error:
            raise self._explain(error, folder, part, name) from error

    def _explain(self, error: OSError, folder: int, part: str, name: str) -> OSError:
        """Return the error to raise where ``part`` of ``name`` cannot be opened: a link is reported as one."""
        try:
            is_link = stat.S_ISLNK(os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode)
        except OSError:
            is_link = False
        if is_link:
            return self._link(name)
        return type(error)(error.errno, error.strerror, str(self.path / name))

    def _link(self, name: str) -> UnsafePathError:
        return _link_error(self.path / name)

    def _check(self, stream: FileIO, name: str, is_changed: bool) -> None:
        file_status = os.fstat(stream.fileno())
        if stat.S_ISREG(file_status.st_mode) and not (is_changed and file_status.st_nlink > 1):
            return
        stream.close()
        why = (
            "has a second name elsewhere (a hard link)" if stat.S_ISREG(file_status.st_mode) else "is no ordinary file"
        )
        raise UnsafePathError(f"{self.path / name} is not used: it {why}.")


class FoundFile(str):
    """The path of a file that was found in ``folder`` under ``name``, where nothing but an ordinary file is opened.

    As a text it is the path to show. It stays what it is in another process. Not every function keeps what it is: do
    not make a `Path` of it before it is opened.
    """

    __slots__ = ("folder", "name")
    folder: str
    name: str

    def __new__(cls, folder: str | os.PathLike[str], name: str) -> Self:
        """Make the path of file ``name`` in ``folder``."""
        folder = os.fspath(folder)
        found = super().__new__(cls, name if folder == "." else os.path.join(folder, *name.split("/")))
        found.folder, found.name = folder, name
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.folder, self.name)

    def absolute(self) -> "FoundFile":
        """Return the same file for a process with another working directory."""
        return FoundFile(os.path.abspath(self.folder), self.name)

    def require_inside(self) -> None:
        """Raise `UnsafePathError` if a link leads to the file, or if it is not a regular file."""
        absolute_path = os.path.join(os.path.realpath(self.folder), *_parts(self.name))
        if os.path.realpath(absolute_path) != absolute_path:
            raise _link_error(self)
        if not stat.S_ISREG(os.lstat(absolute_path).st_mode):
            raise UnsafePathError(f"{self} is not used: it is no ordinary file.")

    def open(self) -> BinaryIO:
        """Return the file, to be read, unbuffered. Raises `UnsafePathError` like `require_inside`, and OSError."""
        if HAS_RUN_FOLDERS:
            return RunFolder(self.folder).open(self.name)
        self.require_inside()
        return cast("BinaryIO", FileIO(str(self)))


def open_file(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file to read, unbuffered: a `FoundFile` in its folder only, any other path through links.

    All readers of traces open them with this function.

    Raises:
        OSError: the file cannot be opened; `UnsafePathError` where it is not in its folder.
        TraceFileError: it is a pipe or a device.
    """
    name = os.fspath(path)
    return name.open() if isinstance(name, FoundFile) else cast("BinaryIO", FileIO(name, opener=regular_opener))


def open_descriptor(path: str, flags: int) -> int:
    """Open a file like `open_file`, as the ``opener`` of a stream."""
    with open_file(path) as file:
        return os.dup(file.fileno())


def find_files(folder: str | os.PathLike[str], subfolder: str, suffixes: tuple[str, ...]) -> list[FoundFile]:
    """Return the files with one of the suffixes in ``subfolder`` of ``folder``, sorted; ``.`` is the folder itself.

    Folders with such names are left out.

    Raises:
        UnsafePathError: one of them, or ``subfolder``, is a link, a pipe or a device.
        OSError: the folder cannot be read.
    """
    if find_file_type(folder, subfolder) != stat.S_IFDIR:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), os.path.join(folder, subfolder))
    with os.scandir(os.path.join(folder, subfolder)) as entries:
        names = sorted(
            entry.name for entry in entries if entry.name.endswith(suffixes) and not entry.is_dir(follow_symlinks=False)
        )
    found = [FoundFile(folder, name if subfolder == "." else f"{subfolder}/{name}") for name in names]
    return [file for file in found if _still_exists(file)]


def find_file_type(folder: str | os.PathLike[str], name: str) -> int | None:
    """Return the type of ``name`` in ``folder``, as `stat.S_IFMT` does; None if it does not exist.

    Raises `UnsafePathError` if it is a link, or behind one.
    """
    absolute_path = os.path.join(os.path.realpath(folder), *_parts(name))
    if os.path.realpath(absolute_path) != absolute_path:
        raise _link_error(os.path.join(folder, name))
    with suppress(FileNotFoundError, NotADirectoryError):
        return stat.S_IFMT(os.lstat(absolute_path).st_mode)
    return None


def find_glob(pattern: str) -> list[FoundFile]:
    """Return the files that match a pattern, sorted.

    The user names the folders before the first wildcard; links in these are followed.
    """
    folder, is_pattern = os.path.split(pattern)[0], not _WILDCARDS.isdisjoint(pattern)
    while not _WILDCARDS.isdisjoint(folder):
        folder = os.path.dirname(folder)
    found = sorted(glob.glob(pattern, recursive=True)) if is_pattern else []
    names = [os.path.relpath(path, folder or ".").replace(os.sep, "/") for path in found]
    return [FoundFile(folder or ".", name) for name in names]


def _still_exists(file: FoundFile) -> bool:
    """False if it was deleted meanwhile. Raises `UnsafePathError` if it is not to be opened."""
    with suppress(FileNotFoundError):
        file.require_inside()
        return True
    return False


def _link_error(path: object) -> UnsafePathError:
    return UnsafePathError(
        f"{path} is, or lies behind, a symbolic link. Links in a run's folder are not followed, since they may lead "
        "anywhere. Put the file or folder itself there, or name what the link leads to."
    )


def is_name_inside(name: str) -> bool:
    """Return whether this is a valid name in a folder: relative, without ``..`` and control characters."""
    try:
        return bool(_parts(name))
    except UnsafePathError:
        return False


def _split(name: str) -> tuple[list[str], str]:
    """Return the parts of the parent folder's name, and the name in it."""
    parts = _parts(name)
    if not parts:
        raise UnsafePathError(f"{name!r} is not used: it names the folder itself.")
    return parts[:-1], parts[-1]


def _parts(name: str) -> list[str]:
    """Return the parts of a relative name; none for ``.``."""
    parts = name.split("/")
    if not name or name.startswith("/") or ".." in parts or not _CONTROL.isdisjoint(name):
        raise UnsafePathError(
            f"{name[:_MAX_SHOWN_CHARACTERS]!r} is not used: a name in a run's folder is relative, without '..' and "
            "control characters."
        )
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        raise UnsafePathError(f"{name[:_MAX_SHOWN_CHARACTERS]!r} is not used: no file can have this name.") from None
    return [part for part in parts if part not in ("", ".")]
