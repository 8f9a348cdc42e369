"""Ownership of source code, and names of its files in traces, without homes and user names."""

import os
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType

from kinetoscope.core.paths.short_paths import is_in_library, is_shared_folder, shorten_paths

_PACKAGE_FOLDER = str(Path(__file__).absolute().parents[2]) + os.sep
_INTERACTIVE = ("<stdin>", "<ipython-input")


@lru_cache(maxsize=4096)
def is_user_code(file: str) -> bool:
    """Return whether the code of ``file`` is the user's: not a library's, Python's or the profiler's."""
    if file.startswith("<"):
        return file.startswith(_INTERACTIVE)
    return not (is_profiler_code(file) or is_in_library(file))


def is_profiler_code(file: str) -> bool:
    """Return whether the code of ``file`` is this profiler's."""
    return file.startswith(_PACKAGE_FOLDER)


@lru_cache(maxsize=4096)
def source_name(file: str) -> str:
    """Return the path of ``file`` below its import folder (``model/layers.py``), as Kineto names it."""
    folders = [folder for folder in sys.path if folder and file.startswith(f"{folder.rstrip('/')}/")]
    return shorten_paths(file, max((folder for folder in folders if not is_shared_folder(folder)), key=len, default=""))


def format_frame(code: CodeType, line: int | None) -> str:
    """Return a frame at a line in Kineto's form: ``train.py(41): loss``."""
    return f"{source_name(code.co_filename)}({line or code.co_firstlineno}): {code.co_name}"


def skip_profiler_frames(frame: FrameType | None, max_frames: int) -> Iterator[FrameType]:
    """Yield ``frame`` and its callers without the profiler's, at most ``max_frames``, innermost first."""
    while frame is not None and max_frames > 0:
        if not is_profiler_code(frame.f_code.co_filename):
            yield frame
            max_frames -= 1
        frame = frame.f_back


def find_user_line(frame: FrameType | None) -> str:
    """Return ``file:line`` of the innermost user function from ``frame`` outwards; "" if there is none."""
    while frame is not None:
        file = frame.f_code.co_filename
        if is_user_code(file):
            return f"{source_name(file)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
