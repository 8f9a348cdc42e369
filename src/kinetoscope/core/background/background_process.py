"""Runs one command at a time in a process beside training."""

import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic

_NICENESS = 10
_KILL_WAIT_S = 1.0


class BackgroundProcess:
    """Runs one command at a time. After each, ``on_end(status, errors)`` is called with its exit status and stderr.

    The command runs in a new session, so that a signal to the training's process group does not end it. Its stdin is a
    pipe to which nothing is written: when the pipe is closed, nobody waits for the process any more (`is_detached`).
    """

    def __init__(self, on_end: Callable[[int, str], None], *, keeps_output: bool = False) -> None:
        self._on_end = on_end
        self._stdout = subprocess.PIPE if keeps_output else subprocess.DEVNULL
        self.output = ""
        """What the last command has printed, if ``keeps_output``."""
        self._process: subprocess.Popen[bytes] | None = None
        self._stdin_fd: int | None = None

    def start(self, command: Sequence[str]) -> None:
        """Starts ``command`` and returns. Raises OSError if it cannot be started."""
        stdin, self._stdin_fd = os.pipe()
        try:
            self._process = subprocess.Popen(
                command,
                stdin=stdin,
                stdout=self._stdout,
                stderr=subprocess.PIPE,
                start_new_session=True,
                env=_environment(),
            )
        except OSError:
            self.detach()
            raise
        finally:
            os.close(stdin)

    def wait(self, until: float) -> bool:
        """Waits until the monotonic second ``until``; returns whether no process runs any more."""
        if self._process is None:
            return True
        try:
            output, errors = self._process.communicate(timeout=max(0.0, until - monotonic()))
        except subprocess.TimeoutExpired:
            return False
        status, self._process = self._process.returncode, None
        self.detach()
        self.output = (output or b"").decode(errors="replace")
        self._on_end(status, errors.decode(errors="replace").strip())
        return True

    def detach(self) -> None:
        """Tells the process, if one runs, that nobody waits for it any more."""
        if self._stdin_fd is not None:
            os.close(self._stdin_fd)
            self._stdin_fd = None

    def kill(self) -> None:
        """Kills the process, if one runs. A signal handler may call this during `wait`."""
        if self._process is not None:
            self._process.kill()

    def kill_and_wait(self) -> None:
        """Kills the process, if one runs, and waits for its end, a second at most. ``on_end`` is not called. What it
        has printed until then is in ``output``."""
        self.kill()
        process, self._process = self._process, None
        self.detach()
        if process is None:
            return
        with suppress(subprocess.TimeoutExpired):  # while a file system does not answer, it cannot be killed
            output, _ = process.communicate(timeout=_KILL_WAIT_S)
            self.output = (output or b"").decode(errors="replace")
        process.poll()  # or it stays a zombie, where another process that it has started has its pipes
        for stream in filter(None, (process.stdout, process.stderr)):
            stream.close()

    @property
    def is_running(self) -> bool:
        return not self.wait(monotonic())

    @property
    def pid(self) -> int:
        """The number of the process that runs; 0 if none does."""
        return self._process.pid if self._process else 0


def _environment() -> dict[str, str]:
    """The environment in which a Python imports from where this one does, and from where it is told to by now.

    The working folder may have changed since this one started, or be gone, and what lies in it is a stranger's.
    """
    told = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    imports_from = os.pathsep.join(dict.fromkeys(filter(os.path.isabs, [*told, *sys.path])))
    return {**os.environ, "PYTHONPATH": imports_from, "PYTHONSAFEPATH": "1"}


def lower_priority() -> None:
    """Lowers this process's priority, in favour of training, if the system can do that."""
    if hasattr(os, "nice"):
        os.nice(_NICENESS)


def exit_when_detached() -> None:
    """From now on, this side process ends as soon as nobody waits for it any more."""
    threading.Thread(target=_exit_when_detached, daemon=True).start()


def _exit_when_detached() -> None:
    os.read(sys.stdin.fileno(), 1)  # returns when the pipe's other end is closed
    os._exit(1)


def is_detached() -> bool:
    """Whether this is a side process for which nobody waits any more, or whose parent has exited."""
    poll = select.poll()
    poll.register(sys.stdin.fileno(), 0)  # the closing of a pipe's other end is always reported
    return any(event & select.POLLHUP for _, event in poll.poll(0))
