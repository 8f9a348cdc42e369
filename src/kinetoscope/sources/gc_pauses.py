"""Runs of Python's garbage collector, each with the line at which it started."""

import _thread
import contextlib
import gc
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from kinetoscope.core.paths.source_files import (
    find_user_line,
    format_frame,
    is_profiler_code,
    is_user_code,
    source_name,
)
from kinetoscope.recording.run.plugin_api import RunContext
from kinetoscope.recording.window.source_events import SourceEvent
from kinetoscope.sources.private_names import COMPILER_FILE, compiler
from kinetoscope.sources.window_source import WindowSource

_GCCallback = Callable[[str, dict[str, int]], None]


class GCPauses(WindowSource):
    """Record each run of Python's garbage collector as a span on the thread that it pauses.

    Its args are the ``generation``, the numbers of objects ``collected`` and ``uncollectable``, and the ``line`` of
    user code that was running. A collection starts after a fixed number of allocations, so the line is a sample of
    where objects are allocated. If that line calls a library, such as a trainer, ``library`` is the innermost function
    of that library that was running, such as ``trainer.py(340): _log``. The name of a collection that started inside
    torch's compiler ends in ``, of the compiler``.
    """

    def __init__(self) -> None:
        super().__init__()
        self._callback: _GCCallback | None = None

    def install(self, run: RunContext) -> None:
        """Register the callback with the garbage collector."""
        self._callback = _make_callback(self, run)
        gc.callbacks.append(self._callback)

    def finish(self, run: RunContext) -> None:
        """Check the private name of torch that classifies collections."""
        compiler.find()  # an import during a collection could deadlock

    def remove(self) -> None:
        """Remove the callback from the garbage collector."""
        callback, self._callback = self._callback, None
        if callback is not None:
            with contextlib.suppress(ValueError):  # the program has cleared the list
                gc.callbacks.remove(callback)


def _make_callback(source: GCPauses, run: RunContext) -> _GCCallback:
    """Return a function for `gc.callbacks`; CPython never runs two collections at a time, and prints what it raises."""
    now, emit = run.clock.monotonic_ns, run.add_event
    begin_ns, location = 0, ("", "", "")

    def record(phase: str, info: dict[str, int]) -> None:
        nonlocal begin_ns, location
        if phase == "start" and run.is_recording:
            location = _locate(sys._getframe().f_back)
            begin_ns = now()
        elif phase == "stop" and begin_ns:
            emit(_make_event(begin_ns, now(), info, location))
            begin_ns = 0

    def callback(phase: str, info: dict[str, int]) -> None:
        try:
            run.call_in_hook(source, record, phase, info)
        except KeyboardInterrupt:  # CPython drops it here: raise it again after the collection
            _thread.start_new_thread(signal.pthread_kill, (threading.get_ident(), signal.SIGINT))

    return callback


def _locate(frame: FrameType | None) -> tuple[str, str, str]:
    """Return the user's line, the library function that it calls, and the suffix for torch's compiler."""
    called: list[FrameType] = []
    suffix = ""
    while frame is not None and not is_user_code(file := frame.f_code.co_filename):
        if file.endswith(COMPILER_FILE):
            suffix = ", of the compiler"
        called.append(frame)
        frame = frame.f_back
    return find_user_line(frame), _innermost_library_line(called) if frame is not None and called else "", suffix


def _innermost_library_line(called: list[FrameType]) -> str:
    """Return the innermost frame of the library that the user calls directly; "" if there is none.

    Libraries that this one calls in turn, such as torch, show less of the operation. Kinetoscope's frames do not
    count.

    Args:
        called: The frames below the user's line, innermost first.
    """
    while called and is_profiler_code(called[-1].f_code.co_filename):
        called.pop()
    package = _find_package(called[-1]) if called else ""
    for frame in called:
        if _find_package(frame) == package:
            return format_frame(frame.f_code, frame.f_lineno)
    return ""


def _find_package(frame: FrameType) -> str:
    return source_name(frame.f_code.co_filename).partition("/")[0]


def _make_event(begin_ns: int, end_ns: int, info: dict[str, int], location: tuple[str, str, str]) -> SourceEvent:
    args: dict[str, Any] = dict(info)
    line, library, suffix = location
    if line:
        args["line"] = line
    if library:
        args["library"] = library
    name = f"gc generation {info['generation']}{suffix}"
    return SourceEvent(name, "gc", begin_ns, end_ns, threading.get_native_id(), args)
