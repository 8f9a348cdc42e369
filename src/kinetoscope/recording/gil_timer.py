"""faulthandler's timer, which writes the stacks of all threads also where the GIL is held. A process has one."""

import faulthandler
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kinetoscope.pulse.own_pulse import OwnPulse
from kinetoscope.pulse.stuck_phases import STACKS_SUFFIX
from kinetoscope.recording.replaced_method import ReplacedMethod


class TimerUse:
    """Whether other code uses faulthandler's timer, of which a process has one.

    The timer is a thread, for whose end Python waits when it ends: in the child of a fork, which does not have it, for
    ever. So ours is ended before each fork, and set anew after it in the parent.
    """

    def __init__(self) -> None:
        self.is_others = False
        self._set_to: tuple[float, int] | None = None
        self._lock = threading.RLock()
        self._caller = 0
        self._replaced: list[ReplacedMethod] = []

    def watch(self) -> None:
        """Notes uses from now on."""
        if not self._replaced:
            names = ("dump_traceback_later", "cancel_dump_traceback_later")
            self._replaced = [ReplacedMethod(faulthandler, name, self._use) for name in names]

    def _use(self, original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        self.is_others = self.is_others or self._caller != threading.get_ident()
        return original(*arguments, **options)

    def set(self, seconds: float, file: int) -> None:
        """Sets the timer, unless it is others'."""
        with self._lock:
            self._set_to = seconds, file
            self._as_ours(faulthandler.dump_traceback_later, seconds, file=file)

    def cancel(self) -> None:
        """Ends it, unless it is others'."""
        with self._lock:
            self._set_to = None
            self._as_ours(faulthandler.cancel_dump_traceback_later)

    def before_fork(self) -> None:
        """Ends it until `after_fork`. Other threads do not set it meanwhile."""
        self._lock.acquire()
        if self._set_to is not None:
            self._as_ours(faulthandler.cancel_dump_traceback_later)

    def after_fork(self) -> None:
        """In the parent: sets it anew."""
        if self._set_to is not None:
            self._as_ours(faulthandler.dump_traceback_later, self._set_to[0], file=self._set_to[1])
        self._lock.release()

    def forget_parent(self) -> None:
        """In the child, which has no timer."""
        self._set_to, self._lock = None, threading.RLock()

    def _as_ours(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        if self.is_others:
            return
        self._caller = threading.get_ident()
        try:
            call(*arguments, **options)
        finally:
            self._caller = 0

    def forget(self) -> None:
        """Notes no more."""
        while self._replaced:
            self._replaced.pop().restore()


timer_use = TimerUse()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=timer_use.before_fork, after_in_parent=timer_use.after_fork, after_in_child=timer_use.forget_parent
    )


class GilTimer:
    """Has faulthandler write all stacks beside the pulse if the GIL was held for ``seconds``, as it is set anew more
    often."""

    def __init__(self, pulse: OwnPulse, seconds: float) -> None:
        self._pulse, self._seconds = pulse, seconds
        self._file: int | None = None

    def begin(self) -> None:
        timer_use.watch()
        with suppress(OSError):
            self._file = self._pulse.open_beside(STACKS_SUFFIX)

    def rearm(self) -> None:
        if self._file is not None:
            timer_use.set(self._seconds, self._file)

    def end(self) -> None:
        """Ends it; a file in which nothing was written is deleted."""
        file, self._file = self._file, None
        if file is None:
            return
        timer_use.cancel()
        is_empty = os.fstat(file).st_size == 0
        os.close(file)
        if is_empty:
            with suppress(OSError):
                self._pulse.delete_beside(STACKS_SUFFIX)
        timer_use.forget()
