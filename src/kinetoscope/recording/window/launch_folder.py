"""Folder of a run: the requested one, or one next to it if that contains an earlier run."""

import contextlib
import hashlib
import itertools
import logging
import os
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from kinetoscope.core.clock.sync import STORE_ERRORS
from kinetoscope.core.job.file_names import FileNameFormat
from kinetoscope.core.job.ranks import Ranks, is_process_alive, launch_name, may_miss_restarts, restart_count
from kinetoscope.core.paths.later_run import CLAIM, enumerate_run_folders
from kinetoscope.errors import FolderNotWritableError
from kinetoscope.recording.process_groups import find_store
from kinetoscope.recording.window.trace_folder import is_used

_log = logging.getLogger("kinetoscope")
_KEY = "kinetoscope/launch"
_MAX_RUNS = 1000
_CLAIM_TIMEOUT_S = 1.0

_chosen: dict[tuple[int, str], str] = {}
"""Folder that was chosen first for a process and an ``out``."""


def choose_run_folder(out: str, ranks: Ranks, run_name: str | None = None) -> str:
    """Return ``out``, or ``out-2`` and so on if an earlier run is in it.

    A later training run of the same process goes to ``out/2`` and so on. All ranks of a launch choose the same folder
    without a collective: the first one leaves a file with the name of the launch in it. A restart of the launch stays
    in its folder. ``out`` may have the variables of `FileNameFormat`.

    Raises:
        FolderNotWritableError: if the folder cannot be created or read.
    """
    try:
        if (first := _chosen.get((os.getpid(), out))) is not None:
            numbered = (first if number == 1 else os.path.join(first, str(number)) for number in itertools.count(1))
            return next(folder for folder in numbered if not is_used(_fill_path(folder, ranks, run_name), ranks))
        folder = _choose_first(out, ranks, run_name)
    except OSError as error:
        reason = error.strerror or str(error)
        raise FolderNotWritableError(f"The folder {out} cannot be used: {reason}. Choose another one.") from error
    _chosen[os.getpid(), out] = folder
    if folder != out and ranks.rank == 0:
        _log.warning("Another run is in %s. This one is recorded in %s.", out, folder)
    return folder


def _choose_first(out: str, ranks: Ranks, run_name: str | None) -> str:
    """Return the folder that this launch has claimed, or the first free one."""
    launch = _launch_id(ranks)
    if restart_count() > 0 or may_miss_restarts():
        claimed = itertools.takewhile(lambda one: (one[1] / CLAIM).exists(), _list_candidates(out, ranks, run_name))
        if restarted := [folder for folder, path in claimed if _read_claim(path) == launch]:
            return restarted[-1]
    candidates = _list_candidates(out, ranks, run_name)
    free = (folder for folder, path in candidates if _try_to_claim(path, launch, ranks) and not is_used(path, ranks))
    return next(free, out)


def _list_candidates(out: str, ranks: Ranks, run_name: str | None) -> Iterator[tuple[str, Path]]:
    """Yield ``out`` and the folders next to it, each with its path, which takes 50 us to fill in."""
    for folder in itertools.islice(enumerate_run_folders(out), _MAX_RUNS):
        yield folder, _fill_path(folder, ranks, run_name)


def _fill_path(folder: str, ranks: Ranks, run_name: str | None) -> Path:
    filled = FileNameFormat(folder, "out", has_timestamp=False).fill(run_name or Path(folder).name, ranks)
    return Path(filled).expanduser()


def _launch_id(ranks: Ranks) -> str:
    """Return a name that all ranks of a launch share, and no other launch has. It contains no name of the user's.

    A child process may have a process group of its own, with ranks that its launcher did not assign: these agree
    through the store of their group.
    """
    if _is_launched(ranks):
        return _digest(launch_name())
    if (agreed := _agree_on_name(ranks)) is not None:
        return _digest(agreed)
    if ranks.world_size > 1 and "MASTER_PORT" in os.environ:  # also where the first rank starts the others
        return _digest(launch_name())
    suffix = f"ranks-of-{os.getppid()}" if ranks.world_size > 1 else str(os.getpid())
    return f"{_digest(socket.gethostname())}-{suffix}"


def _is_launched(ranks: Ranks) -> bool:
    """Return whether a launcher has given this process its rank."""
    rank, world_size = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if rank is None:
        return "SLURM_PROCID" in os.environ
    return (rank, world_size or str(ranks.world_size)) == (str(ranks.rank), str(ranks.world_size))


def _agree_on_name(ranks: Ranks) -> str | None:
    """Return a name that one rank of torch's process group has given to it; None without a group or a store."""
    if ranks.world_size == 1 or (store := find_store()) is None:
        return None
    with contextlib.suppress(*STORE_ERRORS):
        return store.compare_set(_KEY, "", os.urandom(8).hex()).decode()
    return None


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:16]


def _try_to_claim(folder: Path, launch: str, ranks: Ranks) -> bool:
    """Return whether the folder is this launch's. A hard link appears at once, with its content, and only once."""
    folder.mkdir(parents=True, exist_ok=True)
    claim = folder / CLAIM
    draft = folder / f"{CLAIM}-{os.getpid()}-{os.urandom(4).hex()}"
    try:
        draft.write_text(launch)
        if _is_abandoned(folder, ranks):
            claim.unlink(missing_ok=True)
        try:
            os.link(draft, claim)
        except FileExistsError:
            pass
        except OSError:  # a file system without hard links
            with contextlib.suppress(FileExistsError), claim.open("x") as file:
                file.write(launch)
    finally:
        draft.unlink(missing_ok=True)
    return _read_claim(folder) == launch


def _is_abandoned(folder: Path, ranks: Ranks) -> bool:
    """Return whether a process of this host claimed the folder, and ended before it recorded anything there."""
    claim = folder / CLAIM
    if ranks.world_size > 1 or not claim.exists():
        return False
    owner = re.fullmatch(rf"{_digest(socket.gethostname())}-([0-9]+)", _read_claim(folder))
    return owner is not None and not is_process_alive(int(owner[1])) and not is_used(folder, ranks)


def _read_claim(folder: Path) -> str:
    """Return the content of the claim, waiting until its writer has written it."""
    deadline = time.monotonic() + _CLAIM_TIMEOUT_S
    while not (text := (folder / CLAIM).read_text()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return text
