"""live: the live folders of a run: where they are, and what ``run.json`` in each says of its process."""

import logging
import os
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import msgspec

from kinetoscope.clock.clock import process_base_ns
from kinetoscope.errors import TraceFileError, UnsafePathError
from kinetoscope.formats.manifest import Start
from kinetoscope.formats.own_json import decode_struct, encode_struct
from kinetoscope.live.owner_lock import Owner, owner_state
from kinetoscope.training.ranks import Attempt, Ranks
from kinetoscope.training.run_folder import HAS_RUN_FOLDERS, RunFolder

_log = logging.getLogger("kinetoscope")
_LIVE, _POINTER = "live", ".elsewhere"
_POINTER_BYTES = 1 << 16
_RUN = "run.json"
Number = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
Positive = Annotated[int, msgspec.Meta(ge=1, lt=2**31)]


Moment = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


class TraceRecipe(msgspec.Struct, frozen=True):
    """How a handler names its traces. ``folder`` is relative to the run's, or absolute where it is outside of that;
    ``merged`` is empty if nobody merges.

    ``in_pairs``: as `JSONTraceHandler.in_pairs` has it. ``remote`` is the format of the URLs to which its traces are
    uploaded, ``merged_remote`` that of the merged file; empty if they are not, or not through the run's queue.
    """

    folder: str
    filename: str
    merged: str
    in_pairs: bool = False
    remote: str = ""
    merged_remote: str = ""

    def within(self, run_folder: Path) -> "TraceRecipe":
        """The same with a folder relative to ``run_folder``, if it is in that."""
        try:
            return msgspec.structs.replace(self, folder=RunFolder(run_folder).name_of(self.folder))
        except UnsafePathError:
            return self


class LiveRun(msgspec.Struct, frozen=True):
    """Whose live folder it is: a rank of an attempt of a run, as process ``pid`` on ``host``. See `Attempt`.

    ``base_ns`` is what the times in the process's traces count from.
    A live folder outside of its run's folder has a random ``token``, which the pointer to it there holds too.
    """

    run_name: str
    rank: Number
    local_rank: Number
    world_size: Positive
    local_world_size: Positive
    node_rank: Number
    run_id: str
    restart: Number
    pid: Number
    host: str
    recipes: list[TraceRecipe]
    start: Start = ""
    token: str = ""
    base_ns: Moment = 0


def live_run(run_name: str, attempt: Attempt, ranks: Ranks, recipes: list[TraceRecipe]) -> LiveRun:
    """What `recover` has to know of a run."""
    return LiveRun(
        run_name=run_name,
        rank=ranks.rank,
        local_rank=ranks.local_rank,
        world_size=ranks.world_size,
        local_world_size=ranks.local_world_size,
        node_rank=ranks.node_rank,
        run_id=attempt.run_id,
        restart=attempt.restart,
        pid=attempt.pid,
        host=socket.gethostname(),
        recipes=recipes,
        start=attempt.start,
        base_ns=process_base_ns(),
    )


def write_live_run(folder: Path, run: LiveRun) -> None:
    """Whole or not at all: a kill may come at any moment. Raises OSError if it cannot be written."""
    RunFolder(folder).write(_RUN, encode_struct(run))


def is_live_folder(folder: Path) -> bool:
    """Whether a process keeps, or has left, in ``folder`` what it has not saved."""
    return HAS_RUN_FOLDERS and RunFolder(folder).is_file(_RUN)


def contributed_folder(folder: Path, cycle: int) -> Path:
    """Where, in a live folder, trace files lie that were contributed to an unsaved cycle."""
    return folder / "contributed" / str(cycle)


def contributed_files(folder: Path, cycle: int) -> list[Path]:
    """Those that are complete. Links are passed over, which may lead anywhere."""
    live, place = RunFolder(folder), f"contributed/{cycle}"
    with suppress(OSError):
        names = (f"{place}/{name}" for name in live.names(place) if not name.startswith("."))
        return [live.path / name for name in names if live.is_file(name)]
    return []


def live_folders(run_folder: Path, on_skipped: Callable[[str], object] = lambda reason: None) -> Iterator[Path]:
    """The live folders of a run's processes, also those that are elsewhere because the run's folder is on a network.

    What leads anywhere else is passed over, and ``on_skipped`` told why. Raises OSError if ``live`` itself does.
    """
    if not HAS_RUN_FOLDERS:
        return
    run = RunFolder(run_folder)
    for name in run.names(_LIVE):
        try:
            folder = _folder_behind(run, name)
        except (OSError, TraceFileError) as error:
            on_skipped(f"{error}")
            continue
        if folder is not None and is_live_folder(folder):
            yield folder


def live_folder_of(run_folder: Path, start: str) -> Path | None:
    """The live folder of the process whose start has this name (`Attempt.start`); None if there is none."""
    run = RunFolder(run_folder)
    for name in (start, start + _POINTER) if start else ():
        try:
            folder = _folder_behind(run, name)
        except (OSError, TraceFileError):
            continue
        if folder is not None and is_live_folder(folder):
            return folder
    return None


def delete_live_folder(run_folder: Path, folder: Path) -> None:
    """Deletes one of `live_folders`. Raises OSError if it cannot be."""
    run = RunFolder(run_folder)
    if folder.parent == run.path / _LIVE:
        run.delete_folder(f"{_LIVE}/{folder.name}")
    else:
        RunFolder(folder.parent).delete_folder(folder.name)


def delete_what_is_empty(run_folder: Path) -> None:
    """Deletes the pointers to live folders that are not there any more, and ``live`` if nothing else is in it."""
    run = RunFolder(run_folder)
    for name in run.names(_LIVE):
        with suppress(OSError, TraceFileError):
            if name.endswith(_POINTER) and _folder_behind(run, name) is None:
                run.delete(f"{_LIVE}/{name}")
    with suppress(OSError):
        run.delete_empty(_LIVE)


def write_pointer(run_folder: Path, name: str, folder: Path, token: str) -> None:
    """Writes into the run's folder where its live folder of this name is, once that says whose it is and holds
    ``token``. Raises OSError if that cannot be written."""
    run = RunFolder(run_folder)
    run.make_folder(_LIVE)
    run.write(f"{_LIVE}/{name}{_POINTER}", os.fsencode(f"{folder}\n{token}\n"))


def delete_pointer(run_folder: Path, name: str) -> None:
    """Deletes what `write_pointer` wrote. Raises OSError if it cannot be."""
    RunFolder(run_folder).delete(f"{_LIVE}/{name}{_POINTER}")


def _folder_behind(run: RunFolder, name: str) -> Path | None:
    """A live folder in the run's folder, or the one elsewhere that a pointer there names; None if it is gone.

    Raises `UnsafePathError` for a pointer to a folder that is not ours alone, or does not hold the same token.
    """
    if not name.endswith(_POINTER):
        return run.path_of(f"{_LIVE}/{name}")
    try:
        content = os.fsdecode(run.read(f"{_LIVE}/{name}", _POINTER_BYTES))
        path, _, token = content.removesuffix("\n").rpartition("\n")
    except FileNotFoundError:
        return None
    try:
        if _is_ours_alone(path) and token and read_live_run(Path(path)).token == token:
            return Path(path)
    except (FileNotFoundError, TraceFileError):
        if not is_live_folder(Path(path)):
            return None
        raise
    raise UnsafePathError(
        f"{run.path / _LIVE / name} is not followed: it does not name a folder that is yours alone and holds the same "
        "token, as the process that made both would have left them. Delete it if you do not know whose it is."
    )


def _is_ours_alone(path: str) -> bool:
    """Whether it is a folder of this user, that no other may look into. Raises FileNotFoundError if it is not there."""
    if not path.startswith("/") or "\0" in path:
        return False
    found = os.stat(path, follow_symlinks=False)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) == stat.S_IRWXU


def read_live_run(folder: Path) -> LiveRun:
    """Raises `TraceFileError` if the folder does not say whose it is."""
    try:
        return decode_struct(RunFolder(folder).read(_RUN), LiveRun)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise TraceFileError(
            f"Cannot read {folder / _RUN}: {error}. Is this the live folder of a Kinetoscope run?"
        ) from error


def report_leftovers(run_folder: Path) -> None:
    """Says in the log that killed processes of an earlier attempt left something, and how to get it."""
    found: list[Path] = []
    try:
        found += live_folders(run_folder, on_skipped=_log.warning)
    except UnsafePathError as error:
        _log.warning("What an earlier attempt may have left is not looked at. %s", error)
    except OSError:
        pass  # whoever writes into the folder next says what is wrong with it
    for folder in found:
        try:
            run = read_live_run(folder)
        except TraceFileError as error:
            if is_live_folder(folder):  # else it was another rank's, which has ended meanwhile
                _log.warning("An earlier attempt left something that cannot be read. %s", error)
            continue
        if owner_state(folder, run.host, run.pid) is Owner.DEAD:
            _log.warning(
                "Rank %d of an earlier attempt was killed and left what it had not saved in %s. To make a trace of it: "
                "kinetoscope recover %s",
                run.rank,
                folder,
                run_folder,
            )
