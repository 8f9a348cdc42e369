"""Input and output files of commands: files, folders, globs, pipes, or ``-``."""

import glob
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shlex import quote

from kinetoscope.cli.merging import require_merged
from kinetoscope.core.paths.attempt_folders import (
    MANIFESTS,
    describe_attempts,
    find_relative_attempt_folders,
    order_trace_folders,
    parse_attempt_name,
    suggest_runs,
)
from kinetoscope.core.paths.file_kinds import is_folder, is_regular_file
from kinetoscope.core.paths.later_run import find_latest_rerun
from kinetoscope.core.paths.regular_file import is_descriptor_path, require_regular
from kinetoscope.core.paths.run_folder import FoundFile, RunFolder, find_files, find_glob, require_run_folders
from kinetoscope.core.text.wording import sanitize_lines
from kinetoscope.errors import MergeError, SettingsError, TraceFileError
from kinetoscope.formats.chrome import SUFFIXES, read_header
from kinetoscope.formats.chrome_stream import open_trace
from kinetoscope.formats.compression import UnpackedStream
from kinetoscope.formats.manifest import find_empty_reason
from kinetoscope.formats.perfetto import BEGINNING
from kinetoscope.merge.trace_output import is_perfetto
from kinetoscope.pulse.process_runs import find_runs_of_command

STDIN = "-"
_RUN_SUBFOLDERS = ("live", "traces", "torch_traces", "pulse", ".uploads")
"""Subfolders that identify a run folder."""

_TRACE_SUBFOLDERS = ("traces", "torch_traces", "torch_memory_traces")
_PARQUET = ".parquet"
_PAGE = b'<meta name="generator" content="kinetoscope '
_HEAD_BYTES = 4096


def require_existing(names: Iterable[str]) -> None:
    """Raise `SettingsError` for a missing path, and for a glob without a match."""
    for name in names:
        if name == STDIN or "://" in name or _exists(name):
            continue
        if not glob.has_magic(name):
            raise SettingsError(f"No such file or folder: {name}. Check the path.")
        if not find_glob(name):
            raise SettingsError(f"No file matches {name}. Check the path.")


def wait_for_inputs(names: Sequence[str]) -> None:
    """Wait for merges of the runs among ``names``, then raise `SettingsError` for a missing path."""
    require_merged(names)
    require_existing(names)


def find_run_folder(name: str) -> Path:
    """Return the run folder that ``name`` is or is in, such as the folder of one of its traces.

    Raises:
        SettingsError: the path does not exist.
        UnsupportedSystemError: this system has no run folders.
    """
    require_existing([name])
    require_run_folders(name)
    path = Path(name)
    folder = path if is_folder(path) else path.parent
    while not any(is_folder(folder / part) for part in _RUN_SUBFOLDERS):
        real = folder.resolve()  # a name such as "." is not the folder's name
        is_named = real.name in _TRACE_SUBFOLDERS or (
            real.parent.name in _TRACE_SUBFOLDERS and parse_attempt_name(real.name)
        )
        if not is_named or not is_folder(real / MANIFESTS):  # else it may be a user's folder of runs
            break
        folder = folder.parent if folder.name == real.name and not folder.is_symlink() else real.parent
    return folder


def print_later_run(names: Sequence[str]) -> None:
    """Print a line to stderr if ``names`` is a run's folder and a later command has a run next to it."""
    folder = Path(names[0]).expanduser() if len(names) == 1 else None
    if folder is None or not folder.is_dir():
        return
    later = find_latest_rerun(folder.absolute())
    if later is not None and later not in find_runs_of_command(folder):
        shown = sanitize_lines(str(later if folder.is_absolute() else folder.with_name(later.name)))
        print(f"A later run of this name is in {shown}.", file=sys.stderr)


def find_newest_run(folder: str = "runs") -> str:
    """Return the newest run in a folder, and print its name to stderr; raise `SettingsError` if there is none."""
    from kinetoscope.server.run_search import find_runs

    runs = find_runs(RunFolder(Path(folder))).runs if is_folder(Path(folder)) else []
    traced = [run for run in runs if run.traces]
    if not traced:
        raise SettingsError(f"No run in ./{folder}. Pass the path of a run or of a trace.")
    newest = max(traced, key=lambda run: run.when_ns or 0)
    path = folder if newest.name == "." else f"{folder}/{newest.name}"
    print(f"Newest run: {sanitize_lines(path)}", file=sys.stderr)
    return path


def explain_no_pulse(run_folder: Path) -> str:
    """Return a sentence on a folder without the pulse of any rank."""
    if why := find_empty_reason(run_folder):
        return why
    hint = "Pass the run folder: it contains pulse and traces."
    return f"No pulse of a run in {run_folder}. {suggest_runs(run_folder) or hint}"


def _exists(name: str) -> bool:
    """Return whether a path exists; True also if it cannot be inspected."""
    try:
        os.stat(name)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError:
        return True
    return True


class TraceInputs(list[str]):
    """Paths of the input files, in the form that `open_file` expects.

    Input from a pipe is in a temporary file; `shown` prints the user's name for it. ``notes`` are sentences on
    the inputs.
    """

    def __init__(self) -> None:
        self._user_names: dict[str, str] = {}
        self.notes: list[str] = []

    def add(self, path: str, user_name: str | None = None) -> None:
        """Add a file once; ``user_name`` is the user's name for it, if it differs."""
        if path not in self:
            self.append(path)
        if user_name is not None:
            self._user_names[path] = user_name

    def shown(self, text: object) -> str:
        """Return a text with the user's names instead of those of temporary files."""
        text = str(text)
        for path, user_name in self._user_names.items():
            text = text.replace(path, user_name)
        return text


@contextmanager
def open_trace_inputs(
    names: Sequence[str], output: Path | None = None, *, attempt: int | None = None
) -> Iterator[TraceInputs]:
    """Yield the files that ``names`` stand for, each once.

    Merged traces in a folder or glob are left out, unless nothing else is there. Of a restarted run, the files are
    those of the last attempt, or of ``attempt``. Standard input (``-``) and ``<(command)`` are copied to temporary
    files, since traces are read twice.

    Raises:
        SettingsError: a path does not exist.
        MergeError: a folder or glob has no trace.
        TraceFileError: an input is neither a file nor a folder, such as a named pipe without a writer.
    """
    wait_for_inputs(names)
    with tempfile.TemporaryDirectory(prefix="kinetoscope-") as folder:
        files = TraceInputs()
        for number, name in enumerate(names):
            require_regular(name)
            if name == STDIN or (is_descriptor_path(name) and not is_regular_file(name)):
                files.add(_copy_pipe(name, Path(folder, str(number))), name)
                continue
            for path in _expand(name, output, attempt, files.notes):
                files.add(path)
        for note in files.notes:
            print(sanitize_lines(note), file=sys.stderr)
        try:
            yield files
        except TraceFileError as error:
            raise TraceFileError(files.shown(error)) from error


def _copy_pipe(name: str, folder: Path) -> str:
    """Copy the content of a pipe into a file, and return its path."""
    folder.mkdir()
    path = folder / ("stdin.json" if name == STDIN else f"{Path(name).name}.json")
    with path.open("wb") as stream:
        if name == STDIN:
            shutil.copyfileobj(sys.stdin.buffer, stream)
        else:
            with open(name, "rb") as pipe:
                shutil.copyfileobj(pipe, stream)
    return str(path)


def _expand(name: str, output: Path | None, attempt: int | None, notes: list[str]) -> Sequence[str]:
    """Return the traces that a file, folder or glob stands for."""
    if os.path.isfile(name):
        return [name]
    if os.path.isdir(name):
        by_attempt = _find_traces_of_run(Path(name), output)
        notes += describe_attempts(by_attempt, attempt)
        return _select_attempt(name, by_attempt, attempt)
    traces = [file for file in find_glob(name) if _is_trace(file) and not _is_merged(Path(file), output)]
    if not traces:
        raise MergeError(f"No trace matches {name}: no file ends in {', '.join(SUFFIXES)}, or all are merged traces.")
    return traces


def _find_traces_of_run(folder: Path, output: Path | None) -> dict[int, list[FoundFile]]:
    """Return the traces by restart attempt, in a folder or in the ``traces`` of a run folder."""
    for subfolder in order_trace_folders(folder):
        subfolders = find_relative_attempt_folders(folder, subfolder)
        found = {
            number: _find_in_folder(folder, subfolder_of_attempt, output)
            for number, subfolder_of_attempt in subfolders.items()
        }
        if any(found.values()):
            return {number: traces for number, traces in found.items() if traces}
    return {}


def _find_in_folder(folder: Path, subfolder: str, output: Path | None) -> list[FoundFile]:
    """Return the traces of one subfolder, merged ones only if there are no others."""
    traces = [
        file for file in find_files(folder, subfolder, SUFFIXES) if _is_trace(file) and not _is_same(file, output)
    ]
    return [file for file in traces if not _is_merged(Path(file), output)] or [
        file for file in traces if not Path(file).name.startswith(".")
    ]


def _select_attempt(name: str, by_attempt: dict[int, list[FoundFile]], attempt: int | None) -> Sequence[str]:
    """Return the traces of an attempt, by default of the last one."""
    if not by_attempt:
        unsaved = is_folder(Path(name, "live"))
        if not unsaved and (why := find_empty_reason(Path(name)) or suggest_runs(Path(name))):
            raise MergeError(f"No trace in {name}. {why}")
        recover = f" Unsaved data is in {name}/live: kinetoscope recover {quote(name)}"
        raise MergeError(
            f"No trace in {name} or {name}/traces: no file ends in {', '.join(SUFFIXES)}.{recover if unsaved else ''}"
        )
    if attempt is not None and attempt not in by_attempt:
        known = ", ".join(map(str, sorted(by_attempt)))
        raise SettingsError(f"--attempt: {name} has no traces of attempt {attempt}. Attempts with traces: {known}.")
    return by_attempt[max(by_attempt) if attempt is None else attempt]


def _is_trace(file: FoundFile) -> bool:
    """Return whether a file has the name of a trace.

    Raises:
        UnsafePathError: it is a link, a pipe or a device.
    """
    if not file.endswith(SUFFIXES) or os.path.isdir(file):
        return False
    file.require_inside()
    return True


def _is_merged(file: Path, output: Path | None) -> bool:
    return _is_same(file, output) or file.name.startswith(("merged_trace", "."))


def _is_same(file: str | Path, output: Path | None) -> bool:
    return output is not None and Path(file).absolute() == output.absolute()


def require_replaceable(outputs: Iterable[Path], *, force: bool) -> None:
    """Raise `SettingsError` for an existing file that Kinetoscope did not write, unless ``force``.

    An empty file may be replaced.
    """
    for output in outputs:
        if not force and is_regular_file(output) and output.stat().st_size and not _is_kinetoscope_file(output):
            raise SettingsError(
                f"{output} exists, and Kinetoscope did not write it. Pass another name, or --force to replace it."
            )


def require_distinct(outputs: Iterable[Path]) -> None:
    """Raise `SettingsError` if two outputs have the same path."""
    twice = next((output for output, count in Counter(outputs).items() if count > 1), None)
    if twice is not None:
        raise SettingsError(f"Two outputs would have the same path: {twice}. Convert these files one at a time.")


def _is_kinetoscope_file(path: Path) -> bool:
    """Return whether Kinetoscope wrote a file, by its content."""
    try:
        if _is_report_page(path):
            return True
        if path.suffix == _PARQUET:
            from kinetoscope.frames.trace_parquet import is_trace_parquet  # needs polars

            return is_trace_parquet(path)
        return _is_kinetoscope_perfetto(path) if is_perfetto(path) else "kinetoscope" in read_header(path)
    except TraceFileError:
        return False


def _is_report_page(path: Path) -> bool:
    """Return whether a file starts as a report page."""
    with path.open("rb") as file:
        return _PAGE in file.read(_HEAD_BYTES)


def _is_kinetoscope_perfetto(path: Path) -> bool:
    """Return whether a Perfetto trace starts with the packet that Kinetoscope writes first."""
    head = bytearray(len(BEGINNING))
    with open_trace(str(path)) as file, memoryview(head) as view:
        UnpackedStream(file, str(path)).readinto(view)
    return head == BEGINNING
