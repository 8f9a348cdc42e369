"""The mark of a process that merges the traces of a folder, so that commands wait for it."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kinetoscope.core.paths.attempt_folders import MANIFESTS
from kinetoscope.core.paths.run_folder import HAS_RUN_FOLDERS, RunFolder
from kinetoscope.spool.owner_lock import OwnerLock, OwnerState, read_owner_state

_PREFIX = "merging-"


@contextmanager
def mark_merging(folder: Path) -> Iterator[None]:
    """Mark a folder of traces while this process merges them. Delete the marks of dead processes."""
    for old in _marks(folder):
        if read_owner_state(old, None) is OwnerState.DEAD:
            shutil.rmtree(old, ignore_errors=True)
    mark, lock = folder / MANIFESTS / f"{_PREFIX}{os.getpid()}-{os.urandom(4).hex()}", None
    with suppress(OSError):  # a full disk, where the merge will fail and report it
        mark.mkdir()
        lock = OwnerLock(mark)
    try:
        yield
    finally:
        if lock is not None:
            lock.release()
        shutil.rmtree(mark, ignore_errors=True)


def is_being_merged(folder: Path) -> bool:
    """Return True while a process of this machine merges the traces of a folder."""
    return any(read_owner_state(mark, None) is OwnerState.ALIVE for mark in _marks(folder))


def _marks(folder: Path) -> list[Path]:
    if not HAS_RUN_FOLDERS:
        return []
    run = RunFolder(folder)
    names = [f"{MANIFESTS}/{name}" for name in run.names(MANIFESTS) if name.startswith(_PREFIX)]
    return [folder / name for name in names if run.is_folder(name)]
