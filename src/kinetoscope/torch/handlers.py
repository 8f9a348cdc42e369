"""torch: torch.profiler's ready-made handler. A profiler whose window is finished flows in, a file flows out."""

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kinetoscope.errors import FolderNotWritableError, TraceFolderError
from kinetoscope.writing.atomic_file import make_folder


def tensorboard_trace_handler(
    dir_name: str | os.PathLike[str],
    worker_name: str | None = None,
    use_gzip: bool = False,
    use_python_export: bool = False,
) -> Callable[[Any], None]:
    """An ``on_trace_ready`` that writes each window to ``{worker_name}.{nanoseconds}.pt.trace.json`` in ``dir_name``.

    ``worker_name`` is by default the host's name and the process id, of the process that writes; ``use_gzip``
    compresses and appends ``.gz``. Raises `TraceFolderError`, a RuntimeError, naming ``dir_name`` if
    that cannot be made.
    """

    def write_trace(profiler: Any) -> None:
        folder = _made(Path(os.fspath(dir_name)))
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        name = f"{worker}.{time.time_ns()}.pt.trace.json{'.gz' if use_gzip else ''}"
        profiler.export_chrome_trace(folder / name, use_python_export)

    return write_trace


def _made(folder: Path) -> Path:
    try:
        return make_folder(folder)
    except FolderNotWritableError as error:
        raise TraceFolderError(str(error)) from error
