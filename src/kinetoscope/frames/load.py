"""`kinetoscope.load`: traces from files, folders, globs, URLs or the standard input."""

import logging
import os
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

from kinetoscope.core.paths.attempt_folders import (
    MAX_NAMED_RUNS,
    describe_attempts,
    find_relative_attempt_folders,
    find_runs_below,
    order_trace_folders,
    suggest_runs,
)
from kinetoscope.core.paths.available_memory import available_bytes
from kinetoscope.core.paths.file_kinds import is_folder
from kinetoscope.core.paths.regular_file import is_descriptor_path, require_regular
from kinetoscope.core.paths.run_folder import find_files, find_glob, open_file
from kinetoscope.core.paths.user_cache import SUFFIX, CacheEntry
from kinetoscope.core.text.wording import format_file_size
from kinetoscope.errors import MissingExtraError, TraceFileError, UnsafePathError
from kinetoscope.formats.chrome import SUFFIXES as JSON_SUFFIXES
from kinetoscope.formats.chrome_scan import ChromeScan, new_scanner
from kinetoscope.formats.compression import UnpackedStream
from kinetoscope.formats.manifest import START_FILE, find_empty_reason
from kinetoscope.frames.all_steps import find_run_pulses
from kinetoscope.frames.events import TraceEvents, block_frame, build_events
from kinetoscope.frames.executors import map_function
from kinetoscope.frames.spool import SpoolPath, is_redacted, read_attempt, read_found_spool, read_spool
from kinetoscope.frames.trace import Trace
from kinetoscope.frames.trace_parquet import read_parquet, write_parquet
from kinetoscope.frames.trace_set import TraceSet
from kinetoscope.pulse.process_runs import describe_later_runs, describe_other_runs
from kinetoscope.spool.folders import find_spool_folders, is_spool_folder

_log = logging.getLogger("kinetoscope")
PathLike = str | os.PathLike[str]

_FILE_URL = "file://"
MAX_MEMORY_SHARE = 0.3
"""Events may take this share of the available memory. Analyses need more: 20 million events, 0.9 GB, took 2.4 GB."""

STDIN = "-"


def load(
    source: PathLike | Iterable[PathLike],
    *,
    attempt: int | None = None,
    cache: bool = True,
    executor: Executor | None = None,
) -> Trace | TraceSet:
    """Load a trace as tables, or the traces of a run.

        spans = kinetoscope.load("runs/digits/traces").spans.collect()

    The folder of a run, its ``traces`` and its spool work even while the run still records: what is there so far is
    loaded. Of a run that redacts what it writes, only what is written is loaded, unless you name its spool. Of a run
    that was restarted, the last attempt is loaded by default; a warning names it.

    A file that was read is cached as Parquet in the user's cache folder (``~/.cache/kinetoscope``, at most 2 GB), which
    is used next time unless the file has changed. Nothing is written into the folder of a run, and no cache in it is
    read. A folder or a glob only finds regular files in it: a link is not followed. Name the target of the link, or the
    link itself. A damaged file is read as far as possible, and ``repairs`` has sentences on its repairs.

    Args:
        source: a trace file (Chrome JSON of any profiler, plain, ``.gz`` or ``.zst``; or Parquet as ``kinetoscope
            convert`` writes it), a URL for fsspec, ``-`` for stdin, a folder, a glob, or several names.
        attempt: number of the attempt of a run that was restarted.
        cache: whether the cache is read and written.
        executor: reads several files: processes, or a Dask cluster's ``client.get_executor()``.

    Returns:
        A `Trace` for a single file, URL or stdin; a `TraceSet` for a folder, a glob or several names.

    Raises:
        TraceFileError: if there is no trace.
        UnsafePathError: for a link, a pipe or a device among the traces of a folder.
    """
    if isinstance(source, (str, os.PathLike)) and is_one_trace(name := os.fspath(source)):
        return load_one(name, cache=cache)
    names = list_traces(source, attempt)
    for note in build_attempt_notes(source, attempt):
        _log.warning(note)
    traces = map_function(executor)(partial(_load_in_any, _this_process(), cache=cache), names)
    pulses = find_run_pulses(source, attempt) if isinstance(source, (str, os.PathLike)) else []
    found = [load_one(name) if trace is None else trace for name, trace in zip(names, traces, strict=True)]
    return TraceSet(found, pulses)


def _load_in_any(home: tuple[str, int], name: str, *, cache: bool) -> Trace | None:
    """Load one file in any process, for the process ``home``.

    In another process of the same machine the result is None if the trace is in the cache now: then only that must be
    read at home, and no columns are sent. Another machine may have another cache.
    """
    here = _this_process()
    if here != home and name.endswith(SUFFIX):
        return None
    trace = load_one(name, cache=cache)
    if here == home:
        return trace
    is_cached = cache and (entry := _find_cache_entry(name)) is not None and entry.find() is not None
    return None if is_cached and here[0] == home[0] else trace.in_memory()


def _this_process() -> tuple[str, int]:
    return socket.gethostname(), os.getpid()


def list_traces(source: PathLike | Iterable[PathLike], attempt: int | None = None) -> list[str]:
    """Return the names of the traces of ``source``, of one attempt of a run.

    Args:
        source: as `load` takes it.
        attempt: number of the attempt, the last one by default.

    Raises:
        TraceFileError: without any trace.
    """
    if not isinstance(source, (str, os.PathLike)):
        return [os.fspath(path) for path in source]
    name = os.fspath(source)
    return [name] if isinstance(name, SpoolPath) or is_one_trace(name) else list_run_traces(name, attempt)


def is_one_trace(name: str) -> bool:
    """Return whether ``name`` is one trace: a file, a URL, ``-``, or the spool of one rank."""
    return (
        name == STDIN or is_url(name) or os.path.isfile(name) or is_descriptor_path(name) or is_spool_folder(Path(name))
    )


def load_one(name: str, *, cache: bool = True, on_bytes: Callable[[int], None] | None = None) -> Trace:
    """Load one file or spool; ``on_bytes`` is called now and then with the bytes read since."""
    if isinstance(name, SpoolPath):
        return read_found_spool(name)
    if is_spool_folder(Path(name)):
        return read_spool(Path(name))
    return load_trace(name, cache=cache, on_bytes=on_bytes)


def load_trace(name: str, *, cache: bool = True, on_bytes: Callable[[int], None] | None = None) -> Trace:
    """Load one file; see `load`."""
    if name.endswith(SUFFIX):
        require_regular(name.removeprefix(_FILE_URL))
        return Trace(str(name), *read_parquet(name))
    state = fingerprint(name) if cache else None
    entry = _find_cache_entry(name) if state is not None else None
    if entry is not None and (cached := entry.find()) is not None:
        with suppress(TraceFileError):  # the file or our version has changed: read the file again
            return Trace(str(name), *read_parquet(cached, state))
    trace = read_trace(name, on_bytes)
    if entry is not None:
        _write_cache(trace, entry, state)
    return Trace(str(name), trace.about, trace.frame.lazy())


def read_trace(name: str, on_bytes: Callable[[int], None] | None = None) -> TraceEvents:
    """Read one file of Chrome JSON, without a cache."""
    with open_source(name) as stream:
        try:
            scan, blocks = ChromeScan(new_scanner()), _Blocks(name)
            scan.read(UnpackedStream(stream, name), name, blocks.add, on_bytes)
        except OSError as error:
            raise TraceFileError(f"Cannot read the trace {name}: {error.strerror or error}. Check the path.") from error
    return build_events(blocks.frames, scan.texts(), scan.header, scan.repairs, name, scan.health)


class _Blocks:
    """The blocks of rows of a trace, as long as they leave memory for the work on them."""

    def __init__(self, name: str) -> None:
        self.frames: list[Any] = []
        self._name = name
        self._num_events = self._size_bytes = 0
        self._available_bytes = available_bytes()

    def add(self, block: Any) -> None:
        """Keep a block. Raises `TraceFileError` if the blocks take too much of the memory that was available."""
        self.frames.append(frame := block_frame(block))
        self._num_events += len(frame)
        self._size_bytes += int(frame.estimated_size())
        if self._available_bytes and self._size_bytes > MAX_MEMORY_SHARE * self._available_bytes:
            self.frames.clear()
            raise TraceFileError(
                f"Cannot read the trace {self._name}: it has too many events for this machine. The first "
                f"{self._num_events:,} take {format_file_size(self._size_bytes)}, and "
                f"{format_file_size(self._available_bytes)} of memory were available. Read it on a larger machine, or "
                "a file of fewer steps or ranks."
            )


def _find_cache_entry(name: str) -> CacheEntry | None:
    with suppress(OSError):
        return CacheEntry.of_trace(name)
    return None


def _write_cache(trace: TraceEvents, entry: CacheEntry, state: str | None) -> None:
    """Write the cache. If that fails, the file is read again next time."""
    with suppress(OSError):
        write_parquet(trace, entry.path, state)
        entry.evict()


def build_attempt_notes(source: object, attempt: int | None = None) -> list[str]:
    """Return notes on the other attempts of a run, and on later runs recorded into its folder.

    There are none if ``source`` is no folder of a run.
    """
    if not isinstance(source, (str, os.PathLike)) or not os.path.isdir(source) or is_one_trace(os.fspath(source)):
        return []
    return [*describe_attempts(_by_attempt(Path(source)), attempt), *describe_other_runs(Path(source))]


def list_run_traces(name: str, attempt: int | None = None) -> list[str]:
    """Return the trace files and spools in a folder or a glob.

    Raises:
        TraceFileError: without any.
    """
    path = Path(name)
    require_regular(path)
    try:
        found: list[str] = _list_traces_in_folder(path, attempt) if is_folder(path) else [*find_glob(name)]
    except UnsafePathError:
        raise
    except OSError as error:
        raise TraceFileError(f"Cannot read the folder {name}: {error.strerror or error}. Check the path.") from error
    if not found and (why := find_empty_reason(path) or suggest_runs(path)):
        runs = find_runs_below(path)[:MAX_NAMED_RUNS]
        notes = [f"{run}: {note}" for run in runs for note in describe_later_runs(run)]
        raise TraceFileError(" ".join([f"No trace in {name}.", *notes, why]))
    if not found:
        raise TraceFileError(
            f"No trace in {name}: there is no file that ends in {', '.join(JSON_SUFFIXES)}. "
            "Pass a trace file, a folder of them, the folder of a run, or a glob in quotes."
        )
    return found


def _list_traces_in_folder(folder: Path, attempt: int | None) -> list[str]:
    found = _by_attempt(folder)
    if attempt is not None and attempt not in found:
        known = f"those with traces are {', '.join(map(str, sorted(found)))}" if found else "it has no traces"
        raise TraceFileError(f"There is no attempt {attempt} (--attempt, or attempt= in Python) in {folder}: {known}.")
    return found[max(found) if attempt is None else attempt] if found else []


def _by_attempt(folder: Path) -> dict[int, list[str]]:
    """Return the traces and spools of each attempt of a run that has any.

    This alone decides which file belongs to which attempt.
    """
    first, then = order_trace_folders(folder)
    found = _files_by_attempt(folder, first) or _files_by_attempt(folder, then)
    for live in find_spool_folders(folder):
        if not is_redacted(live):
            found.setdefault(read_attempt(live), []).append(SpoolPath(live))
    return found


def _files_by_attempt(folder: Path, traces: str) -> dict[int, list[str]]:
    """Return the traces of each attempt in the folder ``traces`` of ``folder``.

    Raises:
        UnsafePathError: for a link.
    """
    by_attempt = {
        number: _list_traces_of_attempt(folder, attempt_folder)
        for number, attempt_folder in find_relative_attempt_folders(folder, traces).items()
    }
    return {number: names for number, names in by_attempt.items() if names}


def _list_traces_of_attempt(folder: Path, attempt_folder: str) -> list[str]:
    """Return the traces in a folder without merged ones, which hold the same events again.

    The merged trace of a single trace is that trace: a hard link to it, or a copy.
    """
    files = [
        name
        for name in find_files(folder, attempt_folder, (*JSON_SUFFIXES, SUFFIX))
        if os.path.basename(name) != START_FILE
    ]
    heads: dict[str, bytes] = {name: _read_head(name) for name in files}
    kept: list[str] = []
    for name in sorted(files, key=_is_called_merged):
        if not _is_merged(heads[name]) and not any(_is_copy(name, other, heads) for other in kept):
            kept.append(name)
    return [name for name in files if name in kept] or [*files]


def _read_head(name: str) -> bytes:
    with open_source(name) as stream:
        start = bytearray(1 << 14)
        with memoryview(start) as view:
            filled = UnpackedStream(stream, name).readinto(view)
    return bytes(start[:filled])


def _is_merged(head: bytes) -> bool:
    """Return whether a file is a merged trace of ours, according to its header."""
    header = head.partition(b'"traceEvents"')[0]
    return b'"kinetoscope"' in header and b'"merged":true' in header.replace(b" ", b"")


def _is_called_merged(name: str) -> bool:
    return os.path.basename(name).startswith("merged")


def _is_copy(name: str, other: str, heads: Mapping[str, bytes]) -> bool:
    """Return whether the file ``name`` is the merged trace of ``other`` alone."""
    is_alike = _is_called_merged(name) and heads[name] == heads[other]
    return is_alike and os.stat(name).st_size == os.stat(other).st_size


def is_spool(name: str) -> bool:
    """Return whether ``name`` is the spool of one rank, whose files still grow."""
    return is_spool_folder(Path(name))


def is_url(name: str) -> bool:
    """Return whether ``name`` is a URL for fsspec."""
    return "://" in name


@contextmanager
def open_source(name: str) -> Iterator[BinaryIO]:
    """Open a file, a URL for fsspec, or stdin for reading.

    Raises:
        TraceFileError: if it cannot be read.
    """
    try:
        stream = _open(name)
    except UnsafePathError:
        raise
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
        return open_file(name)
    require_regular(name.removeprefix(_FILE_URL))
    return cast("BinaryIO", import_fsspec(name).open(name, "rb").open())


def import_fsspec(name: str) -> Any:
    """Import the library that opens URLs.

    Raises:
        MissingExtraError: with the command that installs it.
    """
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
    """Return a string that changes when a local file changes; None for anything else.

    Beside its size and its time it contains the time of change of its entry, which cannot be set: a file from an
    archive can have any other time.
    """
    if name == STDIN or is_url(name):
        return None
    try:
        status = os.stat(name)
    except OSError:
        return None
    return f"{status.st_size}-{status.st_mtime_ns}-{status.st_ctime_ns}-{status.st_ino}"
