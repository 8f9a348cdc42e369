"""Kinds of paths, by the rules of `pathlib` up to CPython 3.13.

From 3.14 on `Path.is_file`, `is_dir` and `exists` return False for every error: an inaccessible file would count as a
missing one, and be replaced.
"""

import errno
import os
import stat

_MISSING = (errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP)


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a folder; raise OSError if that is unknown."""
    return stat.S_ISDIR(_mode(path))


def is_regular_file(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a regular file; raise OSError if that is unknown."""
    return stat.S_ISREG(_mode(path))


def path_exists(path: str | os.PathLike[str]) -> bool:
    """Return whether a path exists; raise OSError if that is unknown."""
    return _mode(path) != 0


def _mode(path: str | os.PathLike[str]) -> int:
    """Return the mode of a file; 0 if there is none."""
    try:
        return os.stat(path).st_mode
    except OSError as error:
        if error.errno in _MISSING:
            return 0
        raise
    except ValueError:  # no system has such a name
        return 0
