"""Folders of a run's attempts: the first one's is the folder of traces, later ones' are ``attempt{n}`` in it."""

import os
import re
import stat
from collections.abc import Collection
from pathlib import Path
from shlex import quote

from kinetoscope.core.paths.file_kinds import is_folder
from kinetoscope.core.paths.run_folder import find_file_type

_NAME = re.compile("attempt([0-9]{1,9})")
MANIFESTS = ".manifest"
"""The folder, in a folder of traces, of the ranks' lists of finished files."""


_RUN_MARKERS = ("pulse", "traces")
MAX_NAMED_RUNS = 5

_RUN_SUBFOLDERS = ("traces", "torch_traces", "live", "slow_steps")


def resolve_run_folder(folder: str | os.PathLike[str]) -> Path:
    """Return the folder of the run that ``folder`` is, or is a subfolder of traces of."""
    path = Path(os.path.realpath(folder))
    while is_run_subfolder(path.name) or parse_attempt_name(path.name) is not None:
        path = path.parent
    return path


def is_run_subfolder(name: str) -> bool:
    """Return whether every run has a subfolder of this name, so that it names no run."""
    return name in _RUN_SUBFOLDERS


def find_runs_below(folder: Path) -> list[Path]:
    """Return the runs in a folder that is none itself; an empty list for any other folder."""
    try:
        names = sorted(name for name in os.listdir(folder) if not name.startswith("."))
        runs = [folder / name for name in names if any(is_folder(folder / name / part) for part in _RUN_MARKERS)]
    except OSError:
        return []
    return [] if any(name in _RUN_MARKERS for name in names) else runs


def suggest_runs(folder: Path) -> str:
    """Return a sentence that lists the runs in a folder that is no run itself; "" for any other folder."""
    if not (runs := find_runs_below(folder)):
        return ""
    paths = [quote(str(run)) for run in runs[:MAX_NAMED_RUNS]]
    more = f" and {len(runs) - len(paths)} more" if len(runs) > len(paths) else ""
    return f"Runs are in it: name one of {', '.join(paths)}{more}, or see all: kinetoscope view {quote(str(folder))}"


def attempt_folder(traces: Path, restart: int) -> Path:
    """Return the folder for the traces of an attempt: ``traces``, or ``attempt{n}`` in it after a restart."""
    return traces / f"attempt{restart}" if restart else traces


def parse_attempt_name(name: str) -> int | None:
    """Return the number of the attempt whose folder has this name; None for any other name."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def find_relative_attempt_folders(folder: Path, traces: str) -> dict[int, str]:
    """Return the folders of each attempt's traces, as names in ``folder``.

    Those of the first attempt are in ``traces``, if it exists. Raises `UnsafePathError` for a link.
    """
    if find_file_type(folder, traces) != stat.S_IFDIR:
        return {}
    folders = {0: traces}
    for name in os.listdir(folder / traces):
        name_in_folder = f"{traces}/{name}"
        if (number := parse_attempt_name(name)) and find_file_type(folder, name_in_folder) == stat.S_IFDIR:
            folders[number] = name_in_folder
    return folders


def order_trace_folders(folder: Path) -> tuple[str, str]:
    """Return the order in which to search a folder and its folder ``traces`` for traces.

    A run's folder may contain other JSON files, so ``traces`` comes first there.
    """
    attempts = find_attempt_folders(folder / "traces").values()
    is_run = any(is_folder(attempt / MANIFESTS) for attempt in attempts)
    return ("traces", ".") if is_run else (".", "traces")


def describe_attempts(attempts: Collection[int], attempt: int | None) -> list[str]:
    """Return a sentence on the attempt that is read and how to read the others, if there are several."""
    if len(attempts) < 2:
        return []
    read = max(attempts) if attempt is None else attempt
    others = [number for number in sorted(attempts) if number != read]
    which = f"the last attempt, {read}" if read == max(attempts) else f"attempt {read}"
    return [
        f"The run was restarted and has {len(attempts)} attempts with traces; this is {which}. "
        f"To read another ({', '.join(map(str, others))}): --attempt N, or attempt=N in Python."
    ]


def find_attempt_folders(traces: Path) -> dict[int, Path]:
    """Return the existing folders of a run's attempts by number, without links."""
    if not is_folder(traces):
        return {}
    folders = {0: traces}
    for path in traces.iterdir():
        number = parse_attempt_name(path.name)
        if number and is_folder(path) and not path.is_symlink():
            folders[number] = path
    return folders
