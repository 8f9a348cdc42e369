"""Ready-made handler of torch.profiler, which writes each window to a folder, in the background if possible."""

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from kinetoscope.core.background.writer_thread import WriterThread
from kinetoscope.core.paths.atomic_file import make_folder, remove_partials
from kinetoscope.errors import FolderNotWritableError, TraceFolderError
from kinetoscope.torch.results import KinetoResults


def tensorboard_trace_handler(
    dir_name: str | os.PathLike[str],
    worker_name: str | None = None,
    use_gzip: bool = False,
    use_python_export: bool = False,
) -> Callable[[Any], None]:
    """Return an ``on_trace_ready`` that writes each window to a file in ``dir_name``.

    Files are named ``{worker_name}.{nanoseconds}.pt.trace.json``. As a profiler's ``on_trace_ready``, it writes in the
    background, and every file is complete when the profiler's ``with`` block ends. Called by other code, it returns
    when the file is complete.

    Args:
        dir_name: The folder, made if needed.
        worker_name: Defaults to host name and process id of the process that writes.
        use_gzip: Compress the file and append ``.gz``.
        use_python_export: Read the window through torch's exporter in Python, where torch has one.

    Raises:
        TraceFolderError: The folder cannot be made. It is a RuntimeError.
    """
    remove_partials(Path(os.fspath(dir_name)))
    return TensorboardTraceHandler(Path(os.fspath(dir_name)), worker_name, use_gzip, use_python_export)


@dataclass(frozen=True, slots=True)
class TensorboardTraceHandler:
    """Result of `tensorboard_trace_handler`; `profile` recognises it and calls `BackgroundExport` instead."""

    folder: Path
    worker_name: str | None
    use_gzip: bool
    use_python_export: bool

    def __call__(self, profiler: Any) -> None:
        """Write the profiler's finished window."""
        profiler.export_chrome_trace(self.next_path(), self.use_python_export)

    def next_path(self) -> Path:
        """Return the path for a window that is finished now."""
        worker = self.worker_name or f"{socket.gethostname()}_{os.getpid()}"
        return (
            _make_trace_folder(self.folder) / f"{worker}.{time.time_ns()}.pt.trace.json{'.gz' if self.use_gzip else ''}"
        )


def _make_trace_folder(folder: Path) -> Path:
    try:
        return make_folder(folder)
    except FolderNotWritableError as error:
        raise TraceFolderError(str(error)) from error


_CLOSE_TIMEOUT_S = 600.0  # maximum wait for unfinished files when the profiler is left


class BackgroundExport:
    """Write traces on a writer thread, which exists from the first export until `close`."""

    def __init__(self) -> None:
        self._writer: WriterThread | None = None
        self._errors: list[BaseException] = []

    def export(self, results: KinetoResults, path: Path, use_python_export: bool = False) -> None:
        """Write the window to ``path`` in the background."""
        if self._writer is None:
            self._writer = WriterThread("kinetoscope-torch-writer", on_error=self._add_error)
        export = partial(results.export_chrome_trace, path, use_python_export=use_python_export)
        self._writer.submit(f"export {path}", export)

    def close(self) -> None:
        """Wait until every file is complete; raise the first error, with any others as its notes."""
        writer, self._writer = self._writer, None
        if writer is not None and not writer.close(_CLOSE_TIMEOUT_S):
            self._errors.append(
                TimeoutError(f"Traces were not written within {_CLOSE_TIMEOUT_S:.0f} s; some are missing.")
            )
        errors, self._errors = self._errors, []
        if errors:
            for error in errors[1:]:
                errors[0].add_note(f"Another trace could not be written: {error!r}")
            raise errors[0]

    def _add_error(self, name: str, error: BaseException) -> None:
        self._errors.append(error)
