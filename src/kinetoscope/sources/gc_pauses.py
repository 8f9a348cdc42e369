"""sources: the runs of Python's garbage collector, each with the line at which it began."""

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
    """Records each run of Python's garbage collector as a span on the thread that it stops.

    Its args say which ``generation`` was looked through, how many objects were ``collected`` or are ``uncollectable``,
    and the ``line`` of your code that was running. A collection begins each time that a number of objects was made, so
    the line is a sample of where objects are made. Where that line calls a library, such as a trainer, ``library`` is
    the innermost function of that library that was running, ``trainer.py(340): _log``. The name of a collection that
    began while torch's compiler was running ends in ``, of the compiler``: it made these objects.
    """

    def __init__(self) -> None:
        super().__init__()
        self._callback: _GCCallback | None = None

    def install(self, run: RunContext) -> None:
        self._callback = _make_callback(self, run)
        gc.callbacks.append(self._callback)

    def finish(self, run: RunContext) -> None:
        compiler.find()  # here, since importing anything during a collection could deadlock

    def remove(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            with contextlib.suppress(ValueError):  # somebody has cleared the list
                gc.callbacks.remove(callback)


def _make_callback(source: GCPauses, run: RunContext) -> _GCCallback:
    """A function for `gc.callbacks`. Python never runs two collections at a time, and prints what is raised in it."""
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
        except KeyboardInterrupt:  # Python would drop it here, so it is raised again once the collection is over
            _thread.start_new_thread(signal.pthread_kill, (threading.get_ident(), signal.SIGINT))

    return callback


def _locate(frame: FrameType | None) -> tuple[str, str, str]:
    """The user's line that ``frame`` is in, the function of a library which that line calls, and who makes objects
    there, if that is torch's compiler; "" where there is none."""
    called: list[FrameType] = []
    suffix = ""
    while frame is not None and not is_user_code(file := frame.f_code.co_filename):
        if file.endswith(COMPILER_FILE):
            suffix = ", of the compiler"
        called.append(frame)
        frame = frame.f_back
    return find_user_line(frame), _innermost_library_line(called) if frame is not None and called else "", suffix


def _innermost_library_line(called: list[FrameType]) -> str:
    """Of functions of libraries, the innermost first, the first one in the package of the last, which the user calls:
    others, such as torch's, that it calls say less about what it does. Ours do not count. "" if there are none."""
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
