"""Reruns: where its folder was used already, a run is in ``{folder}-2`` and so on."""

from collections.abc import Iterator
from itertools import count, takewhile
from pathlib import Path

CLAIM = ".launch"
"""The file in a run's folder with the name of the launch whose folder it is."""


def enumerate_run_folders(folder: str) -> Iterator[str]:
    """Yield a folder, then ``{folder}-2`` and so on."""
    yield folder
    yield from (f"{folder.rstrip('/') or folder}-{number}" for number in count(2))


def find_latest_rerun(run_folder: Path) -> Path | None:
    """Return the latest rerun of a run; None if there is none."""
    folders = map(Path, enumerate_run_folders(str(run_folder)))
    next(folders)
    *_, latest = [None, *takewhile(lambda folder: (folder / CLAIM).is_file(), folders)]
    return latest
