"""Kineto's trace as a stream of text that is read during training.

torch saves a window to a path and keeps the GIL until it is done, so training stops. Where the native extension can
call Kineto without the GIL, Kineto writes into a named pipe instead, without a temporary file. Elsewhere torch saves to
a temporary file.
"""

import contextlib
import importlib.util
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import torch

from kinetoscope.core.background.writer_thread import is_in_background
from kinetoscope.core.paths.atomic_file import make_folder, temporary_folder
from kinetoscope.errors import ProfilerStateError
from kinetoscope.native import kineto_save_module

LIBRARY = str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")
# libtorch has no stable interface for saving without the GIL, so only tested versions of torch do it.
# Before 2.9, torch does not expose the address of its results.
_TESTED_VERSIONS = ("2.9.", "2.10.", "2.11.", "2.12.", "2.13.", "2.14.", "2.15.")

_log = logging.getLogger("kinetoscope")


def can_save_without_gil(kineto_results: Any) -> bool:
    """Return whether Kineto can save these results without the GIL."""
    if not torch.__version__.startswith(_TESTED_VERSIONS):
        _log_fallback(f"this version of Kinetoscope was not tested with torch {torch.__version__}")
        return False
    kineto_save = kineto_save_module()
    if kineto_save is None:
        return False
    if not kineto_save.can_save(kineto_results, LIBRARY):
        _log_fallback(f"torch {torch.__version__} and Kinetoscope's C++ module were built differently")
        return False
    return True


@cache
def _log_fallback(reason: str) -> None:
    _log.info("torch saves its traces itself, and training waits while it does: %s.", reason)


_PIPE_BYTES = 1 << 20  # Linux's maximum for an ordinary user; a larger pipe means fewer reads with the GIL
# During training, Kineto's thread has this niceness. At 10 it still gets a tenth of a CPU when all are busy.
_NICENESS = 10
_FILE_NAME = "trace.json"
_FILL_WAIT_S = 0.004  # Kineto writes a few hundred kilobytes in this time


class TextStream(Protocol):
    """Stream of Kineto's text.

    The native extension reads from ``fileno``; the text has ended when ``is_written`` is set and there is nothing to
    read.
    """

    is_written: bytearray
    """One byte: 1 when Kineto has written everything."""

    def fileno(self) -> int:
        """Return the file descriptor to read from."""
        ...

    def read(self) -> bytes:
        """Return the next piece; b"" at the end."""
        ...


@contextmanager
def open_kineto_stream(kineto_results: Any, folder: Path, pipe_folder: Path | None = None) -> Iterator[TextStream]:
    """Open the text that Kineto saves; Kineto saves a window only once.

    Args:
        kineto_results: torch's results of the window.
        folder: Folder for a temporary file, if one is needed.
        pipe_folder: Folder for the named pipe; by default the system's folder for temporary files.

    Raises:
        ProfilerStateError: Kineto does not save; raised when the block is entered or left.
    """
    pipe = _try_pipe(kineto_results, pipe_folder) if can_save_without_gil(kineto_results) else None
    if pipe is None:
        with _save_to_temporary_file(kineto_results, folder) as stream:
            yield stream
        return
    try:
        yield pipe
    finally:
        pipe.close()
        pipe.check()  # last, because its error explains earlier ones


@contextmanager
def _save_to_temporary_file(kineto_results: Any, folder: Path) -> Iterator["_FileStream"]:
    try:
        stream = _save_to_unnamed_file(folder, kineto_results.save)
    except RuntimeError as error:
        raise _make_save_error(error) from error
    with stream:
        yield stream


def has_python_exporter() -> bool:
    """Return whether this torch has an exporter in Python; 2.13 has one."""
    return importlib.util.find_spec("torch.profiler._chrome_trace_export") is not None


@contextmanager
def open_python_stream(kineto_results: Any, folder: Path) -> Iterator[TextStream]:
    """Open a window's text from torch's exporter in Python, independently of Kineto's save."""
    from torch.profiler._chrome_trace_export import export_chrome_trace

    with (stream := _save_to_unnamed_file(folder, lambda name: export_chrome_trace(kineto_results, name))):
        yield stream


def _save_to_unnamed_file(folder: Path, save: Callable[[str], object]) -> "_FileStream":
    """Return the file that ``save`` writes; its name is already deleted."""
    with temporary_folder(make_folder(folder)) as temporary:
        save(path := f"{temporary}/{_FILE_NAME}")
        return _FileStream(path)


def _make_save_error(error: Exception) -> ProfilerStateError:
    return ProfilerStateError(
        f"Kineto did not save this window: {str(error).splitlines()[0]} It saves once: instead of "
        "save() on its results, call export_chrome_trace() here, as often as you like."
    )


class _FileStream:
    """A complete file."""

    def __init__(self, path: str) -> None:
        self.is_written = bytearray(b"\1")
        self._stream = open(path, "rb", buffering=0)  # noqa: SIM115 - closed by `__exit__`

    def fileno(self) -> int:
        return self._stream.fileno()

    def read(self) -> bytes:
        return self._stream.read(_PIPE_BYTES)

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None:
        self._stream.close()


def _try_pipe(kineto_results: Any, folder: Path | None) -> "_PipeStream | None":
    """Return a pipe into which Kineto saves; None if no pipe or, at interpreter shutdown, no thread can be made."""
    try:
        return _PipeStream(kineto_save_module(), kineto_results, folder)
    except (OSError, RuntimeError):
        return None


def _enlarge_pipe(pipe_fd: int) -> None:
    with contextlib.suppress(OSError, ImportError, AttributeError):  # a pipe of the default size works too
        import fcntl  # not on Windows

        fcntl.fcntl(pipe_fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


class _PipeStream:
    """A named pipe that Kineto writes to as to a file: it writes ``{path}.tmp`` and then renames it."""

    def __init__(self, kineto_save: Any, kineto_results: Any, folder: Path | None) -> None:
        self._kineto_save = kineto_save
        self.is_written = bytearray(1)
        self._error: Exception | None = None
        with contextlib.ExitStack() as undo:
            path = f"{undo.enter_context(temporary_folder(folder))}/{_FILE_NAME}"
            os.mkfifo(f"{path}.tmp")
            self._read_fd = os.open(f"{path}.tmp", os.O_RDONLY | os.O_NONBLOCK)
            undo.callback(os.close, self._read_fd)
            # While this is open the pipe has a writer: a read before Kineto opens it does not return the end.
            write_fd = os.open(f"{path}.tmp", os.O_WRONLY)
            _enlarge_pipe(write_fd)
            try:
                niceness = _NICENESS if is_in_background() else 0
                self._saving = kineto_save.start(kineto_results, LIBRARY, path, self.is_written, write_fd, niceness)
            except BaseException:
                os.close(write_fd)
                raise
            self._undo = undo.pop_all()

    def close(self) -> None:
        """Wait until Kineto has finished, discarding the rest of the text."""
        with self._undo:
            while self.read():
                pass
            try:
                self._kineto_save.finish(self._saving)
            except RuntimeError as error:
                self._error = error

    def check(self) -> None:
        """Raise `ProfilerStateError` if Kineto has not saved."""
        if self._error is not None:
            raise _make_save_error(self._error) from self._error

    def fileno(self) -> int:
        return self._read_fd

    def read(self) -> bytes:
        """Return the next piece; b"" at the end."""
        while True:
            # Each read takes the GIL from training, so wait until there is more to read at once. The end of the pipe
            # is not enough to know that Kineto is done: a child forked meanwhile keeps the pipe open.
            was_written = self.is_written[0]
            if not was_written:
                time.sleep(_FILL_WAIT_S)
            with contextlib.suppress(BlockingIOError):
                return os.read(self._read_fd, _PIPE_BYTES)
            if was_written:
                return b""
