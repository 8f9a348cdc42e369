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

from kinetoscope.recording.contract import RunInside
from kinetoscope.recording.source_events import SourceEvent
from kinetoscope.sources.private_names import COMPILER, compiler
from kinetoscope.sources.window_source import WindowSource
from kinetoscope.training.source_files import is_of_user, line_of_user

_Watch = Callable[[str, dict[str, int]], None]


class GCPauses(WindowSource):
    """Records each run of Python's garbage collector as a span on the thread that it stops.

    Its args say which ``generation`` was looked through, how many objects were ``collected`` or are ``uncollectable``,
    and the ``line`` of your code that was running. A collection begins each time that a number of objects was made, so
    the line is a sample of where objects are made. The name of a collection that began while torch's compiler was
    running ends in ``, of the compiler``: it made these objects.
    """

    def __init__(self) -> None:
        super().__init__()
        self._watch: _Watch | None = None

    def install(self, run: RunInside) -> None:
        self._watch = _make_watch(self, run)
        gc.callbacks.append(self._watch)

    def finish(self, run: RunInside) -> None:
        compiler.find()  # here, since importing anything during a collection could deadlock

    def remove(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            with contextlib.suppress(ValueError):  # somebody has cleared the list
                gc.callbacks.remove(watch)


def _make_watch(source: GCPauses, run: RunInside) -> _Watch:
    """A function for `gc.callbacks`. Python never runs two collections at a time, and prints what is raised in it."""
    now, note = run.clock.monotonic_ns, run.note
    begin_ns, line, whose = 0, "", ""

    def look(phase: str, info: dict[str, int]) -> None:
        nonlocal begin_ns, line, whose
        if phase == "start" and run.is_recording:
            line, whose = line_of_user(sys._getframe().f_back), _whose(sys._getframe().f_back)
            begin_ns = now()
        elif phase == "stop" and begin_ns:
            note(_pause(begin_ns, now(), info, line, whose))
            begin_ns = 0

    def watch(phase: str, info: dict[str, int]) -> None:
        try:
            run.call_in_hook(source, look, phase, info)
        except KeyboardInterrupt:  # Python would drop it here, so it is raised again once the collection is over
            _thread.start_new_thread(signal.pthread_kill, (threading.get_ident(), signal.SIGINT))

    return watch


def _whose(frame: FrameType | None) -> str:
    """Who makes objects in the functions from ``frame`` outwards to the user's, if that is torch's compiler."""
    while frame is not None and not is_of_user(file := frame.f_code.co_filename):
        if file.endswith(COMPILER):
            return ", of the compiler"
        frame = frame.f_back
    return ""


def _pause(begin_ns: int, end_ns: int, info: dict[str, int], line: str, whose: str) -> SourceEvent:
    args: dict[str, Any] = dict(info)
    if line:
        args["line"] = line
    name = f"gc generation {info['generation']}{whose}"
    return SourceEvent(name, "gc", begin_ns, end_ns, threading.get_native_id(), args)
