"""Merges that commands depend on: wait for the process that writes a merged trace, or write it if that is dead."""

import re
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from kinetoscope.cli.progress import progress_bar
from kinetoscope.core.paths.attempt_folders import MANIFESTS, find_relative_attempt_folders, order_trace_folders
from kinetoscope.core.paths.file_kinds import is_folder, path_exists
from kinetoscope.core.text.wording import sanitize_lines
from kinetoscope.errors import UnsafePathError
from kinetoscope.merge.merge_mark import is_being_merged
from kinetoscope.spool.folders import delete_empty_folders

_POLL_S = 0.1
_MERGED = re.compile(r"merged_trace(?:\.node(\d{1,9}))?\.json(?:\.gz|\.zst)?", re.ASCII)


def require_merged(names: Iterable[str]) -> None:
    """Wait while another process merges traces of these runs. Write a merged trace that is named and missing.

    A run waits at its end for some seconds only. The process that merges then continues, unless it is killed, as in a
    container whose first process has ended. Empty spool folders of dead processes are deleted.
    """
    for name in names:
        path = Path(name)
        with suppress(OSError, UnsafePathError):  # the command reports unreadable paths
            if is_folder(path / "pulse"):  # else it may not be a run folder
                delete_empty_folders(path)
            for folder in _find_trace_folders(path):
                _wait_for_merge(folder)
        merged = _MERGED.fullmatch(path.name)
        if merged and _is_missing_in_run(path):
            from kinetoscope.merge.manifest_merge import merge_manifest  # here, since it is rarely needed

            _print_to_stderr(f"Merging the traces in {path.parent}: the process that merged them has not finished.")
            with progress_bar("merging") as on_progress:
                merge_manifest(path.parent, path, node_rank=int(merged[1] or 0), on_progress=on_progress)


def _is_missing_in_run(path: Path) -> bool:
    """Return whether a merged trace is missing in a folder with manifests."""
    with suppress(OSError):
        return not path_exists(path) and is_folder(path.parent / MANIFESTS)
    return False


def _find_trace_folders(path: Path) -> list[Path]:
    """Return the folders with manifests that a path names or contains."""
    if not is_folder(path):
        return [path.parent] if is_folder(path.parent / MANIFESTS) else []
    subfolders = {
        subfolder
        for kind in order_trace_folders(path)
        for subfolder in find_relative_attempt_folders(path, kind).values()
    }
    return [path / subfolder for subfolder in sorted(subfolders) if is_folder(path / subfolder / MANIFESTS)]


def _wait_for_merge(folder: Path) -> None:
    """Wait while another process merges the traces in a folder."""
    if is_being_merged(folder):
        _print_to_stderr(f"Waiting for the process that merges the traces in {folder}.")
    while is_being_merged(folder):
        time.sleep(_POLL_S)


def _print_to_stderr(line: str) -> None:
    print(sanitize_lines(line), file=sys.stderr)
