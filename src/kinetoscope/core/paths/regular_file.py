"""Opening of files that a user names, and of no file that could block forever, such as a named pipe."""

import os
import stat
from contextlib import suppress

from kinetoscope.errors import TraceFileError

# A pipe is opened without waiting for a writer, a terminal without becoming the controlling one.
_NON_BLOCKING = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_DESCRIPTOR_PREFIXES = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
_KINDS = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def is_descriptor_path(path: str | os.PathLike[str]) -> bool:
    """Return whether a path names an open descriptor of this process, as in ``<(command)``.

    The other end of such a pipe is open too.
    """
    return os.fspath(path).startswith(_DESCRIPTOR_PREFIXES)


def require_regular(path: str | os.PathLike[str]) -> None:
    """Raise `TraceFileError` for a path that exists and is neither a file nor a folder."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return
    if not is_descriptor_path(path):
        _check(mode, os.fspath(path))


def regular_opener(path: str, flags: int) -> int:
    """Open a file, as the ``opener`` of `open`; raise `TraceFileError` for a pipe or a device."""
    if is_descriptor_path(path):
        return os.open(path, flags)
    require_regular(path)
    descriptor = os.open(path, flags | _NON_BLOCKING)
    try:
        _check(os.fstat(descriptor).st_mode, path)
    except TraceFileError:
        os.close(descriptor)
        raise
    return descriptor


def raise_open_file_limit(num_open: int) -> None:
    """Raise this process's limit of open files to the system's, if half of it is in use.

    The default limit is often 1,024.
    """
    with suppress(ImportError, OSError, ValueError):
        import resource  # not on Windows

        soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        if num_open > soft_limit // 2:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))


def _check(mode: int, path: str) -> None:
    kind = next((kind for is_kind, kind in _KINDS if is_kind(mode)), None)
    if kind is not None:
        raise TraceFileError(
            f"Cannot read {path}: it is {kind}, not a file. Pass a file, or - to read the standard input, as in: "
            "kinetoscope check - < PIPE"
        )
