"""cli: files to be written. Paths flow in; an error flows out where one holds what somebody else wrote."""

import argparse
from collections.abc import Iterable
from pathlib import Path

from kinetoscope.errors import SettingsError, TraceFileError
from kinetoscope.formats.chrome import read_header
from kinetoscope.formats.chrome_stream import open_trace
from kinetoscope.formats.compression import UnpackedStream
from kinetoscope.formats.perfetto import BEGINNING
from kinetoscope.merge.trace_output import is_perfetto

_PARQUET = ".parquet"


def add_force(parser: argparse.ArgumentParser) -> None:
    """Adds ``--force``."""
    parser.add_argument("--force", action="store_true", help="replace an output that Kinetoscope did not write")


def require_free(outputs: Iterable[Path], *, force: bool) -> None:
    """Raises `SettingsError` for a file that is there and that Kinetoscope did not write, unless told to ``force`` it.

    What is empty may be written to.
    """
    for output in outputs:
        if not force and output.is_file() and output.stat().st_size and not _is_ours(output):
            raise SettingsError(
                f"There is a file {output} already, and nothing in it says that Kinetoscope wrote it. "
                "Choose another name, or pass --force to replace it."
            )


def _is_ours(path: Path) -> bool:
    """Whether a file says that Kinetoscope wrote it."""
    try:
        if path.suffix == _PARQUET:
            from kinetoscope.table.cache import is_our_parquet  # needs polars

            return is_our_parquet(path)
        return _begins_as_ours(path) if is_perfetto(path) else "kinetoscope" in read_header(path)
    except TraceFileError:
        return False


def _begins_as_ours(path: Path) -> bool:
    room = bytearray(len(BEGINNING))
    with open_trace(str(path)) as file, memoryview(room) as view:
        UnpackedStream(file, str(path)).readinto(view)
    return room == BEGINNING
