"""Report of a command that recorded nothing, by its own process, without importing torch."""

import contextlib
import os
import sys
from pathlib import Path

from kinetoscope.autoinstrument.settings import AutoSettings, read_settings
from kinetoscope.autoinstrument.training_detector import WITHOUT_TORCH
from kinetoscope.core.job.ranks import detect_ranks
from kinetoscope.core.paths.later_run import find_latest_rerun
from kinetoscope.core.paths.run_folder import RunFolder
from kinetoscope.errors import UnsafePathError
from kinetoscope.formats.manifest import START_FILE, UNSEEN_FILE
from kinetoscope.pulse.layout import FOLDER
from kinetoscope.recording.messages.standard_error import write_line


def report_without_torch() -> None:
    """Report the exit of a process that has not imported torch, if it is the command's own process."""
    settings = read_settings()
    if os.getpid() == settings.pid:
        report_unrecorded(settings, WITHOUT_TORCH)


def report_unrecorded(settings: AutoSettings, reason: str) -> None:
    """Print a reason, and keep it for ``summary``, unless a process of the command has recorded or reported one."""
    out = Path(settings.out)
    if detect_ranks().rank != 0 or "{time}" in settings.out or _has_reported(out):
        return
    print_line(reason)
    with contextlib.suppress(OSError, UnsafePathError):
        RunFolder(out).write(UNSEEN_FILE, reason.encode())


def _has_reported(out: Path) -> bool:
    """Return whether a process of this command has recorded, or reported why not.

    The folder may have an earlier run.
    """
    marks = [out / FOLDER, out / UNSEEN_FILE]
    if (later := find_latest_rerun(out)) is not None:
        marks.append(later / FOLDER)
    started_ns = _changed_ns(out / START_FILE)
    return any(started_ns <= _changed_ns(sign) for sign in marks)


def _changed_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return -1


def print_line(line: str) -> None:
    """Print a line of `kinetoscope run` to stderr, if that is writable."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # stderr is full, closed or None
        write_line(sys.stderr, f"kinetoscope run: {line}")
