"""Labels of runs: the file of a single trace, or the folder of a run."""

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from kinetoscope.core.paths.attempt_folders import is_run_subfolder, resolve_run_folder
from kinetoscope.core.paths.regular_file import is_descriptor_path
from kinetoscope.core.paths.short_paths import base_name
from kinetoscope.frames.load import STDIN, is_one_trace
from kinetoscope.frames.trace import Trace


def run_title(sources: Sequence[Any], name: str | None) -> str | None:
    """Return the title of a run; None if there is none. It contains no folder above the run.

    Args:
        sources: sources that were read.
        name: recorded name of the run.
    """
    if len(sources) != 1:
        return name
    source = sources[0].name if isinstance(sources[0], Trace) else os.fspath(sources[0])
    if isinstance(sources[0], Trace) or is_one_trace(source):
        is_pipe = source == STDIN or is_descriptor_path(source)
        file = "standard input" if is_pipe else base_name(source)
        return f"{file} of {name}" if file and name else file or name
    folder = _folder(source)
    return folder if name and folder.endswith(f"/{name}") else name or folder or None


def differing_folders(before: str, after: str) -> tuple[str, str] | None:
    """Return the names of the innermost folders in which two sources differ.

    None if there are none, or if one of them is a home directory.
    """
    for folders in zip(_folders(before), _folders(after), strict=False):
        one, other = map(base_name, folders)
        if one != other:
            return (one, other) if one and other else None
    return None


def _folders(source: str) -> list[str]:
    """Return the folders of a source, the innermost first, without those that every run has."""
    if "://" in source:
        path = PurePosixPath("/", *source.partition("://")[2].partition("?")[0].split("/")[1:])
    elif os.path.exists(source):
        path = Path(os.path.realpath(source))
    else:
        return []
    folders = [*([path] if os.path.isdir(source) else []), *path.parents]
    return [str(folder) for folder in folders if not is_run_subfolder(folder.name)]


def _folder(source: str) -> str:
    """Return the folder of the run that a source is, or is in; "" for a glob.

    A later run into the same folder is in a folder ``2`` in it, or ``3``: a number alone names no run.
    """
    if not os.path.isdir(source):
        return ""
    folder = resolve_run_folder(source)
    name, of_first = base_name(str(folder)), folder.parent
    is_later = name.isdecimal() and any((of_first / subfolder).is_dir() for subfolder in ("traces", "pulse"))
    return f"{base_name(str(of_first))}/{name}" if is_later else name
