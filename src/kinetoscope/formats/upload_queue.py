"""formats: the uploads that wait, ``{run folder}/.uploads/rank{r}/``. Finished files flow in; who uploads reads it.

One small file per waiting upload, named so that sorting gives the order. It goes when the upload is confirmed, and a
line in ``uploaded.jsonl`` takes its place. Files appear and go whole, so that a kill at any moment loses nothing.
"""

import itertools
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kinetoscope.formats.own_json import decode_struct, encode_struct

_FOLDER, _UPLOADED = ".uploads", "uploaded.jsonl"
_WAITING, _LEFT_ASIDE, _EXPENDABLE = ".json", ".aside", ".expendable"
_RESERVE, _RESERVE_BYTES = "reserve", 64 << 10
_serial = itertools.count()


class Upload(msgspec.Struct, frozen=True):
    """A local file and where it is to go. ``path`` is relative to the run's folder."""

    path: str
    url: str


class ConfirmedUpload(msgspec.Struct, frozen=True):
    """A file is in the store: the store was asked, and has as many bytes, with this checksum."""

    path: str
    url: str
    size_bytes: int
    md5: str
    num_tries: int


@dataclass(frozen=True, slots=True)
class WaitingUpload:
    """An entry of the queue: the upload, the file that stands for it, and the run's folder."""

    upload: Upload
    entry: Path
    run_folder: Path

    @property
    def file(self) -> Path:
        """What is to be uploaded."""
        return Path(os.path.normpath(self.run_folder / self.upload.path))

    @property
    def is_waiting(self) -> bool:
        """Whether it is still to be done."""
        return self.entry.exists()

    def mark_expendable(self) -> None:
        """Writes down that nobody but this upload needs the file any more."""
        self.entry.with_suffix(_EXPENDABLE).touch()

    def remove(self) -> bool:
        """Takes the entry out of the queue; whether the file may go with it."""
        self.entry.unlink(missing_ok=True)
        mark = self.entry.with_suffix(_EXPENDABLE)
        is_expendable = mark.exists()
        mark.unlink(missing_ok=True)
        return is_expendable

    def confirm(self, confirmed: ConfirmedUpload) -> bool:
        """Notes that the upload is done, unless the disk is too full for that; then removes it. Whether the file may
        go."""
        with suppress(OSError), (self.entry.parent / _UPLOADED).open("ab", buffering=0) as stream:
            stream.write(encode_struct(confirmed) + b"\n")
        return self.remove()


def queue_folder(run_folder: Path, rank: int) -> Path:
    """Where the uploads of ``rank`` wait."""
    return run_folder / _FOLDER / f"rank{rank}"


def add_upload(run_folder: Path, rank: int, file: Path, url: str, *, left_aside: bool = False) -> None:
    """Adds an upload to the end of the queue. One that waits for the same place is not needed any more.

    ``left_aside``: only for who asks for what is left; the queue itself does not grow. Raises OSError, on a full disk
    for instance.
    """
    folder = queue_folder(run_folder, rank)
    folder.mkdir(parents=True, exist_ok=True)
    before = [it for it in read_queue(run_folder, rank, left_aside=True) if it.upload.url == url]
    suffix = _LEFT_ASIDE if left_aside else _WAITING
    entry = folder / f"{time.time_ns():020}-{os.getpid()}-{next(_serial)}{suffix}"
    upload = Upload(os.path.relpath(file.absolute(), run_folder.absolute()), url)
    partial = entry.with_suffix(".partial")
    try:
        partial.write_bytes(encode_struct(upload))
        partial.replace(entry)
    finally:
        partial.unlink(missing_ok=True)
    for replaced in before:
        replaced.remove()


def keep_reserve(run_folder: Path, rank: int) -> None:
    """Sets some of the disk aside, so that what a full one can still hold can also be queued. Raises OSError."""
    folder = queue_folder(run_folder, rank)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _RESERVE).write_bytes(bytes(_RESERVE_BYTES))


def release_reserve(run_folder: Path, rank: int) -> None:
    """Gives back what `keep_reserve` set aside."""
    (queue_folder(run_folder, rank) / _RESERVE).unlink(missing_ok=True)


def read_queue(run_folder: Path, rank: int, *, left_aside: bool = False) -> list[WaitingUpload]:
    """The uploads of ``rank`` that wait, the oldest first; with ``left_aside``, also those that were left aside."""
    suffixes = (_WAITING, _LEFT_ASIDE) if left_aside else (_WAITING,)
    entries = sorted(it for it in queue_folder(run_folder, rank).glob("*") if it.suffix in suffixes)
    return [waiting for entry in entries if (waiting := _read_entry(entry, run_folder))]


def read_confirmed(run_folder: Path, rank: int) -> Iterator[ConfirmedUpload]:
    """The uploads of ``rank`` that are in the store; a torn line is passed over."""
    with suppress(FileNotFoundError):
        for line in (queue_folder(run_folder, rank) / _UPLOADED).read_bytes().splitlines():
            with suppress(msgspec.DecodeError, UnicodeDecodeError):
                yield decode_struct(line, ConfirmedUpload)


def ranks_with_uploads(run_folder: Path) -> list[int]:
    """The ranks that have ever put something into the queue."""
    folders = (run_folder / _FOLDER).glob("rank*")
    return sorted(int(number) for it in folders if (number := it.name.removeprefix("rank")).isdigit())


def delete_when_uploaded(run_folder: Path, file: Path) -> None:
    """Deletes ``file``, or has it deleted once it is uploaded if it waits for that.

    Two processes meet here. Each first writes down its part and then looks for the other's, so one of them deletes.
    """
    waiting = [it for rank in ranks_with_uploads(run_folder) for it in read_queue(run_folder, rank, left_aside=True)]
    own = [it for it in waiting if it.file == Path(os.path.normpath(file.absolute()))]
    for upload in own:
        upload.mark_expendable()
    if not any(upload.is_waiting for upload in own):
        file.unlink(missing_ok=True)
        for upload in own:
            upload.remove()


def _read_entry(entry: Path, run_folder: Path) -> WaitingUpload | None:
    """None if it was removed in the meantime, or is none of ours."""
    try:
        upload = decode_struct(entry.read_bytes(), Upload)
    except (OSError, msgspec.MsgspecError):
        return None
    return WaitingUpload(upload, entry, run_folder.absolute())
