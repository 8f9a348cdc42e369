"""cli: trace files, as a user names them. Names of files, folders and globs flow in, or ``-``; paths flow out."""

import glob
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kinetoscope.errors import MergeError

SUFFIXES = (".json", ".json.gz", ".json.zst")


@contextmanager
def trace_inputs(names: Sequence[str], output: Path | None = None) -> Iterator[list[Path]]:
    """The files that ``names`` mean, each once; what only a folder or a glob names may not be a merged trace.

    ``-`` is the standard input, kept in a temporary file, since traces are read twice. Raises `MergeError` for a name
    that means no file.
    """
    with tempfile.TemporaryDirectory(prefix="kinetoscope-") as folder:
        files: dict[Path, None] = {}
        for name in names:
            files |= dict.fromkeys([_standard_input(folder)] if name == "-" else _expand(name, output))
        yield list(files)


def _standard_input(folder: str) -> Path:
    path = Path(folder) / "stdin.json"
    with path.open("wb") as stream:
        shutil.copyfileobj(sys.stdin.buffer, stream)
    return path


def _expand(name: str, output: Path | None) -> list[Path]:
    path = Path(name)
    if path.is_file():
        return [path]
    found = sorted(path.iterdir()) if path.is_dir() else sorted(map(Path, glob.glob(name, recursive=True)))
    traces = [file for file in found if file.name.endswith(SUFFIXES) and not _is_merged(file, output)]
    if not traces:
        raise MergeError(f"No trace file: {name} names none ({', '.join(SUFFIXES)}). Check the path.")
    return traces


def _is_merged(file: Path, output: Path | None) -> bool:
    is_output = output is not None and file.absolute() == output.absolute()
    return is_output or file.name.startswith(("merged_trace", "."))
