"""paths: opens files that somebody names for reading, and nothing that could wait for ever, such as a named pipe."""

import os
import stat
from contextlib import suppress

from kinetoscope.errors import TraceFileError

# A pipe is opened without waiting for somebody to write it, a terminal without becoming this process's own.
_AT_ONCE = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_OPEN_ALREADY = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
_KINDS = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def is_open_already(path: str | os.PathLike[str]) -> bool:
    """Whether a path is the name of a descriptor of this process, as a shell passes ``<(command)``: its other end is
    open too."""
    return os.fspath(path).startswith(_OPEN_ALREADY)


def require_regular(path: str | os.PathLike[str]) -> None:
    """Raises `TraceFileError` for a path that exists and is neither a file nor a folder."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return
    if not is_open_already(path):
        _check(mode, os.fspath(path))


def regular_opener(path: str, flags: int) -> int:
    """For ``open(path, opener=...)``: opens a file. Raises `TraceFileError` for anything else, and OSError as usual."""
    if is_open_already(path):
        return os.open(path, flags)
    require_regular(path)
    descriptor = os.open(path, flags | _AT_ONCE)
    try:
        _check(os.fstat(descriptor).st_mode, path)
    except TraceFileError:
        os.close(descriptor)
        raise
    return descriptor


def allow_more_files(num_open: int) -> None:
    """Where half of the files that this process may have open are open, lets it open as many as the system allows: its
    own limit is often 1,024."""
    with suppress(ImportError, OSError, ValueError):
        import resource  # not on Windows

        now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        if num_open > now // 2:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _check(mode: int, path: str) -> None:
    kind = next((kind for is_kind, kind in _KINDS if is_kind(mode)), None)
    if kind is not None:
        raise TraceFileError(
            f"Cannot read {path}: it is {kind}, not a file. Pass a file, or - to read the standard input, as in: "
            "kinetoscope check - < PIPE"
        )
