"""Background process that runs one command at a time at low priority."""

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
    """One command at a time in a process of low priority, which ends when its parent detaches or dies.

    ``on_end(status, errors)`` is called after each command, with its exit status and stderr.

    The command runs in a new session, so that a signal to the training's process group does not end it. Its stdin is a
    pipe to which nothing is written: when the parent closes it, the process is detached (`is_detached`).
    """

    def __init__(self, on_end: Callable[[int, str], None], *, keeps_output: bool = False) -> None:
        self._on_end = on_end
        self._stdout = subprocess.PIPE if keeps_output else subprocess.DEVNULL
        self.output = ""
        """The output of the last command, if ``keeps_output``."""
        self._process: subprocess.Popen[bytes] | None = None
        self._stdin_fd: int | None = None

    def start(self, command: Sequence[str]) -> None:
        """Start ``command`` and return at once; raise OSError if it cannot be started."""
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
        """Wait until the monotonic second ``until``; return whether the process has ended."""
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
        """Close the pipe to a running process, to which this shows that no caller waits for it."""
        if self._stdin_fd is not None:
            os.close(self._stdin_fd)
            self._stdin_fd = None

    def kill(self) -> None:
        """Kill a running process; a signal handler may call this during `wait`."""
        if self._process is not None:
            self._process.kill()

    def kill_and_wait(self) -> None:
        """Kill a running process and wait up to a second for its end, without calling ``on_end``.

        The output printed until then is in ``output``.
        """
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
        """True while a command runs."""
        return not self.wait(monotonic())

    @property
    def pid(self) -> int:
        """The pid of the running process; 0 if there is none."""
        return self._process.pid if self._process else 0


def _environment() -> dict[str, str]:
    """Return an environment in which Python imports from the same folders as this process.

    The working folder may have changed since this process started, or be gone, and its files may be a stranger's.
    """
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    imports_from = os.pathsep.join(dict.fromkeys(filter(os.path.isabs, [*inherited, *sys.path])))
    return {**os.environ, "PYTHONPATH": imports_from, "PYTHONSAFEPATH": "1"}


def lower_priority() -> None:
    """Lower this process's priority below that of training, if the system allows it."""
    if hasattr(os, "nice"):
        os.nice(_NICENESS)


def exit_when_detached() -> None:
    """Start a thread that ends this background process as soon as no caller waits for it."""
    threading.Thread(target=_exit_when_detached, daemon=True).start()


def _exit_when_detached() -> None:
    wait_until_detached()
    os._exit(1)


def wait_until_detached() -> None:
    """Wait until no caller waits for this background process."""
    os.read(sys.stdin.fileno(), 1)  # returns when the pipe's other end is closed


def is_detached() -> bool:
    """Return whether this is a background process whose parent has detached or exited."""
    poll = select.poll()
    poll.register(sys.stdin.fileno(), 0)  # the closing of a pipe's other end is always reported
    return any(event & select.POLLHUP for _, event in poll.poll(0))
