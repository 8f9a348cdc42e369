"""The files that a command reads and writes, as the user names them: files, folders, globs, pipes, or ``-``."""

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kinetoscope.errors import MergeError, SettingsError, TraceFileError
from kinetoscope.formats.chrome import read_header
from kinetoscope.formats.chrome_stream import open_trace
from kinetoscope.formats.compression import UnpackedStream
from kinetoscope.formats.perfetto import BEGINNING
from kinetoscope.merge.trace_output import is_perfetto
from kinetoscope.training.regular_file import is_open_already, require_regular
from kinetoscope.training.run_folder import FoundFile, find_files, find_glob

SUFFIXES = (".json", ".json.gz", ".json.zst")
_PARQUET = ".parquet"
_PAGE = b'<meta name="generator" content="kinetoscope '
_HEAD_BYTES = 4096


class TraceInputs(list[str]):
    """The paths of files to read, as `open_file` takes them.

    Input from a pipe is in a temporary file, for which `shown` prints the user's name."""

    def __init__(self) -> None:
        self._given: dict[str, str] = {}

    def add(self, path: str, given: str | None = None) -> None:
        """Adds a file, once; ``given`` is the user's name for it, if it differs."""
        if path not in self:
            self.append(path)
        if given is not None:
            self._given[path] = given

    def shown(self, text: object) -> str:
        """The text with the user's names instead of those of temporary files."""
        text = str(text)
        for path, given in self._given.items():
            text = text.replace(path, given)
        return text


@contextmanager
def trace_inputs(names: Sequence[str], output: Path | None = None) -> Iterator[TraceInputs]:
    """The files that ``names`` stand for, each once. Merged traces in a folder or a glob are left out.

    ``-`` is the standard input. It, and what a shell passes for ``<(command)``, are copied to temporary files, since
    traces are read twice. Raises `MergeError` for a name without a file, `TraceFileError` for what is neither a file
    nor a folder, such as a named pipe that nobody may ever write, and both with the user's names.
    """
    with tempfile.TemporaryDirectory(prefix="kinetoscope-") as folder:
        files = TraceInputs()
        for number, name in enumerate(names):
            require_regular(name)
            if name == "-" or (is_open_already(name) and not Path(name).is_file()):
                files.add(_kept(name, Path(folder, str(number))), name)
                continue
            for path in _expand(name, output):
                files.add(path)
        try:
            yield files
        except TraceFileError as error:
            raise TraceFileError(files.shown(error)) from error


def _kept(name: str, folder: Path) -> str:
    """A copy of the content of a pipe."""
    folder.mkdir()
    path = folder / ("stdin.json" if name == "-" else f"{Path(name).name}.json")
    with path.open("wb") as stream:
        if name == "-":
            shutil.copyfileobj(sys.stdin.buffer, stream)
        else:
            with open(name, "rb") as pipe:
                shutil.copyfileobj(pipe, stream)
    return str(path)


def _expand(name: str, output: Path | None) -> Sequence[str]:
    if os.path.isfile(name):
        return [name]
    found = find_files(name, ".", SUFFIXES) if os.path.isdir(name) else find_glob(name)
    traces = [file for file in found if _is_trace(file) and not _is_merged(Path(file), output)]
    if not traces:
        raise MergeError(_none_there(name, found))
    return traces


def _is_trace(file: FoundFile) -> bool:
    """Whether it has the name of a trace. Raises `UnsafePathError` for a link, a pipe or a device."""
    if not file.endswith(SUFFIXES) or os.path.isdir(file):
        return False
    file.require_inside()
    return True


def _none_there(name: str, found: Sequence[str]) -> str:
    if Path(name).is_dir():
        return f"No trace file: the folder {name} has no file that ends in {', '.join(SUFFIXES)}."
    if found:
        return f"No trace file: no file of {name} ends in {', '.join(SUFFIXES)}, or all are merged traces."
    return f"No trace file: there is no {name}. Check the path."


def _is_merged(file: Path, output: Path | None) -> bool:
    is_output = output is not None and file.absolute() == output.absolute()
    return is_output or file.name.startswith(("merged_trace", "."))


def add_force(parser: argparse.ArgumentParser) -> None:
    """Adds ``--force``."""
    parser.add_argument("--force", action="store_true", help="replace an output that Kinetoscope did not write")


def require_free(outputs: Iterable[Path], *, force: bool) -> None:
    """Raises `SettingsError` for an existing file that Kinetoscope did not write, unless ``force``.

    An empty file may be replaced.
    """
    for output in outputs:
        if not force and output.is_file() and output.stat().st_size and not _is_ours(output):
            raise SettingsError(
                f"There is a file {output} already, and it does not look as if Kinetoscope wrote it. "
                "Choose another name, or pass --force to replace it."
            )


def _is_ours(path: Path) -> bool:
    """Whether Kinetoscope wrote a file, according to its content."""
    try:
        if _begins_as_page(path):
            return True
        if path.suffix == _PARQUET:
            from kinetoscope.table.cache import is_our_parquet  # needs polars

            return is_our_parquet(path)
        return _begins_as_ours(path) if is_perfetto(path) else "kinetoscope" in read_header(path)
    except TraceFileError:
        return False


def _begins_as_page(path: Path) -> bool:
    with path.open("rb") as file:
        return _PAGE in file.read(_HEAD_BYTES)


def _begins_as_ours(path: Path) -> bool:
    room = bytearray(len(BEGINNING))
    with open_trace(str(path)) as file, memoryview(room) as view:
        UnpackedStream(file, str(path)).readinto(view)
    return room == BEGINNING
