"""Queue of uploads on disk, in ``{run folder}/.uploads/rank{r}/``.

Each waiting upload is one small file, named so that sorting gives the order. When the upload is confirmed the file is
deleted, and a line in ``uploaded.jsonl`` replaces it. Files are written and deleted whole, so a kill loses nothing.
"""

import itertools
import os
import re
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kinetoscope.core.paths.run_folder import RunFolder, is_name_inside
from kinetoscope.errors import UnsafePathError
from kinetoscope.formats.journal import append_line, read_journal
from kinetoscope.formats.struct_json import decode_struct, encode_struct

_FOLDER, _UPLOADED = ".uploads", "uploaded.jsonl"
_WAITING, _DEFERRED, _DELETABLE = ".json", ".aside", ".expendable"
_RESERVE, _RESERVE_BYTES = "reserve", 64 << 10
_ENTRY_BYTES, _UPLOADED_BYTES = 64 << 10, 256 << 20
_RANK = re.compile(r"rank(0|[1-9][0-9]{0,8})")
_MAX_PATH_LENGTH = 200
_serial = itertools.count()


class Upload(msgspec.Struct, frozen=True):
    """A local file and its destination. ``path`` is relative to the run folder."""

    path: str
    url: str


class ConfirmedUpload(msgspec.Struct, frozen=True):
    """An uploaded file whose size and checksum the store has confirmed."""

    path: str
    url: str
    size_bytes: int
    md5: str
    num_tries: int


@dataclass(frozen=True, slots=True)
class QueuedUpload:
    """An entry of the queue: the upload, the entry's file, and the run folder."""

    upload: Upload
    entry: Path
    run_folder: Path

    @property
    def file(self) -> Path:
        """The file to upload, as the entry names it. Call `locate` before reading or deleting it."""
        return Path(os.path.normpath(self.run_folder / self.upload.path))

    def locate(self, other_folders: Collection[Path] = ()) -> tuple[RunFolder, str]:
        """Return the folder of the file, which is the run's or one of ``other_folders``, and the file's name in it.

        Raises:
            UnsafePathError: the file is in none of them.
        """
        if is_name_inside(self.upload.path):
            return RunFolder(self.run_folder), self.upload.path
        for folder in other_folders:
            with suppress(UnsafePathError, ValueError):  # ValueError: a path with a null character in it
                return RunFolder(folder), RunFolder(folder).name_of(self.file)
        raise UnsafePathError(
            f"{str(self.file)[:_MAX_PATH_LENGTH]!r} is not in the run's folder. To upload it, pass its "
            "folder with --also."
        )

    @property
    def is_waiting(self) -> bool:
        """Presence of the entry in the queue."""
        return self._folder.is_file(self._name)

    def mark_deletable(self) -> None:
        """Record that the file may be deleted after its upload."""
        self._folder.write(self._mark, b"")

    def remove(self) -> bool:
        """Remove the entry from the queue; return whether the file may be deleted."""
        self._folder.delete(self._name)
        is_deletable = self._folder.is_file(self._mark)
        self._folder.delete(self._mark)
        return is_deletable

    def confirm(self, confirmed: ConfirmedUpload) -> bool:
        """Record a confirmed upload, if the disk has space, and remove the entry.

        Return whether the file may be deleted.
        """
        with suppress(OSError):
            append_line(self._folder, f"{os.path.dirname(self._name)}/{_UPLOADED}", encode_struct(confirmed))
        return self.remove()

    @property
    def _folder(self) -> RunFolder:
        return RunFolder(self.run_folder)

    @property
    def _name(self) -> str:
        return f"{_FOLDER}/{self.entry.parent.name}/{self.entry.name}"

    @property
    def _mark(self) -> str:
        return str(Path(self._name).with_suffix(_DELETABLE))


def find_queue_folder(run_folder: Path, rank: int) -> Path:
    """Return the folder of the queue of ``rank``."""
    return run_folder / build_queue_name(rank)


def build_queue_name(rank: int) -> str:
    """Return the name of `find_queue_folder` in the run folder."""
    return f"{_FOLDER}/rank{rank}"


def add_upload(run_folder: Path, rank: int, file: Path, url: str, *, deferred: bool = False) -> None:
    """Add an upload to the end of the queue, in place of waiting uploads to the same URL.

    A ``deferred`` upload is sent only on request (``kinetoscope upload``).

    Raises:
        OSError: the entry cannot be written, for instance on a full disk.
    """
    run = RunFolder(run_folder)
    run.make_folder(build_queue_name(rank))
    before = [entry for entry in read_queue(run_folder, rank, deferred=True) if entry.upload.url == url]
    suffix = _DEFERRED if deferred else _WAITING
    upload = Upload(relative_to_run_folder(run_folder, file), url)
    entry = f"{time.time_ns():020}-{os.getpid()}-{next(_serial)}{suffix}"
    run.write(f"{build_queue_name(rank)}/{entry}", encode_struct(upload))
    for replaced in before:
        replaced.remove()


def relative_to_run_folder(run_folder: Path, file: Path) -> str:
    """Return the path of a file relative to the run folder, as in entries."""
    return os.path.relpath(Path(os.path.realpath(file.parent), file.name), os.path.realpath(run_folder))


def reserve_space(run_folder: Path, rank: int) -> None:
    """Reserve space on the disk, so that files can be queued when it is full.

    Raises:
        OSError: the reserve cannot be written.
    """
    run = RunFolder(run_folder)
    run.make_folder(build_queue_name(rank))
    run.write(f"{build_queue_name(rank)}/{_RESERVE}", bytes(_RESERVE_BYTES))


def free_reserve(run_folder: Path, rank: int) -> None:
    """Free the space that `reserve_space` reserved."""
    RunFolder(run_folder).delete(f"{build_queue_name(rank)}/{_RESERVE}")


def read_queue(run_folder: Path, rank: int, *, deferred: bool = False) -> list[QueuedUpload]:
    """Return the waiting uploads of ``rank``, oldest first; ``deferred`` ones only if requested.

    Raises:
        OSError: the queue cannot be read.
    """
    suffixes = (_WAITING, _DEFERRED) if deferred else (_WAITING,)
    run = RunFolder(run_folder)
    names = [name for name in run.names(build_queue_name(rank)) if name.endswith(suffixes) and not name.startswith(".")]
    return [waiting for name in names if (waiting := _read_entry(run, find_queue_folder(run.path, rank) / name))]


def read_confirmed(run_folder: Path, rank: int) -> Iterator[ConfirmedUpload]:
    """Yield the confirmed uploads of ``rank``, without damaged lines. Raises OSError if the list cannot be read."""
    with suppress(FileNotFoundError):
        name = f"{build_queue_name(rank)}/{_UPLOADED}"
        yield from read_journal(RunFolder(run_folder), name, ConfirmedUpload, max_bytes=_UPLOADED_BYTES)


def find_ranks_with_uploads(run_folder: Path) -> list[int]:
    """Return the ranks that have ever queued an upload.

    Raises:
        OSError: the folder cannot be read.
    """
    found = (_RANK.fullmatch(name) for name in RunFolder(run_folder).names(_FOLDER))
    return sorted(int(match[1]) for match in found if match)


def delete_when_uploaded(run_folder: Path, file: Path) -> None:
    """Delete ``file`` now, or after its upload if it waits for one.

    The uploading process may finish at the same time. Each side first writes its mark and then reads the other's, so
    that one of them deletes the file.
    """
    waiting = [
        upload for rank in find_ranks_with_uploads(run_folder) for upload in read_queue(run_folder, rank, deferred=True)
    ]
    real_path = Path(os.path.realpath(file.parent), file.name)
    entries_of_file = [upload for upload in waiting if upload.file == real_path]
    for upload in entries_of_file:
        upload.mark_deletable()
    if not any(upload.is_waiting for upload in entries_of_file):
        _delete(run_folder, file)
        for upload in entries_of_file:
            upload.remove()


def _delete(run_folder: Path, file: Path) -> None:
    """Delete a file that the run or its user has named; in the run folder, links are not followed."""
    name = os.path.relpath(os.path.abspath(file), os.path.abspath(run_folder))
    if is_name_inside(name):
        RunFolder(run_folder).delete(name)
    else:
        RunFolder(file.parent).delete(file.name)


def _read_entry(run: RunFolder, entry: Path) -> QueuedUpload | None:
    """Return an entry; None if it was removed meanwhile, or is malformed."""
    try:
        content = run.read(str(entry.relative_to(run.path)), _ENTRY_BYTES)
        upload = decode_struct(content, Upload)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return QueuedUpload(upload, entry, run.path)
