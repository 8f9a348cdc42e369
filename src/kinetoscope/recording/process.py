"""recording: what a process has once: its active run, its signals, its exit, its environment, what it said once.

A run borrows these when it begins and gives them back when it ends. Nobody else in the room keeps state of the process,
but for the library markers in `active`, which record into the active run.

A child process finds the run it belongs to by an environment variable that it inherits. But a fork server was started
once, perhaps before the run, and its children have its environment: they look for the run file that their real parent,
the server's, has mapped.
"""

import atexit
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from kinetoscope.training.once_log import OnceLog

RUN_FILE_VARIABLE = "KINETOSCOPE_RUN_FILE"
"""The environment variable by which child processes find the run they belong to."""

_FORK_SERVER = "multiprocessing.forkserver"


class ActiveRun(Protocol):
    """What is asked of the run that borrows the process."""

    @property
    def profiler(self) -> Any: ...
    def give_way(self) -> None:
        """Ends, since another run begins. Raises `ProfilerStateError` if it may not be ended."""
        ...

    def save_on_signal(self) -> bool:
        """Ends, since the process is about to be ended; False if it is ending already."""
        ...

    def save_at_exit(self) -> None:
        """Ends, since the interpreter exits."""
        ...


class Process:
    """This process. At most one run at a time is the active one."""

    def __init__(self) -> None:
        self.once = OnceLog()
        """For what is said once in a process, however many runs it has."""
        self.run: ActiveRun | None = None
        """The run that has begun and not ended."""
        self._termination: TerminationHandler | None = None

    def lend_to(self, run: ActiveRun) -> None:
        """Makes ``run`` the active one: it is saved on SIGTERM and at the exit of the interpreter."""
        self.run = run
        self._termination = TerminationHandler(run.save_on_signal)
        self._termination.install()
        atexit.register(run.save_at_exit)

    def take_back_from(self, run: ActiveRun) -> None:
        """Undoes `lend_to`, unless another run has become the active one since. A SIGTERM that waited takes effect."""
        atexit.unregister(run.save_at_exit)
        if self.run is run and self._termination is not None:
            self.run = None
            self._termination.remove()

    def forget_parents_run(self) -> None:
        """In a forked child: the active run is the parent's."""
        self.run = None

    def tell_children(self, run_file: str) -> Callable[[], None]:
        """Lets child processes that are started from now on find the run that they record into; returns what undoes
        that."""
        before = os.environ.get(RUN_FILE_VARIABLE)
        os.environ[RUN_FILE_VARIABLE] = run_file

        def undo() -> None:
            if before is None:
                os.environ.pop(RUN_FILE_VARIABLE, None)
            else:
                os.environ[RUN_FILE_VARIABLE] = before

        return undo


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


def _is_nobodys(handler: object) -> bool:
    """Whether SIGTERM does what it always does: there is no handler, or ours of the process that this one was forked
    from."""
    owner = getattr(handler, "__self__", None)
    is_inherited = isinstance(owner, TerminationHandler) and owner._pid != os.getpid()
    return handler is signal.SIG_DFL or is_inherited


def find_parents_run() -> str | None:
    """The run file of the run that this process is a child of; None if it is of none."""
    told = os.environ.get(RUN_FILE_VARIABLE)
    return told if told is not None or _FORK_SERVER not in sys.modules else _find_among_ancestors()


def _find_among_ancestors() -> str | None:
    server = os.getppid()
    with contextlib.suppress(OSError, ValueError):
        return _mapped_run_file(_parent_of(server)) or _mapped_run_file(server)
    return None


def _parent_of(pid: int) -> int:
    """Field 4 of /proc/pid/stat (proc(5)); the name before it, in parentheses, may hold anything."""
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1])


def _mapped_run_file(pid: int) -> str | None:
    """The control file that a process has mapped, whose name begins with the process's number."""
    with open(f"/proc/{pid}/maps", "rb") as maps:
        for line in maps:
            path = os.fsdecode(b"/" + line.rstrip(b"\n").partition(b"/")[2])
            name = os.path.basename(path)
            if name.startswith(f"{pid}-") and name.endswith(".run"):
                return path if os.path.exists(path) else path.replace("\\012", "\n")  # the one escape there is, proc(5)
    return None
