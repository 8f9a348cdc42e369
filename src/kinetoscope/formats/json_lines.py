"""formats: files to which one process appends a JSON object per line, and which others read meanwhile."""

import errno
import os
from typing import BinaryIO

from kinetoscope.training.run_folder import RunFolder


def append_line(folder: RunFolder, name: str, line: bytes) -> None:
    """Appends a line to a file in ``folder`` in one write, so that a reader sees all of it or nothing.

    Where a process died in mid-line, that line is ended first. Raises OSError, on a full disk for instance.
    """
    with folder.open(name, "ab+") as stream:
        text = _end_of_torn_line(stream) + line + b"\n"
        if stream.write(text) < len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder.path / name))


def _end_of_torn_line(stream: BinaryIO) -> bytes:
    if stream.seek(0, os.SEEK_END) == 0:
        return b""
    stream.seek(-1, os.SEEK_END)
    return b"" if stream.read(1) == b"\n" else b"\n"
