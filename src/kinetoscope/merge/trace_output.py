"""Output file of a trace, in the format and with the compression of its name."""

import errno
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from kinetoscope.core.paths.atomic_file import atomic_file
from kinetoscope.core.paths.file_kinds import is_folder, is_regular_file, path_exists
from kinetoscope.errors import KinetoscopeError, OutputError
from kinetoscope.formats.chrome import ChromeWriter, Event
from kinetoscope.formats.compression import compressed_by_name
from kinetoscope.formats.perfetto import SUFFIXES as PERFETTO_SUFFIXES
from kinetoscope.formats.perfetto import PerfettoWriter

STDOUT = Path("-")

_PACKINGS = (".gz", ".zst")


class TraceWriter(Protocol):
    """A writer of one trace, event by event."""

    @property
    def base_ns(self) -> int:
        """The base of the times of raw events, in unix nanoseconds."""
        ...

    def write(self, events: Iterable[Event]) -> None:
        """Add events, whose ``ts`` (unix) and ``dur`` are integers of nanoseconds."""
        ...


@contextmanager
def trace_output(
    path: Path, *, base_ns: int, header: Mapping[str, Any], as_list: bool = False, rank: int = 0
) -> Iterator[TraceWriter]:
    """Yield a writer for a trace; the file appears as ``path`` when the block ends without an error.

    ``-`` is the standard output, as JSON. ``as_list`` writes JSON as a bare list of events, whose lowest rank is
    ``rank``.
    """
    with binary_output(path) as stream, compressed_by_name(stream, path) as packed:
        if is_perfetto(path):
            yield PerfettoWriter(packed)
            return
        with ChromeWriter(packed, base_ns=base_ns, header=header, as_list=as_list, rank=rank) as writer:
            yield writer


def is_perfetto(path: Path) -> bool:
    """Return whether a file of this name is in Perfetto's format."""
    return unpacked_suffix(path) in PERFETTO_SUFFIXES


def unpacked_suffix(path: Path) -> str:
    """Return the suffix of a name, without the one for compression."""
    name = path.name
    for packing in _PACKINGS:
        name = name.removesuffix(packing)
    return Path(name).suffix


@contextmanager
def binary_output(path: Path) -> Iterator[BinaryIO]:
    """Yield a stream that becomes the file when it is complete; or the standard output, a pipe or a device.

    Raises `OutputError` if it cannot be written, BrokenPipeError if the reader of a pipe has gone.
    """
    try:
        with _opened(path) as stream:
            yield stream
    except (KinetoscopeError, BrokenPipeError):
        raise
    except OSError as error:
        raise OutputError(
            f"Cannot write {path}: {error.strerror or error}. Check free space and permissions."
        ) from error


def _opened(path: Path) -> AbstractContextManager[BinaryIO]:
    if path == STDOUT:
        return _stdout()
    return open(path, "wb", opener=_open_if_read) if is_pipe_or_device(path) else atomic_file(path)


def _open_if_read(path: str, flags: int) -> int:
    """Open a pipe or device to write; raise `OutputError` for a pipe without a reader, instead of waiting."""
    try:
        descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise OutputError(f"Cannot write {path}: no process reads this pipe. Start its reader first.") from error
    os.set_blocking(descriptor, True)
    return descriptor


def is_pipe_or_device(path: Path) -> bool:
    """Return whether it exists and is neither file nor folder: it is read once, and never replaced."""
    return path_exists(path) and not is_regular_file(path) and not is_folder(path)


@contextmanager
def _stdout() -> Iterator[BinaryIO]:
    yield sys.stdout.buffer
    sys.stdout.buffer.flush()
