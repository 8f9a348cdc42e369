"""torch: torch.profiler's ready-made handler, which writes each window to a folder, beside training where it may."""

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from kinetoscope.errors import FolderNotWritableError, TraceFolderError
from kinetoscope.torch.results import KinetoResults
from kinetoscope.writing.atomic_file import make_folder
from kinetoscope.writing.partial_files import remove_partials
from kinetoscope.writing.writer_thread import WriterThread


def tensorboard_trace_handler(
    dir_name: str | os.PathLike[str],
    worker_name: str | None = None,
    use_gzip: bool = False,
    use_python_export: bool = False,
) -> Callable[[Any], None]:
    """An ``on_trace_ready`` that writes each window to ``{worker_name}.{nanoseconds}.pt.trace.json`` in ``dir_name``.

    ``worker_name`` is by default the host's name and the process id, of the process that writes; ``use_gzip``
    compresses and appends ``.gz``. As the ``on_trace_ready`` of a profiler it writes in the background, and every file
    is complete when the profiler is left; called by anybody else, it returns when the file is there. Raises
    `TraceFolderError`, a RuntimeError, naming ``dir_name`` if that cannot be made.
    """
    remove_partials(Path(os.fspath(dir_name)))
    return TensorboardTraceHandler(Path(os.fspath(dir_name)), worker_name, use_gzip, use_python_export)


@dataclass(frozen=True, slots=True)
class TensorboardTraceHandler:
    """What `tensorboard_trace_handler` returns; `profile` knows it, and lets it write in the background."""

    folder: Path
    worker_name: str | None
    use_gzip: bool
    use_python_export: bool

    def __call__(self, profiler: Any) -> None:
        profiler.export_chrome_trace(self.next_path(), self.use_python_export)

    def next_path(self) -> Path:
        """Where the window that is finished now goes."""
        worker = self.worker_name or f"{socket.gethostname()}_{os.getpid()}"
        return _made(self.folder) / f"{worker}.{time.time_ns()}.pt.trace.json{'.gz' if self.use_gzip else ''}"


def _made(folder: Path) -> Path:
    try:
        return make_folder(folder)
    except FolderNotWritableError as error:
        raise TraceFolderError(str(error)) from error


_WAIT_S = 600.0  # how long leaving the profiler waits for files that are still being written


class BackgroundExport:
    """Writes traces on a thread of its own, which is there only while there is something to write."""

    def __init__(self) -> None:
        self._writer: WriterThread | None = None
        self._errors: list[BaseException] = []

    def export(self, results: KinetoResults, path: Path) -> None:
        """Writes the window to ``path``, soon."""
        if self._writer is None:
            self._writer = WriterThread("kinetoscope-torch-writer", on_error=self._note)
        self._writer.submit(f"export {path}", partial(results.export_chrome_trace, path))

    def close(self) -> None:
        """Waits until every file is complete; raises the first error there was, with the others as its notes."""
        writer, self._writer = self._writer, None
        if writer is not None and not writer.close(_WAIT_S):
            self._errors.append(TimeoutError(f"Traces were not written within {_WAIT_S:.0f} s; the last are missing."))
        errors, self._errors = self._errors, []
        if errors:
            for error in errors[1:]:
                errors[0].add_note(f"Another trace was not written either: {error!r}")
            raise errors[0]

    def _note(self, name: str, error: BaseException) -> None:
        self._errors.append(error)
