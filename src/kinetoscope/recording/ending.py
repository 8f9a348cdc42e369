"""recording: the end of a run. Steps flow in; each is taken whatever another raises; what was raised is raised last."""

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import ParamSpec, Self, TypeVar

from kinetoscope.recording.process import give_signal_back, on_main_thread, take_signal

P = ParamSpec("P")
T = TypeVar("T")


class Ending:
    """One close of a profiler, in at most ``timeout_s`` seconds: the steps taken within ``with Ending(...) as ending``.

    Ctrl-C meanwhile ends what waits, or runs somebody's code, and from then on nothing waits any more. It never leaves
    a step half done: between waits it is held back. This needs the main thread and Python's own handler of SIGINT;
    elsewhere a KeyboardInterrupt ends the step in which it is raised. At the end of the block it is raised again, as is
    anything else that is no Exception.
    """

    def __init__(self, timeout_s: float, on_error: Callable[[str, Exception], None]) -> None:
        self._until = time.monotonic() + timeout_s
        self._on_error = on_error
        self._thread = threading.get_ident()
        self._raised: BaseException | None = None
        self._holds_back = self._may_raise = False
        self.is_hurried = False
        """Whether somebody has pressed Ctrl-C since this began."""

    def __enter__(self) -> Self:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._holds_back = on_main_thread() and take_signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._holds_back:
            give_signal_back(signal.SIGINT, self._on_signal, signal.default_int_handler)
        raised, self._raised = self._raised, None
        if raised is None and self._holds_back and self.is_hurried:
            raised = KeyboardInterrupt()
        if raised is not None:
            raise raised

    @property
    def seconds_left(self) -> float:
        """How much longer this may take."""
        return 0.0 if self.is_hurried else max(0.0, self._until - time.monotonic())

    def take(self, step: Callable[P, object], *arguments: P.args, **options: P.kwargs) -> None:
        """Takes a step. Raises nothing: an Exception is reported, anything else raised at the end."""
        try:
            step(*arguments, **options)
        except Exception as error:
            self._on_error("A step of the run's end", error)
        except BaseException as error:
            self._keep(error)

    def wait_for(self, call: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T | None:
        """What ``call`` returns, which may wait or run somebody's code; None if Ctrl-C or the like ended it.

        Raises Exceptions only. What asks for `seconds_left` has to do so within the call, where Ctrl-C ends it.
        """
        if threading.get_ident() != self._thread:
            return call(*arguments, **options)
        try:
            self._may_raise = True
            return call(*arguments, **options)
        except Exception:
            raise
        except BaseException as error:
            self._keep(error)
            return None
        finally:
            self._may_raise = False

    def _keep(self, error: BaseException) -> None:
        self.is_hurried |= isinstance(error, KeyboardInterrupt) and not self._holds_back
        if self._raised is None:
            self._raised = error

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.is_hurried = True
        if self._may_raise:
            self._may_raise = False  # only once: what is done about it must not be interrupted
            raise KeyboardInterrupt
