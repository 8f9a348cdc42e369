"""recording: what a process has once: its active run, its signals, its exit, its environment, what it said once.

A run borrows these when it begins and gives them back when it ends. Nobody else in the room keeps state of the process,
but for the library markers in `active`, which record into the active run.
"""

import atexit
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from kinetoscope.recording.parents_run import RUN_FILE_VARIABLE
from kinetoscope.training.once_log import OnceLog

if TYPE_CHECKING:
    from kinetoscope.recording.run import Run


class Process:
    """This process. At most one run at a time is the active one."""

    def __init__(self) -> None:
        self.once = OnceLog()
        """For what is said once in a process, however many runs it has."""
        self.run: Run | None = None
        """The run that has begun and not ended."""
        self._termination: TerminationHandler | None = None
        self._run_file_before: str | None = None

    def lend_to(self, run: "Run") -> None:
        """Makes ``run`` the active one: it is saved on SIGTERM and at the exit of the interpreter."""
        self.run = run
        self._termination = TerminationHandler(run.save_on_signal)
        self._termination.install()
        atexit.register(run.save_at_exit)

    def take_back_from(self, run: "Run") -> None:
        """Undoes `lend_to`, unless another run has become the active one since. A SIGTERM that waited takes effect."""
        atexit.unregister(run.save_at_exit)
        if self.run is run and self._termination is not None:
            self.run = None
            self._termination.remove()

    def forget_parents_run(self) -> None:
        """In a forked child: the active run is the parent's."""
        self.run = None

    def tell_children(self, run_file: str) -> None:
        """Lets child processes that are started from now on find the run that they record into."""
        self._run_file_before = os.environ.get(RUN_FILE_VARIABLE)
        os.environ[RUN_FILE_VARIABLE] = run_file

    def tell_children_no_more(self) -> None:
        """Undoes `tell_children`."""
        if self._run_file_before is None:
            os.environ.pop(RUN_FILE_VARIABLE, None)
        else:
            os.environ[RUN_FILE_VARIABLE] = self._run_file_before


this_process = Process()


class TerminationHandler:
    """Saves on SIGTERM, then lets the signal do what it does. Installed only where nobody else handles it.

    ``save()`` answers False when a save is going on already: then the signal waits until `remove`.

    Python runs signal handlers on the main thread, between two instructions: a process stuck in native code (a
    collective, say) saves nothing this way.
    """

    def __init__(self, save: Callable[[], bool]) -> None:
        self._save = save
        self._installed = False
        self._pending: int | None = None
        self._pid = os.getpid()

    def install(self) -> None:
        """Installs the handler, over the default one only and on the main thread only."""
        if _is_nobodys(signal.getsignal(signal.SIGTERM)):
            self._installed = take_signal(signal.SIGTERM, self._on_signal)

    def remove(self) -> None:
        """Puts the default handler back, unless somebody has replaced ours in the meantime."""
        if self._installed and on_main_thread():
            give_signal_back(signal.SIGTERM, self._on_signal, signal.SIG_DFL)
            self._installed = False
        if self._pending is not None:
            os.kill(os.getpid(), self._pending)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del frame
        # A DataLoader worker inherits this handler by fork, and is ended with SIGTERM all the time.
        if os.getpid() == self._pid and not self._save():
            self._pending = number
            return
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def on_main_thread() -> bool:
    """Whether this is the thread on which Python runs signal handlers, and lets them be set."""
    return threading.current_thread() is threading.main_thread()


def take_signal(number: int, handler: Callable[[int, FrameType | None], None]) -> bool:
    """Has ``handler`` called at a signal from now on; False on a thread from which that cannot be done."""
    if not on_main_thread():
        return False
    signal.signal(number, handler)
    return True


def give_signal_back(number: int, handler: Callable[[int, FrameType | None], None], before: Any) -> None:
    """Puts back what handled a signal ``before`` we took it, unless somebody has replaced our ``handler`` since."""
    if signal.getsignal(number) == handler:
        signal.signal(number, before)


def _is_nobodys(handler: Any) -> bool:
    """Whether SIGTERM does what it always does: there is no handler, or ours of the process that this one was forked
    from."""
    owner = getattr(handler, "__self__", None)
    is_inherited = isinstance(owner, TerminationHandler) and owner._pid != os.getpid()
    return handler is signal.SIG_DFL or is_inherited
