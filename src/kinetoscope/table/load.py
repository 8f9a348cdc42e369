"""`kinetoscope.load`: reads traces from files, folders, globs, URLs or the standard input."""

import glob
import io
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

from kinetoscope.errors import MissingExtraError, TraceFileError
from kinetoscope.formats.chrome_scan import ChromeScan, new_scanner
from kinetoscope.formats.compression import UnpackedStream
from kinetoscope.live.folders import is_live_folder, live_folders
from kinetoscope.table.cache import SUFFIX, CachePlace, read_parquet, write_parquet
from kinetoscope.table.events import TraceEvents, block_frame, build_events, import_polars
from kinetoscope.table.executors import each_with
from kinetoscope.table.live import FoundLive, is_to_redact, read_found, read_live, restart_of
from kinetoscope.table.trace import Trace, TraceSet
from kinetoscope.training.attempt_folders import attempt_folders
from kinetoscope.training.run_folder import HAS_RUN_FOLDERS, RunFolder

_log = logging.getLogger("kinetoscope")
PathLike = str | os.PathLike[str]

_SUFFIXES = (".json", ".json.gz", ".json.zst")
_WILDCARDS = frozenset("*?[")
STDIN = "-"


def load(
    source: PathLike | Iterable[PathLike],
    *,
    attempt: int | None = None,
    cache: bool = True,
    executor: Executor | None = None,
) -> Trace | TraceSet:
    """A trace as tables, or the traces of a run.

    If ``source`` is a trace file (Chrome JSON of any profiler, plain, ``.gz`` or ``.zst``; or Parquet as ``kinetoscope
    convert`` writes it), a URL for fsspec, or ``-`` for stdin, the result is a `Trace`. If it is a folder, a glob or
    several names, the result is a `TraceSet`. The folder of a run, its ``traces`` and its live folder work too, even
    while the run still records: what is there so far is loaded. Of a run that redacts what it writes, only what is
    written is loaded, unless you name its live folder.

    Of a run that was restarted, the last attempt is loaded, or the ``attempt`` of this number; a warning says so.

    A file that was read is cached as Parquet, which is used next time unless the file has changed. In the folder of a
    run the cache is ``.kinetoscope_cache`` beside the file, elsewhere it is the user's (``~/.cache/kinetoscope``, at
    most 2 GB). ``cache=False`` neither reads nor writes it. Several files are read by ``executor``, if given:
    processes, or a Dask cluster's ``client.get_executor()``. A damaged file is read as far as possible, and ``repairs``
    says what was done.

    Raises `TraceFileError` if there is no trace, and `MissingExtraError` without polars.

        spans = kinetoscope.load("runs/digits/traces").spans.collect()
    """
    import_polars()
    if isinstance(source, (str, os.PathLike)) and is_single(name := os.fspath(source)):
        return load_one(name, cache=cache)
    names = names_in(source, attempt)
    for note in notes_on_attempts(source, attempt):
        _log.warning(note)
    traces = each_with(executor)(partial(_load_in_any, os.getpid(), cache=cache), names)
    return TraceSet([load_one(name) if trace is None else trace for name, trace in zip(names, traces, strict=True)])


def _load_in_any(home: int, name: str, *, cache: bool) -> Trace | None:
    """The trace in one file; None in another process than ``home`` if it is in the cache now: then only that need be
    read at home, and no columns are sent."""
    trace = load_one(name, cache=cache)
    is_kept = cache and os.getpid() != home and (place := _cache_place(name)) is not None and place.find() is not None
    return None if is_kept else trace


def names_in(source: PathLike | Iterable[PathLike], attempt: int | None = None) -> list[str]:
    """The names of the traces that are meant by what `load` takes, in a run's folder those of an attempt, or of the
    last one. Raises `TraceFileError` if there is none."""
    if not isinstance(source, (str, os.PathLike)):
        return [os.fspath(path) for path in source]
    name = os.fspath(source)
    return [name] if isinstance(name, FoundLive) or is_single(name) else find_traces(name, attempt)


def is_single(name: str) -> bool:
    """Whether ``name`` is one trace: a file, a URL, ``-``, or the live folder of one rank."""
    return name == STDIN or is_url(name) or os.path.isfile(name) or is_live_folder(Path(name))


def load_one(name: str, *, cache: bool = True, on_bytes: Callable[[int], None] | None = None) -> Trace:
    """The trace in one file or live folder; ``on_bytes`` is called now and then with the bytes read since."""
    if isinstance(name, FoundLive):
        return read_found(name)
    if is_live_folder(Path(name)):
        return read_live(Path(name))
    return load_trace(name, cache=cache, on_bytes=on_bytes)


def load_trace(name: str, *, cache: bool = True, on_bytes: Callable[[int], None] | None = None) -> Trace:
    """The trace in one file; see `load`."""
    if name.endswith(SUFFIX):
        return Trace(name, *read_parquet(name))
    mark = fingerprint(name) if cache else None
    place = _cache_place(name) if mark is not None else None
    if place is not None and (kept := place.find()) is not None:
        with suppress(TraceFileError):  # the file or our version has changed: read the file again
            return Trace(name, *read_parquet(kept, mark))
    trace = read_trace(name, on_bytes)
    if place is not None:
        _keep(trace, place, mark)
    return Trace(name, trace.about, trace.frame.lazy())


def read_trace(name: str, on_bytes: Callable[[int], None] | None = None) -> TraceEvents:
    """Reads one file of Chrome JSON, without a cache."""
    with open_source(name) as stream:
        try:
            scan, frames = ChromeScan(new_scanner()), []
            scan.read(UnpackedStream(stream, name), name, lambda block: frames.append(block_frame(block)), on_bytes)
        except OSError as error:
            raise TraceFileError(f"Cannot read the trace {name}: {error.strerror or error}. Check the path.") from error
    return build_events(frames, scan.texts(), scan.header, scan.repairs, name)


def _cache_place(name: str) -> CachePlace | None:
    with suppress(OSError):
        return CachePlace(name) if HAS_RUN_FOLDERS else None
    return None


def _keep(trace: TraceEvents, place: CachePlace, mark: str | None) -> None:
    """Writes the cache. If that fails, the file is read again next time."""
    with suppress(OSError):
        write_parquet(trace, place.make(), mark)
        place.make_room()


def notes_on_attempts(source: object, attempt: int | None = None) -> list[str]:
    """If ``source`` is the folder of a run that has several attempts: which one is read, and how to read the others."""
    if not isinstance(source, (str, os.PathLike)) or not os.path.isdir(source) or is_single(os.fspath(source)):
        return []
    found = _by_attempt(Path(source))
    if len(found) < 2:
        return []
    read = max(found) if attempt is None else attempt
    others = [number for number in sorted(found) if number != read]
    which = f"the last attempt, {read}" if read == max(found) else f"attempt {read}"
    return [
        f"The run was restarted and has {len(found)} attempts with traces; this is {which}. "
        f"To read another ({', '.join(map(str, others))}): --attempt N, or attempt=N in Python."
    ]


def find_traces(name: str, attempt: int | None = None) -> list[str]:
    """The trace files and live folders in a folder or a glob. Raises `TraceFileError` if there are none."""
    path = Path(name)
    try:
        found = _in_folder(path, attempt) if path.is_dir() else _in_glob(name)
    except OSError as error:
        raise TraceFileError(f"Cannot read the folder {name}: {error.strerror or error}. Check the path.") from error
    if not found:
        raise TraceFileError(
            f"No trace in {name}: there is no file that ends in {', '.join(_SUFFIXES)}. "
            "Pass a trace file, a folder of them, the folder of a run, or a glob in quotes."
        )
    return found


def _in_glob(name: str) -> list[str]:
    return [] if _WILDCARDS.isdisjoint(name) else sorted(glob.glob(name, recursive=True))


def _in_folder(folder: Path, attempt: int | None) -> list[str]:
    found = _by_attempt(folder)
    if attempt is not None and attempt not in found:
        known = f"those with traces are {', '.join(map(str, sorted(found)))}" if found else "it has no traces"
        raise TraceFileError(f"There is no attempt {attempt} in {folder}: {known}.")
    return found[max(found) if attempt is None else attempt] if found else []


def _by_attempt(folder: Path) -> dict[int, list[str]]:
    """The traces and the live folders of each attempt of a run that has any. This is where it is decided what belongs
    to which attempt."""
    found = _files_by_attempt(folder)
    if not found and (not HAS_RUN_FOLDERS or RunFolder(folder).status("traces") is not None):
        found = _files_by_attempt(folder / "traces")
    for live in live_folders(folder):
        if not is_to_redact(live):
            found.setdefault(restart_of(live), []).append(FoundLive(live))
    return found


def _files_by_attempt(traces: Path) -> dict[int, list[str]]:
    by_attempt = {number: _traces_of(path) for number, path in attempt_folders(traces).items()}
    return {number: names for number, names in by_attempt.items() if names}


def _traces_of(folder: Path) -> list[str]:
    """The traces in a folder, without merged ones, which hold the same events again."""
    files = sorted(
        str(path) for path in folder.iterdir() if path.name.endswith((*_SUFFIXES, SUFFIX)) and path.is_file()
    )
    single = [name for name in files if not _is_merged(name)]
    return single or files


def _is_merged(name: str) -> bool:
    """Whether a file is a merged trace of ours, according to its header."""
    with open_source(name) as stream:
        start = bytearray(1 << 14)
        with memoryview(start) as view:
            filled = UnpackedStream(stream, name).readinto(view)
    head = bytes(start[:filled]).partition(b'"traceEvents"')[0]
    return b'"kinetoscope"' in head and b'"merged":true' in head.replace(b" ", b"")


def is_live(name: str) -> bool:
    """Whether ``name`` is the live folder of one rank, whose files still grow."""
    return is_live_folder(Path(name))


def is_url(name: str) -> bool:
    """Whether ``name`` is a URL for fsspec."""
    return "://" in name


@contextmanager
def open_source(name: str) -> Iterator[BinaryIO]:
    """The bytes of a file, of a URL for fsspec, or of stdin. Raises `TraceFileError` if they cannot be read."""
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
    """Size and time of change of a local file, as text; None for anything else."""
    if name == STDIN or is_url(name):
        return None
    try:
        status = os.stat(name)
    except OSError:
        return None
    return f"{status.st_size}-{status.st_mtime_ns}"
