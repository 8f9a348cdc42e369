"""torch: Kineto's text as it comes, while training goes on.

Kineto's own `save` wants a path and keeps Python's lock until it is done, so that training stands still. Where the
module in C++ can call it without that lock, it writes into a named pipe from which we read meanwhile, and no copy of
the whole lies anywhere. Elsewhere it writes a temporary file, as torch would.
"""

import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import torch

from kinetoscope.errors import ProfilerStateError
from kinetoscope.writing.atomic_file import make_folder
from kinetoscope.writing.partial_files import temporary_folder
from kinetoscope.writing.writer_thread import is_beside_training

LIBRARY = str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")
_TRIED = ("2.9.", "2.12.", "2.13.", "2.14.", "2.15.")
"""The versions of torch with which it was tried; before 2.9 torch does not tell where its results are."""

_log = logging.getLogger("kinetoscope")


def saves_without_lock(kineto_results: Any) -> bool:
    """Whether Kineto can save these results while other threads run Python."""
    if not torch.__version__.startswith(_TRIED):
        _say_who_saves(f"this version of Kinetoscope was not tried with torch {torch.__version__}")
        return False
    try:
        from kinetoscope import _kineto_save
    except ImportError:
        return False
    if not _kineto_save.can_save(kineto_results, LIBRARY):
        _say_who_saves(f"Kinetoscope was compiled otherwise than torch {torch.__version__}")
        return False
    return True


@cache
def _say_who_saves(reason: str) -> None:
    _log.info("torch saves its traces by itself, and training waits for it meanwhile: %s.", reason)


_PIPE_BYTES = 1 << 20  # as much as Linux gives anybody: the less often do we ask for Python's lock
# Beside the training, Kineto's thread gives way to it, and to what reads from it. Where every processor is busy a tenth
# of one is left to it, so that it comes to its end all the same.
_GIVES_WAY = 10
_NAME = "trace.json"
_FILL_S = 0.004  # in which Kineto writes some hundred kilobytes


class TextStream(Protocol):
    """What Kineto's text is read from.

    The module in C reads from ``fileno``, which is at its end when ``is_written`` and there is nothing to read.
    """

    is_written: bytearray
    """One byte, which is not 0 when Kineto has written everything."""

    def fileno(self) -> int: ...

    def read(self) -> bytes:
        """The next piece; b"" at the end."""
        ...


@contextmanager
def kineto_stream(kineto_results: Any, folder: Path, pipes: Path | None = None) -> Iterator[TextStream]:
    """Kineto's text, which it gives only once.

    ``folder`` is where there is room for a file, where one is needed; ``pipes`` where a pipe gets its name, by default
    among the system's temporary files.

    Raises `ProfilerStateError`, at the end of the block at the latest, if Kineto does not save.
    """
    pipe = _filling_pipe(kineto_results, pipes) if saves_without_lock(kineto_results) else None
    if pipe is None:
        with _temporary_file(kineto_results, folder) as stream:
            yield stream
        return
    try:
        yield pipe
    finally:
        pipe.close()
        pipe.check()  # it explains what else may have gone wrong


@contextmanager
def _temporary_file(kineto_results: Any, folder: Path) -> Iterator["_File"]:
    try:
        stream = _unnamed_file(folder, kineto_results.save)
    except RuntimeError as error:
        raise _unsaved(error) from error
    with stream:
        yield stream


@contextmanager
def second_stream(kineto_results: Any, folder: Path, error: ProfilerStateError) -> Iterator[TextStream]:
    """The text of results that Kineto has saved for somebody else, from torch's exporter in Python.

    Raises the ``error`` of `kineto_stream` where this torch has none; 2.13 has.
    """
    try:
        from torch.profiler._chrome_trace_export import export_chrome_trace
    except ImportError:
        raise error from None
    with (stream := _unnamed_file(folder, lambda name: export_chrome_trace(kineto_results, name))):
        yield stream


def _unnamed_file(folder: Path, save: Callable[[str], object]) -> "_File":
    """What ``save`` writes to the name it is given, which is gone by then."""
    with temporary_folder(make_folder(folder)) as place:
        save(name := f"{place}/{_NAME}")
        return _File(name)


def _unsaved(error: Exception) -> ProfilerStateError:
    return ProfilerStateError(
        f"Kineto did not save this window: {str(error).splitlines()[0]} It saves once: do not save its results by "
        "themselves, export them here, as often as you like."
    )


class _File:
    """A file that is complete; it may have lost its name."""

    def __init__(self, name: str) -> None:
        self.is_written = bytearray(b"\1")
        self._stream = open(name, "rb", buffering=0)  # noqa: SIM115 - closed by `__exit__`

    def fileno(self) -> int:
        return self._stream.fileno()

    def read(self) -> bytes:
        return self._stream.read(_PIPE_BYTES)

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None:
        self._stream.close()


def _filling_pipe(kineto_results: Any, pipes: Path | None) -> "_Pipe | None":
    """A pipe into which Kineto saves; None where there can be none, or no thread: at the interpreter's end."""
    try:
        return _Pipe(kineto_results, pipes)
    except (OSError, RuntimeError):
        return None


class _Pipe:
    """A named pipe that Kineto takes for its file. It writes to the name with ``.tmp`` and renames that."""

    def __init__(self, kineto_results: Any, pipes: Path | None) -> None:
        from kinetoscope import _kineto_save

        self.is_written = bytearray(1)
        self._error: Exception | None = None
        with contextlib.ExitStack() as undo:
            path = f"{undo.enter_context(temporary_folder(pipes))}/{_NAME}"
            os.mkfifo(f"{path}.tmp")
            self._end_to_read = os.open(f"{path}.tmp", os.O_RDONLY | os.O_NONBLOCK)
            undo.callback(os.close, self._end_to_read)
            # While this is open the pipe has a writer, so that it is not at its end before Kineto has opened it.
            end_to_write = os.open(f"{path}.tmp", os.O_WRONLY)
            with contextlib.suppress(OSError):  # a smaller one serves as well
                fcntl.fcntl(end_to_write, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
            try:
                gives_way = _GIVES_WAY if is_beside_training() else 0
                self._saving = _kineto_save.start(
                    kineto_results, LIBRARY, path, self.is_written, end_to_write, gives_way
                )
            except BaseException:
                os.close(end_to_write)
                raise
            self._undo = undo.pop_all()

    def close(self) -> None:
        """Lets Kineto come to its end, also if nobody wants the rest."""
        from kinetoscope import _kineto_save

        with self._undo:
            while self.read():
                pass
            try:
                _kineto_save.finish(self._saving)
            except RuntimeError as error:
                self._error = error

    def check(self) -> None:
        """Raises `ProfilerStateError` if Kineto has not saved."""
        if self._error is not None:
            raise _unsaved(self._error) from self._error

    def fileno(self) -> int:
        return self._end_to_read

    def read(self) -> bytes:
        """The next piece; b"" at the end."""
        while True:
            # In a while there is much to read at once: each look takes Python's lock from the training. A child process
            # that was forked meanwhile keeps the pipe open, so its end alone cannot be waited for.
            was_written = self.is_written[0]
            if not was_written:
                time.sleep(_FILL_S)
            with contextlib.suppress(BlockingIOError):
                return os.read(self._end_to_read, _PIPE_BYTES)
            if was_written:
                return b""
