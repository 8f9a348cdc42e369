"""Spool folders of a run, and ``run.json`` in each, which describes its process."""

import logging
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Annotated

import msgspec

from kinetoscope.core.job.ranks import Attempt, Ranks
from kinetoscope.core.paths.run_folder import HAS_RUN_FOLDERS, RunFolder
from kinetoscope.errors import TraceFileError, UnsafePathError
from kinetoscope.formats.header import describe_validation_error
from kinetoscope.formats.struct_json import decode_struct, encode_struct
from kinetoscope.spool.owner_lock import OwnerState, read_owner_state

_log = logging.getLogger("kinetoscope")
_LIVE, _POINTER = "live", ".elsewhere"
_POINTER_BYTES = 1 << 16
_MAX_NAMED_FOLDERS = 8
_EMPTY_FOR_S = 60.0
_RUN = "run.json"
_START = re.compile(r"[0-9]{8}T[0-9]{6}-[0-9]+-[0-9a-f]{8}")
"""`Attempt.start`, the name of a spool folder."""
Moment = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


class TraceRecipe(msgspec.Struct, frozen=True):
    """The names of a handler's traces, by which `recover` writes them.

    ``folder`` is relative to the run's folder, or absolute if it is outside of that. ``merged`` is empty if the traces
    are not merged.

    ``in_pairs`` is that of `JSONTraceHandler`. ``remote`` is the format of the URLs to which the traces are uploaded,
    ``merged_remote`` that of the merged file; empty if they are not uploaded, or not through the run's queue.
    """

    folder: str
    filename: str
    merged: str
    in_pairs: bool = False
    remote: str = ""
    merged_remote: str = ""

    def within(self, run_folder: Path) -> "TraceRecipe":
        """Return the same recipe with ``folder`` relative to ``run_folder``, if it is in there."""
        try:
            return msgspec.structs.replace(self, folder=RunFolder(run_folder).name_of(self.folder))
        except UnsafePathError:
            return self


class SpoolOwner(msgspec.Struct, frozen=True):
    """The process to which a spool folder belongs: a rank of an attempt of a run.

    ``base_ns`` is the zero of the times in the process's traces. A spool folder outside its run's folder has a random
    ``token``; the pointer in the run's folder holds the same one. ``redacts``: the run redacts its traces, but the data
    in the spool folder is as it was recorded.
    """

    run_name: str
    ranks: Ranks
    attempt: Attempt
    recipes: list[TraceRecipe]
    token: str = ""
    base_ns: Moment = 0
    redacts: bool = False


def write_spool_owner(folder: Path, run: SpoolOwner) -> None:
    """Write ``run.json`` completely or not at all, even if it is killed meanwhile. Raises OSError."""
    RunFolder(folder).write(_RUN, encode_struct(run))


def is_spool_folder(folder: Path) -> bool:
    """Return whether ``folder`` is a spool folder, of a running process or of a killed one."""
    return HAS_RUN_FOLDERS and RunFolder(folder).is_file(_RUN)


def contributed_files_folder(folder: Path, cycle: int) -> Path:
    """Return the folder, in a spool folder, for trace files that sources contributed to an unsaved cycle."""
    return folder / "contributed" / str(cycle)


def find_contributed_files(folder: Path, cycle: int) -> list[Path]:
    """Return the complete files in `contributed_files_folder`, without links."""
    live, subfolder = RunFolder(folder), f"contributed/{cycle}"
    with suppress(OSError):
        names = (f"{subfolder}/{name}" for name in live.names(subfolder) if not name.startswith("."))
        return [live.path / name for name in names if live.is_file(name)]
    return []


def find_spool_folders(run_folder: Path, on_skipped: Callable[[str], object] = lambda reason: None) -> Iterator[Path]:
    """Yield the spool folders of a run's processes, also those outside its folder.

    The latter are used where the run's folder is on a network file system. A pointer that may not be followed is
    skipped, and ``on_skipped`` is called with the reason. Raises OSError if ``live`` is a link to somewhere else or
    cannot be read.
    """
    if not HAS_RUN_FOLDERS:
        return
    run = RunFolder(run_folder)
    for name in run.names(_LIVE):
        try:
            folder = _resolve_pointer(run, name)
        except (OSError, TraceFileError) as error:
            on_skipped(f"{error}")
            continue
        if folder is not None and is_spool_folder(folder):
            yield folder


def find_spool_folder(run_folder: Path, start: str) -> Path | None:
    """Return the spool folder of the process with `Attempt.start` ``start``; None if there is none."""
    run = RunFolder(run_folder)
    for name in (start, start + _POINTER) if start else ():
        try:
            folder = _resolve_pointer(run, name)
        except (OSError, TraceFileError):
            continue
        if folder is not None and is_spool_folder(folder):
            return folder
    return None


def delete_spool_folder(run_folder: Path, folder: Path) -> None:
    """Delete one of `find_spool_folders`. Raises OSError if it cannot be deleted."""
    run = RunFolder(run_folder)
    if folder.parent == run.path / _LIVE:
        run.delete_folder(f"{_LIVE}/{folder.name}")
    else:
        RunFolder(folder.parent).delete_folder(folder.name)


def delete_empty_folders(run_folder: Path) -> None:
    """Delete pointers to missing spool folders, and empty spool folders, then ``live`` if that is empty.

    A process fills its folder right after it has made it. One that is still empty after a minute was killed in between.
    """
    if not HAS_RUN_FOLDERS:
        return
    run, old_s = RunFolder(run_folder), time.time() - _EMPTY_FOR_S
    for name in run.names(_LIVE):
        subfolder = f"{_LIVE}/{name}"
        with suppress(OSError, TraceFileError):  # a link stays, and is reported by those who need it
            if name.endswith(_POINTER) and _resolve_pointer(run, name) is None:
                run.delete(subfolder)
            elif _START.fullmatch(name) and (status := run.status(subfolder)) is not None and status.st_mtime < old_s:
                run.delete_empty(subfolder)
    with suppress(OSError):
        run.delete_empty(_LIVE)


def write_pointer(run_folder: Path, name: str, folder: Path, token: str) -> None:
    """Write a pointer into the run's folder, with the location of its spool folder ``name``.

    The ``run.json`` there must be written before, with the same ``token``. Raises OSError if the pointer cannot be
    written.
    """
    run = RunFolder(run_folder)
    run.make_folder(_LIVE)
    run.write(f"{_LIVE}/{name}{_POINTER}", os.fsencode(f"{folder}\n{token}\n"))


def delete_pointer(run_folder: Path, name: str) -> None:
    """Delete the pointer of `write_pointer`. Raises OSError if it cannot be deleted."""
    RunFolder(run_folder).delete(f"{_LIVE}/{name}{_POINTER}")


def _resolve_pointer(run: RunFolder, name: str) -> Path | None:
    """Return the spool folder with that name, or the target of that pointer; None if it is gone.

    Raises `UnsafePathError` if the pointer names a folder that others can open, or one without the same token.
    """
    if not name.endswith(_POINTER):
        return run.path_of(f"{_LIVE}/{name}")
    try:
        content = os.fsdecode(run.read(f"{_LIVE}/{name}", _POINTER_BYTES))
        path, _, token = content.removesuffix("\n").rpartition("\n")
    except FileNotFoundError:
        return None
    try:
        if _is_private(path) and token and read_spool_owner(Path(path)).token == token:
            return Path(path)
    except (FileNotFoundError, TraceFileError):
        if not is_spool_folder(Path(path)):
            return None
        raise
    raise UnsafePathError(
        f"{run.path / _LIVE / name} is not followed: it should name a folder that only you can open and that holds the "
        "same token. The process that made both would have left them so. Delete it if you do not know where it is from."
    )


def _is_private(path: str) -> bool:
    """Return whether only this user can open the folder. Raises FileNotFoundError if it does not exist."""
    if not path.startswith("/") or "\0" in path:
        return False
    found = os.stat(path, follow_symlinks=False)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) == stat.S_IRWXU


def read_spool_owner(folder: Path) -> SpoolOwner:
    """Return the content of ``run.json`` in a spool folder. Raises `TraceFileError` if it cannot be read."""
    try:
        return decode_struct(RunFolder(folder).read(_RUN), SpoolOwner)
    except msgspec.ValidationError as error:
        raise TraceFileError(
            f"Cannot read {folder / _RUN}: {describe_validation_error(error)}. Is this the spool folder of a "
            "Kinetoscope run?"
        ) from error
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise TraceFileError(
            f"Cannot read {folder / _RUN}: {error}. Is this the spool folder of a Kinetoscope run?"
        ) from error


def warn_of_unsaved_data(run_folder: Path) -> None:
    """Log which killed processes of earlier attempts left unsaved data, and how to recover it."""
    found: list[Path] = []
    try:
        delete_empty_folders(run_folder)
        found += find_spool_folders(run_folder, on_skipped=_log.warning)
    except UnsafePathError as error:
        _log.warning("Cannot check for unsaved data of an earlier attempt. %s", error)
    except OSError:
        pass  # the next write into the folder fails too, and that error is reported
    killed: set[int] = set()
    for folder in found:
        try:
            run = read_spool_owner(folder)
        except TraceFileError as error:
            if is_spool_folder(folder):  # else another rank has deleted its own meanwhile
                _log.warning("Unsaved data of an earlier attempt is unreadable. %s", error)
            continue
        if read_owner_state(folder, run.attempt) is OwnerState.DEAD:
            killed.add(run.ranks.rank)
    if killed:
        _log.warning(
            "%s of an earlier attempt %s killed and left what %s had not saved. To make a trace of it: "
            "kinetoscope recover %s",
            *_format_ranks(sorted(killed)),
            quote(str(run_folder)),
        )


def _format_ranks(ranks: Sequence[int]) -> tuple[str, str, str]:
    """Return the ranks, with the verbs for a sentence about them in the singular or the plural."""
    if len(ranks) == 1:
        return f"Rank {ranks[0]}", "was", "it"
    max_named = ranks[:_MAX_NAMED_FOLDERS]
    more = f" and {len(ranks) - len(max_named)} more" if len(max_named) < len(ranks) else ""
    return f"Ranks {', '.join(map(str, max_named))}{more}", "were", "they"
