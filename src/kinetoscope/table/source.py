"""table: where traces come from. A path, a URL or ``-`` flows in; an open stream and what identifies it flow out."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from kinetoscope.errors import MissingExtraError, TraceFileError

STDIN = "-"


def is_url(name: str) -> bool:
    """Whether ``name`` is for fsspec to open."""
    return "://" in name


@contextmanager
def open_source(name: str) -> Iterator[BinaryIO]:
    """The bytes of a file, of a URL that fsspec knows, or of stdin. Raises `TraceFileError` if they cannot be had."""
    try:
        stream = _open(name)
    except OSError as error:
        reason = error.strerror or error
        raise TraceFileError(f"Cannot read the trace {name}: {reason}. Check the path.") from error
    try:
        yield stream
    finally:
        if stream is not sys.stdin.buffer:
            stream.close()


def _open(name: str) -> BinaryIO:
    if name == STDIN:
        return sys.stdin.buffer
    if not is_url(name):
        return cast("BinaryIO", io.FileIO(name))
    return cast("BinaryIO", import_fsspec(name).open(name, "rb").open())


def import_fsspec(name: str) -> Any:
    """The library that opens URLs; `MissingExtraError` says how to install it."""
    try:
        import fsspec
    except ImportError as error:
        scheme = name.partition("://")[0]
        extra = {"gs": "gcs", "gcs": "gcs", "az": "azure", "abfs": "azure"}.get(scheme, "s3")
        raise MissingExtraError(
            f"Cannot read {name}: URLs need fsspec, which is not installed. "
            f"Install it: pip install 'kinetoscope[{extra}]'"
        ) from error
    return fsspec


def fingerprint(name: str) -> str | None:
    """What changes when a local file does: its size and time of change. None for anything else."""
    if name == STDIN or is_url(name):
        return None
    try:
        status = os.stat(name)
    except OSError:
        return None
    return f"{status.st_size}-{status.st_mtime_ns}"
