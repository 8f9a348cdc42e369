"""writing: files that appear under their name only when they are complete."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from kinetoscope.errors import FolderNotWritableError
from kinetoscope.writing.partial_files import partial_file


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A binary stream that becomes ``path`` when the block ends well, and nothing at all when it does not.

    Folders are made as needed. What ``path`` held before stays readable until the new file takes its place.
    Raises `FolderNotWritableError` where the folder cannot be made or written to, OSError when the disk is full.
    """
    make_folder(path.parent)
    with _partial(path) as partial:
        with partial.open("wb") as stream:
            yield stream
        partial.replace(path)


@contextmanager
def _partial(path: Path) -> Iterator[Path]:
    with ExitStack() as stack:
        try:
            partial = stack.enter_context(partial_file(path))
        except OSError as error:
            raise FolderNotWritableError(f"Cannot write {path}: {error.strerror}. Choose another folder.") from error
        yield partial


def make_folder(folder: Path) -> Path:
    """Makes ``folder`` and those above it; raises `FolderNotWritableError` naming it if it cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FolderNotWritableError(
            f"Cannot make the folder {folder}: {error.strerror}. Choose another folder, or ask for access to it."
        ) from error
    return folder


def working_folder() -> Path:
    """Where the process is now, so that it may go elsewhere later; the relative one if it has been deleted."""
    with suppress(FileNotFoundError):
        return Path.cwd()
    return Path()


def check_writable(folder: Path) -> Path:
    """Makes ``folder`` and tries to write in it; raises `FolderNotWritableError` if either fails."""
    with atomic_file(make_folder(folder) / f"writable-{os.getpid()}"):
        pass
    (folder / f"writable-{os.getpid()}").unlink(missing_ok=True)
    return folder
