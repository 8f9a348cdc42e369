"""merge: the file to write. Its name says in which format, and whether packed; events flow in, a file appears."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from kinetoscope.errors import KinetoscopeError, OutputError
from kinetoscope.formats.chrome import ChromeWriter, Event
from kinetoscope.formats.compression import compressed_by_name
from kinetoscope.formats.perfetto import SUFFIXES as PERFETTO_SUFFIXES
from kinetoscope.formats.perfetto import PerfettoWriter
from kinetoscope.writing.atomic_file import atomic_file

STDOUT = Path("-")

_PACKINGS = (".gz", ".zst")


class TraceWriter(Protocol):
    """Writes events of one trace as they come."""

    @property
    def base_ns(self) -> int:
        """What the times of raw events count from, in unix nanoseconds."""
        ...

    def write(self, events: Iterable[Event]) -> None:
        """Adds events, whose ``ts`` (unix) and ``dur`` are integers of nanoseconds."""
        ...


@contextmanager
def trace_output(
    path: Path, *, base_ns: int, header: Mapping[str, Any], as_list: bool = False, rank: int = 0
) -> Iterator[TraceWriter]:
    """A writer for the trace that becomes ``path`` when the block ends well, and nothing at all when it does not.

    ``-`` is the standard output, as JSON; ``as_list`` writes JSON as a bare list of events, whose lowest rank is
    ``rank``.
    """
    with binary_output(path) as stream, compressed_by_name(stream, path) as packed:
        if is_perfetto(path):
            yield PerfettoWriter(packed)
            return
        with ChromeWriter(packed, base_ns=base_ns, header=header, as_list=as_list, rank=rank) as writer:
            yield writer


def is_perfetto(path: Path) -> bool:
    """Whether a name says that it is Perfetto's format."""
    return unpacked_suffix(path) in PERFETTO_SUFFIXES


def unpacked_suffix(path: Path) -> str:
    """How a name ends, but for what says that it is packed."""
    name = path.name
    for packing in _PACKINGS:
        name = name.removesuffix(packing)
    return Path(name).suffix


@contextmanager
def binary_output(path: Path) -> Iterator[BinaryIO]:
    """A stream that becomes the file when it is complete; or the standard output, or the pipe or device of that name.

    Raises `OutputError` where it cannot be written, BrokenPipeError where nobody reads any more.
    """
    try:
        with _opened(path) as stream:
            yield stream
    except (KinetoscopeError, BrokenPipeError):
        raise
    except OSError as error:
        raise OutputError(
            f"Cannot write {path}: {error.strerror or error}. Is there space, and may you write there?"
        ) from error


def _opened(path: Path) -> AbstractContextManager[BinaryIO]:
    if path == STDOUT:
        return _stdout()
    return path.open("wb") if is_pipe_or_device(path) else atomic_file(path)


def is_pipe_or_device(path: Path) -> bool:
    """Whether it is there and is neither a file nor a folder: nothing may take its place, and it is read only once."""
    return path.exists() and not path.is_file() and not path.is_dir()


@contextmanager
def _stdout() -> Iterator[BinaryIO]:
    yield sys.stdout.buffer
    sys.stdout.buffer.flush()
