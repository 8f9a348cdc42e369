"""The folders of a run's attempts: the first one's is the folder of traces; later ones' are ``attempt{n}`` in it."""

import re
from pathlib import Path

_NAME = re.compile("attempt([0-9]{1,9})")


def attempt_folder(traces: Path, restart: int) -> Path:
    """The folder for the traces of an attempt: ``traces``, or after a restart ``attempt{n}`` in it."""
    return traces / f"attempt{restart}" if restart else traces


def attempt_of_name(name: str) -> int | None:
    """The number of the attempt whose folder has this name; None for any other name."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def attempt_folders(traces: Path) -> dict[int, Path]:
    """The folders that are there for the attempts of a run, by number. Links are left out: they may lead anywhere."""
    if not traces.is_dir():
        return {}
    found = {0: traces}
    for path in traces.iterdir():
        number = attempt_of_name(path.name)
        if number and path.is_dir() and not path.is_symlink():
            found[number] = path
    return found
