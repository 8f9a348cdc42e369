"""formats: files to which one process appends a JSON object per line, and which others read meanwhile."""

import errno
import os
from pathlib import Path


def append_line(path: Path, line: bytes) -> None:
    """Appends a line in one write, so that a reader sees all of it or nothing.

    Where a process died in mid-line, that line is ended first. Raises OSError, on a full disk for instance.
    """
    with path.open("ab", buffering=0) as stream:
        text = _end_of_torn_line(path) + line + b"\n"
        if stream.write(text) < len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def _end_of_torn_line(path: Path) -> bytes:
    with path.open("rb") as stream:
        if stream.seek(0, os.SEEK_END) == 0:
            return b""
        stream.seek(-1, os.SEEK_END)
        return b"" if stream.read(1) == b"\n" else b"\n"
