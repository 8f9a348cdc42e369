"""Files that this process has open, by their paths: other threads and garbage collections open and close others."""

import os
from pathlib import Path


def open_files_below(folder: Path | str) -> list[int]:
    """Return the numbers of the open files whose paths begin with ``folder``; none where the system lists no files."""
    numbers = map(int, os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else ()
    return sorted(number for number in numbers if _path_of(number).startswith(str(folder)))


def _path_of(number: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{number}")
    except OSError:  # it was closed since, as that of the listing
        return ""
