"""State that a process has only once: the active run, signals, exit, environment variables, one-time warnings.

A run acquires this state when it starts and releases it when it ends. The recorder of library markers, in `marker`, is
the only other global state of this package.

A child process finds its run by an environment variable that it inherits. A forkserver child has the environment of the
fork server, which may have been started before the run, or in an earlier one. It finds the run file through the memory
map of the server's parent.
"""

import atexit
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Protocol

from kinetoscope.core.background.fork_resets import reset_after_fork
from kinetoscope.core.clock.proc import StatField, read_stat
from kinetoscope.core.text.once_log import OnceLog

_log = logging.getLogger("kinetoscope")

RUN_FILE_VARIABLE = "KINETOSCOPE_RUN_FILE"
"""Environment variable by which child processes find their run."""

_FORK_SERVER = "multiprocessing.forkserver"
_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
_OTHER_SIGNALS = ("SIGINT", "SIGUSR1", "SIGUSR2", "SIGALRM")
# Ours are held last and released first: the handler of another signal may end the run and remove our handlers.
_HELD_SIGNALS = [*(getattr(signal, name) for name in _OTHER_SIGNALS if hasattr(signal, name)), *_SIGNALS]
_Handler = Callable[[int, FrameType | None], Any]
_MAX_INTERRUPTIONS = 8
"""Exceptions of other signals' handlers in one save: torch's raises once for each DataLoader that lost a worker."""


class ActiveRun(Protocol):
    """The active run, as the process uses it."""

    @property
    def profiler(self) -> Any:
        """The profiler of the run."""
        ...

    def close_for_next_run(self) -> None:
        """Close, because another run starts. Raises `ProfilerStateError` if it may not be closed."""
        ...

    def save_on_signal(self) -> bool:
        """Close, because the process is being terminated. Return False if it is being closed already."""
        ...

    def save_at_exit(self) -> None:
        """Close, because the interpreter exits."""
        ...


class Process:
    """This process. At most one run at a time is the active one."""

    def __init__(self) -> None:
        self.once = OnceLog()
        """The log for warnings that are given once per process, even in several runs."""
        self.run: ActiveRun | None = None
        """The run that has started and not ended, or None."""
        self._termination: TerminationHandler | None = None

    def make_active(self, run: ActiveRun) -> None:
        """Make ``run`` the active run, which is saved on SIGTERM, on SIGHUP, and at the exit of the interpreter."""
        self.run = run
        self._termination = TerminationHandler(run.save_on_signal)
        self._termination.install()
        atexit.register(run.save_at_exit)

    def make_inactive(self, run: ActiveRun) -> None:
        """Undo `make_active`, unless another run is active by now. A deferred signal takes effect."""
        try:
            self._remove_handlers(run)
        finally:  # the handler of a signal may have raised above
            self._remove_handlers(run)

    def _remove_handlers(self, run: ActiveRun) -> None:
        atexit.unregister(run.save_at_exit)
        if self.run is run and self._termination is not None:
            self._termination.remove()
            self.run = None

    def reset_in_child(self) -> None:
        """Drop the active run in a forked child, since it is the parent's."""
        self.run = None

    def export_run_file(self, run_file: str) -> Callable[[], None]:
        """Set the variable by which new child processes find their run. Return a function that restores it."""
        before = os.environ.get(RUN_FILE_VARIABLE)
        os.environ[RUN_FILE_VARIABLE] = run_file

        def undo() -> None:
            if before is None:
                os.environ.pop(RUN_FILE_VARIABLE, None)
            else:
                os.environ[RUN_FILE_VARIABLE] = before

        return undo


this_process = Process()
reset_after_fork(this_process.reset_in_child)


class TerminationHandler:
    """Save on SIGTERM, and on SIGHUP, which arrives when the terminal is closed; then let the signal end the process.

    It is installed only where no other code handles the signal, and where it is not ignored (``nohup``). If ``save()``
    returns False, another save is in progress, and the signal is deferred until `remove`.

    Python runs signal handlers on the main thread, between two instructions. So a process that is blocked in native
    code, such as a collective, saves nothing this way.
    """

    def __init__(self, save: Callable[[], bool]) -> None:
        self._save = save
        self._installed: list[int] = []
        self._pending: int | None = None
        self._pid = os.getpid()

    def install(self) -> None:
        """Install the handler, over the default one only and on the main thread only."""
        free = [number for number in _SIGNALS if _is_unhandled(signal.getsignal(number))]
        self._installed += [number for number in free if install_signal_handler(number, self._on_signal)]

    def remove(self) -> None:
        """Restore the default handlers, unless other code has replaced ours since."""
        if is_on_main_thread():
            while self._installed:
                restore_signal(self._installed[-1], self._on_signal, signal.SIG_DFL)
                self._installed.pop()
        if self._pending is not None:
            os.kill(os.getpid(), self._pending)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del frame
        for _ in range(_MAX_INTERRUPTIONS):
            try:
                self._save_and_terminate(number)
                return
            except Exception as error:  # the next round does the rest of the save
                _log.debug("Another signal's handler raised while the run was saved: %r", error)
        self._terminate_by(number)

    def _save_and_terminate(self, number: int) -> None:
        # Forked DataLoader workers inherit this handler, and SIGTERM is the usual way to end them.
        if os.getpid() == self._pid and not self._save():
            self._pending = number
        else:
            self._terminate_by(number)

    def _terminate_by(self, number: int) -> None:
        """End the process by the default handling of a signal."""
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def is_termination_handler(handler: object) -> bool:
    """Return whether a handler of a signal is that of a `TerminationHandler`."""
    return isinstance(getattr(handler, "__self__", None), TerminationHandler)


def is_on_main_thread() -> bool:
    """Return whether this is the thread on which Python runs signal handlers and allows setting them."""
    return threading.current_thread() is threading.main_thread()


def install_signal_handler(number: int, handler: Callable[[int, FrameType | None], None]) -> bool:
    """Install ``handler`` for a signal; return whether that was possible.

    It is possible only on the main thread of the first interpreter of the process.
    """
    if not is_on_main_thread():
        return False
    try:
        signal.signal(number, handler)
    except ValueError:  # another interpreter, which has a main thread of its own
        return False
    return True


@contextlib.contextmanager
def hold_signals() -> Iterator[None]:
    """Defer Python signal handlers until the block has ended, so that they neither raise in it nor end the run there.

    Meant for a short block without waits. On other threads than the main one, where no handler runs, it does nothing.
    """
    handlers: dict[int, _Handler] = {}
    received: list[tuple[int, FrameType | None]] = []
    pid = os.getpid()

    def hold(number: int, frame: FrameType | None) -> None:
        if os.getpid() == pid:
            received.append((number, frame))
        else:  # a child that another thread has forked meanwhile: the block never ends there
            handlers[number](number, frame)

    try:
        for number in _HELD_SIGNALS if is_on_main_thread() else ():
            handler = signal.getsignal(number)
            if callable(handler):
                handlers[number] = handler
                install_signal_handler(number, hold)
        yield
    finally:
        try:
            _release_signals(handlers, hold, received)
        finally:  # the handler of a later signal may have raised above, once the first one was restored
            _release_signals(handlers, hold, received)


def _release_signals(
    handlers: dict[int, _Handler], hold: _Handler, received: list[tuple[int, FrameType | None]]
) -> None:
    """Restore the handlers, and call those of signals that came meanwhile, also if one of them raises."""
    for number, handler in reversed(handlers.items()):
        restore_signal(number, hold, handler)
    if received:
        number, frame = received.pop(0)
        try:
            handlers[number](number, frame)
        finally:
            _release_signals(handlers, hold, received)


def restore_signal(number: int, handler: Callable[[int, FrameType | None], None], before: Any) -> None:
    """Restore the handler from ``before``, unless other code has replaced our ``handler`` since."""
    if signal.getsignal(number) == handler:
        signal.signal(number, before)


def _is_unhandled(handler: object) -> bool:
    """Return whether a signal has no handler, or only the one of ours that a forked child inherited."""
    owner = getattr(handler, "__self__", None)
    is_inherited = isinstance(owner, TerminationHandler) and owner._pid != os.getpid()
    return handler is signal.SIG_DFL or is_inherited


def find_parent_run_file() -> str | None:
    """Return the run file of the parent process's run; None if there is none."""
    inherited = os.environ.get(RUN_FILE_VARIABLE)
    if _FORK_SERVER not in sys.modules or (inherited is not None and os.path.exists(inherited)):
        return inherited
    return _find_run_of_ancestors()


def _find_run_of_ancestors() -> str | None:
    """Return the run file that the parent of the fork server, or the server, has mapped; None without one."""
    server = os.getppid()
    with contextlib.suppress(OSError, ValueError):
        return _find_mapped_run_file(int(read_stat(server)[StatField.PARENT])) or _find_mapped_run_file(server)
    return None


def _find_mapped_run_file(pid: int) -> str | None:
    """Return the run file that a process has mapped; its name begins with the process's pid."""
    with open(f"/proc/{pid}/maps", "rb") as maps:
        for line in maps:
            path = os.fsdecode(b"/" + line.rstrip(b"\n").partition(b"/")[2])
            name = os.path.basename(path)
            if name.startswith(f"{pid}-") and name.endswith(".run"):
                return path if os.path.exists(path) else path.replace("\\012", "\n")  # the one escape there is, proc(5)
    return None
